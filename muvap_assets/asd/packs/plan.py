"""Where every sample goes, decided from label counts alone, before anything is decoded. Touches no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muvap_assets.asd.contract import Clip
from muvap_assets.asd.packs.layout import AUDIO_DTYPE, LABELS_DTYPE
from muvap_assets.asd.policy import SHARD_BYTES
from muvap_assets.errors import ConfigError

INDEX_BYTES = 1_200
"""About what the two indexes take for one sample."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A clip and its place: offsets in frames and in samples within its shard; ``position`` counts over the pack."""

    clip: Clip
    position: int
    shard: int
    face_offset: int
    audio_offset: int


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """One shard: its samples in order, and the lengths of its arrays."""

    samples: tuple[Placed, ...]
    frames: int
    audio_samples: int


def plan_shards(
    clips: Sequence[Clip], face_shape: tuple[int, int], shard_bytes: int = SHARD_BYTES
) -> tuple[ShardPlan, ...]:
    """Place clips in order into shards of at most ``shard_bytes`` of arrays.

    A clip is never split: one that is larger than a shard fills one alone.

    Raises:
        ConfigError: ``shard_bytes`` is not positive.
    """
    if shard_bytes <= 0:
        raise ConfigError(f"shard_bytes {shard_bytes}; required: a positive size. The usual one is {SHARD_BYTES}.")
    shards: list[ShardPlan] = []
    samples: list[Placed] = []
    frames = audio_samples = 0
    for position, clip in enumerate(clips):
        size = _array_bytes(frames + clip.source_frames, audio_samples + clip.audio_samples, face_shape)
        if samples and size > shard_bytes:
            shards.append(ShardPlan(tuple(samples), frames, audio_samples))
            samples, frames, audio_samples = [], 0, 0
        samples.append(Placed(clip, position, len(shards), frames, audio_samples))
        frames, audio_samples = frames + clip.source_frames, audio_samples + clip.audio_samples
    if samples:
        shards.append(ShardPlan(tuple(samples), frames, audio_samples))
    return tuple(shards)


def _array_bytes(frames: int, audio_samples: int, face_shape: tuple[int, int]) -> int:
    return frames * (face_shape[0] * face_shape[1] + LABELS_DTYPE.itemsize) + audio_samples * AUDIO_DTYPE.itemsize


def pack_bytes(shards: Sequence[ShardPlan], face_shape: tuple[int, int]) -> int:
    """What a pack of these shards takes on disk: its arrays exactly, its index by a usual sample's."""
    arrays = sum(_array_bytes(shard.frames, shard.audio_samples, face_shape) for shard in shards)
    return arrays + INDEX_BYTES * sum(len(shard.samples) for shard in shards)
