"""Small packs of random content, and a slow, obvious reading of them: loops and Fractions, nothing of the loader."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor
from pathlib import Path

import numpy as np

from muvap_assets.asd.packs.layout import PackEntry, PackHeader, shard_name, write_header, write_index


@dataclass(frozen=True)
class Track:
    """One sample as it is stored, and the levels of its recording."""

    sample_id: str
    fps: str
    faces: np.ndarray
    labels: np.ndarray
    audio: np.ndarray
    padded: int = 0
    mean: float = 0.01
    rms: float = 0.1
    peak: float = 0.9
    known: bool = True


@dataclass(frozen=True)
class Chunk:
    """What the loader should give for frames [first, stop) of a track."""

    track: int
    first: int
    scored_from: int
    stop: int
    audio: np.ndarray
    faces: np.ndarray
    labels: np.ndarray
    targets: np.ndarray
    scored: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))


def random_track(rng, name, fps="25", frames=40, shape=(3, 2), **levels) -> Track:
    """A track of noise that covers its faces; its last tenth lies past the recording's end where ``padded`` says so."""
    samples = round(Fraction(frames) / Fraction(fps) * 16_000)
    padded = levels.pop("padded", 0)
    audio = rng.integers(-32768, 32768, samples).astype(np.int16)
    audio[samples - padded :] = 0
    return Track(
        name,
        fps,
        rng.integers(0, 256, (frames, *shape)).astype(np.uint8),
        rng.integers(0, 2, frames).astype(np.uint8),
        audio,
        padded,
        **levels,
    )


def write_small_pack(folder: Path, shards: list[list[Track]]) -> Path:
    """Lay tracks out as the format says, by ``np.save``."""
    rows, totals = [], [0, 0]
    for number, tracks in enumerate(shards):
        place = folder / shard_name(number)
        place.mkdir(parents=True)
        entries, frame, sample = [], 0, 0
        for track in tracks:
            entries.append(_entry(track, number, frame, sample))
            frame, sample = frame + len(track.faces), sample + len(track.audio)
        for name in ("faces", "audio", "labels"):
            np.save(place / f"{name}.npy", np.concatenate([getattr(track, name) for track in tracks]))
        rows.append(entries)
        totals = [totals[0] + frame, totals[1] + sample]
    write_index(folder, rows)
    write_header(
        folder,
        PackHeader(
            face_shape=shards[0][0].faces.shape[1:],
            shards=len(shards),
            samples=sum(map(len, shards)),
            source_frames=totals[0],
            audio_samples=totals[1],
            provenance={},
        ),
    )
    return folder


def _entry(track: Track, shard: int, frame: int, sample: int) -> PackEntry:
    return PackEntry(
        shard=shard, dataset="small", sample_id=track.sample_id, source_fps=float(Fraction(track.fps)),
        source_frames=len(track.faces), start_sec=0.0, model_frames=model_frames(track, Fraction(25)), face_offset=frame,
        audio_offset=sample, audio_samples=len(track.audio), label_offset=frame, audio_mean=track.mean,
        audio_rms=track.rms, audio_peak=track.peak, speaking_ratio=float(track.labels.mean()), recording_id="r" * 16,
        padded_samples=track.padded, clipped_samples=0, source_fps_exact=track.fps, start_sec_exact="0",
        labels_known=track.known, faces_crc32=0, audio_crc32=0, labels_crc32=0,
    )  # fmt: skip


# --- the slow reading -----------------------------------------------------------------------------------------------------


def model_frames(track: Track, model_fps: Fraction) -> int:
    """How many whole model intervals end within the track; at least one."""
    duration = Fraction(len(track.faces)) / Fraction(track.fps)
    count = 0
    while Fraction(count + 1) / model_fps <= duration:
        count += 1
    return max(count, 1)


def slow_indices(track: Track, model_fps: Fraction) -> list[int]:
    """The native frame that each model frame's centre falls into."""
    indices = []
    for k in range(model_frames(track, model_fps)):
        centre = (Fraction(k) + Fraction(1, 2)) / model_fps
        indices.append(min(floor(centre * Fraction(track.fps)), len(track.faces) - 1))
    return indices


def slow_spans(frames: int, window: int | None, context: int) -> list[tuple[int, int, int]]:
    """(first, scored_from, stop) of each chunk of a track: as few as the window allows, as equal as can be."""
    pieces = 1
    while window is not None and pieces * window < frames:
        pieces += 1
    cuts = [floor(Fraction(i * frames, pieces)) for i in range(pieces + 1)]
    return [(max(0, a - context), a, b) for a, b in pairwise(cuts)]


def slow_gain(track: Track, normalize: bool) -> tuple[float, float]:
    """Gain and mean of the recording."""
    if not normalize:
        return 1.0, 0.0
    if track.peak * 32768 < 1:
        return 1.0, track.mean
    return min(10 ** (-25 / 20) / track.rms, 10.0, 0.99 / track.peak), track.mean


def slow_audio(track: Track, first: int, frames: int, model_fps: Fraction, normalize: bool) -> np.ndarray:
    """The samples of ``frames`` model frames from ``first``, each by itself."""
    gain, mean = slow_gain(track, normalize)
    begin = floor(first * 16_000 / model_fps)
    positions = np.arange(begin, begin + floor(frames * 16_000 / model_fps))
    sounding = positions < len(track.audio) - track.padded
    stored = np.zeros(len(positions), np.int64)
    stored[sounding] = track.audio[positions[sounding]]
    exact = np.where(sounding, (stored / 32768 - mean) * gain, 0)
    product = (stored.astype(np.float32) * np.float32(gain / 32768)).astype(np.float32)
    rounded = np.where(sounding, product + np.float32(-mean * gain), np.float32(0))
    assert rounded.dtype == np.float32
    assert np.abs(rounded - exact).max(initial=0) < 2e-6
    return rounded


def slow_chunk(tracks, number, span, model_fps, normalize, targets) -> Chunk:
    """One chunk, out of the whole track."""
    track, (first, scored_from, stop) = tracks[number], span
    indices = slow_indices(track, model_fps)
    labels = np.array([track.labels[i] for i in indices], np.uint8)
    return Chunk(
        number,
        first,
        scored_from,
        stop,
        slow_audio(track, first, stop - first, model_fps, normalize),
        np.array([track.faces[i] for i in indices[first:stop]]),
        labels[first:stop],
        targets(labels)[first:stop],
        np.array([k >= scored_from for k in range(first, stop)]),
    )


def past_and_future(labels: np.ndarray) -> np.ndarray:
    """Targets [T, 3] that tell a chunk from its track: ones before, ones after, and the track's length."""
    ones = np.cumsum(labels, dtype=np.int64)
    return np.stack([ones, ones[-1] - ones, np.full(len(labels), len(labels))], axis=1).astype(np.float32)


def loud_targets(labels: np.ndarray) -> np.ndarray:
    """Targets [T] that are the labels themselves."""
    return labels
