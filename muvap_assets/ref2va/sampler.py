"""The order rows are trained in: a pure function of sizes and numbers, with no state and no random generator to carry.

    bucket sizes     (3, 5)              rows 0 1 2 | 3 4 5 6 7, the index's order
    global batch     batch_size * groups = 4
    epoch            [2 0 1 1] [7 3 4 6] [5 4 7 3]      one shape a step; a short batch is filled from its own bucket
    second group          1 1       4 6       7 3       each group trains on its part of every step

Every row appears in every epoch. What fills a bucket's last batch are rows of that bucket, all drawn equally often but for
one. Ranks of one sequence-parallel group share a group's rows. Keys are integers mixed by a fixed function,
so that the order is the same on every machine and with every version of NumPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ConfigError

Rows = npt.NDArray[np.int64]
_GOLDEN, _MIX_A, _MIX_B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # splitmix64
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """What an order depends on besides the epoch.

    Attributes:
        bucket_sizes: rows of each bucket, in the index's order; rows are numbered through.
        batch_size: rows a group trains on in a step.
        groups: data-parallel groups, world size // sequence-parallel size.
        seed: of the order.

    Raises:
        ConfigError: a number is below what it must be, or there is no row.
    """

    bucket_sizes: tuple[int, ...]
    batch_size: int = 1
    groups: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("batch_size", self.batch_size), ("groups", self.groups)):
            if value < 1:
                raise ConfigError(f"sampler: {name} is {value}, required is at least 1. Change it.")
        if not self.bucket_sizes or min(self.bucket_sizes) < 1:
            raise ConfigError(
                f"sampler: bucket sizes are {list(self.bucket_sizes)}, required is at least one bucket, each of at least one "
                "row. Leave empty buckets out."
            )
        if not 0 <= self.seed <= _MASK:
            raise ConfigError(f"sampler: seed is {self.seed}, required is a nonnegative 64-bit integer. Change it.")

    @property
    def global_batch(self) -> int:
        """Rows of one step over all groups."""
        return self.batch_size * self.groups

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same on every rank."""
        return sum(-(-size // self.global_batch) for size in self.bucket_sizes)

    @property
    def repeats(self) -> tuple[int, ...]:
        """Rows drawn again in each bucket, an epoch, to fill its last global batch."""
        return tuple(-size % self.global_batch for size in self.bucket_sizes)


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
    """Rows of every step of an epoch, int64 [steps, batch_size * groups]; each step holds rows of one bucket.

    Raises:
        ConfigError: the epoch is negative.
    """
    if epoch < 0:
        raise ConfigError(f"sampler: epoch is {epoch}, required is at least 0. Start at the first.")
    batches, first = [], 0
    for bucket, size in enumerate(schedule.bucket_sizes):
        count = -(-size // schedule.global_batch)
        # Once through the bucket, then once through it in yet another order, and so on until the last batch is full.
        passes = -(-count * schedule.global_batch // size)
        rows = [_permutation(size, schedule.seed, epoch, bucket, part) for part in range(passes)]
        filled = np.concatenate(rows)[: count * schedule.global_batch] + first
        batches.append(filled.reshape(count, schedule.global_batch))
        first += size
    steps = np.concatenate(batches)
    # A number no bucket has keeps the order of the steps apart from that within buckets.
    return steps[_permutation(len(steps), schedule.seed, epoch, len(schedule.bucket_sizes), 0)]


def group_order(schedule: Schedule, epoch: int, group: int) -> Rows:
    """Rows one group trains on, int64 [steps, batch_size]. To go on at a step, slice it off.

    Raises:
        ConfigError: the group does not exist.
    """
    if not 0 <= group < schedule.groups:
        raise ConfigError(f"sampler: group is {group}, required is below {schedule.groups}. Use group_of(rank, ...).")
    start = group * schedule.batch_size
    return global_order(schedule, epoch)[:, start : start + schedule.batch_size]


def _permutation(size: int, *numbers: int) -> Rows:
    """0 ... size - 1 in the order of keys mixed from ``numbers`` and the position."""
    key = 0
    for number in numbers:
        key = _mixed(key ^ _mixed(number + _GOLDEN))
    keys = np.arange(size, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(key)
    for shift, factor in ((30, _MIX_A), (27, _MIX_B)):
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    keys ^= keys >> np.uint64(31)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def _mixed(value: int) -> int:
    for shift, factor in ((30, _MIX_A), (27, _MIX_B)):
        value = (value ^ (value >> shift)) * factor & _MASK
    return value ^ (value >> 31)


def bucket_sizes(buckets: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Names and sizes of the runs of equal names in ``buckets``, the bucket of every row in the index's order."""
    runs: list[tuple[str, int]] = []
    for name in buckets:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    return tuple(runs)
