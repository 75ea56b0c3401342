"""Rows with random media for encoder tests: everything is drawn from seeds, so that expected values can be computed apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from muvap_assets.ref2va.contract import Format, Geometry, PresentedReference, ReferenceKind, Size, TokenPlan
from muvap_assets.ref2va.encoder import (
    Component,
    EncoderFingerprint,
    MediaBlock,
    ReferenceInput,
    RowInput,
    Stage,
    Tensors,
)
from muvap_assets.ref2va.geometry import audio_latents_of, target_audio_samples, target_video_shape

GEOMETRY = Geometry(128, 64, 22)
SIZE = Size(96, 64)


def frames(seed: int, count: int, size: Size) -> np.ndarray:
    """Smooth random frames uint8 [count, height, width, 3]."""
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return coarse.repeat(size.height // 4, axis=1).repeat(size.width // 4, axis=2)


def waveform(seed: int, samples: int) -> np.ndarray:
    """Random stereo float32 [2, samples]."""
    return (np.random.default_rng(seed).standard_normal((2, samples)) * 0.2).astype(np.float32)


def in_blocks(array: np.ndarray, block: int = 7) -> Iterator[np.ndarray]:
    """The frames of ``array`` in blocks that fit no clip."""
    yield from (array[start : start + block] for start in range(0, len(array), block))


def image(seed: int = 1, size: Size = SIZE) -> ReferenceInput:
    return ReferenceInput(
        kind=ReferenceKind.IMAGE,
        size=size,
        num_frames=1,
        visual_digest=f"image {seed}",
        frames=lambda: in_blocks(frames(seed, 1, size)),
    )


def video(seed: int = 2, size: Size = SIZE, count: int = 22, sound: int = 0) -> ReferenceInput:
    reference = ReferenceInput(
        kind=ReferenceKind.VIDEO,
        size=size,
        num_frames=count,
        visual_digest=f"video {seed}",
        frames=lambda: in_blocks(frames(seed, count, size)),
    )
    if not sound:
        return reference
    sounding = {"audio_samples": sound, "audio_digest": f"sound {seed}", "waveform": lambda: waveform(seed, sound)}
    return replace(reference, kind=ReferenceKind.VIDEO_AUDIO, **sounding)


def audio(seed: int = 3, samples: int = 9_000) -> ReferenceInput:
    return ReferenceInput(
        kind=ReferenceKind.AUDIO,
        audio_samples=samples,
        audio_digest=f"audio {seed}",
        waveform=lambda: waveform(seed, samples),
    )


def row(
    sample_id: str = "row",
    *references: ReferenceInput,
    seed: int = 10,
    geometry: Geometry = GEOMETRY,
    caption: str = "The singer walks in the rain",
    format: Format = Format.PACKED,
) -> RowInput:
    samples = target_audio_samples(geometry.num_frames, format)
    return RowInput(
        sample_id=sample_id,
        row=1,
        caption=caption,
        geometry=geometry,
        format=format,
        file_name=f"media/{sample_id}.mp4",
        target_digest=f"target {seed}",
        media_version="test",
        target_frames=lambda: in_blocks(frames(seed, geometry.num_frames, geometry.size)),
        target_waveform=lambda: waveform(seed, samples),
        references=references or (image(),),
    )


class FakeEncoder:
    """An encoder of the protocol that derives tensors from digests, in microseconds; ``poison`` names rows that turn NaN.

    Decodes what it encoded without loss, and anything else to black and silence.
    """

    def __init__(self, poison: Sequence[str] = (), version: str = "1") -> None:
        self.poison = set(poison)
        self.loads: list[Component] = []
        self.calls: list[tuple[Stage, str]] = []
        self.fingerprint = EncoderFingerprint({stage: {"fake": version} for stage in Stage})
        self.device = "fake"
        self.text_width = 32
        self.decoded: list[tuple[Stage, str]] = []
        self._media: dict[bytes, np.ndarray] = {}
        self._loaded = False

    def plan_tokens(self, caption: str, references: Sequence[PresentedReference]) -> TokenPlan:
        return TokenPlan(len(caption), tuple(10 for _ in references))

    def conditioner_frames(self, num_frames: int) -> tuple[int, ...]:
        return tuple(range(0, num_frames, 12))

    @contextmanager
    def loaded(self, component: Component) -> Iterator[FakeEncoder]:
        assert not self._loaded, "two components at a time"
        self._loaded = True
        self.loads.append(component)
        try:
            yield self
        finally:
            self._loaded = False

    def encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock], sequence_length: int) -> Tensors:
        self.calls.append((stage, row.sample_id))
        blocks = [block.data for block in media]
        seen = sum(float(block.astype(np.float64).sum()) for block in blocks)
        tensors = self._tensors(stage, row, np.float32(seen % 1000))
        if stage in (Stage.TARGET_VIDEO, Stage.TARGET_AUDIO):
            (latents,) = tensors.values()
            self._media[latents.tobytes()] = np.concatenate(blocks)
        if row.sample_id in self.poison and stage is Stage.TARGET_VIDEO:
            tensors["vae_latent"][0, 0, 0, 0] = np.nan
        return tensors

    def decode(self, stage: Stage, latents: np.ndarray, where: str) -> Iterator[np.ndarray]:
        self.decoded.append((stage, where))
        media = self._media.get(latents.tobytes())
        if stage is Stage.TARGET_AUDIO:
            sound = np.zeros((2, 800 * latents.shape[2]), np.float32)
            sound[:, : 0 if media is None else media.shape[1]] = 0 if media is None else media
            yield sound
            return
        _, count, height, width = latents.shape
        shape = ((count - 2) // 5 * 17 + 5, height * 16, width * 16, 3)
        pixels = np.zeros(shape, np.float32) if media is None else media.astype(np.float32) / np.float32(255)
        yield from in_blocks(pixels, 17)

    def _tensors(self, stage: Stage, row: RowInput, value: np.float32) -> dict[str, np.ndarray]:
        if stage is Stage.TARGET_VIDEO:
            return {"vae_latent": np.full((24, *target_video_shape(row.geometry)), value)}
        if stage is Stage.TARGET_AUDIO:
            count = audio_latents_of(row.target_waveform().shape[1])
            return {"audio_latent": np.full((2, 32, count), value)}
        geometries = [reference.geometry for reference in row.references]
        if stage is Stage.REFERENCE_VISUAL:
            measured = [(g.num_latent_frames, g.latent_height, g.latent_width) for g in geometries if g.visual_rows]
            rows = sum(g.visual_rows for g in geometries)
            return {
                "ref_visual_rows": np.full((rows, 96), value),
                "ref_visual_geometry": np.array(measured, dtype=np.int64),
            }
        if stage is Stage.REFERENCE_AUDIO:
            counts = [g.num_audio_latents for g in geometries if g.has_audio]
            return {
                "ref_audio_rows": np.full((2 * sum(counts), 32), value),
                "ref_audio_latents": np.array(counts, dtype=np.int64),
            }
        length = self.plan_tokens(row.caption, [r.presented for r in row.references]).total
        return {
            "text_embedding": np.full((length, self.text_width), value),
            "text_token_tags": np.ones(length, dtype=np.int64),
        }


def tree(root: Path) -> dict[str, bytes]:
    """Every file below ``root`` by relative path."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
