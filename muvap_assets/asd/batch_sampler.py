"""Which items make which batch: similar lengths together, about a budget of frames, the same work for every rank.

    items by length   |40 40 41 41 41 41 42 42 ...|      longest first, equal lengths in drawn order
    batches           |-- 16 --|-- 16 --|- 9 -|-8-|      frames of a batch near the budget, between min and max items
    steps             |rank 0 rank 1|rank 1 rank 0|      neighbours in length work at the same time, steps in drawn order

The order of the items and the batches along it are a function of (data, settings, seed, epoch) alone. The batches that are left
are dealt to the ranks, so that an epoch goes on with any number of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.batches import Fit
from muvap_assets.draws import Stream, draws
from muvap_assets.errors import ConfigError
from muvap_assets.resuming import ResumableBatchSampler, wrong_consumption

Integers: TypeAlias = npt.NDArray[np.int64]


@runtime_checkable
class Chunked(Protocol):
    """What is cut into items: a ``PackedASDDataset``."""

    def lengths(self, epoch: int = 0) -> Integers:
        """Frames of every item of an epoch: int64 [items]."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """What the items are made of, as plain JSON."""
        ...


class EpochBatch(list[int]):
    """The items of one batch, and the ``epoch`` whose chunks they number: where jitter moves them, a worker must know.

    ``None`` where the sampler was given the lengths themselves, which are then those of every epoch.
    """

    def __init__(self, items: list[int], epoch: int | None) -> None:
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
    """The batches of one epoch, whatever the world: batch ``b`` is the items ``items[edges[b] : edges[b + 1]]``.

    ``lengths`` int64 [items] are by item, ``items`` int64 [items] from the longest to the shortest.
    """

    lengths: Integers
    items: Integers
    edges: Integers

    def batch(self, number: int) -> Integers:
        """The items of a batch."""
        return self.items[self.edges[number] : self.edges[number + 1]]


class FrameBudgetBatchSampler(ResumableBatchSampler[EpochBatch]):
    """Batches of items whose lengths are alike, for torch's DataLoader (``batch_sampler=``) or a ``PrefetchLoader``.

    Every item is in exactly one batch of an epoch. A batch has as many items as fit ``frame_budget`` by its longest, but at
    least ``min_batch`` and at most ``max_batch``; only the last may be smaller, where there are too few items for two. Ranks get
    equally many batches: where those of an epoch do not divide by them, one step, that of the shortest items, deals its items
    evenly, in smaller batches or in ones of an item more.
    """

    def __init__(
        self,
        dataset: Chunked | npt.ArrayLike,
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
            dataset: whose items; or frames of each item, [items], for a dataset whose items are the same in every epoch.
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
        super().__init__(rank)
        if callable(dataset):
            raise ConfigError(
                f"dataset: a function ({getattr(dataset, '__qualname__', dataset)}); required: the dataset, or the frames of each "
                "item. Give FrameBudgetBatchSampler(dataset)."
            )
        if not 1 <= min_batch <= max_batch or frame_budget < 1:
            found = f"frame_budget {frame_budget}, min_batch {min_batch}, max_batch {max_batch}"
            raise ConfigError(f"{found}; required: a positive budget and 1 <= min_batch <= max_batch. Correct them.")
        if not 0 <= rank < world:
            raise ConfigError(
                f"rank {rank} of world {world}; required: 0 <= rank < world. Give this process' own rank."
            )
        self._dataset = dataset if isinstance(dataset, Chunked) else None
        self._lengths = None if isinstance(dataset, Chunked) else np.array(dataset, np.int64)
        # Python's own, since a state is JSON.
        self._budget, self._min, self._max, self._seed = map(int, (frame_budget, min_batch, max_batch, seed))
        self._world, self._shuffle = world, bool(shuffle)
        self._planned_epoch: tuple[int, BatchPlan] | None = None

    @classmethod
    def for_evaluation(
        cls, dataset: Chunked | npt.ArrayLike, *, rank: int = 0, world: int = 1
    ) -> FrameBudgetBatchSampler:
        """Whole tracks in a fixed order, a budget of 8192 frames and at most 64 items; for a dataset that pads."""
        return cls(dataset, frame_budget=8192, min_batch=1, max_batch=64, rank=rank, world=world, shuffle=False)

    @property
    def knows_epochs(self) -> bool:
        """Whether the items of each epoch are planned, and not only those of given lengths."""
        return self._dataset is not None

    def fingerprint(self) -> dict[str, Any]:
        """The data with its windows, or the digest of given lengths; seed, budget and sizes of batches."""
        return {
            "data": self._data_fingerprint(),
            "seed": self._seed,
            "frame_budget": self._budget,
            "min_batch": self._min,
            "max_batch": self._max,
            "shuffle": self._shuffle,
        }

    def plan(self) -> BatchPlan:
        """The batches of the epoch.

        Raises:
            ConfigError: a length is not positive, or there are fewer items than ranks.
        """
        return self._plan_of(self._epoch)

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

    # --- planning -------------------------------------------------------------------------------------------------------

    def _data_fingerprint(self) -> dict[str, Any]:
        if self._dataset is not None:
            return self._dataset.fingerprint()
        return {"lengths": hashlib.sha256(np.asarray(self._lengths, "<i8").tobytes()).hexdigest()[:16]}

    def _plan_of(self, epoch: int) -> BatchPlan:
        if self._planned_epoch is None or self._planned_epoch[0] != epoch:
            lengths = self._lengths if self._dataset is None else self._dataset.lengths(epoch)
            self._planned_epoch = (epoch, self._make_plan(np.asarray(lengths, np.int64), epoch))
        return self._planned_epoch[1]

    def _make_plan(self, lengths: Integers, epoch: int) -> BatchPlan:
        if lengths.ndim != 1 or len(lengths) < self._world or int(lengths.min()) < 1:
            found = f"lengths {list(lengths.shape)}, least {lengths.min() if lengths.size else 'none'}"
            raise ConfigError(
                f"{found}; required: one positive length an item, {self._world} or more items. Check the packs."
            )
        items = np.lexsort((self._draws(len(lengths), epoch, Stream.ITEM_ORDER), -lengths))
        allowed = 1 - self._draws(len(lengths) // self._min + 1, epoch, Stream.BATCH_SIZE) / 2**67
        return BatchPlan(lengths, items, np.array(self._cut(lengths[items], allowed.tolist()), np.int64))

    def _draws(self, count: int, epoch: int, stream: Stream) -> npt.NDArray[np.uint64]:
        if not self._shuffle:
            return np.arange(count, dtype=np.uint64) if stream is Stream.ITEM_ORDER else np.zeros(count, np.uint64)
        return draws(count, seed=self._seed, epoch=epoch, stream=stream)

    def _cut(self, longest_first: Integers, allowed: list[float]) -> list[int]:
        """Edges of batches over lengths sorted from the longest on.

        A batch ends early, yet not under half its size, where that keeps it to one length: a little less work a step for
        nothing cropped and nothing padded. It is as much smaller than the budget allows as ``allowed`` says: shuffled up to an
        eighth, since where few lengths are equal this makes the batches of one epoch others than those of the next.
        """
        ends = np.append(np.flatnonzero(np.diff(longest_first)) + 1, len(longest_first))
        run_stop = np.repeat(ends, np.diff(ends, prepend=0)).tolist()
        lengths, edges, at = longest_first.tolist(), [0], 0
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

    # --- dealing to ranks -----------------------------------------------------------------------------------------------

    def _plan_pass(self, epoch: int, consumed: Any) -> _DealtPass:
        plan = self._plan_of(epoch)
        done = np.zeros(len(plan.edges) - 1, bool) if consumed is None else _consumed_batches(plan.edges, consumed)
        whole, tail = self._dealt(np.flatnonzero(~done), np.diff(plan.edges))
        within = self._draws(len(done), epoch, Stream.RANK_ORDER)[whole]
        whole = np.take_along_axis(whole, np.argsort(within, axis=1, kind="stable"), axis=1)
        # A step is drawn by one of its batches, and so comes in the same order whatever was consumed before.
        first = np.append(whole.min(axis=1), tail[:1])
        order = np.argsort(self._draws(len(done), epoch, Stream.STEP_ORDER)[first], kind="stable")
        step = np.argsort(order)
        consumed_in = np.full(len(done), -1, np.int64)
        consumed_in[whole] = step[: len(whole), None]
        consumed_in[tail] = step[-1] if len(tail) else 0
        return _DealtPass(
            plan=plan,
            epoch=epoch if self.knows_epochs else None,
            rank=self._rank,
            world=self._world,
            whole=whole,
            dealt=np.concatenate([plan.items[:0], *(plan.batch(number) for number in tail.tolist())]),
            order=order,
            consumed_in=consumed_in,
        )

    def _dealt(self, left: Integers, sizes: Integers) -> tuple[Integers, Integers]:
        """Batches that are left, neighbours in length together: [steps, world], and those of the step that deals items."""
        steps, rest = divmod(len(left), self._world)
        if rest and steps and int(sizes[left[-rest:]].sum()) < self._world:
            steps -= 1  # too few items for a batch a rank: they go to the step before, one to a batch at most
        whole, tail = left[: steps * self._world], left[steps * self._world :]
        return whole.reshape(-1, self._world), tail


@dataclass(frozen=True, slots=True, kw_only=True)
class _DealtPass:
    """``whole`` [steps, world] batches, and the items that are ``dealt`` in one more step, the last that ``order`` counts.

    ``consumed_in`` [batches] is the step each batch is consumed in, -1 before this pass.
    """

    plan: BatchPlan
    epoch: int | None
    rank: int
    world: int
    whole: Integers
    dealt: Integers
    order: Integers
    consumed_in: Integers

    def __len__(self) -> int:
        return len(self.order)

    def __str__(self) -> str:
        plan, left = self.plan, self.consumed_in >= 0
        return (
            f"{np.diff(plan.edges)[left].sum()} of {len(plan.items)} items in {left.sum()} batches, {len(self)} steps of "
            f"{self.world} batches, {sum(self.repeats.values())} items repeated"
        )

    @property
    def repeats(self) -> dict[str, int]:
        items = len(self.dealt)
        return {"last step": self.world - items} if 0 < items < self.world else {}

    def batches(self) -> Iterator[EpochBatch]:
        own = self.whole[:, self.rank].tolist()
        dealt = np.array_split(np.resize(self.dealt, max(len(self.dealt), self.world)), self.world)[self.rank]
        for step in self.order.tolist():
            items = self.plan.batch(own[step]) if step < len(own) else dealt
            yield EpochBatch(items.tolist(), self.epoch)

    def consumed(self, steps: int) -> list[list[int]]:
        """Runs [first, stop) of the epoch's items, counted from the longest on."""
        done = np.concatenate([[False], self.consumed_in < steps, [False]])
        runs: list[list[int]] = self.plan.edges[np.flatnonzero(np.diff(done))].reshape(-1, 2).tolist()
        return runs


def _consumed_batches(edges: Integers, consumed: Any) -> npt.NDArray[np.bool_]:
    """Whether each batch lies in the runs of ``consumed``: bool [batches]."""
    try:
        runs = np.array(consumed) if consumed != [] else np.zeros((0, 2), np.int64)
    except ValueError:  # runs of unequal length
        runs = np.zeros(0)
    if runs.dtype.kind != "i" or runs.shape[1:] != (2,) or (np.diff(bounds := runs.ravel()) <= 0).any():
        raise wrong_consumption(str(consumed)[:80], "ascending runs [first, stop) of items")
    first, stop = np.searchsorted(edges, bounds).reshape(-1, 2).T
    if not np.isin(bounds, edges).all():
        raise wrong_consumption(str(consumed)[:80], "runs that begin and end with a batch")
    inside = np.zeros(len(edges), np.int64)
    inside[first], inside[stop] = 1, -1
    return np.asarray(np.cumsum(inside)[:-1] > 0)
