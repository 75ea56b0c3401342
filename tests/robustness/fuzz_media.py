"""Fuzz targets over media: waveforms, recordings, pictures, videos. Everything a row can name is decoded to its end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
import soundfile
from fuzz_engine import Prepared, Target
from fuzz_mutations import damaged, flac, jpeg, mp4, npy, png, riff
from media_makers import numbered, tone, write_video
from PIL import Image

from muvap_assets.errors import ValidationError
from muvap_assets.media.audio import mono_16k_blocks, probe_audio, to_int16
from muvap_assets.media.faces import decode_jpeg_gray, open_npy_faces, read_jpeg
from muvap_assets.media.images import read_image
from muvap_assets.media.soundtrack import SoundSource, count_sound
from muvap_assets.media.video import VideoSource, count_video
from muvap_assets.media.video_faces import declared_rate, grey_picture, open_video, probe_video

Mutation = Callable[[random.Random, bytes], bytes]


def _file_target(
    path: Path, seeds: Mapping[str, bytes], structured: Mutation, run: Callable[[], bool], share: float = 0.5
) -> Prepared:
    """Cases of one file, from several valid ones; ``share`` of them are lies in its structure, the others blind damage."""
    names = sorted(seeds)
    path.write_bytes(seeds[names[0]])

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        content = seeds[rng.choice(names)]
        if rng.random() < share:
            content = structured(rng, content)
            yield path, damaged(rng, content) if rng.random() < 0.15 else content
        else:
            yield path, damaged(rng, content, list(seeds.values()))

    return Prepared(make, run)


def _saved(array: np.ndarray, **options: object) -> bytes:
    stream = BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def _npy_faces(folder: Path) -> Prepared:
    path = folder / "faces.npy"
    rng = np.random.default_rng(0)
    seeds = {
        "uint8": _saved(rng.integers(0, 255, (3, 4, 5), np.uint8)),
        "second": _saved(rng.integers(0, 255, (2, 2, 2), np.uint8)),
        "object": _saved(np.array([{"a": 1}, None], dtype=object), allow_pickle=True),
    }

    def run() -> bool:
        faces = open_npy_faces(path)
        faces.fingerprint()
        pixels = np.empty((1, *faces.shape[1:]), np.uint8)
        for first in range(min(faces.shape[0], 4)):
            faces.read_into(first, pixels)
        return True

    path.write_bytes(seeds["uint8"])
    prepared = _file_target(path, seeds, npy, run, 0.6)
    path.write_bytes(seeds["uint8"])
    return prepared


def _heard(path: Path, rate_hz: int | None = None) -> bool:
    probe = probe_audio(path, rate_hz)
    samples = 0
    with closing(mono_16k_blocks(path, rate_hz)) as blocks:
        for block in blocks:
            samples += len(to_int16(block)[0])
    if samples != probe.samples_16k:
        raise AssertionError(f"{samples} samples came out, {probe.samples_16k} were promised")
    return True


def _npy_sound(folder: Path) -> Prepared:
    path = folder / "sound.npy"
    wave = tone(300, 2, 16_000)
    seeds = {
        "f4": _saved(wave),
        "i2": _saved((wave[0] * 20_000).astype(np.int16)),
        "f8": _saved(np.asfortranarray(wave.T.astype(np.float64))),
    }
    return _file_target(path, seeds, npy, lambda: _heard(path, 16_000), 0.6)


def _written(samples: np.ndarray, rate: int, **options: str) -> bytes:
    stream = BytesIO()
    soundfile.write(stream, samples.T, rate, **options)
    return stream.getvalue()


def _counted(path: Path) -> bool:
    facts = count_sound(path)
    with SoundSource(path) as source:
        samples = sum(block.shape[1] for block in source.blocks(Fraction(1, 50)))
    return facts.samples >= 0 and samples >= 0


def _both(path: Path) -> Callable[[], bool]:
    """What hears recordings of corpora, and what hears references; either may refuse what the other takes."""

    def run() -> bool:
        accepted = False
        faults = []
        for hear in (_heard, _counted):
            try:
                accepted = hear(path) or accepted
            except ValidationError as error:
                faults.append(error)
        if not accepted:
            raise faults[0]
        return True

    return run


def _wav(folder: Path) -> Prepared:
    path, wave = folder / "sound.wav", tone(600, 2, 16_000)
    seeds = {
        "plain": _written(wave[:1], 16_000, format="WAV", subtype="PCM_16"),
        "stereo": _written(wave, 44_100, format="WAV", subtype="PCM_24"),
        "float": _written(wave[:1], 8_000, format="WAV", subtype="FLOAT"),
        "extensible": _written(wave, 32_000, format="WAVEX", subtype="PCM_16"),
        "rf64": _written(wave[:1], 16_000, format="RF64", subtype="PCM_16"),
    }
    prepared = _file_target(path, seeds, riff, _both(path))
    path.write_bytes(seeds["plain"])
    return prepared


def _flac(folder: Path) -> Prepared:
    path, wave = folder / "sound.flac", tone(600, 2, 16_000)
    seeds = {
        "mono": _written(wave[:1], 16_000, format="FLAC", subtype="PCM_16"),
        "stereo": _written(wave, 44_100, format="FLAC", subtype="PCM_24"),
    }
    return _file_target(path, seeds, flac, _both(path), 0.4)


def _pictures(kind: str) -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    colour = Image.fromarray(rng.integers(0, 255, (12, 10, 3), np.uint8))
    made = {
        "colour": colour,
        "grey": colour.convert("L"),
        "palette": colour.convert("P"),
        "alpha": colour.convert("RGBA"),
    }
    seeds = {}
    for name, image in made.items():
        if kind == "JPEG" and name in ("palette", "alpha"):
            continue
        stream = BytesIO()
        exif = Image.Exif()
        exif[0x0112] = 6
        image.save(stream, kind, exif=exif, **({"progressive": name == "grey"} if kind == "JPEG" else {}))
        seeds[name] = stream.getvalue()
    return seeds


def _jpeg(folder: Path) -> Prepared:
    path = folder / "12.48.jpg"
    out = np.empty((112, 112), np.uint8)

    def run() -> bool:
        try:
            decode_jpeg_gray(read_jpeg(path), out, path)
        except ValidationError:
            read_image(path)  # the other line's reader may still take it
            return False
        return True

    return _file_target(path, _pictures("JPEG"), jpeg, run)


def _png(folder: Path) -> Prepared:
    path = folder / "picture.png"

    def run() -> bool:
        return read_image(path).mode == "RGB"

    return _file_target(path, _pictures("PNG"), png, run)


def _tiny_video(path: Path, **options: object) -> bytes:
    picture = [numbered(index, 16, 16) for index in range(3)]
    write_video(path, frames=picture, fps=25, **options)
    return path.read_bytes()


def _mp4(folder: Path) -> Prepared:
    path = folder / "clip.mp4"
    sound = tone(2400, 2, 16_000)
    seeds = {
        "h264": _tiny_video(folder / "a.mp4", sound=sound, rate=16_000, sound_codec="aac"),
        "turned": _tiny_video(folder / "b.mp4", rotation=(90, True)),
        "mpeg4": _tiny_video(folder / "c.mov", codec="mpeg4", sound=sound[:1], rate=16_000),
    }

    def look() -> None:
        count_video(path)
        rate = declared_rate(path)
        probe_video(path, rate)
        with open_video(path) as source:
            for frame in source.frames():
                grey_picture(frame)
                frame.pixels()
        with VideoSource(path) as source:
            for _ in source.frames(Fraction(25)):
                pass

    def run() -> bool:
        accepted = False
        faults = []
        for use in (look, lambda: count_sound(path), lambda: probe_audio(path, None, True), lambda: _resampled(path)):
            try:
                use()
                accepted = True
            except ValidationError as error:
                faults.append(error)
        if not accepted:
            raise faults[0]
        return not faults

    prepared = _file_target(path, seeds, mp4, run, 0.7)
    path.write_bytes(seeds["h264"])
    return prepared


def _resampled(path: Path) -> None:
    with closing(mono_16k_blocks(path, None, 16_000, True)) as blocks:
        for _ in blocks:
            pass


MEDIA_TARGETS = (
    Target("npy_faces", _npy_faces),
    Target("npy_sound", _npy_sound),
    Target("wav", _wav),
    Target("flac", _flac),
    Target("jpeg", _jpeg),
    Target("png", _png),
    Target("mp4", _mp4),
)
_ = cv2  # imported before cases run, so that its memory counts as the valid files' own
