"""Audio of a pack: a recording is decoded once, as a stream, and scattered to all its clips wherever they lie.

recording   |──────────────────────────────────|        at 16 kHz, in blocks
clips           |── a ──|      |──── c ────|
                   |── b ──|            |── d ────░░░|  past the recording's end: silence
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import Clip
from muvap_assets.asd.packs.layout import AUDIO_DTYPE, crc32_zeros
from muvap_assets.asd.packs.plan import Placed
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.audio import ID_LENGTH, mono_16k_blocks, to_int16
from muvap_assets.media.npy import write_at
from muvap_assets.storage.digests import file_sha256
from muvap_assets.threads import watched


@dataclass(frozen=True, slots=True)
class WrittenAudio:
    """What became of one clip's audio; ``position`` is the clip's over the pack."""

    position: int
    crc32: int
    clipped_samples: int


@dataclass(frozen=True, slots=True)
class WrittenRecording:
    """What became of one recording: its clips, or everything that is wrong with it."""

    clips: tuple[WrittenAudio, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """An ``audio.npy`` and where its data begins."""

    path: Path
    data_offset: int


def group_by_recording(samples: Iterable[Placed]) -> list[tuple[Placed, ...]]:
    """The clips of each recording sorted by start; the longest recording first, since it may take longest."""
    groups: dict[str, list[Placed]] = {}
    for placed in samples:
        groups.setdefault(placed.clip.recording_id, []).append(placed)
    ordered = [tuple(sorted(group, key=lambda placed: placed.clip.start_sample)) for group in groups.values()]
    return sorted(ordered, key=lambda group: -group[0].clip.recording_samples)


def write_recording(clips: tuple[Placed, ...], places: Mapping[int, ArrayPlace], root: Path) -> WrittenRecording:
    """Decode one recording as far as its last clip needs and write every clip's audio.

    Args:
        clips: all clips of the recording, sorted by start; they may overlap.
        places: the preallocated array of each shard; what is not written there stays silence.
        root: the folder relative paths are meant from.

    Raises:
        OSError: the target cannot be written.
    """
    findings = _changed_files(clips, root)
    if findings:
        return WrittenRecording((), tuple(findings))
    first = clips[0].clip
    spans = [_Span(placed, places[placed.shard]) for placed in clips]
    stop = max(span.stop for span in spans)
    try:
        blocks = mono_16k_blocks(
            first.audio_file(root), first.audio_sample_rate, stop, first.audio_from_video, first.sound_choice
        )
        decoded = watched(lambda: _scatter(spans, blocks))
    except ValidationError as error:
        return WrittenRecording((), tuple(_of_audio(placed.clip, error.finding) for placed in clips))
    path, found = first.audio_file(root), f"decodes to {decoded} samples at 16 kHz"
    findings = [
        _of_audio(
            clip,
            Finding(Code.AUDIO_CHANGED, path, found, required=f"{clip.recording_samples}, as when it was validated"),
        )
        for clip in (placed.clip for placed in clips)
        if decoded != min(stop, clip.recording_samples)
    ]
    return WrittenRecording(tuple(span.finish() for span in spans), tuple(findings))


def _scatter(spans: list[_Span], blocks: Iterable[npt.NDArray[np.float32]]) -> int:
    """Hand each block to the spans it overlaps; returns how many samples there were."""
    waiting, active, position = deque(spans), list[_Span](), 0
    for block in blocks:
        end = position + len(block)
        while waiting and waiting[0].start < end:
            active.append(waiting.popleft())
        for span in active:
            span.take(block, position)
        active = [span for span in active if span.stop > end]
        position = end
    return position


class _Span:
    """One clip while its recording streams by."""

    def __init__(self, placed: Placed, place: ArrayPlace) -> None:
        self.start = placed.clip.start_sample
        self.stop = self.start + placed.clip.audio_samples
        self._placed, self._place = placed, place
        self._written = self._crc32 = self._clipped = 0

    def take(self, block: npt.NDArray[np.float32], position: int) -> None:
        """Write the part of ``block``, which begins at ``position`` of the recording, that is this clip's."""
        part = block[max(self.start - position, 0) : max(self.stop - position, 0)]
        if not len(part):
            return
        samples, clipped = to_int16(part)
        data = np.ascontiguousarray(samples, AUDIO_DTYPE)
        offset = self._place.data_offset + (self._placed.audio_offset + self._written) * AUDIO_DTYPE.itemsize
        descriptor = os.open(self._place.path, os.O_WRONLY)
        try:
            write_at(descriptor, data, offset)
        finally:
            os.close(descriptor)
        self._written += len(data)
        self._clipped += clipped
        self._crc32 = zlib.crc32(data.data, self._crc32)

    def finish(self) -> WrittenAudio:
        """What this clip became, with the silence after its recording's end."""
        silence = (self._placed.clip.audio_samples - self._written) * AUDIO_DTYPE.itemsize
        return WrittenAudio(self._placed.position, crc32_zeros(silence, self._crc32), self._clipped)


def _changed_files(clips: tuple[Placed, ...], root: Path) -> list[Finding]:
    """Clips whose file is gone, or is not the one that was validated and measured."""
    clip_of = {placed.clip.audio_path: placed.clip for placed in clips}
    changed = {path: _changed_file(clip, root) for path, clip in clip_of.items()}
    return [
        _of_audio(placed.clip, finding) for placed in clips if (finding := changed[placed.clip.audio_path]) is not None
    ]


def _changed_file(clip: Clip, root: Path) -> Finding | None:
    path = clip.audio_file(root)
    try:
        digest = watched(lambda: file_sha256(path))[:ID_LENGTH]
    except ValidationError as error:
        return error.finding
    except OSError as error:
        return Finding(Code.AUDIO_MISSING, path, str(error.strerror))
    if digest == clip.recording_id[:ID_LENGTH]:
        return None
    required = f"{clip.recording_id}, as when it was validated"
    return Finding(Code.AUDIO_CHANGED, path, f"the file's digest is {digest}", required=required)


def _of_audio(clip: Clip, finding: Finding) -> Finding:
    """A finding about the file of a clip's recording, in the clip's place."""
    return finding.of_file(clip.audio_path, row=clip.row, sample_id=clip.sample_id, field="audio_path")
