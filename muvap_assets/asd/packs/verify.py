"""The checks of a pack: reopened from disk, everything its index says is compared with the arrays and the manifest.

A damaged pack is reported, whatever is wrong with it; nothing here raises for what it finds.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from muvap_assets.asd.contract import AUDIO_RATE_HZ, Clip
from muvap_assets.asd.manifest_files import FINDINGS_FILE
from muvap_assets.asd.packs.layout import (
    ARROW_FILE,
    HEADER_FILE,
    JSON_FILE,
    SHARD_FILES,
    PackEntry,
    PackHeader,
    entry_at,
    map_index,
    read_header,
    read_json_index,
    shard_name,
)
from muvap_assets.asd.packs.reader import ShardLengths, shard_lengths
from muvap_assets.asd.packs.scan import ShardScan, scan_shard
from muvap_assets.asd.packs.set_aside import read_set_aside, without_set_aside
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ConfigError, FormatError
from muvap_assets.findings import Finding, Place
from muvap_assets.media.npy import NpyError
from muvap_assets.publish import CheckOutcome, not_run
from muvap_assets.readback import require_plain
from muvap_assets.threads import thread_pool

PACK_CHECKS = (
    *("shapes", "offsets_contiguous", "labels_binary", "audio_spans_faces", "levels_finite", "round_trip"),
    "rejected_tracks",
)
_CONTENT_CODES = (Code.LABELS_INVALID, Code.COUNT_MISMATCH, Code.DIGEST_MISMATCH)
_CHECKS = {
    Code.ARTIFACT_INVALID: "shapes",
    Code.OFFSET_MISMATCH: "offsets_contiguous",
    Code.LABELS_INVALID: "labels_binary",
    Code.COUNT_MISMATCH: "audio_spans_faces",
    Code.LEVEL_INVALID: "levels_finite",
    Code.DIGEST_MISMATCH: "round_trip",
}
_SHOWN = 100


def verify_pack(folder: Path, clips: Sequence[Clip] | None = None) -> list[CheckOutcome]:
    """Every check of :data:`PACK_CHECKS` on a staged or published pack.

    Args:
        folder: the pack.
        clips: the manifest it was made from; without it the pack is only compared with itself. Those that the pack lists
            as set aside are not looked for.

    Returns:
        One outcome a check with its numbers; ``rejected_tracks`` only warns. The first offenders are named, all are counted.
    """
    findings = _Findings()
    try:
        pack = _open(folder)
    except FormatError as error:
        findings.add(error.finding)
        reason = "the pack cannot be opened"
        return [findings.outcome("shapes"), *(not_run(name, reason) for name in PACK_CHECKS if name != "shapes")]
    _check_shapes(pack, clips, findings)
    _check_set_aside(pack, findings)
    usable = _check_offsets(pack, findings)
    _check_audio_spans(pack, findings)
    _check_levels(pack, findings)
    _check_json(pack, findings)
    if clips is not None:
        _check_manifest(pack, without_set_aside(clips, pack.set_aside), findings)
    content = _check_content(pack, usable, findings)
    numbers = _numbers(pack, content)
    return [*(findings.outcome(name, **numbers[name]) for name in _CHECKS.values()), _rejected_tracks(pack.set_aside)]


def _rejected_tracks(set_aside: Sequence[Finding]) -> CheckOutcome:
    return CheckOutcome(
        name="rejected_tracks",
        passed=not set_aside,
        severity=Severity.WARNING,
        numbers={"rejected": len(set_aside)},
        findings=tuple(set_aside),
    )


class _Findings:
    """The findings of each check: all counted, the first ones kept."""

    def __init__(self) -> None:
        self._kept: dict[str, list[Finding]] = {name: [] for name in _CHECKS.values()}
        self._count: Counter[str] = Counter()

    def add(self, finding: Finding, check: str = "") -> None:
        """Take one in, of the check that its code is of where none is named."""
        check = check or _CHECKS[finding.code]
        self._count[check] += 1
        if len(self._kept[check]) < _SHOWN:
            self._kept[check].append(finding)

    def outcome(self, check: str, **numbers: int | float | str) -> CheckOutcome:
        return CheckOutcome.of(check, self._kept[check], findings=self._count[check], **numbers)


@dataclass(frozen=True, slots=True)
class _Pack:
    """An opened pack; ``lengths`` holds, for a shard whose arrays are not what they should be, what is wrong with them.

    ``set_aside`` is what is wrong with the tracks that it leaves out.
    """

    folder: Path
    header: PackHeader
    index: pa.RecordBatch
    lengths: tuple[ShardLengths | FormatError, ...]
    set_aside: tuple[Finding, ...]

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.asarray(self.index.column(name).to_numpy(zero_copy_only=False))

    def place(self, row: int, source: str | None = None) -> Place:
        return Place(source, sample_id=str(self.index.column("sample_id")[row].as_py()))

    def entry(self, row: int) -> PackEntry:
        return entry_at(self.index, row)

    def rows_of(self, shard: int) -> npt.NDArray[np.int64]:
        return np.flatnonzero(self.column("shard") == shard)


def _open(folder: Path) -> _Pack:
    header = read_header(folder)
    require_plain(folder)
    index = map_index(folder)
    lengths: list[ShardLengths | FormatError] = []
    for shard in range(min(header.shards, index.num_rows)):
        try:
            lengths.append(shard_lengths(folder, shard, header.face_shape))
        except FormatError as error:
            lengths.append(error)
    return _Pack(folder, header, index, tuple(lengths), read_set_aside(folder))


def _check_shapes(pack: _Pack, clips: Sequence[Clip] | None, findings: _Findings) -> None:
    """Header, index, folders, array headers and the manifest agree about how much there is."""
    for lengths in pack.lengths:
        if isinstance(lengths, FormatError):
            findings.add(lengths.finding)
    counted = {
        "shards": len(pack.lengths),
        "samples": pack.index.num_rows,
        "source_frames": int(pack.column("source_frames").sum()),
        "audio_samples": int(pack.column("audio_samples").sum()),
    }
    for key, count in counted.items():
        if (promised := getattr(pack.header, key)) != count:
            required = f"{count}, as the index has"
            findings.add(Finding(Code.ARTIFACT_INVALID, HEADER_FILE, f"{key} {promised}", required=required))
    shards = [shard_name(shard) for shard in range(len(pack.lengths))]
    expected = {HEADER_FILE, ARROW_FILE, *shards, *(f"{shard}/{name}" for shard in shards for name in SHARD_FILES)}
    expected |= {FINDINGS_FILE} if pack.set_aside else set()
    present = {path.relative_to(pack.folder).as_posix() for path in pack.folder.rglob("*")}
    for name in sorted(present - expected):
        findings.add(Finding(Code.ARTIFACT_INVALID, name, "a file that is no part of the pack", case="stray"))
    ids = Counter(pack.index.column("sample_id").to_pylist())
    for sample_id in (sample_id for sample_id, count in ids.items() if count > 1):
        place = Place(ARROW_FILE, sample_id=sample_id)
        findings.add(Finding(Code.ARTIFACT_INVALID, place, f"{ids[sample_id]} samples of this id", case="ids"))
    if clips is not None and len(clips) != pack.index.num_rows + len(pack.set_aside):
        aside = f" and {len(pack.set_aside)} set aside" if pack.set_aside else ""
        found, required = f"{pack.index.num_rows} samples{aside}", f"{len(clips)}, the clips of the manifest"
        findings.add(Finding(Code.ARTIFACT_INVALID, None, found, required=required))


def _check_set_aside(pack: _Pack, findings: _Findings) -> None:
    """As many tracks are listed as the header counts, and none of them is a sample."""
    listed = {str(finding.sample_id) for finding in pack.set_aside}
    if (promised := pack.header.provenance.get("rejected", 0)) != len(pack.set_aside):
        found, required = f"{len(pack.set_aside)} tracks set aside", f"{promised}, as {HEADER_FILE} has"
        findings.add(Finding(Code.ARTIFACT_INVALID, FINDINGS_FILE, found, required=required))
    for sample_id in sorted(listed & set(pack.index.column("sample_id").to_pylist())):
        place = Place(FINDINGS_FILE, sample_id=sample_id)
        findings.add(Finding(Code.ARTIFACT_INVALID, place, "set aside, and a sample", case="ids"))


def _check_offsets(pack: _Pack, findings: _Findings) -> npt.NDArray[np.bool_]:
    """Samples lie one after another and fill their arrays; returns which rows lie within theirs."""
    shards = pack.column("shard")
    usable = np.zeros(len(shards), bool)
    if (np.diff(shards) < 0).any():
        findings.add(Finding(Code.OFFSET_MISMATCH, ARROW_FILE, "shards out of order", case="shards"))
    for row in map(int, np.flatnonzero((shards < 0) | (shards >= len(pack.lengths)))):
        findings.add(Finding(Code.OFFSET_MISMATCH, pack.place(row), f"shard {shards[row]}", case="shards"))
    for shard, lengths in enumerate(pack.lengths):
        if isinstance(lengths, FormatError):
            continue
        rows = pack.rows_of(shard)
        within = np.ones(len(rows), bool)
        for offset, count, available in (
            ("face_offset", "source_frames", lengths.frames),
            ("label_offset", "source_frames", lengths.frames),
            ("audio_offset", "audio_samples", lengths.audio_samples),
        ):
            starts, counts = pack.column(offset)[rows], pack.column(count)[rows]
            within &= (starts >= 0) & (counts > 0) & (counts <= available - starts)
            required = np.cumsum(counts) - counts
            for i in np.flatnonzero(starts != required):
                place, found = pack.place(int(rows[i]), shard_name(shard)), f"{offset} {starts[i]}"
                findings.add(Finding(Code.OFFSET_MISMATCH, place, found, required=required[i]))
            if counts.sum() != available:
                found, length = f"{count} add up to {counts.sum()}", f"{available}, the array's length"
                findings.add(Finding(Code.OFFSET_MISMATCH, shard_name(shard), found, required=length))
        usable[rows] = within
    return usable


def _check_audio_spans(pack: _Pack, findings: _Findings) -> None:
    """Audio is as long as the faces at the exact frame rate, and no more of it is padding than there is."""
    samples_a_frame = cache(_samples_a_frame)
    padded = pack.column("padded_samples")
    frames, audio = pack.column("source_frames"), pack.column("audio_samples")
    for row, rate in enumerate(pack.index.column("source_fps_exact").to_pylist()):
        factor = samples_a_frame(rate)
        required = round(int(frames[row]) * factor) if factor else None
        if required != audio[row]:
            found, wanted = f"{audio[row]} audio samples", f"{required} for {frames[row]} frames at {rate} fps"
            findings.add(Finding(Code.COUNT_MISMATCH, pack.place(row), found, required=wanted))
        if not 0 <= padded[row] <= audio[row]:
            found, wanted = f"padded_samples {padded[row]}", f"0 to {audio[row]}"
            findings.add(Finding(Code.COUNT_MISMATCH, pack.place(row), found, required=wanted))


def _samples_a_frame(rate: str) -> Fraction | None:
    try:
        return AUDIO_RATE_HZ / FrameRate.parse(rate).value
    except ConfigError:
        return None


def _check_levels(pack: _Pack, findings: _Findings) -> None:
    """Levels are finite and possible, and those of one recording are one."""
    mean, rms, peak = (pack.column(f"audio_{name}") for name in ("mean", "rms", "peak"))
    with np.errstate(invalid="ignore"):
        finite = np.isfinite(mean) & np.isfinite(rms) & np.isfinite(peak)
        possible = (rms >= 0) & (peak >= 0) & (rms <= peak * (1 + 1e-6) + 1e-12)
    for row in map(int, np.flatnonzero(~(finite & possible))):
        found = f"mean {mean[row]}, RMS {rms[row]}, peak {peak[row]}"
        findings.add(Finding(Code.LEVEL_INVALID, pack.place(row), found))
    levels_of: dict[str, tuple[float, float, float]] = {}
    for row, recording in enumerate(pack.index.column("recording_id").to_pylist()):
        levels = (float(mean[row]), float(rms[row]), float(peak[row]))
        if levels_of.setdefault(recording, levels) != levels and all(map(math.isfinite, levels)):
            found, others = f"levels {levels}", levels_of[recording]
            findings.add(
                Finding(Code.LEVEL_INVALID, pack.place(row), found, case="clips", levels=others, recording=recording)
            )


def _check_json(pack: _Pack, findings: _Findings) -> None:
    """Each shard's ``index.json`` says what ``index.arrow`` says."""
    for shard in range(len(pack.lengths)):
        source = f"{shard_name(shard)}/{JSON_FILE}"
        try:
            rows = read_json_index(pack.folder, shard)
        except FormatError as error:
            findings.add(error.finding, "round_trip")
            continue
        required = pack.index.take(pa.array(pack.rows_of(shard))).to_pylist()
        if len(rows) != len(required):
            found, wanted = f"{len(rows)} samples", f"{len(required)}, as {ARROW_FILE} has"
            findings.add(Finding(Code.DIGEST_MISMATCH, source, found, required=wanted))
            continue
        for row, entry in zip(rows, required, strict=True):
            del entry["shard"]
            if row != entry:
                keys = sorted(key for key in {*row, *entry} if row.get(key, _ABSENT) != entry.get(key, _ABSENT))
                place = Place(source, sample_id=entry["sample_id"])
                findings.add(Finding(Code.DIGEST_MISMATCH, place, f"other {', '.join(keys)}", case="index.json"))


_ABSENT = object()

_OF_CLIP: dict[str, Callable[[Clip], object]] = {
    "sample_id": lambda clip: clip.sample_id,
    "dataset": lambda clip: clip.dataset,
    "source_frames": lambda clip: clip.source_frames,
    "source_fps_exact": lambda clip: clip.source_fps.text,
    "start_sec_exact": lambda clip: str(clip.start_sec),
    "audio_samples": lambda clip: clip.audio_samples,
    "padded_samples": lambda clip: clip.padded_samples,
    "recording_id": lambda clip: clip.recording_id,
    "labels_known": lambda clip: clip.labels_known,
    "labels_crc32": lambda clip: zlib.crc32(clip.labels.tobytes()),
}


def _check_manifest(pack: _Pack, clips: Sequence[Clip], findings: _Findings) -> None:
    """Every row of the index is the clip of the manifest at its place."""
    for name, of_clip in _OF_CLIP.items():
        for clip, value in zip(clips, pack.index.column(name).to_pylist(), strict=False):
            if value != of_clip(clip):
                found, required = f"{name} {value!r}", f"{of_clip(clip)!r}, as the manifest has"
                place = Place(ARROW_FILE, sample_id=clip.sample_id)
                findings.add(Finding(Code.DIGEST_MISMATCH, place, found, required=required))


def _check_content(pack: _Pack, usable: npt.NDArray[np.bool_], findings: _Findings) -> ShardScan:
    """Read every sample back; a shard that cannot be read fails each check that needed it."""
    total = ShardScan()

    def scan(shard: int) -> ShardScan | str:
        if isinstance(pack.lengths[shard], FormatError):
            return "its arrays are damaged"
        rows = pack.rows_of(shard)
        try:
            return scan_shard(
                pack.folder / shard_name(shard), math.prod(pack.header.face_shape), _entries(pack, rows[usable[rows]])
            )
        except (OSError, NpyError) as error:
            return str(error)

    with thread_pool(os.cpu_count(), "verify") as pool:
        for shard, result in enumerate(pool.map(scan, range(len(pack.lengths)))):
            if isinstance(result, str):
                for code in _CONTENT_CODES:
                    findings.add(Finding(code, shard_name(shard), f"not read back: {result}", case="unread"))
                continue
            total.samples += result.samples
            total.size_bytes += result.size_bytes
            total.speaking_frames += result.speaking_frames
            for finding in result.findings:
                findings.add(finding)
    return total


def _entries(pack: _Pack, rows: npt.NDArray[np.int64]) -> Iterator[PackEntry]:
    return (pack.entry(int(row)) for row in rows)


def _numbers(pack: _Pack, content: ShardScan) -> dict[str, dict[str, int | float | str]]:
    frames, audio_samples = int(pack.column("source_frames").sum()), int(pack.column("audio_samples").sum())
    padded, rms = pack.column("padded_samples"), pack.column("audio_rms")
    height, width = pack.header.face_shape
    return {
        "shapes": {
            "samples": pack.index.num_rows,
            "shards": pack.header.shards,
            "frames": frames,
            "face_shape": f"{height}x{width}",
            "hours": audio_samples / AUDIO_RATE_HZ / 3600,
            "size_bytes": sum(path.stat().st_size for path in pack.folder.rglob("*") if path.is_file()),
        },
        "offsets_contiguous": {"frames": frames, "audio_samples": audio_samples},
        "labels_binary": {"frames": frames, "speaking_frames": content.speaking_frames},
        "audio_spans_faces": {
            "audio_samples": audio_samples,
            "padded_samples": int(padded.sum()),
            "padded_clips": int(np.count_nonzero(padded)),
            "clipped_samples": int(pack.column("clipped_samples").sum()),
        },
        "levels_finite": {
            "recordings": len(set(pack.index.column("recording_id").to_pylist())),
            "rms_min": _json_number(rms.min(initial=math.inf)),
            "rms_max": _json_number(rms.max(initial=-math.inf)),
        },
        "round_trip": {"samples": content.samples, "size_bytes": content.size_bytes},
    }


def _json_number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(value)
