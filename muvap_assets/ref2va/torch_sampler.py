"""The order of :mod:`muvap_assets.ref2va.sampler` as a batch sampler for torch's ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator

from torch.utils.data import Sampler

from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.sampler import Schedule, group_of, group_order


class BucketBatchSampler(Sampler[list[int]]):
    """Yields the row numbers of each step of one epoch for one rank; give it as ``batch_sampler``.

    ``start_at(epoch, step)`` before iterating sets where to begin, in a new run as well as within one: nothing is replayed.
    Where the training stands is the trainer's to keep, for loader workers fetch ahead of it.
    """

    def __init__(self, schedule: Schedule, *, rank: int = 0, world_size: int = 1, sp_size: int = 1) -> None:
        """Raises ConfigError where ``schedule.groups`` is not ``world_size // sp_size``."""
        self._group, groups = group_of(rank, world_size, sp_size)
        if groups != schedule.groups:
            raise ConfigError(
                f"sampler: the schedule has {schedule.groups} groups, required are {groups} for {world_size} ranks with "
                f"sequence-parallel size {sp_size}. Make the schedule for this world."
            )
        self.schedule, self.epoch, self.step = schedule, 0, 0

    def start_at(self, epoch: int, step: int = 0) -> None:
        """Begin the next iteration at ``step`` of ``epoch``.

        Raises:
            ConfigError: there is no such epoch or step.
        """
        if epoch < 0 or not 0 <= step <= self.schedule.steps:
            raise ConfigError(
                f"sampler: epoch {epoch}, step {step}, required are an epoch of at least 0 and a step of at most "
                f"{self.schedule.steps}. Check the saved state, and that the dataset is the one it was saved for."
            )
        self.epoch, self.step = epoch, step

    def __iter__(self) -> Iterator[list[int]]:
        yield from group_order(self.schedule, self.epoch, self._group)[self.step :].tolist()

    def __len__(self) -> int:
        return self.schedule.steps - self.step
