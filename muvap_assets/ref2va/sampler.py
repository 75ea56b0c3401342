"""The order rows are trained in: steps of one shape for all data-parallel groups, resumable in another world.

    bucket sizes     (3, 5)              rows 0 1 2 | 3 4 5 6 7, the index's order
    row order        2 0 1 | 7 3 4 6 5   of each bucket, from (seed, epoch) alone
    global batch     batch_size * groups = 4
    epoch            [7 3 4 6] [2 0 1 1] [5 4 7 3]      one shape a step; a short batch is filled from its own bucket
    second group          4 6       1 1       7 3       each group trains on its part of every step

Every row is in every epoch. A bucket is gone through in its order, so what an epoch has consumed is one number a bucket. What
fills its last batch are rows of that bucket in yet another order, so that all repeat equally often but for one. Each bucket's
steps are spread over the whole epoch. Ranks of one sequence-parallel group share a group's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from muvap_assets.draws import draws
from muvap_assets.errors import ConfigError
from muvap_assets.resuming import ResumableBatchSampler, wrong_consumption

Rows = npt.NDArray[np.int64]


class Bucketed(Protocol):
    """Rows in buckets: a dataset, or its index."""

    @property
    def version(self) -> str:
        """Changes with the content."""
        ...

    @property
    def buckets(self) -> tuple[tuple[str, int], ...]:
        """Name and rows of each bucket, in the order rows are numbered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What an order depends on besides the epoch.

    Attributes:
        bucket_sizes: rows of each bucket, in the index's order; rows are numbered through.
        batch_size: rows a group trains on in a step.
        groups: data-parallel groups, world size // sequence-parallel size.
        seed: of the order.
        consumed: rows of each bucket that the epoch has consumed; empty for none.

    Raises:
        ConfigError: a number is below what it must be, or there is no row.
    """

    bucket_sizes: tuple[int, ...]
    batch_size: int = 1
    groups: int = 1
    seed: int = 0
    consumed: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value in (("batch_size", self.batch_size), ("groups", self.groups)):
            if value < 1:
                raise ConfigError(f"sampler: {name} is {value}, required is at least 1. Change it.")
        if not self.bucket_sizes or min(self.bucket_sizes) < 1:
            raise ConfigError(
                f"sampler: bucket sizes are {list(self.bucket_sizes)}, required is at least one bucket, each of at least one "
                "row. Leave empty buckets out."
            )
        if not self.consumed:
            object.__setattr__(self, "consumed", (0,) * len(self.bucket_sizes))

    @property
    def global_batch(self) -> int:
        """Rows of one step over all groups."""
        return self.batch_size * self.groups

    @property
    def left(self) -> tuple[int, ...]:
        """Rows of each bucket that are not consumed."""
        return tuple(size - consumed for size, consumed in zip(self.bucket_sizes, self.consumed, strict=True))

    @property
    def steps(self) -> int:
        """Steps that are left of the epoch, the same on every rank."""
        return sum(self._bucket_steps())

    @property
    def repeats(self) -> tuple[int, ...]:
        """Rows drawn again in each bucket to fill its last global batch."""
        return tuple(-left % self.global_batch for left in self.left)

    def _bucket_steps(self) -> list[int]:
        return [-(-left // self.global_batch) for left in self.left]

    def step_buckets(self, epoch: int) -> Rows:
        """The bucket of every step that is left, int64 [steps].

        A bucket of n steps has one in each n-th part of the epoch, at a drawn place. It is counted from the epoch's end, so
        that the rest of an epoch is ordered as it was before it was interrupted.
        """
        places = []
        for bucket, (size, left) in enumerate(zip(self.bucket_sizes, self._bucket_steps(), strict=True)):
            # A number no bucket has keeps these draws apart from those of the rows.
            drawn = draws(left, seed=self.seed, epoch=epoch, stream=len(self.bucket_sizes), part=bucket)
            places.append((np.arange(left) + drawn / 2**64) / -(-size // self.global_batch))
        buckets = np.repeat(np.arange(len(places)), [len(place) for place in places])
        steps: Rows = buckets[np.argsort(-np.concatenate(places), kind="stable")]
        return steps


def group_of(rank: int, world_size: int, sp_size: int = 1) -> tuple[int, int]:
    """The data-parallel group of a rank, and how many there are; ``sp_size`` neighbouring ranks make one.

    Raises:
        ConfigError: the group size does not divide the world, or the rank is not in it.
    """
    if world_size < 1 or sp_size < 1 or world_size % sp_size or not 0 <= rank < world_size:
        raise ConfigError(
            f"sampler: rank {rank} of {world_size} with sequence-parallel size {sp_size}, required is a rank below the world "
            "size and a size that divides it. Check the launcher's settings."
        )
    return rank // sp_size, world_size // sp_size


def global_order(schedule: Schedule, epoch: int) -> Rows:
    """Rows of every step that is left of an epoch, int64 [steps, batch_size * groups]; each step holds rows of one bucket.

    Raises:
        ConfigError: the epoch or the seed is negative.
    """
    steps, first, batches = schedule.step_buckets(epoch), 0, []
    counts = np.bincount(steps, minlength=len(schedule.bucket_sizes)).tolist()
    for bucket, (size, consumed, count) in enumerate(
        zip(schedule.bucket_sizes, schedule.consumed, counts, strict=True)
    ):
        stop = consumed + count * schedule.global_batch
        # Once through the bucket, then once through it in yet another order, and so on until the last batch is full.
        orders = [
            np.argsort(draws(size, seed=schedule.seed, epoch=epoch, stream=bucket, part=part), kind="stable")
            for part in range(-(-stop // size) if count else 0)
        ]
        batches.append(np.concatenate([np.zeros(0, np.int64), *orders])[consumed:stop] + first)
        first += size
    order = np.empty((len(steps), schedule.global_batch), np.int64)
    order[np.argsort(steps, kind="stable")] = np.concatenate(batches).reshape(order.shape)
    return order


class BucketBatchSampler(ResumableBatchSampler[list[int]]):
    """Yields the row numbers of each step of one epoch for one rank; give it to a DataLoader as ``batch_sampler``.

    Call ``set_epoch`` before each epoch. What it logs at INFO when a pass begins are the buckets, their rows and repeats.
    """

    def __init__(
        self,
        dataset: Bucketed,
        *,
        batch_size: int = 1,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        sp_size: int = 1,
    ) -> None:
        """Plan a dataset's rows for one rank.

        Args:
            dataset: what to train on; its index does as well.
            batch_size: rows a data-parallel group trains on in a step.
            seed: of the order.
            rank: which of the ``world_size`` processes this is.
            world_size: how many processes train.
            sp_size: neighbouring ranks that share rows, for sequence parallelism.

        Raises:
            ConfigError: a number is off its rule, or the dataset has no rows.
        """
        super().__init__(rank)
        self._group, groups = group_of(rank, world_size, sp_size)
        self._buckets = dict(dataset.buckets)
        self._version = dataset.version
        self._schedule = Schedule(
            bucket_sizes=tuple(self._buckets.values()), batch_size=batch_size, groups=groups, seed=int(seed)
        )

    def fingerprint(self) -> dict[str, Any]:
        """The dataset's version, the rows of each bucket and the seed: what the order within buckets is made of."""
        return {"version": self._version, "buckets": dict(self._buckets), "seed": self._schedule.seed}

    def _plan_pass(self, epoch: int, consumed: Any) -> _BucketPass:
        counts = () if consumed is None else _counts(consumed, self._buckets)
        schedule = replace(self._schedule, consumed=counts)
        return _BucketPass(tuple(self._buckets), schedule, epoch, self._group, schedule.step_buckets(epoch))


@dataclass(frozen=True, slots=True)
class _BucketPass:
    names: tuple[str, ...]
    schedule: Schedule
    epoch: int
    group: int
    steps: Rows

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        schedule, repeats = self.schedule, self.repeats
        table = ", ".join(
            f"{name} {left} rows" + (f" + {repeats[name]} repeated" if name in repeats else "")
            for name, left in zip(self.names, schedule.left, strict=True)
        )
        return (
            f"{sum(schedule.left)} of {sum(schedule.bucket_sizes)} rows in {len(self.names)} buckets, {len(self)} steps of "
            f"{schedule.global_batch} rows, {sum(repeats.values())} rows repeated to fill last batches: {table}"
        )

    @property
    def repeats(self) -> dict[str, int]:
        return {name: count for name, count in zip(self.names, self.schedule.repeats, strict=True) if count}

    def batches(self) -> Iterator[list[int]]:
        first = self.group * self.schedule.batch_size
        part = global_order(self.schedule, self.epoch)[:, first : first + self.schedule.batch_size]
        return iter(part.tolist())

    def consumed(self, steps: int) -> dict[str, int]:
        taken = np.bincount(self.steps[:steps], minlength=len(self.names))
        return {
            name: min(consumed + int(count) * self.schedule.global_batch, size)
            for name, consumed, count, size in zip(
                self.names, self.schedule.consumed, taken, self.schedule.bucket_sizes, strict=True
            )
        }


def _counts(consumed: Any, buckets: Mapping[str, int]) -> tuple[int, ...]:
    required = "a number of rows of each bucket, 0 to all of them"
    if not isinstance(consumed, Mapping) or set(consumed) != set(buckets):
        raise wrong_consumption("of other buckets", required)
    for name, size in buckets.items():
        count = consumed[name]
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= size:
            raise wrong_consumption(f"{count!r} of the {size} rows of {name}", required)
    return tuple(consumed[name] for name in buckets)
