"""One clip of a pack on its own time axis: sound, native labels, labels at 25 Hz, and faces.

A shift between sound and labels, a wrong frame rate and a mistake of the model timeline all show here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import AUDIO_RATE_HZ
from muvap_assets.asd.packs.reader import PackedSample, PackReader
from muvap_assets.asd.timeline import MODEL_FPS, FrameRate, source_indices
from muvap_assets.pictures.canvas import (
    BLUE,
    FONT_PT,
    INK,
    ORANGE,
    PAPER,
    WIDTH_PX,
    Picture,
    encoded,
    new_figure,
    own_style,
    plain_axes,
    shortened,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LONGEST_SEC = 8
_LOOKED_AT, _FACES, _HEIGHT_PX = 200, 7, 580
_FULL_SCALE = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The beginning of a clip, all of it from the clip's start on.

    ``audio`` int16 [samples] at 16 kHz; ``labels`` uint8 [frames] at ``source_fps``; ``model_labels`` uint8 [model frames] at
    25 Hz; ``faces`` uint8 [n, H, W], shown at ``face_times`` float64 [n] seconds, the centres of their frames.
    """

    sample_id: str
    source_fps: FrameRate
    seconds: float
    audio: npt.NDArray[np.int16]
    labels: npt.NDArray[np.uint8]
    model_labels: npt.NDArray[np.uint8]
    faces: npt.NDArray[np.uint8]
    face_times: npt.NDArray[np.float64]


@own_style()
def alignment_picture(pack: PackReader) -> Picture:
    """The first eight seconds of the clip whose label changes most often, of at most 200 that are looked at."""
    position = chosen_position(pack)
    strip = read_strip(pack[position])
    return Picture(
        name="alignment",
        title="Sound, labels and faces of one clip on one time axis",
        caption=f"Clip {strip.sample_id}, {strip.seconds:.2f} s of it at {strip.source_fps.text} frames/s, chosen for its "
        f"changes of label out of {min(len(pack), _LOOKED_AT)} of {len(pack)} clips. Model frames show the native frame at "
        "their centre.",
        png=encoded(alignment_figure(strip)),
    )


def chosen_position(pack: PackReader) -> int:
    """The clip with the most changes of label in what would be shown of it; the first of equals."""

    def changes(position: int) -> int:
        sample = pack[position]
        return int(np.count_nonzero(np.diff(sample.labels[: _frames_shown(sample)])))

    return max(spread(len(pack), _LOOKED_AT), key=changes)


def _frames_shown(sample: PackedSample) -> int:
    return min(len(sample.labels), int(LONGEST_SEC * sample.source_fps.value))


def read_strip(sample: PackedSample) -> Strip:
    """What is shown of a sample. Labels at 25 Hz are those of the native frames that the model timeline shows."""
    fps, count = sample.source_fps, _frames_shown(sample)
    seconds = count / fps.value
    shown = source_indices(len(sample.labels), fps)
    shown = shown[: max(1, int(seconds * MODEL_FPS))]
    # The centres of as many equal parts of the time axis, so that a face stands over its own time.
    parts = min(_FACES, count)
    frames = np.array([int(Fraction(2 * part + 1, 2 * parts) * count) for part in range(parts)])
    return Strip(
        sample_id=sample.entry.sample_id,
        source_fps=fps,
        seconds=float(seconds),
        audio=np.array(sample.audio[: round(seconds * AUDIO_RATE_HZ)]),
        labels=np.array(sample.labels[:count]),
        model_labels=np.array(sample.labels)[shown],
        faces=np.array(sample.faces[frames]),
        face_times=(frames + 0.5) / float(fps.value),
    )


def alignment_figure(strip: Strip) -> Figure:
    """The four rows, one below the other."""
    figure = new_figure(WIDTH_PX, _HEIGHT_PX)
    faces, sound, native, model = figure.subplots(4, 1, sharex=True, height_ratios=(1.3, 1.5, 0.5, 0.5))
    _draw_faces(faces, strip)
    _draw_sound(sound, strip)
    _draw_labels(native, strip.labels, float(strip.source_fps.value), f"Native labels, {_rate(strip)} frames/s", BLUE)
    _draw_labels(model, strip.model_labels, MODEL_FPS, f"Labels on the model timeline, {MODEL_FPS} frames/s", ORANGE)
    for axes in (sound, native, model):
        plain_axes(axes)
    model.set_xlim(0, strip.seconds)
    model.set_xlabel("time from the clip's start (s)", fontsize=FONT_PT, color=INK)
    return figure


def _rate(strip: Strip) -> str:
    return shortened(strip.source_fps.text, 10)


def _draw_faces(axes: Axes, strip: Strip) -> None:
    part = strip.seconds / len(strip.faces)
    for index, (face, time) in enumerate(zip(strip.faces, strip.face_times, strict=True)):
        left = index * part + part * 0.02
        axes.imshow(
            face,
            cmap="gray",
            vmin=0,
            vmax=255,
            extent=(left, left + part * 0.96, 0.08, 1),
            aspect="auto",
            interpolation="nearest",
        )
        axes.plot([time, time], [-0.02, 0.08], color=INK, linewidth=2)
    axes.set_ylim(-0.02, 1)
    axes.set_yticks([])
    axes.tick_params(bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)
    axes.set_facecolor(PAPER)
    title = f"Clip {shortened(strip.sample_id, 60)}: native faces, each at its mark"
    axes.set_title(title, fontsize=FONT_PT + 1, color=INK, loc="left", parse_math=False)


def _draw_sound(axes: Axes, strip: Strip) -> None:
    """The least and the greatest sample of each of some 800 stretches: what a line through all of them would fill."""
    scaled = strip.audio.astype(np.float64) / _FULL_SCALE
    size = max(1, len(scaled) // 800)
    whole = len(scaled) // size * size
    blocks = scaled[:whole].reshape(-1, size)
    times = (np.arange(len(blocks)) + 0.5) * size / AUDIO_RATE_HZ
    if len(blocks):
        axes.fill_between(times, blocks.min(axis=1), blocks.max(axis=1), color=INK, linewidth=0.6, step="mid")
    loudest = max(float(np.abs(scaled).max(initial=0)), 0.01)
    axes.set_ylim(-1.1 * loudest, 1.1 * loudest)
    axes.set_title("Sound", fontsize=FONT_PT, color=INK, loc="left", pad=3)
    axes.set_ylabel("amplitude (full scale)", fontsize=FONT_PT, color=INK)


def _draw_labels(axes: Axes, labels: npt.NDArray[np.uint8], rate: float, name: str, colour: str) -> None:
    edges = np.arange(len(labels) + 1) / rate
    axes.stairs(labels, edges, fill=True, color=colour, alpha=0.35)
    axes.stairs(labels, edges, color=colour, linewidth=1.5)
    axes.set_ylim(-0.1, 1.25)
    axes.set_yticks([0, 1], ["silent", "speaking"])
    axes.set_title(name, fontsize=FONT_PT, color=INK, loc="left", pad=3)
