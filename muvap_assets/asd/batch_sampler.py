"""Which items make which batch: similar lengths together, about a budget of frames, the same work for every rank.

    items by length   |40 40 41 41 41 41 42 42 ...|      longest first, equal lengths in drawn order
    batches           |-- 16 --|-- 16 --|- 9 -|-8-|      frames of a batch near the budget, between min and max items
    steps             |rank 0 rank 1|rank 1 rank 0|      neighbours in length work at the same time, steps in drawn order

Composition and order are a pure function of (lengths, seed, epoch, rank, world): every process plans the same, a restart plans
the same, and the place within an epoch is one number.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.batches import Fit
from muvap_assets.asd.draws import Stream, draws
from muvap_assets.errors import ConfigError

Integers: TypeAlias = npt.NDArray[np.int64]
Lengths: TypeAlias = "npt.ArrayLike | Callable[[int], npt.ArrayLike]"


class EpochBatch(list[int]):
    """The items of one batch, and the ``epoch`` whose chunks they number: where jitter moves them, a worker must know."""

    def __init__(self, items: list[int], epoch: int) -> None:
        super().__init__(items)
        self.epoch = epoch

    def __reduce__(self) -> tuple[Any, ...]:
        return (EpochBatch, (list(self), self.epoch))


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """What becomes of an epoch's frames, over all ranks.

    ``share`` is of all frames those that stay when batches are cropped, or of all frames of padded batches those that are real.
    """

    share: float
    items: int
    frames: int
    batches: int
    mean_batch_frames: float


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batches of one epoch over all ranks.

    Batch ``b`` is the items ``items[edges[b] : edges[b + 1]]``; ``steps`` int64 [steps, world] says which batch a rank
    works on in a step.
    """

    lengths: Integers
    items: Integers
    edges: Integers
    steps: Integers

    def batch(self, number: int) -> list[int]:
        """The items of a batch."""
        items: list[int] = self.items[self.edges[number] : self.edges[number + 1]].tolist()
        return items


class FrameBudgetBatchSampler:
    """Batches of items whose lengths are alike, for torch's DataLoader (``batch_sampler=``) or a ``PrefetchLoader``.

    Every item is in exactly one batch of an epoch. A batch has as many items as fit ``frame_budget`` by its longest, but at
    least ``min_batch`` and at most ``max_batch``. Ranks get equally many batches: nothing is dropped or repeated, the largest
    batches are halved. Only these, and the last where there are too few items for two, may be smaller than ``min_batch``.
    """

    def __init__(
        self,
        lengths: Lengths,
        *,
        frame_budget: int = 2048,
        min_batch: int = 4,
        max_batch: int = 16,
        seed: int = 0,
        rank: int = 0,
        world: int = 1,
        shuffle: bool = True,
    ) -> None:
        """Plan batches; call :meth:`set_epoch` before each epoch.

        Args:
            lengths: frames of each item, [items]; or a function of the epoch that gives them, as ``dataset.lengths``.
            frame_budget: about how many frames a batch holds, padding included.
            min_batch: the fewest items of a batch.
            max_batch: the most.
            seed: of composition and order.
            rank: which of the ``world`` processes this is.
            world: how many processes share an epoch.
            shuffle: ``False`` for the same batches in the same order every epoch, longest first.

        Raises:
            ConfigError: an argument is out of range, or there are fewer items than ranks.
        """
        if not 1 <= min_batch <= max_batch or frame_budget < 1:
            found = f"frame_budget {frame_budget}, min_batch {min_batch}, max_batch {max_batch}"
            raise ConfigError(f"{found}; required: a positive budget and 1 <= min_batch <= max_batch. Correct them.")
        if not 0 <= rank < world:
            raise ConfigError(
                f"rank {rank} of world {world}; required: 0 <= rank < world. Give this process' own rank."
            )
        self._lengths = lengths
        self._budget, self._min, self._max = frame_budget, min_batch, max_batch
        self._seed, self._rank, self._world, self._shuffle = seed, rank, world, shuffle
        self._epoch = self._resume_at = self._position = 0
        self._planned: tuple[int, BatchPlan] | None = None

    @classmethod
    def for_evaluation(cls, lengths: Lengths, *, rank: int = 0, world: int = 1) -> FrameBudgetBatchSampler:
        """Whole tracks in a fixed order, a budget of 8192 frames and at most 64 items; for a dataset that pads."""
        return cls(lengths, frame_budget=8192, min_batch=1, max_batch=64, rank=rank, world=world, shuffle=False)

    @property
    def epoch(self) -> int:
        """The epoch that is planned."""
        return self._epoch

    @property
    def resumes_at(self) -> int:
        """The step at which the next iteration begins: 0, or the place of a state that was loaded."""
        return self._resume_at

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch. The one a state was loaded of keeps its place; any other begins at its first batch."""
        if epoch != self._epoch:
            self._epoch, self._resume_at, self._position = epoch, 0, 0

    def __len__(self) -> int:
        """Steps of the whole epoch; every rank has as many."""
        return len(self.plan().steps)

    def __iter__(self) -> Iterator[EpochBatch]:
        """This rank's batches, from where a loaded state left off and else from the first."""
        plan, epoch = self.plan(), self._epoch
        self._position, self._resume_at = self._resume_at, 0
        for number in plan.steps[self._position :, self._rank].tolist():
            self._position += 1
            yield EpochBatch(plan.batch(number), epoch)

    def plan(self) -> BatchPlan:
        """All batches of the epoch, of all ranks.

        Raises:
            ConfigError: a length is not positive, or there are fewer items than ranks.
        """
        if self._planned is None or self._planned[0] != self._epoch:
            lengths = self._lengths(self._epoch) if callable(self._lengths) else self._lengths
            self._planned = (self._epoch, self._make_plan(np.asarray(lengths, np.int64)))
        return self._planned[1]

    def utilisation(self, fit: Fit | str = Fit.CROP) -> Utilisation:
        """What becomes of the epoch's frames when batches are cropped, or padded."""
        plan = self.plan()
        sorted_lengths, sizes = plan.lengths[plan.items], np.diff(plan.edges)
        frames = int(sorted_lengths.sum())
        longest = int((np.maximum.reduceat(sorted_lengths, plan.edges[:-1]) * sizes).sum())
        shortest = int((np.minimum.reduceat(sorted_lengths, plan.edges[:-1]) * sizes).sum())
        crop = Fit(fit) is Fit.CROP
        return Utilisation(
            share=shortest / frames if crop else frames / longest,
            items=len(plan.items),
            frames=frames,
            batches=len(sizes),
            mean_batch_frames=(shortest if crop else longest) / len(sizes),
        )

    # --- resuming -------------------------------------------------------------------------------------------------------

    def state_dict(self, consumed: int | None = None) -> dict[str, int]:
        """Where the epoch stands; the same on every rank, for all of them to load.

        Args:
            consumed: batches of the epoch that were trained on, those before a resume included. Needed where a loader reads
                ahead, since it has taken more batches than it gave; those handed out where not given.
        """
        position = self._position if consumed is None else consumed
        return {"epoch": self._epoch, "position": position, "plan": self._fingerprint()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on with the next batch after those a state counts.

        Raises:
            ConfigError: the state is of other lengths, another seed, budget or world, so its place means nothing here.
        """
        self._epoch = int(state["epoch"])
        self._resume_at = self._position = int(state["position"])
        if state["plan"] != self._fingerprint() or not 0 <= self._resume_at <= len(self):
            raise ConfigError(
                f"sampler state {dict(state)}: of another plan; required: the lengths, seed, budget and world it was saved "
                "with. Resume with the same settings, or begin the epoch again."
            )

    def _fingerprint(self) -> int:
        plan = self.plan()
        return zlib.crc32(plan.steps.tobytes(), zlib.crc32(plan.edges.tobytes(), zlib.crc32(plan.items.tobytes())))

    # --- planning -------------------------------------------------------------------------------------------------------

    def _make_plan(self, lengths: Integers) -> BatchPlan:
        if lengths.ndim != 1 or len(lengths) < self._world or int(lengths.min()) < 1:
            found = f"lengths {list(lengths.shape)}, least {lengths.min() if lengths.size else 'none'}"
            raise ConfigError(
                f"{found}; required: one positive length an item, {self._world} or more items. Check the packs."
            )
        items = np.lexsort((self._draws(len(lengths), Stream.ITEM_ORDER), -lengths))
        edges = _equal_steps(self._cut(lengths[items]), self._world)
        return BatchPlan(lengths, items, edges, self._order(len(edges) - 1))

    def _draws(self, count: int, stream: Stream) -> npt.NDArray[np.uint64]:
        if not self._shuffle:
            return np.arange(count, dtype=np.uint64) if stream is Stream.ITEM_ORDER else np.zeros(count, np.uint64)
        return draws(count, seed=self._seed, epoch=self._epoch, stream=stream)

    def _cut(self, longest_first: Integers) -> list[int]:
        """Edges of batches over lengths sorted from the longest on.

        A batch ends early, yet not under half its size, where that keeps it to one length: a little less work a step for
        nothing cropped and nothing padded. Shuffled, it is up to an eighth smaller than the budget allows, as drawn.
        """
        ends = np.append(np.flatnonzero(np.diff(longest_first)) + 1, len(longest_first))
        run_stop = np.repeat(ends, np.diff(ends, prepend=0)).tolist()
        lengths, edges, at = longest_first.tolist(), [0], 0
        # Where few lengths are equal this makes the batches of one epoch others than those of the next.
        allowed = (1 - self._draws(len(lengths) // self._min + 1, Stream.BATCH_SIZE) / 2**67).tolist()
        while at < len(lengths):
            share = min(self._budget / lengths[at], self._max) * allowed[len(edges) - 1]
            size = max(int(share), self._min)
            stop = min(at + size, len(lengths))
            uniform = run_stop[at]
            if max(self._min, size // 2) <= uniform - at < stop - at:
                stop = uniform
            edges.append(stop)
            at = stop
        return self._without_remainder(edges)

    def _without_remainder(self, edges: list[int]) -> list[int]:
        """The last batch joined with the one before where it is too small, or evened out where both are too many."""
        if len(edges) < 3 or edges[-1] - edges[-2] >= self._min:
            return edges
        both = edges[-1] - edges[-3]
        return [*edges[:-2], edges[-1]] if both <= self._max else [*edges[:-2], edges[-3] + (both + 1) // 2, edges[-1]]

    def _order(self, batches: int) -> Integers:
        steps = np.arange(batches, dtype=np.int64).reshape(-1, self._world)
        if not self._shuffle:
            return steps
        within = self._draws(batches, Stream.RANK_ORDER).reshape(steps.shape)
        steps = np.take_along_axis(steps, np.argsort(within, axis=1, kind="stable"), axis=1)
        return steps[np.argsort(self._draws(len(steps), Stream.STEP_ORDER), kind="stable")]


def _equal_steps(edges: list[int], world: int) -> Integers:
    """Edges with a multiple of ``world`` batches: the largest are halved; where all have one item, neighbours join."""
    sizes = np.diff(np.array(edges, np.int64))
    missing = -len(sizes) % world
    while missing:
        halved = np.argsort(-sizes, kind="stable")[:missing]
        halved = halved[sizes[halved] > 1]
        if not len(halved):
            surplus = len(sizes) % world
            sizes = np.concatenate([sizes[: 2 * surplus].reshape(-1, 2).sum(axis=1), sizes[2 * surplus :]])
            break
        halves = [[size - size // 2, size // 2] if at in halved else [size] for at, size in enumerate(sizes.tolist())]
        sizes = np.array([size for pair in halves for size in pair], np.int64)
        missing = -len(sizes) % world
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
