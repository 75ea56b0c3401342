"""The sound of a video, as the recording its faces are heard on: placed by timestamps against the first frame shown.

    container   ..|== sound ======================|
                .....|-- frame 0 --|-- frame 1 --|
    here             0=============================     what is earlier is cut off, what is missing is silence

The only compressed sound that is read: the audio of rows whose faces come from the same video, because cutting it out to a
file beforehand would lose where it belongs.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import MediaError, ViolationCode
from muvap_assets.media.soundtrack import Gap, SoundSource, lead_samples
from muvap_assets.media.video import VideoSource


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoSound:
    """The sound of a video, not decoded yet. ``origin_sec`` and ``first_sec`` are the first frame's and the first sample's
    time on the container's clock."""

    rate_hz: int
    channels: int
    origin_sec: Fraction
    first_sec: Fraction

    @property
    def offset_sec(self) -> Fraction:
        """How much later than the first frame the sound starts; negative where it starts before."""
        return self.first_sec - self.origin_sec


def open_video_sound(path: Path) -> VideoSound:
    """Find out where the sound of a video lies; decodes its first frames and samples.

    Raises:
        MediaError: it is unreadable (VIDEO_UNREADABLE, AUDIO_UNREADABLE), has no sound (AUDIO_MISSING), or channels
            without a rule (AUDIO_CHANNELS).
    """
    with VideoSource(path) as video:
        next(video.frames())
        origin = video.first_sec
    with SoundSource(path) as sound:
        return VideoSound(rate_hz=sound.rate_hz, channels=sound.channels, origin_sec=origin, first_sec=sound.first_sec)


def video_sound_blocks(
    path: Path, origin_sec: Fraction, holes: list[Gap] | None = None
) -> Generator[npt.NDArray[np.float32]]:
    """float32 [n, 2] at the sound's own rate, the first sample at ``origin_sec`` of the container's clock.

    Once all are taken, ``holes`` has which of them the video does not have: before its sound begins, and in gaps.

    Raises:
        MediaError: AUDIO_UNREADABLE where decoding stops early.
    """
    decoded = 0
    with SoundSource(path) as sound:
        for block in sound.blocks(origin_sec):
            decoded += block.shape[1]
            yield np.ascontiguousarray(block.T)
        lead = lead_samples(sound.first_sec, origin_sec, sound.rate_hz)
        if holes is not None:
            holes.extend([(0, lead)] * (lead > 0) + sound.gaps)
        if sound.stopped:
            raise MediaError(
                ViolationCode.AUDIO_UNREADABLE,
                str(path),
                found=f"decoding stopped after {decoded} samples ({sound.stopped})",
                required="sound that decodes to its end",
                hint="Copy or download the video again, or leave it out.",
            )
