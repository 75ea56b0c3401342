"""Collecting what is wrong with a row, and the findings that targets and references share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TypeVar

from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place, errors_of
from muvap_assets.media.audio import wrong_scale
from muvap_assets.media.soundtrack import SoundFacts
from muvap_assets.media.video import VideoFacts
from muvap_assets.ref2va.contract import (
    FPS,
    MAX_MISSING_PICTURE_SEC,
    MAX_MISSING_PICTURE_SHARE,
    MAX_SOUND_GAPS_SEC,
    RATE_WARNING_SHARE,
)
from muvap_assets.ref2va.geometry import frames_at_24, largest_frame_count, slot_of

F = TypeVar("F")


@dataclass(slots=True)
class Findings:
    """Collects what is wrong with one row, with its place filled in."""

    source: str
    row: int | None = None
    sample_id: str | None = None
    base: Path | None = None
    """The manifest's folder, from which paths are written."""
    found: list[Finding] = field(default_factory=list)

    def add(
        self,
        code: Code,
        where: str | None,
        found: str,
        *,
        case: str = "",
        severity: Severity | None = None,
        **facts: object,
    ) -> None:
        """One finding about the field ``where``."""
        self.found.append(self._placed(Finding(code, None, found, case=case, severity=severity, **facts), where))

    def add_file(self, finding: Finding, where: str, written: str) -> None:
        """A finding about the file that the field ``where`` names as ``written``."""
        self.found.append(self._placed(finding.of_file(written), where))

    def attempt(self, where: str, count: Callable[[], F]) -> F | None:
        """The result of ``count``, or ``None`` with its ``ValidationError`` as a finding."""
        try:
            return count()
        except ValidationError as error:
            self.found.append(self.placed(error.finding, where))
            return None

    def placed(self, finding: Finding, where: str) -> Finding:
        """A finding about the field ``where``; a file is named as the manifest has it, relative to its folder."""
        if finding.path is None:
            return self._placed(finding, where)
        path = Path(finding.path)
        written = path.relative_to(self.base) if self.base and path.is_relative_to(self.base) else path
        return self._placed(finding.of_file(str(written)), where)

    def _placed(self, finding: Finding, where: str | None) -> Finding:
        return finding.placed(field=where, row=self.row, sample_id=self.sample_id, source=self.source)

    @property
    def clean(self) -> bool:
        """Whether nothing found keeps the row out."""
        return not errors_of(self.found)


def describe_video(facts: VideoFacts, fps: Fraction | None = None) -> str:
    """Source frames, rate, duration, frames at 24 fps and the longest valid count, in words."""
    rate = fps or facts.rate or (Fraction(facts.frames) / facts.duration_sec if facts.duration_sec else 0)
    available = video_frames_at_24(facts, fps)
    return (
        f"{facts.frames} source frames at {float(rate):.3f} fps, {float(facts.duration_sec):.3f} s, make {available} "
        f"frames at 24 fps, the longest valid count is {largest_frame_count(available) or 'none'}"
    )


def video_frames_at_24(facts: VideoFacts, fps: Fraction | None) -> int:
    """Frames at 24 fps that a video fills, by its own timestamps or at an overriding constant rate."""
    return slot_of(facts.duration_sec) if fps is None else frames_at_24(facts.frames, fps)


def check_video(findings: Findings, where: str, facts: VideoFacts, fps: Fraction | None = None) -> None:
    """What is wrong or odd about a video, wherever it is used."""
    if facts.ends_early:
        _check_missing(findings, where, facts)
    if facts.pixel_aspect != 1:
        findings.add(Code.VIDEO_PIXEL_ASPECT, where, f"pixels of aspect {facts.pixel_aspect}")
    if facts.interlaced_frames:
        found = f"{facts.interlaced_frames} of {facts.frames} frames are interlaced"
        findings.add(Code.VIDEO_INTERLACED, where, found)
    warn_of_colour(findings, where, facts.colour)
    if fps is not None:
        measured = Fraction(facts.frames) / facts.duration_sec if facts.duration_sec else fps
        _warn_of_rate(findings, f"{where.rpartition('.')[0]}.fps", fps, measured, "fps")


def _check_missing(findings: Findings, where: str, facts: VideoFacts) -> None:
    """Frames before a stop are whole. Where decoding met no error, nothing says which frames are missing."""
    missing, end, promised = facts.missing_sec, facts.header_end_sec, "the header is silent"
    if facts.header_frames:
        promised = f"the header promises {facts.header_frames - facts.hidden_frames}"
    elif end:
        promised = f"they end at {float(end - missing):.3f} s, the header promises {float(end):.3f} s"
    limit = max(MAX_MISSING_PICTURE_SHARE * (facts.duration_sec + missing), MAX_MISSING_PICTURE_SEC)
    refused = not facts.stopped and missing > limit
    found = f"{facts.frames} frames decode{f', then {facts.stopped}' if facts.stopped else ''}; {promised}"
    if refused:
        findings.add(Code.VIDEO_STOPPED, where, found, case="missing", limit=f"{float(limit):.3f}")
    else:
        findings.add(Code.VIDEO_STOPPED, where, found, severity=Severity.WARNING)


def warn_of_colour(findings: Findings, where: str, colour: str) -> None:
    """The warning about colours that are shown wrongly where they are taken for sRGB; none where ``colour`` is empty."""
    if colour:
        findings.add(Code.COLOUR_UNCONVERTED, where, colour)


def warn_of_own_sound(findings: Findings, where: str, video: VideoFacts, sound: SoundFacts) -> None:
    """What is odd about a video and sound of one file."""
    offset = sound.first_sec - video.first_sec
    if abs(offset) > Fraction(1, FPS):
        findings.add(Code.AUDIO_OFFSET, where, f"the sound starts {float(offset):+.3f} s from the first frame")
    longer = offset + Fraction(sound.samples, sound.rate_hz) - video.duration_sec
    if longer > MAX_MISSING_PICTURE_SEC and not video.ends_early:
        findings.add(
            Code.VIDEO_STOPPED,
            where,
            f"the picture ends {float(longer):.3f} s before the sound",
            case="sound",
            severity=Severity.WARNING,
            limit=float(MAX_MISSING_PICTURE_SEC),
        )


def check_samples(findings: Findings, where: str, facts: SoundFacts, rate_hz: int | None = None) -> None:
    """What is wrong or odd about sound, wherever it is used."""
    if facts.non_finite:
        findings.add(Code.AUDIO_NON_FINITE, where, f"{facts.non_finite} samples are NaN or infinite")
    if wrong := wrong_scale(Place(), facts.peak):
        findings.found.append(findings.placed(wrong, where))
    if facts.peak == 0:
        findings.add(Code.AUDIO_SILENT, where, "every audio sample is zero")
    findings.found += [findings.placed(note, where) for note in facts.notes]
    if facts.stopped:
        findings.add(Code.AUDIO_STOPPED, where, f"{facts.samples} samples decode, then {facts.stopped}")
    if rate_hz is not None:
        rates = Fraction(rate_hz), Fraction(facts.rate_hz)
        _warn_of_rate(findings, f"{where.rpartition('.')[0]}.sample_rate", *rates, "Hz")


def check_gaps(
    findings: Findings,
    code: Code,
    where: str,
    facts: SoundFacts,
    origin: Fraction | None,
    samples: int,
    *,
    with_lead: bool = False,
) -> None:
    """Refuse sound that is not there throughout the ``samples`` that are used of it, from ``origin`` on.

    A target's sound (``with_lead``) has to be there from its first frame on; a reference's may start later.
    """
    gaps = facts.gaps_within(origin, samples, with_lead=with_lead)
    missing = sum(count for _, count in gaps)
    if missing <= MAX_SOUND_GAPS_SEC * facts.rate_hz:
        return
    first, longest = max(gaps, key=lambda gap: gap[1])
    found = (
        f"{missing / facts.rate_hz:.3f} s without sound within the {samples / facts.rate_hz:.3f} s that are used "
        f"(gaps: {len(gaps)}, the longest {longest / facts.rate_hz:.3f} s from {first / facts.rate_hz:.3f} s on)"
    )
    findings.add(code, where, found, case="holes", limit=f"{float(MAX_SOUND_GAPS_SEC):.3f}")


def _warn_of_rate(findings: Findings, where: str, given: Fraction, decoded: Fraction, unit: str) -> None:
    if abs(given - decoded) > RATE_WARNING_SHARE * decoded:
        found = f"the manifest says {float(given):g} {unit}, the decoder {float(decoded):g} {unit}"
        findings.add(Code.RATE_MISMATCH, where, found)
