"""Tracks that a pack leaves out because their pictures do not decode: removed from the written shards, and listed.

    planned     |── a ──|── b ──|── c ──|      shard 0      |── d ──|── e ──|   shard 1
    b is bad    |── a ──|── c ──|              shard 0      |── d ──|── e ──|   shard 1, as it was

Only shards that hold such a track are written again: the spans of the others are copied, nothing is decoded. A shard that
is empty after that is removed, and later ones are renumbered. ``violations.jsonl`` of the pack lists the tracks with what is
wrong with them; a pack that holds all clips of its manifest has no such file.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from muvap_assets.asd.contract import Clip
from muvap_assets.asd.manifest_files import FINDINGS_FILE
from muvap_assets.asd.packs.arrays import create_arrays
from muvap_assets.asd.packs.audio_writer import WrittenAudio
from muvap_assets.asd.packs.layout import AUDIO_DTYPE, AUDIO_FILE, FACES_FILE, damaged, shard_name
from muvap_assets.asd.packs.plan import Placed, ShardPlan
from muvap_assets.asd.packs.reuse import FoundTrack, Span, TrackCopier
from muvap_assets.findings import Finding
from muvap_assets.media.npy import read_npy_header
from muvap_assets.publish import read_findings, write_findings
from muvap_assets.readback import STUMBLES, unreadable


def write_set_aside(folder: Path, findings: Iterable[Finding]) -> None:
    """List the tracks that the pack in ``folder`` leaves out; the mirror of :func:`read_set_aside`."""
    write_findings(folder / FINDINGS_FILE, findings)


def read_set_aside(folder: Path) -> tuple[Finding, ...]:
    """What is wrong with each track that the pack in ``folder`` leaves out; nothing where it holds all of its manifest.

    Raises:
        FormatError: the list is damaged.
    """
    path = folder / FINDINGS_FILE
    if not path.is_file():  # opening a pipe would wait for ever
        if path.exists():
            raise damaged(path, "not a regular file")
        return ()
    try:
        return tuple(read_findings(path))
    except STUMBLES as error:
        raise damaged(path, unreadable(error, path)) from error


def without_set_aside(clips: Sequence[Clip], findings: Iterable[Finding]) -> list[Clip]:
    """The clips of a manifest that are in the pack which lists ``findings``, in their order."""
    left_out = {finding.sample_id for finding in findings}
    return [clip for clip in clips if clip.sample_id not in left_out]


@dataclass(frozen=True, slots=True)
class WrittenShards:
    """The complete shards of a pack in ``folder``, and what was written for each sample, by its position."""

    folder: Path
    shards: Sequence[ShardPlan]
    face_shape: tuple[int, int]
    faces_crc32: Mapping[int, int]
    audio: Mapping[int, WrittenAudio]


def remove_tracks(written: WrittenShards, positions: frozenset[int], copier: TrackCopier) -> tuple[ShardPlan, ...]:
    """Remove the samples at ``positions`` from the shards, and return the plan of what is left.

    Args:
        written: the shards; positions of their samples stay as they are.
        positions: those to remove, not all there are.
        copier: copies the spans of the others.

    Raises:
        OSError: a shard cannot be written, or became shorter while it was packed.
    """
    left: list[ShardPlan] = []
    for number, shard in enumerate(written.shards):
        kept = [placed for placed in shard.samples if placed.position not in positions]
        if not kept:
            shutil.rmtree(written.folder / shard_name(number))
            continue
        plan = _closed_up(kept, len(left))
        folder, target = written.folder / shard_name(number), written.folder / shard_name(len(left))
        if len(kept) == len(shard.samples):
            folder.rename(target)
        else:
            before = folder.rename(written.folder / f"{shard_name(number)}-before")
            _rewrite(before, target, written, kept, plan, copier)
            shutil.rmtree(before)
        left.append(plan)
    return tuple(left)


def _closed_up(samples: Sequence[Placed], shard: int) -> ShardPlan:
    frames = audio_samples = 0
    placed = []
    for sample in samples:
        placed.append(replace(sample, shard=shard, face_offset=frames, audio_offset=audio_samples))
        frames, audio_samples = frames + sample.clip.source_frames, audio_samples + sample.clip.audio_samples
    return ShardPlan(tuple(placed), frames, audio_samples)


def _rewrite(
    before: Path, target: Path, written: WrittenShards, samples: Sequence[Placed], plan: ShardPlan, copier: TrackCopier
) -> None:
    faces, audio = before / FACES_FILE, before / AUDIO_FILE
    faces_at, audio_at = read_npy_header(faces).data_offset, read_npy_header(audio).data_offset
    frame_bytes = math.prod(written.face_shape)
    found = []
    for old, new in zip(samples, plan.samples, strict=True):
        sound, clip = written.audio[old.position], old.clip
        face_span = Span(
            faces,
            faces_at + old.face_offset * frame_bytes,
            clip.source_frames * frame_bytes,
            written.faces_crc32[old.position],
        )
        audio_span = Span(
            audio,
            audio_at + old.audio_offset * AUDIO_DTYPE.itemsize,
            clip.audio_samples * AUDIO_DTYPE.itemsize,
            sound.crc32,
            sound.clipped_samples,
        )
        found.append(FoundTrack(new, "", (face_span, ""), audio_span))
    files = create_arrays(target, plan, written.face_shape, found)
    for track in found:
        copied = copier.copy(track, files.faces, files.audio)
        if copied.faces is None or copied.audio is None:
            raise OSError(f"{before}: became shorter while it was packed")
