"""What will be encoded of a reference, by the inference rules (``MiniMaxH3Ref2VASetupStep`` and the encoder steps after it).

image        brought to a short edge of 2048 and multiples of 32
video        24 fps, cut to the target's length, on the canvas of its own aspect ratio; at least 13 frames
audio        cut to the target's duration at its own rate, then brought to 32 kHz
video_audio  both
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from muvap_assets.codes import Code
from muvap_assets.media.soundtrack import SoundFacts
from muvap_assets.media.video import VideoFacts
from muvap_assets.ref2va.contract import (
    MIN_REFERENCE_FRAMES,
    DatasetOptions,
    ModelSizes,
    PresentedReference,
    Reference,
    ReferenceGeometry,
    ReferenceKind,
    Size,
)
from muvap_assets.ref2va.findings import (
    Findings,
    check_gaps,
    check_samples,
    check_video,
    describe_video,
    video_frames_at_24,
    warn_of_colour,
    warn_of_own_sound,
)
from muvap_assets.ref2va.geometry import (
    encoded_reference_frames,
    is_supported_aspect,
    reference_audio_limit,
    reference_geometry,
    reference_image_size,
    reference_video_frames,
    resampled_count,
    resolve_canvas,
)
from muvap_assets.ref2va.media_facts import MediaFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePlan:
    """One reference as it will be prepared; ``reference`` is resolved.

    ``size`` in pixels (``None`` for audio); ``num_frames`` at 24 fps, cut to the target's length, 1 for an image;
    ``audio_samples`` at 32 kHz a channel, made of sound at ``audio_rate_hz``; ``audio_origin_sec`` the first timestamp of
    its own video, where its sound comes from the same file, else ``None``: from the sound's first sample.
    """

    reference: Reference
    size: Size | None = None
    num_frames: int = 0
    audio_samples: int = 0
    audio_rate_hz: int = 0
    audio_origin_sec: Fraction | None = None

    @property
    def kind(self) -> ReferenceKind:
        """As the manifest declares it."""
        return self.reference.kind

    @property
    def encoded_frames(self) -> int:
        """Of ``num_frames``, those the video VAE encodes."""
        return encoded_reference_frames(self.num_frames)

    @property
    def presented(self) -> PresentedReference:
        """What the conditioner is shown of it."""
        return PresentedReference(kind=self.kind, size=self.size, frames=self.num_frames)

    @property
    def geometry(self) -> ReferenceGeometry:
        """The latent geometry its encoding will have."""
        frames = self.encoded_frames if self.size else 1
        return reference_geometry(self.kind, size=self.size, frames=frames, audio_samples=self.audio_samples)


def plan_reference(
    findings: Findings,
    where: str,
    reference: Reference,
    *,
    num_frames: int | None,
    facts: MediaFacts,
    options: DatasetOptions,
) -> ReferencePlan | None:
    """The plan of one resolved reference, or ``None`` with the reasons in ``findings``.

    Args:
        findings: collects what is wrong.
        where: its field name.
        reference: resolved.
        num_frames: of the target; ``None`` where the target is refused: its media is still checked, but not planned.
        facts: counts of its files.
        options: the dataset's.
    """
    if reference.image is not None:
        return _plan_image(findings, where, reference, facts, options)
    video = None
    plan: ReferencePlan | None = ReferencePlan(reference=reference)
    if reference.video is not None:
        path = reference.video
        video = findings.attempt(f"{where}.video", lambda: facts.video(path))
        plan = None
        if video is not None:
            plan = _plan_video(findings, where, reference, video, num_frames=num_frames, sizes=options.sizes)
    if reference.audio is None:
        return plan
    source = reference.audio
    sound = findings.attempt(f"{where}.audio", lambda: facts.sound(source, reference.audio_stream))
    if sound is None:
        return None
    check_samples(findings, f"{where}.audio", sound, reference.sample_rate_hz)
    if plan is None or num_frames is None:
        return None
    return _with_sound(findings, where, plan, sound, num_frames=num_frames, video=video)


def _plan_image(
    findings: Findings, where: str, reference: Reference, facts: MediaFacts, options: DatasetOptions
) -> ReferencePlan | None:
    path = reference.image
    image = None if path is None else findings.attempt(f"{where}.image", lambda: facts.image(path))
    if image is None:
        return None
    warn_of_colour(findings, f"{where}.image", image.colour)
    size = Size(image.width, image.height)
    if not is_supported_aspect(size):
        findings.add(Code.IMAGE_ASPECT, f"{where}.image", f"{size} pixels")
        return None
    return ReferencePlan(reference=reference, size=reference_image_size(size, options.sizes), num_frames=1)


def _plan_video(
    findings: Findings,
    where: str,
    reference: Reference,
    video: VideoFacts,
    *,
    num_frames: int | None,
    sizes: ModelSizes,
) -> ReferencePlan | None:
    check_video(findings, f"{where}.video", video, reference.fps)
    size = Size(video.width, video.height)
    if not is_supported_aspect(size):
        findings.add(Code.VIDEO_ASPECT, f"{where}.video", f"{size} pixels")
    if num_frames is None:
        return None
    frames = reference_video_frames(video_frames_at_24(video, reference.fps), num_frames)
    if frames < MIN_REFERENCE_FRAMES:
        found = f"{describe_video(video, reference.fps)}; cut to the target's {num_frames} frames that leaves {frames}"
        findings.add(Code.REFERENCE_SHORT, f"{where}.video", found, least=MIN_REFERENCE_FRAMES)
    if frames < MIN_REFERENCE_FRAMES or not is_supported_aspect(size):
        return None
    return ReferencePlan(reference=reference, size=resolve_canvas(size, sizes), num_frames=frames)


def _with_sound(
    findings: Findings,
    where: str,
    plan: ReferencePlan,
    sound: SoundFacts,
    *,
    num_frames: int,
    video: VideoFacts | None,
) -> ReferencePlan | None:
    """The plan with its sound, cut at its own rate to the target's duration before it is resampled (blocks)."""
    reference = plan.reference
    own_video = video is not None and reference.audio == reference.video
    origin = video.first_sec if video is not None and own_video else None
    rate_hz = reference.sample_rate_hz or sound.rate_hz
    available = sound.samples if origin is None else sound.samples_from(origin)
    used = min(available, reference_audio_limit(num_frames, rate_hz))
    samples = resampled_count(used, rate_hz)
    if samples == 0:
        found = f"{available} samples at {rate_hz} Hz within the target's {num_frames} frames"
        findings.add(Code.AUDIO_EMPTY, f"{where}.audio", found)
        return None
    check_gaps(findings, Code.REFERENCE_SHORT, f"{where}.audio", sound, origin, used)
    if video is not None and own_video:
        warn_of_own_sound(findings, f"{where}.audio", video, sound)
    return replace(plan, audio_samples=samples, audio_rate_hz=rate_hz, audio_origin_sec=origin)
