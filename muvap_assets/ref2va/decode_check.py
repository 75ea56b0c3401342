"""Decoding a few encoded rows again and comparing them with their media: the one semantic proof on released weights.

Belongs here: which rows, the two figures, the file they are kept in, and what the check ``decodes_back`` says of it.
Reported, never blocking: a low figure may be hard footage, and with random weights it means nothing.

    psnr_db        10 * log10(1 / mean squared error) of all pixels of the target, as values between 0 and 1
    audio_snr_db   10 * log10(power of the target's waveform / power of the difference), both channels, at 32 kHz

Where the default thresholds come from, measured on two real videos of 124 frames at 832x480: the other video is at 9 dB,
the frame's own mean colour at 12 and 15, the means of its 16x16 blocks, which is all a latent's place could tell without
its 24 channels, at 22 and 25. 20 dB tells a wrong latent from a right one and leaves hard footage room. Sound is compared
as waveforms, so that a shift shows: one of a millisecond is at -1.5 dB, another recording at -3. At 0 dB silence would be
as near to the target as what was decoded. Neither figure was seen with released weights yet; set them by your own rows.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code, Severity
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.progress import Progress, no_progress
from muvap_assets.publish import CheckOutcome, not_run, write_json
from muvap_assets.readback import reading, typed
from muvap_assets.ref2va.contract import DatasetOptions
from muvap_assets.ref2va.encode import EncodedRow, EncodeOptions
from muvap_assets.ref2va.encoder import (
    Decoded,
    Encoder,
    Frames,
    LoadedComponent,
    MediaBlock,
    RowInput,
    Stage,
    Waveform,
)
from muvap_assets.ref2va.prefetch import clips_of, prepared_ahead, stage_media
from muvap_assets.ref2va.records import read_tensors

DECODE_CHECK = "decodes_back"
DECODE_CHECK_FILE = "decode_check.json"
RECIPE = 1  # raised whenever a figure is computed in another way, so that figures kept from before are not taken over
MAX_DB = 100.0  # of a perfect match, which has no finite figure
SILENCE_POWER = 1e-6  # -60 dBFS: quieter targets count as this loud, or silence could never be met
SHORTEST_FRAMES = 22  # the video decoder begins at 7 latents
_Figure = float | str | None  # dB, or what went wrong, or None where there is nothing to measure
_TENSOR_OF = {Stage.TARGET_VIDEO: "vae_latent", Stage.TARGET_AUDIO: "audio_latent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRow:
    """How near one row's decoded latents come to its media.

    Attributes:
        id: the row's.
        row: where the manifest has it.
        key: of the finished row; the figures are those of this very file.
        psnr_db: of the pixels; ``None`` where the target has 5 frames, which the decoder does not take, or decoding failed.
        audio_snr_db: of the waveform; ``None`` where decoding failed.
        problem: why decoding failed, or empty.
    """

    id: str
    row: int | None
    key: str
    psnr_db: float | None = None
    audio_snr_db: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeReport:
    """What the decode check of one part was asked and found; the content of ``decode_check.json``."""

    requested: int = 0
    min_psnr_db: float = 0.0
    min_audio_snr_db: float = 0.0
    rows: tuple[DecodedRow, ...] = ()
    recipe: int = RECIPE

    @classmethod
    def of(cls, options: DatasetOptions, rows: Iterable[DecodedRow] = ()) -> DecodeReport:
        """The report of a dataset's options."""
        return cls(
            requested=options.decode_check,
            min_psnr_db=options.decode_check_min_psnr_db,
            min_audio_snr_db=options.decode_check_min_audio_snr_db,
            rows=tuple(rows),
        )

    def write(self, folder: Path) -> None:
        """Write the file into an artifact's folder; the mirror of :meth:`read`."""
        write_json(folder / DECODE_CHECK_FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path) -> DecodeReport:
        """The report in an artifact's folder.

        Raises:
            FormatError: the file is missing or damaged.
        """
        path = folder / DECODE_CHECK_FILE
        with reading(path):
            values = json.loads(path.read_text(encoding="utf-8"))
            return typed(cls, {**values, "rows": tuple(typed(DecodedRow, row) for row in values["rows"])})


def chosen_ids(ids: Iterable[str], count: int) -> list[str]:
    """The ``count`` ids whose digests are lowest, or all: a rule of the ids alone, so the same rows every time."""
    return sorted(ids, key=lambda each: (hashlib.sha256(f"decode_check {each}".encode()).digest(), each))[:count]


def decode_rows(
    rows: Sequence[RowInput],
    encoded: Sequence[EncodedRow],
    encoder: Encoder,
    options: DatasetOptions,
    *,
    known: Mapping[str, DecodedRow] | None = None,
    progress: Progress = no_progress,
) -> DecodeReport:
    """Decode ``options.decode_check`` of the encoded rows and compare them with their media, prepared once more.

    Stage-major: the video VAE is loaded once for all rows, then the audio VAE. Pixels are compared a clip at a time, while
    the next are prepared; a sound is decoded and compared whole. What goes wrong with a row is said in its ``problem``.

    Args:
        rows: every row of the part.
        encoded: those that stand.
        encoder: the encoder they were made by.
        options: the dataset's; which rows are decoded is :func:`chosen_ids`'s.
        known: figures of finished rows by their key, which are not made again.
        progress: told of each row.

    Raises:
        ConfigError: a VAE cannot be loaded.
    """
    inputs, standing = {row.sample_id: row for row in rows}, {row.sample_id: row for row in encoded}
    known = known or {}
    chosen = [standing[each] for each in chosen_ids(standing, options.decode_check)]
    jobs = [(inputs[row.sample_id], row) for row in chosen if row.key not in known]
    figures: dict[str, dict[Stage, _Figure]] = {row.key: {} for _, row in jobs}
    for number, stage in enumerate(_TENSOR_OF if jobs else ()):
        with encoder.loaded(stage.component) as loaded:
            for done, (key, figure) in enumerate(_figures(stage, loaded, encoder, jobs), start=number * len(jobs) + 1):
                figures[key][stage] = figure
                progress(done, len(_TENSOR_OF) * len(jobs), f"decoded {stage}")
    made = {encoded.key: _decoded_row(row, encoded.key, figures[encoded.key]) for row, encoded in jobs}
    # A row keeps its figures when it moves in the manifest, but not its place.
    found = [replace({**known, **made}[each.key], row=inputs[each.sample_id].row) for each in chosen]
    return DecodeReport.of(options, found)


def kept_figures(folder: Path) -> dict[str, DecodedRow]:
    """The figures a published part holds, by the key of the finished row; empty where there are none of this recipe."""
    try:
        report = DecodeReport.read(folder)
    except FormatError:
        return {}  # figures that cannot be taken over are made again
    return {row.key: row for row in report.rows if not row.problem} if report.recipe == RECIPE else {}


def psnr_db(blocks: Iterable[tuple[Decoded, Frames]]) -> float:
    """Peak signal-to-noise ratio in dB, at most 100, over every pixel of a video.

    Args:
        blocks: decoded frames float32 [n, H, W, 3] between 0 and 1, each with the uint8 frames they should be.

    Raises:
        ValidationError: a decoded pixel is not finite, or the blocks differ in shape.
    """
    error, count = 0.0, 0
    for decoded, prepared in blocks:
        _require_shape("frames", decoded, prepared.shape)
        for one, other in zip(decoded, prepared, strict=True):
            error += _power(one - other.astype(np.float32) / np.float32(255))
            count += one.size
    return _db(1.0, error / count)


def audio_snr_db(decoded: Decoded, prepared: Waveform) -> float:
    """Signal-to-noise ratio in dB, at most 100, of a decoded waveform float32 [2, n] over the target's float32 [2, m], m <= n.

    What the decoder makes past the target's end, of the zeros the encoder filled up with, is not compared.

    Raises:
        ValidationError: a decoded sample is not finite, or there are fewer than the target has.
    """
    compared = decoded[:, : prepared.shape[1]]
    _require_shape("a waveform", compared, prepared.shape)
    signal, error = (_power(each) / prepared.size for each in (prepared, compared - prepared))
    return _db(max(signal, SILENCE_POWER), error)


def verify_decoded(folder: Path, standing: Mapping[str, str]) -> CheckOutcome:
    """The check ``decodes_back`` of a staged or published part: a warning for each figure under its threshold.

    Args:
        folder: the part's.
        standing: the key of each finished row by its id; figures of another file than that do not count.
    """
    if not (folder / DECODE_CHECK_FILE).exists():
        return not_run(DECODE_CHECK, f"there is no {DECODE_CHECK_FILE}")
    report = DecodeReport.read(folder)
    figures = {row.id: row for row in report.rows if standing.get(row.id) == row.key}
    missing = [each for each in chosen_ids(standing, report.requested) if each not in figures]
    findings = [
        *(Finding(Code.DECODE_FAILED, Place(sample_id=each), "no figures of its file") for each in missing),
        *(finding for row in figures.values() for finding in _findings(row, report)),
    ]
    numbers: dict[str, int | float | str] = {"rows": len(figures), "rows_requested": report.requested}
    for name, required in (("psnr_db", report.min_psnr_db), ("audio_snr_db", report.min_audio_snr_db)):
        measured = [value for row in figures.values() if (value := getattr(row, name)) is not None]
        if measured:
            mean = round(sum(measured) / len(measured), 2)
            numbers |= {f"{name}_min": min(measured), f"{name}_mean": mean, f"{name}_required": required}
    return CheckOutcome(
        name=DECODE_CHECK,
        passed=not findings,
        severity=Severity.WARNING,
        numbers=numbers,
        findings=tuple(findings),
    )


def _figures(
    stage: Stage, loaded: LoadedComponent, encoder: Encoder, jobs: Sequence[tuple[RowInput, EncodedRow]]
) -> Iterator[tuple[str, _Figure]]:
    """Key and figure of each row, in turn, while the media of the next are prepared."""
    sources = [partial(stage_media, stage, row, encoder.conditioner_frames) for row, _ in jobs]
    options = EncodeOptions()
    ahead = prepared_ahead(sources, workers=options.workers, blocks=options.blocks_ahead)
    with closing(ahead):
        for (row, encoded), media in zip(jobs, ahead, strict=True):
            yield encoded.key, _figure(stage, loaded, row, encoded, media)


def _figure(
    stage: Stage, loaded: LoadedComponent, row: RowInput, encoded: EncodedRow, media: Iterator[MediaBlock]
) -> _Figure:
    where, name = f"row {row.sample_id}", _TENSOR_OF[stage]
    geometry = row.geometry
    if stage is Stage.TARGET_VIDEO and geometry.num_frames < SHORTEST_FRAMES:
        return None
    try:
        decoded = loaded.decode(stage, read_tensors(encoded.path, [name])[name], where)
        if stage is Stage.TARGET_AUDIO:
            (waveform,), (block,) = decoded, media
            return round(audio_snr_db(waveform, block.data), 2)
        clips = clips_of((block.data for block in media), geometry.num_frames, geometry.size, where)
        return round(psnr_db(zip(decoded, clips, strict=True)), 2)
    except Exception as error:  # libraries raise anything; a report must not end the run it reports on
        return f"{type(error).__name__}: {error}"


def _decoded_row(row: RowInput, key: str, found: Mapping[Stage, _Figure]) -> DecodedRow:
    numbers = {stage: figure if isinstance(figure, float) else None for stage, figure in found.items()}
    return DecodedRow(
        id=row.sample_id,
        row=row.row,
        key=key,
        psnr_db=numbers[Stage.TARGET_VIDEO],
        audio_snr_db=numbers[Stage.TARGET_AUDIO],
        problem="; ".join(figure for figure in found.values() if isinstance(figure, str)),
    )


def _findings(row: DecodedRow, report: DecodeReport) -> Iterator[Finding]:
    place = Place(sample_id=row.id, row=row.row)
    if row.problem:
        yield Finding(Code.DECODE_FAILED, place, row.problem)
    for name, found, required in (
        ("psnr_db", row.psnr_db, report.min_psnr_db),
        ("audio_snr_db", row.audio_snr_db, report.min_audio_snr_db),
    ):
        if found is not None and found < required:
            yield Finding(Code.DECODE_DIFFERS, place, f"{name} is {found:.2f} dB", limit=f"{required:g}")


def _power(values: npt.NDArray[np.float32]) -> float:
    return float(np.square(values).sum(dtype=np.float64))


def _db(signal: float, error: float) -> float:
    if not math.isfinite(error):
        raise _unlike("values that are not finite", "finite values throughout")
    return min(MAX_DB, 10 * math.log10(signal / error)) if error else MAX_DB


def _require_shape(what: str, decoded: Decoded, required: tuple[int, ...]) -> None:
    if decoded.shape != required:
        raise _unlike(f"{what} {list(decoded.shape)}", f"{list(required)}, as the target")


def _unlike(found: str, required: str) -> ValidationError:
    return ValidationError(Finding(Code.DECODE_FAILED, "decoded", found, case="shape", required=required))
