"""The loudness index: the level of each whole recording, measured once, so that every track of it gets the same gain.

Measured is exactly what a pack holds: the recording at 16 kHz, mono, as 16-bit integers. Their sums are integers too, so
that every figure is exact until its last rounding, and depends on no block size and no order.

    loudness_index.parquet   a row a recording, in the order the manifest first names them
    provenance.json          versions of the inputs, parameters, code version

Source: the audio-visual data contract, "Audio": statistics over the whole recording, never over a chunk.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from pathlib import Path, PurePosixPath
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from muvap_assets.asd.contract import AUDIO_RATE_HZ, Clip, no_clip
from muvap_assets.asd.loudness_columns import LOUDNESS_TABLE
from muvap_assets.asd.policy import Policy
from muvap_assets.codes import Code
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.audio import (
    INT16_SCALE,
    RESAMPLER_QUALITY,
    Recording,
    checked_samples_16k,
    mono_blocks,
    recording_id,
    resampled_blocks,
    to_int16,
)
from muvap_assets.media.sound_files import Float32, SoundChoice
from muvap_assets.media.video_faces import load_video_decoder
from muvap_assets.progress import Progress, no_progress
from muvap_assets.provenance import inputs_of
from muvap_assets.publish import CheckOutcome, write_json
from muvap_assets.readback import reading
from muvap_assets.storage.digests import file_sha256
from muvap_assets.threads import thread_pool, watched

LOUDNESS_CODE_VERSION = "1"
"""Changes whenever the same recordings would give other figures."""

LOUDNESS_CHECKS = ("levels_finite", "one_row_per_recording", "silent_share")

INDEX_FILE = "loudness_index.parquet"
PROVENANCE_FILE = "provenance.json"

_SCHEMA = pa.schema(
    [
        pa.field(c.name, c.type, c.nullable, metadata={"unit": c.unit, "description": c.description})
        for c in LOUDNESS_TABLE
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoudnessStats:
    """The level of one whole recording, at 16 kHz, mono, 16 bit; full scale is one.

    ``rms`` and ``peak`` are taken about ``mean``, that is after DC removal. ``dbfs`` is ``None`` where the recording is
    ``silent``: constant to within one 16-bit step.
    """

    recording_id: str
    audio_path: str
    sha256: str
    duration_sec: float
    rate_hz: int
    channels: int
    samples_16k: int
    mean: float
    rms: float
    peak: float
    dbfs: float | None
    clipped_samples: int
    silent: bool


class _Levels:
    """Running sums over int16 samples. Python integers: no recording is long enough to overflow them."""

    def __init__(self) -> None:
        self.count = self.clipped = self.total = self.squares = 0
        self.low, self.high = INT16_SCALE, -INT16_SCALE

    def add(self, samples: npt.NDArray[np.int16], clipped: int) -> None:
        self.count += len(samples)
        self.clipped += clipped
        self.total += int(samples.sum(dtype=np.int64))
        wide = samples.astype(np.int64)
        self.squares += int(wide @ wide)
        self.low, self.high = min(self.low, int(samples.min())), max(self.high, int(samples.max()))

    def figures(self) -> dict[str, Any]:
        mean = Fraction(self.total, self.count)
        variance = Fraction(self.squares, self.count) - mean**2
        peak = max(self.high - mean, mean - self.low)
        rms = math.sqrt(variance) / INT16_SCALE
        silent = self.high - self.low <= 1  # the same as a peak below one step
        return {
            "samples_16k": self.count,
            "mean": float(mean / INT16_SCALE),
            "rms": rms,
            "peak": float(peak / INT16_SCALE),
            "dbfs": None if silent else 20 * math.log10(rms),
            "clipped_samples": self.clipped,
            "silent": silent,
        }


def measure_recording(
    path: Path,
    npy_rate_hz: int | None = None,
    expected_id: str | None = None,
    from_video: bool = False,
    choice: SoundChoice | None = None,
) -> LoudnessStats:
    """Decode a whole recording and measure its level.

    Args:
        path: the recording.
        npy_rate_hz: the rate of a NumPy waveform.
        expected_id: the identity the recording must have.
        from_video: it is a video whose sound is meant, from its first frame on.
        choice: a stream and a channel of it.

    Raises:
        ValidationError: it cannot be decoded, holds non-finite values (AUDIO_NON_FINITE, with their count), is empty, or is not
            the recording that was expected (AUDIO_CHANGED).
    """
    levels, frames = _Levels(), 0

    def counted(blocks: Iterator[Float32]) -> Iterator[Float32]:
        nonlocal frames
        for block in blocks:
            frames += len(block)
            yield block

    with Recording(path, npy_rate_hz, from_video, choice) as source:
        sha256 = file_sha256(path)
        identity = recording_id(sha256, source.file.track)
        if expected_id not in (None, identity):
            required = f"{expected_id}, as when the manifest was made"
            raise ValidationError(Finding(Code.AUDIO_CHANGED, path, f"recording {identity}", required=required))
        for block in resampled_blocks(mono_blocks(counted(source.blocks()), path), source.rate_hz):
            levels.add(*to_int16(block))
    checked_samples_16k(path, frames, source.rate_hz)
    return LoudnessStats(
        recording_id=identity,
        audio_path=path.as_posix(),
        sha256=sha256,
        duration_sec=frames / source.rate_hz,
        rate_hz=source.rate_hz,
        channels=source.file.channels,
        **levels.figures(),
    )


def build_loudness_index(
    folder: Path,
    clips: Sequence[Clip],
    root: Path,
    *,
    inputs: Mapping[str, str],
    workers: int | None = None,
    progress: Progress = no_progress,
) -> list[LoudnessStats]:
    """Measure each recording of ``clips`` once and write the index into ``folder``.

    Args:
        folder: an existing folder that receives the two files.
        clips: accepted rows; recordings keep the order in which they first appear.
        root: the folder that relative paths of the clips are meant from.
        inputs: versions the clips come from, kept as provenance.
        workers: recordings measured at a time, one a core by default; the bytes do not depend on it.
        progress: told after each recording.

    Raises:
        ValidationError: there is no clip, or recordings cannot be measured; it names all of them.
    """
    if not clips:
        raise ValidationError(no_clip(), "loudness index")
    recordings = _first_clips(clips)
    if any(clip.audio_from_video for clip in recordings.values()):
        load_video_decoder()
    rows: list[LoudnessStats] = []
    findings: list[Finding] = []
    with thread_pool(workers or os.cpu_count()) as pool:
        results = pool.map(lambda clip: _measured(clip, root), recordings.values())
        for clip, result in zip(recordings.values(), results, strict=True):
            if isinstance(result, LoudnessStats):
                rows.append(result)
            else:
                findings.append(result)
            progress(len(rows) + len(findings), len(recordings), clip.audio_path)
    if findings:
        raise ValidationError(findings, "loudness index")
    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_SCHEMA)
    pq.write_table(table, folder / INDEX_FILE, compression="zstd")
    provenance = {
        "artifact": "asd/loudness_index",
        "inputs": dict(inputs),
        "parameters": {"sample_rate_hz": AUDIO_RATE_HZ, "resampler": f"soxr {RESAMPLER_QUALITY}", "scale": INT16_SCALE},
        "code_version": LOUDNESS_CODE_VERSION,
    }
    write_json(folder / PROVENANCE_FILE, provenance)
    return rows


def read_loudness_index(folder: Path) -> dict[str, LoudnessStats]:
    """The index in ``folder`` by recording id, in its own order.

    Raises:
        FormatError: the file is missing or damaged, has other columns, or names a recording twice.
    """
    rows = _read_rows(folder)
    index = {row.recording_id: row for row in rows}
    if len(index) != len(rows):
        found = f"{len(rows)} rows for {len(index)} recordings"
        finding = Finding(Code.ARTIFACT_INVALID, folder / INDEX_FILE, found, case="recordings")
        raise FormatError(finding.placed(source=INDEX_FILE))
    return index


def read_inputs(folder: Path) -> dict[str, str]:
    """The versions the index in ``folder`` was built from.

    Raises:
        FormatError: the provenance is missing or damaged.
    """
    path = folder / PROVENANCE_FILE
    with reading(path):
        return inputs_of(json.loads(path.read_text(encoding="utf-8")))


def verify_loudness_index(folder: Path, clips: Sequence[Clip], policy: Policy) -> list[CheckOutcome]:
    """Reopen the index in ``folder`` and run :data:`LOUDNESS_CHECKS` against the clips it is for.

    An index that cannot be opened fails the first check, and leaves the others without an outcome.
    """
    try:
        rows = _read_rows(folder)
        read_inputs(folder)
    except FormatError as error:
        return [CheckOutcome.of("levels_finite", error.findings)]
    return [_check_levels(rows), _check_recordings(rows, clips), _check_silence(rows, policy)]


def _first_clips(clips: Sequence[Clip]) -> dict[str, Clip]:
    first: dict[str, Clip] = {}
    for clip in clips:
        first.setdefault(clip.recording_id, clip)
    return first


def _measured(clip: Clip, root: Path) -> LoudnessStats | Finding:
    try:
        path, choice = clip.audio_file(root), clip.sound_choice
        stats = watched(
            lambda: measure_recording(path, clip.audio_sample_rate, clip.recording_id, clip.audio_from_video, choice)
        )
    except ValidationError as error:
        return error.finding.of_file(
            clip.audio_path, source=clip.dataset, row=clip.row, sample_id=clip.sample_id, field="audio_path"
        )
    return replace(stats, audio_path=_portable(clip.audio_path, root))


def _portable(audio_path: str, root: Path) -> str:
    # The index has to be the same bytes on every machine, and a path of this one is of no use on another.
    path = PurePosixPath(audio_path)
    if not path.is_absolute():
        return audio_path
    return str(path.relative_to(root)) if path.is_relative_to(root) else path.name


def _read_rows(folder: Path) -> list[LoudnessStats]:
    path = folder / INDEX_FILE
    with reading(path):
        table = pq.read_table(path)
        names, types = table.schema.names, [str(kind) for kind in table.schema.types]
    if not table.schema.equals(_SCHEMA):
        finding = Finding(Code.ARTIFACT_INVALID, path, f"columns {names} of types {types}", case="columns")
        raise FormatError(finding.placed(source=path.name))
    with reading(path):
        return [LoudnessStats(**row) for row in table.to_pylist()]


def _check_levels(rows: Sequence[LoudnessStats]) -> CheckOutcome:
    findings = [
        Finding(Code.LEVEL_INVALID, INDEX_FILE, f"{row.audio_path}: {found}")
        for row in rows
        if (found := _wrong_level(row))
    ]
    levels = [row.dbfs for row in rows if row.dbfs is not None and math.isfinite(row.dbfs)]
    spread = {"dbfs_min": min(levels), "dbfs_median": float(median(levels)), "dbfs_max": max(levels)} if levels else {}
    clipped = sum(row.clipped_samples for row in rows)
    return CheckOutcome.of("levels_finite", findings, recordings=len(rows), clipped_samples=clipped, **spread)


def _wrong_level(row: LoudnessStats) -> str | None:
    """What is wrong with a row's levels, or ``None``."""
    numbers = {field.name: getattr(row, field.name) for field in fields(row)}
    broken = [name for name, value in numbers.items() if isinstance(value, float) and not math.isfinite(value)]
    if broken:
        return f"{', '.join(f'{name} {numbers[name]}' for name in broken)}"
    if not 0 <= row.rms <= row.peak <= 2 or abs(row.mean) > 1:
        return f"mean {row.mean}, rms {row.rms}, peak {row.peak}"
    if row.samples_16k < 1 or row.rate_hz < 1 or not 0 <= row.clipped_samples <= row.samples_16k:
        return f"{row.samples_16k} samples at {row.rate_hz} Hz, {row.clipped_samples} clipped"
    if abs(row.duration_sec * AUDIO_RATE_HZ - row.samples_16k) > 1:
        return f"{row.samples_16k} samples for {row.duration_sec} s"
    if row.silent != (row.dbfs is None) or row.silent != (row.peak * INT16_SCALE < 1):
        return f"silent {row.silent}, dbfs {row.dbfs}, peak {row.peak}"
    if row.dbfs is not None and not math.isclose(row.dbfs, 20 * math.log10(row.rms), abs_tol=1e-9):
        return f"dbfs {row.dbfs}, rms {row.rms}"
    return None


def _check_recordings(rows: Sequence[LoudnessStats], clips: Sequence[Clip]) -> CheckOutcome:
    required = {clip.recording_id: clip.recording_samples for clip in clips}
    seen: dict[str, int] = {}
    for row in rows:
        seen[row.recording_id] = seen.get(row.recording_id, 0) + 1
    wrong = [f"no row for recording {name}" for name in required if name not in seen]
    wrong += [f"{count} rows for recording {name}" for name, count in seen.items() if count > 1]
    wrong += [f"a row for recording {name}, which the manifest does not name" for name in seen if name not in required]
    wrong += [
        f"recording {row.recording_id} of SHA-256 {row.sha256}"
        for row in rows
        if not row.recording_id.startswith(recording_id(row.sha256))
    ]
    findings = [Finding(Code.COUNT_MISMATCH, INDEX_FILE, found, case="recordings") for found in wrong]
    findings += [
        Finding(
            Code.COUNT_MISMATCH,
            INDEX_FILE,
            f"{row.audio_path}: {row.samples_16k} samples",
            required=f"{required[row.recording_id]}, as the manifest counted",
        )
        for row in rows
        if row.samples_16k != required.get(row.recording_id, row.samples_16k)
    ]
    hours = sum(row.samples_16k for row in rows) / AUDIO_RATE_HZ / 3600
    return CheckOutcome.of(
        "one_row_per_recording", findings, recordings=len(rows), clips=len(clips), hours=round(hours, 6)
    )


def _check_silence(rows: Sequence[LoudnessStats], policy: Policy) -> CheckOutcome:
    silent = [row for row in rows if row.silent]
    share = len(silent) / len(rows) if rows else 0.0
    findings = [Finding(Code.AUDIO_SILENT, INDEX_FILE, f"{row.audio_path}: silent") for row in silent]
    passed = share <= policy.max_silent_share
    if not passed:
        found = f"{len(silent)} of {len(rows)} recordings are silent ({share:.1%})"
        findings.insert(0, Finding(Code.SILENT_SHARE, INDEX_FILE, found, limit=f"{policy.max_silent_share:.1%}"))
    return CheckOutcome(
        name="silent_share",
        passed=passed,
        numbers={"silent": len(silent), "recordings": len(rows), "share": share, "max_share": policy.max_silent_share},
        findings=tuple(findings),
    )
