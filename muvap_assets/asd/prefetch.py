"""Batches made ahead by threads of this process: nothing is copied between processes, and their memory is used again.

    sampler ─► item lists ─► thread ─► block ─► ASDBatch ─► training step
                              thread ─► block ─► ...
                  ▲                                            │ expired: the block goes round
                  └────────────────────────────────────────────┘

Reading a batch is copying mapped memory, which NumPy does without the interpreter lock; so threads keep up with a training
step where worker processes would double the copying. What a transform does in Python does hold the lock: give heavy
augmentation to worker processes, by :func:`~muvap_assets.asd.loader.data_loader`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from muvap_assets.asd.batch_sampler import EpochBatch, FrameBudgetBatchSampler
from muvap_assets.asd.batches import ASDBatch, BatchBlock
from muvap_assets.asd.loader import PackedASDDataset, check_together
from muvap_assets.errors import ConfigError


class PrefetchLoader:
    """The batches of an epoch, in the sampler's order, each made while those before it are trained on.

    **How long a batch lives**: until ``keep`` more batches were asked for, 1 by default: the next turn of the loop. Then its
    memory is filled anew. What must live longer is cloned, or computed from. With ``pin_memory`` that waits for the copies
    to the device that were begun on the current stream while the batch lived, so ``batch.to(device, non_blocking=True)`` is safe.
    """

    def __init__(
        self,
        dataset: PackedASDDataset,
        batch_sampler: FrameBudgetBatchSampler,
        *,
        threads: int = 1,
        depth: int = 2,
        keep: int = 1,
        pin_memory: bool = False,
    ) -> None:
        """Prepare ``depth`` batches ahead in ``threads`` threads.

        Args:
            dataset: read by all threads; its transform runs in them.
            batch_sampler: which items make which batch.
            threads: one keeps up with most models; two with two cores to spare.
            depth: batches made or being made ahead.
            keep: turns a batch lives, as above.
            pin_memory: page-locked blocks, for copies to a GPU that run beside it.

        Raises:
            ConfigError: a number is not positive, memory is to be page-locked where there is no GPU, or the dataset's jitter
                moves chunks and the sampler was given lengths.
        """
        for name, value in (("threads", threads), ("depth", depth), ("keep", keep)):
            if value < 1:
                raise ConfigError(f"{name} {value}; required: at least 1. Leave it out for the default.")
        if pin_memory and not torch.cuda.is_available():
            raise ConfigError("pin_memory: no GPU is available; required: one to lock memory for. Leave it out.")
        check_together(dataset, batch_sampler)
        self.dataset, self.batch_sampler = dataset, batch_sampler
        self._threads, self._depth, self._keep, self._pinned = threads, depth, keep, pin_memory
        self._given = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the batch sampler."""
        if epoch != self.batch_sampler.epoch:
            self._given = 0
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The place within the epoch: after the batches given so far, however many were made ahead."""
        return self.batch_sampler.state_dict(self._given)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after what a state counts as consumed.

        Raises:
            ConfigError: the state is of another plan; nothing is changed.
        """
        self.batch_sampler.load_state_dict(state)
        self._given = 0

    def __len__(self) -> int:
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[ASDBatch]:
        """The batches of a new pass: the rest of the epoch after a state was loaded, and else the whole.

        Raises:
            Exception: what reading a batch raised, when its turn comes.
        """
        self._given = 0
        items = iter(self.batch_sampler)
        free = deque(_Lease(BatchBlock(pinned=self._pinned)) for _ in range(self._depth + self._keep))
        ahead: deque[tuple[Future[ASDBatch], _Lease]] = deque()
        living: deque[_Lease] = deque()
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="asd-prefetch")

        def fill_up() -> None:
            while free and len(ahead) < self._depth and (wanted := next(items, None)) is not None:
                lease = free.popleft()
                ahead.append((pool.submit(self._make, wanted, lease), lease))

        try:
            fill_up()
            while ahead:
                future, lease = ahead.popleft()
                batch = future.result()
                living.append(lease)
                fill_up()
                self._given += 1
                yield batch
                if len(living) >= self._keep:
                    free.append(living.popleft().expired(self._pinned))
                fill_up()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _make(self, items: EpochBatch, lease: _Lease) -> ASDBatch:
        if lease.copied is not None:
            lease.copied.synchronize()
        return self.dataset.read(items, lease.block)


@dataclass(frozen=True, slots=True)
class _Lease:
    """A block, and the event after which nothing reads what it held last."""

    block: BatchBlock
    copied: torch.cuda.Event | None = None

    def expired(self, pinned: bool) -> _Lease:
        if not pinned:
            return self
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return _Lease(self.block, event)
