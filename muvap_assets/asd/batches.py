"""A batch as a record of tensors, and the block of memory they are views of.

All tensors of a batch lie in one block, so that a batch is one allocation, one shared file between processes and one
page-locked range, and a block can be used again for the next batch of any shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import torch

_ALIGNMENT = 64


class Fit(StrEnum):
    """How chunks of several lengths become one batch: cropped to the shortest, or padded to the longest."""

    CROP = "crop"
    PAD = "pad"


@dataclass(frozen=True, slots=True, kw_only=True)
class ASDBatch:
    """``B`` chunks of ``T`` model frames; audio, faces, labels, targets and masks share that one duration.

    Attributes:
        audio: float32 [B, floor(T * 16000 / model_fps)], 16 kHz, full scale 1; 640 samples a frame at 25 Hz.
        faces: uint8 [B, T, H, W] grey; convert to float on the device.
        labels: uint8 [B, T] of 0 and 1, or 255 where a sample's labels are not known.
        targets: [B, T, ...] as the dataset's target function gives them, or ``None``.
        scored: bool [B, T], the frames this chunk stands for: neither history nor padding. Take losses and metrics here.
        real: bool [B, T], the frames that exist: history and scored.
        lengths: int64 [B], how many frames of each row are real; they come first.
        starts: int64 [B], the model frame of its track at which each row begins.
        tracks: int64 [B], the number of the sample in the dataset.
        sample_ids: the sample's id, B of them.
    """

    audio: torch.Tensor
    faces: torch.Tensor
    labels: torch.Tensor
    targets: torch.Tensor | None
    scored: torch.Tensor
    real: torch.Tensor
    lengths: torch.Tensor
    starts: torch.Tensor
    tracks: torch.Tensor
    sample_ids: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.sample_ids)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> ASDBatch:
        """The batch on ``device``; faces stay uint8."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def clone(self) -> ASDBatch:
        """A batch of its own memory, for what must outlive a reused block."""
        return self._map(torch.Tensor.clone)

    def pin_memory(self) -> ASDBatch:
        """The batch in page-locked memory; torch's DataLoader calls it where asked to pin."""
        return self._map(torch.Tensor.pin_memory)

    def _map(self, change: Any) -> ASDBatch:
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ASDBatch(**{k: change(v) if isinstance(v, torch.Tensor) else v for k, v in values})


@dataclass(frozen=True, slots=True)
class Tensors:
    """What a tensor of a batch is: its type and shape."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize


class BatchBlock:
    """A block of memory that one batch after another is laid out in; it grows to the largest and stays.

    Laying out a batch ends the one before: its tensors show the new content.
    """

    def __init__(self, *, pinned: bool = False) -> None:
        """An empty block; ``pinned`` for page-locked memory, which a copy to the device need not wait for."""
        self._pinned = pinned
        self._memory = torch.empty(0, dtype=torch.uint8)

    def lay_out(self, tensors: Sequence[Tensors]) -> list[torch.Tensor]:
        """Tensors of these types and shapes, C-contiguous, whose content is whatever was there."""
        offsets, size = [], 0
        for tensor in tensors:
            offsets.append(size)
            size += -(-tensor.size_bytes // _ALIGNMENT) * _ALIGNMENT
        if size > len(self._memory):
            # An eighth to spare, since batches of one budget differ by little and fresh memory costs as much as filling it.
            self._memory = torch.empty(size + size // 8, dtype=torch.uint8, pin_memory=self._pinned)
        return [
            self._memory[offset : offset + tensor.size_bytes].view(tensor.dtype).view(tensor.shape)
            for offset, tensor in zip(offsets, tensors, strict=True)
        ]
