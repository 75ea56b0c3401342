"""From counted media to what will be encoded, or to the reasons why not: the one verdict on a row.

Validation reports it and the encoder prepares by it, so a row that validates cannot fail later for its geometry or its
length. Nothing is decoded here; sizes and counts come from :mod:`media_facts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.soundtrack import SoundFacts
from muvap_assets.media.video import VideoFacts
from muvap_assets.ref2va.contract import (
    AUDIO_RATE_HZ,
    FLOAT_BYTES,
    FPS,
    MAX_CELL_BYTES,
    MAX_SQUEEZE,
    RELEASED_MAX_FRAMES,
    RELEASED_MIN_FRAMES,
    SFT_MAX_FRAMES,
    SFT_MIN_FRAMES,
    VIDEO_CHANNELS,
    VISUAL_ROW_WIDTH,
    DatasetOptions,
    Format,
    Geometry,
    ModelSizes,
    RawSample,
    Size,
)
from muvap_assets.ref2va.findings import (
    Findings,
    check_gaps,
    check_samples,
    check_video,
    describe_video,
    warn_of_own_sound,
)
from muvap_assets.ref2va.geometry import (
    is_supported_aspect,
    largest_frame_count,
    required_audio_samples,
    resampled_count,
    resolve_canvas,
    slot_of,
    target_video_shape,
)
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.plan_references import ReferencePlan, plan_reference

_NO_MANIFEST = Path()


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """An admitted row; ``sample`` is resolved. ``audio_origin_sec`` is the target video's first timestamp."""

    sample: RawSample
    geometry: Geometry
    audio_origin_sec: Fraction
    references: tuple[ReferencePlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What was counted of a target, kept for the report also where its row is refused."""

    video: VideoFacts | None = None
    sound: SoundFacts | None = None

    @property
    def frames_at_24(self) -> int | None:
        """Frames the whole clip fills at 24 fps."""
        return None if self.video is None else slot_of(self.video.duration_sec)

    @property
    def longest_valid_frames(self) -> int | None:
        """The longest 17 * n + 5 those frames hold."""
        return None if self.frames_at_24 is None else largest_frame_count(self.frames_at_24)

    @property
    def audio_samples(self) -> int | None:
        """Samples at 32 kHz from the video's first timestamp on."""
        if self.video is None or self.sound is None:
            return None
        return resampled_count(self.sound.samples_from(self.video.first_sec), self.sound.rate_hz)


def plan_row(
    sample: RawSample, facts: MediaFacts, options: DatasetOptions, manifest: Path = _NO_MANIFEST
) -> tuple[RowPlan | None, TargetFacts, list[Finding]]:
    """The verdict on one row: its plan, or ``None`` and why not; with what was counted and every warning.

    Args:
        sample: resolved.
        facts: counts of its files.
        options: the dataset's.
        manifest: the manifest, for messages.
    """
    findings = Findings(manifest.name, sample.row, sample.id, manifest.parent)
    target = _count_target(findings, sample, facts)
    geometry = _target_geometry(findings, sample, target, options)
    if geometry is not None:
        _check_length(findings, target, geometry)
        _check_sound(findings, target, geometry)
    num_frames = None if geometry is None else geometry.num_frames
    references = [
        plan_reference(findings, f"references[{index}]", reference, num_frames=num_frames, facts=facts, options=options)
        for index, reference in enumerate(sample.references)
    ]
    if geometry is not None:
        _check_cells(findings, geometry, [reference for reference in references if reference is not None])
    if geometry is None or target.video is None or not findings.clean or None in references:
        return None, target, findings.found
    plan = RowPlan(
        sample=sample,
        geometry=geometry,
        audio_origin_sec=target.video.first_sec,
        references=tuple(reference for reference in references if reference is not None),
    )
    return plan, target, findings.found


def _count_target(findings: Findings, sample: RawSample, facts: MediaFacts) -> TargetFacts:
    path = sample.target_video
    video = findings.attempt("target.video", lambda: facts.video(path))
    if video is None:
        return TargetFacts()
    check_video(findings, "target.video", video)
    sound = None
    try:
        sound = facts.sound(path, sample.audio_stream)
    except ValidationError as error:
        if error.finding.code is not Code.AUDIO_MISSING:
            findings.found.append(findings.placed(error.finding, "target.video"))
        else:
            findings.add(Code.TARGET_AUDIO_MISSING, "target.video", "no audio stream")
    return TargetFacts(video=video, sound=sound)


def _target_geometry(
    findings: Findings, sample: RawSample, target: TargetFacts, options: DatasetOptions
) -> Geometry | None:
    if options.format is Format.PACKED:
        geometry = sample.geometry or options.geometry
        if target.video is not None:
            _warn_of_shape(findings, target.video, geometry.size, options.sizes)
        return geometry
    if target.video is None:
        return None
    size = Size(target.video.width, target.video.height)
    if not is_supported_aspect(size):
        findings.add(Code.VIDEO_ASPECT, "target.video", f"{size} pixels")
    longest = min(SFT_MAX_FRAMES, target.longest_valid_frames or 0)
    if longest < SFT_MIN_FRAMES:
        findings.add(Code.TARGET_SHORT, "target.video", describe_video(target.video), frames=SFT_MIN_FRAMES)
    if not is_supported_aspect(size) or longest < SFT_MIN_FRAMES:
        return None
    canvas = resolve_canvas(size, options.sizes)
    return Geometry(canvas.width, canvas.height, longest)


def _warn_of_shape(findings: Findings, video: VideoFacts, canvas: Size, sizes: ModelSizes) -> None:
    """Tell of a target that is squeezed onto its canvas: resizing does not preserve a mismatched shape (contract)."""
    aspect = video.pixel_aspect  # of stored pixels: a quarter turn swaps their sides
    shape = Fraction(video.width, video.height) * (1 / aspect if video.quarter_turns % 2 else aspect)
    squeeze = shape * canvas.height / canvas.width
    if 1 / MAX_SQUEEZE <= squeeze <= MAX_SQUEEZE:
        return
    shown = Size(round(video.height * shape), video.height)
    nearest = (
        f"ask for {resolve_canvas(shown, sizes)}, the nearest canvas, or crop it"
        if is_supported_aspect(shown)
        else "crop it"
    )
    pixels = "" if video.pixel_aspect == 1 else f", shown as {shown}"
    found = f"{Size(video.width, video.height)} pixels{pixels} on a canvas of {canvas}"
    findings.add(Code.VIDEO_ASPECT, "target.video", found, case="squeezed", severity=Severity.WARNING, nearest=nearest)


def _check_length(findings: Findings, target: TargetFacts, geometry: Geometry) -> None:
    if not RELEASED_MIN_FRAMES <= geometry.num_frames <= RELEASED_MAX_FRAMES:
        findings.add(
            Code.BEYOND_RELEASED_RANGE,
            "target_geometry.num_frames",
            f"{geometry.num_frames} frames",
            least=RELEASED_MIN_FRAMES,
            largest=RELEASED_MAX_FRAMES,
        )
    if target.video is not None and target.frames_at_24 is not None and target.frames_at_24 < geometry.num_frames:
        findings.add(Code.TARGET_SHORT, "target.video", describe_video(target.video), frames=geometry.num_frames)


def _check_cells(findings: Findings, geometry: Geometry, references: Sequence[ReferencePlan]) -> None:
    """Refuse latents that no row can hold: each tensor is one Arrow cell. Sound stays far below."""
    rows = sum(reference.geometry.visual_rows for reference in references)
    for where, values in (
        ("target_geometry", VIDEO_CHANNELS * math.prod(target_video_shape(geometry))),
        ("references", rows * VISUAL_ROW_WIDTH),
    ):
        if FLOAT_BYTES * values > MAX_CELL_BYTES:
            findings.add(Code.CELL_TOO_LARGE, where, f"{FLOAT_BYTES * values:,} bytes of latents", limit=MAX_CELL_BYTES)


def _check_sound(findings: Findings, target: TargetFacts, geometry: Geometry) -> None:
    sound, video, available = target.sound, target.video, target.audio_samples
    if sound is None or video is None or available is None:
        return
    required = required_audio_samples(geometry.num_frames)
    if available < required:
        covered = largest_frame_count(available * FPS // AUDIO_RATE_HZ)
        findings.add(
            Code.TARGET_AUDIO_SHORT,
            "target.video",
            f"{available} audio samples at 32 kHz from the first frame on ({available / AUDIO_RATE_HZ:.3f} s; "
            f"{sound.samples} at {sound.rate_hz} Hz in the file)",
            samples=required,
            frames=geometry.num_frames,
            covered=covered or "no valid count of",
        )
    used = -(-required * sound.rate_hz // AUDIO_RATE_HZ)
    check_gaps(findings, Code.TARGET_AUDIO_SHORT, "target.video", sound, video.first_sec, used, with_lead=True)
    warn_of_own_sound(findings, "target.video", video, sound)
    check_samples(findings, "target.video", sound)
