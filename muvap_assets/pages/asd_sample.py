"""The page of one sample of a pack: its sound, its faces and what is trained on them, on one axis of seconds.

    seconds        0 ......................... 2.536            of the sample
    sound          |~~~~~~~~~~~~~~~~~~~~~~~~~~~|               as packed: 16 kHz, the recording's own gain
    faces          |[ ][ ][ ][ ][ ][ ][ ][ ][ ]|               native frames, lossless
    native label   |____####____####____####___|               a native frame j is [j, j + 1) / source_fps
    25 Hz label    |____####____####____####___|               a model frame k is [k, k + 1) / 25
    targets        |____####____####____####___|  a bin a row

The script places a time by integers alone: native frame floor(t * source_fps), model frame floor(t * 25). What a model
frame shows, and the loader's gain, are the loader's own (``Tracks``); targets are made of the whole track.

Source: the audio-visual data contract, "Canonical timeline" and "Audio".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import AUDIO_RATE_HZ
from muvap_assets.asd.levels import FULL_SCALE, LoudnessTarget
from muvap_assets.asd.packs.reader import PackedSample, PackReader
from muvap_assets.asd.packs.set_aside import read_set_aside
from muvap_assets.asd.targets import INDEPENDENT_WINDOW, independent
from muvap_assets.asd.timeline import MODEL_FPS, FrameRate
from muvap_assets.asd.tracks import Tracks
from muvap_assets.errors import ConfigError
from muvap_assets.pages.document import MAX_MEDIA_BYTES, Markup, definitions, document, element, foreign, unknown_name
from muvap_assets.pages.lanes import Axis, Frames, activity_lane, lane, ticks_lane, wave_lane
from muvap_assets.pages.media import sheet_size, sheet_uris, wav_uri

_SECONDS = re.compile(r"\d{1,9}(\.\d{1,9})?|\d{1,9}/0*[1-9]\d{0,8}")
_TICKS_A_SECOND = 1_000_000
_SHORTEST = Fraction(1, 1000)
"""Of a part, in seconds: no frame is shorter, and it has ticks and samples."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Which seconds of a sample to show; ``None`` for ``seconds`` is all that follows."""

    start: Fraction = Fraction(0)
    seconds: Fraction | None = None

    @classmethod
    def parse(cls, start: str | None, seconds: str | None) -> Part:
        """Of what a user wrote: decimals or fractions.

        Raises:
            ConfigError: one is no number of seconds, or the length is under a millisecond.
        """
        length = None if seconds is None else _seconds("--seconds", seconds)
        if length is not None and length < _SHORTEST:
            raise ConfigError(f"--seconds: {seconds!r}; required: 0.001 or more. Leave it out for all that follows.")
        return cls(start=Fraction(0) if start is None else _seconds("--start-sec", start), seconds=length)


def _seconds(option: str, text: str) -> Fraction:
    if not _SECONDS.fullmatch(text.strip()):
        raise ConfigError(f"{option}: {text!r}; required: seconds, a decimal or a fraction. Write 12.5 or 25/2.")
    return Fraction(text.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """The part of a sample that is shown, in every unit: all ranges are half open and count from the sample's begin.

    ``frames`` are native ones and hold also those that the model frames at both ends show.
    """

    axis: Axis
    frames: range
    native: range
    model: range
    samples: range


def sample_page(pack: Path, sample_id: str, part: Part) -> str:
    """The page of a sample.

    Raises:
        ConfigError: the pack has no such sample, the part lies outside of it, or is more than a page may hold.
        FormatError: the pack cannot be opened, or is not what its format promises.
    """
    reader = PackReader(pack)
    try:
        position = reader.position_of(sample_id)
    except KeyError:
        for finding in read_set_aside(reader.path):
            if finding.sample_id == sample_id:
                raise ConfigError(f"{pack}: the track was set aside when it was packed: {finding.message()}") from None
        ids = reader.text_column("sample_id").to_pylist()
        raise unknown_name(Path(pack), "sample", sample_id, ids) from None
    sample, tracks = reader[position], Tracks([reader.path], FrameRate.parse(MODEL_FPS))
    indices = tracks.indices(position)
    shown = _shown(sample, indices, part)
    gain = float(tracks.gains(LoudnessTarget())[0][position]) * FULL_SCALE
    targets = independent(sample.labels[indices]) if sample.entry.labels_known else None
    body = element(
        "main",
        element("header", element("p", "Sample of a pack", class_="kind"), element("h1", foreign(sample_id))),
        _notice(sample, shown),
        element(
            "noscript", element("p", "Faces and the slider need JavaScript; nothing is loaded.", class_="notice part")
        ),
        _viewer(sample, shown),
        _timeline(sample, shown, indices, targets),
        element("h2", "What it is"),
        definitions(_facts(sample, gain, reader.path.name)),
        aria_busy="true",
    )
    data = _data(sample, shown, indices, targets)
    return document(title=f"{sample_id} · sample", body=body, script="asd_sample.js", data=data)


def _duration(sample: PackedSample) -> Fraction:
    return sample.entry.source_frames / sample.source_fps.value


def _shown(sample: PackedSample, indices: npt.NDArray[np.int64], part: Part) -> _Shown:
    whole, fps, entry = _duration(sample), sample.source_fps.value, sample.entry
    if part.start > whole - _SHORTEST:
        raise ConfigError(
            f"{entry.sample_id}: --start-sec {_decimal(part.start)}; required: less than its {_decimal(whole)} seconds, by a "
            "millisecond or more. Start earlier."
        )
    stop = whole if part.seconds is None else min(part.start + part.seconds, whole)
    native = range(math.floor(part.start * fps), math.ceil(stop * fps))
    model = range(min(math.floor(part.start * MODEL_FPS), len(indices)), min(math.ceil(stop * MODEL_FPS), len(indices)))
    seen = [native[0], native[-1], *indices[model.start : model.stop].tolist()]
    samples = range(
        min(math.floor(part.start * AUDIO_RATE_HZ), entry.audio_samples),
        min(math.floor(stop * AUDIO_RATE_HZ), entry.audio_samples) if stop < whole else entry.audio_samples,
    )
    shown = _Shown(
        axis=Axis(part.start, stop), frames=range(min(seen), max(seen) + 1), native=native, model=model, samples=samples
    )
    face_bytes = math.prod(sample.faces.shape[1:])
    needed = len(shown.frames) * face_bytes + 2 * len(samples)
    if needed > MAX_MEDIA_BYTES:
        # a part begins and ends within frames, and the model frames there may show one more on each side
        room = max(MAX_MEDIA_BYTES - 3 * face_bytes, face_bytes)
        fits = _decimal(Fraction(math.floor(100 * room / (fps * face_bytes + 2 * AUDIO_RATE_HZ)), 100))
        raise ConfigError(
            f"{entry.sample_id}: {_decimal(stop - part.start)} seconds are {needed:,} bytes of faces and sound; required: at "
            f"most {MAX_MEDIA_BYTES:,} a page, about {fits} seconds of this one. Show a part of it: --start-sec 0 "
            f"--seconds {fits}."
        )
    return shown


# --- markup ---------------------------------------------------------------------------------------------------------------


def _notice(sample: PackedSample, shown: _Shown) -> Markup:
    axis, whole = shown.axis, _duration(sample)
    native = f"native frames {shown.native.start} to {shown.native.stop - 1} of {sample.entry.source_frames}"
    if axis == Axis(Fraction(0), whole):
        text = f"The whole sample: {_decimal(whole)} seconds, {native}."
        return element("p", text, class_="notice")
    text = f"A part: seconds {_decimal(axis.start)} to {_decimal(axis.stop)} of {_decimal(whole)}, {native}. The rest is not here."
    return element("p", text, class_="notice part")


def _viewer(sample: PackedSample, shown: _Shown) -> Markup:
    height, width = sample.faces.shape[1:]
    uri = wav_uri(sample.audio[shown.samples.start : shown.samples.stop], AUDIO_RATE_HZ)
    faces = [
        element(
            "figure",
            element("canvas", id=f"face-{name}", width=width, height=height, role="img", aria_label=caption),
            element("figcaption", element("strong", caption), element("span", id=f"about-{name}")),
        )
        for name, caption in (("native", "Face at this time"), ("model", "Face of the model frame"))
    ]
    audio = element("audio", controls=True, preload="auto", src=uri)
    rows = (
        ("Time", "time"),
        ("Native frame", "native-frame"),
        ("Native label", "native-label"),
        ("Model frame, 25 Hz", "model-frame"),
        ("shows native frame", "model-shows"),
        ("25 Hz label", "model-label"),
        ("Targets, past | future", "targets"),
    )
    readings = element(
        "dl",
        *(element("div", element("dt", name), element("dd", element("output", id=key))) for name, key in rows),
        class_="readings",
    )
    return element("section", *faces, element("div", readings, audio), class_="viewer", aria_label="At this time")


def _timeline(
    sample: PackedSample, shown: _Shown, indices: npt.NDArray[np.int64], targets: npt.NDArray[np.uint8] | None
) -> Markup:
    axis, entry, fps = shown.axis, sample.entry, sample.source_fps.value
    sounding = entry.audio_samples - entry.padded_samples
    samples = sample.audio[shown.samples.start : shown.samples.stop]
    peak = int(np.abs(samples.astype(np.int32)).max(initial=0)) / FULL_SCALE
    wave = wave_lane(axis, samples, shown.samples.start, AUDIO_RATE_HZ, silent_from=sounding, label="sound")
    rows = [
        ("seconds", ticks_lane(axis)),
        (f"sound, peak {_dbfs(peak)}", wave),
        ("faces", element("canvas", id="strip", class_="lane strip", role="img", aria_label="faces along the time")),
    ]
    if targets is None:
        unknown = lane(kind="unknown", label="labels are not known")
        rows.append(("labels: not known", unknown))
    else:
        native = Frames(sample.labels[shown.native.start : shown.native.stop], shown.native.start, fps)
        labels = sample.labels[indices[shown.model.start : shown.model.stop]]
        model = Frames(labels, shown.model.start, Fraction(MODEL_FPS))
        rows.append((f"native label, {sample.source_fps.text} fps", _labels(axis, native, "native")))
        rows.append(("label at 25 Hz", _labels(axis, model, "model")))
        for name, bins in zip(_bin_names(), targets.T, strict=True):
            made = Frames(bins[shown.model.start : shown.model.stop], shown.model.start, Fraction(MODEL_FPS))
            rows.append((f"target, {name}", activity_lane(axis, made, kind="target", label=f"target, {name}")))
    lanes = [part for name, drawn in rows for part in (element("span", name, class_="name"), drawn)]
    first, last = _ticks(axis)
    slider = element(
        "input", type="range", id="scrubber", min=first, max=last, value=first, step=1, aria_label="time in the sample"
    )
    keys = "Left and right: a native frame. Page up and down: a model frame. Home and end. Space: play. Click a lane to go there."
    overlay = element("div", element("div", id="cursor"), class_="overlay")
    timeline = element("div", element("span", "time", class_="name"), slider, *lanes, overlay, class_="timeline")
    return element("section", timeline, element("p", keys, class_="hint"), aria_label="Timeline")


def _labels(axis: Axis, frames: Frames, kind: str) -> Markup:
    speaking = int(frames.values.sum())
    return activity_lane(
        axis, frames, kind=kind, label=f"{kind} label, speaking in {speaking} of {len(frames.values)} frames"
    )


def _bin_names() -> list[str]:
    past = INDEPENDENT_WINDOW.num_hist_bins
    return [f"{'past' if i < past else 'future'} {seconds} s" for i, seconds in enumerate(INDEPENDENT_WINDOW.bins_sec)]


def _facts(sample: PackedSample, gain: float, version: str) -> list[tuple[str, str]]:
    entry = sample.entry
    height, width = sample.faces.shape[1:]
    speaking = f"{entry.speaking_ratio:.1%} of the native frames" if entry.labels_known else "not known"
    return [
        ("dataset", foreign(entry.dataset)),
        ("pack", foreign(version)),
        ("recording", entry.recording_id),
        ("starts on its recording", f"{_decimal(sample.start_sec)} s ({entry.start_sec_exact})"),
        ("frame rate", f"{entry.source_fps_exact} frames a second, native"),
        ("native frames", f"{entry.source_frames}, grey {width} x {height}"),
        ("model frames", f"{entry.model_frames} at {MODEL_FPS} a second"),
        ("speaking", speaking),
        ("sound", f"{entry.audio_samples:,} samples at {AUDIO_RATE_HZ:,} Hz, {entry.clipped_samples:,} clipped"),
        ("past the recording's end", f"{entry.padded_samples:,} samples of silence"),
        (
            "recording's level",
            f"RMS {_dbfs(entry.audio_rms)}, peak {_dbfs(entry.audio_peak)}, mean {entry.audio_mean:+.6f}",
        ),
        ("loader's gain", f"{gain:.4f} ({20 * math.log10(gain):+.2f} dB), after the mean is removed; not applied here"),
    ]


def _data(
    sample: PackedSample, shown: _Shown, indices: npt.NDArray[np.int64], targets: npt.NDArray[np.uint8] | None
) -> dict[str, Any]:
    height = sample.faces.shape[1]
    fps, model = sample.source_fps.value, slice(shown.model.start, shown.model.stop)
    audio_start = Fraction(shown.samples.start, AUDIO_RATE_HZ)
    known = targets is not None
    frames = slice(shown.frames.start, shown.frames.stop)
    return {
        "ticksASecond": _TICKS_A_SECOND,
        "fps": [str(fps.numerator), str(fps.denominator)],
        "modelFps": [str(MODEL_FPS), "1"],
        "audioStartSec": float(audio_start),
        "firstFrame": shown.frames.start,
        "labels": "".join(map(str, sample.labels[frames].tolist())) if known else None,
        "firstModel": shown.model.start,
        "shows": indices[model].tolist(),
        "targets": ["".join(map(str, bins)) for bins in targets[model].tolist()] if targets is not None else None,
        "pastBins": INDEPENDENT_WINDOW.num_hist_bins,
        "facesASheet": sheet_size(height),
        "sheets": sheet_uris(sample.faces[frames]),
    }


def _ticks(axis: Axis) -> tuple[int, int]:
    """The first and the last microsecond within the axis."""
    return math.ceil(axis.start * _TICKS_A_SECOND), math.ceil(axis.stop * _TICKS_A_SECOND) - 1


def _decimal(seconds: Fraction) -> str:
    return f"{float(seconds):.6f}".rstrip("0").rstrip(".")


def _dbfs(level: float) -> str:
    return f"{20 * math.log10(level):.1f} dBFS" if level > 0 else "silent"
