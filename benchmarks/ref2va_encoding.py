"""Encoding eight rows stage by stage against loading every component for each row, and a device that waits for media.

Both sides of the first figure encode the same rows with the real model classes on the tiny checkpoint, on one thread, each
in a process of its own; ``cpu_sec`` of encoding begins once the libraries are imported, which costs both the same. The
second figure prepares real video for a device that only sleeps: what is measured is the waiting, not the sleep.
"""

from __future__ import annotations

import hashlib
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.measure import run_fresh
from muvap_assets.demo.ref2va import write_demo_datasets
from muvap_assets.ref2va.contract import Format, Geometry, PresentedReference, ReferenceKind, Size, TokenPlan
from muvap_assets.ref2va.encode import encode_rows
from muvap_assets.ref2va.encoder import (
    Component,
    Decoded,
    EncoderFingerprint,
    MediaBlock,
    ReferenceInput,
    RowInput,
    Stage,
    Tensors,
)
from muvap_assets.ref2va.encoder_spec import EncoderSpec
from muvap_assets.ref2va.geometry import target_audio_latents, target_audio_samples, target_video_shape
from muvap_assets.ref2va.prepare import frame_blocks, picture_block
from muvap_assets.ref2va.row_store import RowStore

ROWS = 8
GEOMETRY, REFERENCE_SIZE = Geometry(128, 64, 22), Size(96, 64)  # the demo's canvas, and about its references
MEDIA_ROWS, MEDIA_GEOMETRY = 6, Geometry(832, 480, 56)
SLOWNESS = 2.0  # of the device: times what preparation takes


# --- stage-major against per-row loading ------------------------------------------------------------------------------


def encode_stage_major(checkpoint: str, store: str) -> dict[str, Any]:
    """All rows in one run."""
    from muvap_assets.ref2va.h3 import H3Encoder

    rows, before = drawn_rows(), _cpu_sec()
    encoder = H3Encoder(EncoderSpec(checkpoint=Path(checkpoint), device="cpu"))
    encode_rows(rows, encoder, RowStore(Path(store)))
    return {"cpu_sec": _cpu_sec() - before, "loads": sum(encoder.loads.values()), "digest": rows_digest(Path(store))}


def encode_row_by_row(checkpoint: str, store: str) -> dict[str, Any]:
    """A run a row: every component, tokenizer and processor included, is loaded for each."""
    from muvap_assets.ref2va.h3 import H3Encoder

    rows, before, loads = drawn_rows(), _cpu_sec(), 0
    for row in rows:
        encoder = H3Encoder(EncoderSpec(checkpoint=Path(checkpoint), device="cpu"))
        encode_rows([row], encoder, RowStore(Path(store)))
        loads += sum(encoder.loads.values())
    return {"cpu_sec": _cpu_sec() - before, "loads": loads, "digest": rows_digest(Path(store))}


def drawn_rows() -> list[RowInput]:
    """Eight rows, no two of the same media, with the demo's four combinations of references twice."""
    combinations = (
        (ReferenceKind.IMAGE,),
        (ReferenceKind.IMAGE, ReferenceKind.VIDEO),
        (ReferenceKind.VIDEO_AUDIO, ReferenceKind.AUDIO),
        (ReferenceKind.IMAGE, ReferenceKind.AUDIO),
    )
    return [_drawn_row(index, combinations[index % len(combinations)]) for index in range(ROWS)]


def _drawn_row(index: int, kinds: Sequence[ReferenceKind]) -> RowInput:
    samples = target_audio_samples(GEOMETRY.num_frames, Format.PACKED)
    return RowInput(
        sample_id=f"row-{index}",
        row=index + 1,
        caption=f"Row {index}: a person walks through the rain and speaks to someone outside the picture.",
        geometry=GEOMETRY,
        format=Format.PACKED,
        file_name=f"{index}.mp4",
        target_digest=f"target {index}",
        media_version="drawn",
        target_frames=partial(_drawn_frames, 100 + index, GEOMETRY.num_frames, GEOMETRY.size),
        target_waveform=partial(_drawn_sound, 100 + index, samples),
        references=tuple(_drawn_reference(10 * index + place, kind) for place, kind in enumerate(kinds)),
    )


def _drawn_reference(seed: int, kind: ReferenceKind) -> ReferenceInput:
    frames = 1 if kind is ReferenceKind.IMAGE else GEOMETRY.num_frames
    visual = {
        "size": REFERENCE_SIZE,
        "num_frames": frames,
        "visual_digest": f"frames {seed}",
        "frames": partial(_drawn_frames, seed, frames, REFERENCE_SIZE),
    }
    sound = {"audio_samples": 24_000, "audio_digest": f"sound {seed}", "waveform": partial(_drawn_sound, seed, 24_000)}
    chosen: dict[str, Any] = {**(visual if kind.has_visual else {}), **(sound if kind.has_audio else {})}
    return ReferenceInput(kind=kind, **chosen)


def _drawn_frames(seed: int, count: int, size: Size) -> Iterator[npt.NDArray[np.uint8]]:
    yield np.random.default_rng(seed).integers(0, 256, (count, size.height, size.width, 3), dtype=np.uint8)


def _drawn_sound(seed: int, samples: int) -> npt.NDArray[np.float32]:
    return (np.random.default_rng(seed).standard_normal((2, samples)) * 0.2).astype(np.float32)


def rows_digest(store: Path) -> str:
    """Over names and bytes of every finished row."""
    digest = hashlib.sha256()
    for path in sorted((store / "rows").rglob("*.row")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _cpu_sec() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# --- a device that waits for media ------------------------------------------------------------------------------------


class SlowDevice:
    """An encoder that takes ``seconds`` a block of media, and notes how long it waited for each row's."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.waited: dict[str, float] = {}
        self.worked = 0.0
        self.fingerprint = EncoderFingerprint({stage: {"slow": "device"} for stage in Stage})
        self.device = "slow"
        self.text_width = 32

    def plan_tokens(self, caption: str, references: Sequence[PresentedReference]) -> TokenPlan:
        """One token a reference."""
        return TokenPlan(1, tuple(1 for _ in references))

    def conditioner_frames(self, num_frames: int) -> tuple[int, ...]:
        """Every frame."""
        return tuple(range(num_frames))

    @contextmanager
    def loaded(self, component: Component) -> Iterator[SlowDevice]:
        """Nothing is loaded."""
        yield self

    def encode(self, stage: Stage, row: RowInput, media: Iterator[MediaBlock], sequence_length: int) -> Tensors:
        """Zeros of the right shapes, after a sleep a block, as the VAE works clip by clip."""
        while True:
            before = time.perf_counter()
            block = next(media, None)
            self.waited[row.sample_id] = self.waited.get(row.sample_id, 0.0) + time.perf_counter() - before
            if block is None:
                return self._tensors(stage, row)
            time.sleep(self.seconds)
            self.worked += self.seconds

    def decode(self, stage: Stage, latents: npt.NDArray[np.float32], where: str) -> Iterator[Decoded]:
        """Nothing."""
        return iter(())

    def _tensors(self, stage: Stage, row: RowInput) -> Tensors:
        (reference,) = (each.geometry for each in row.references)
        if stage is Stage.TARGET_VIDEO:
            return {"vae_latent": np.zeros((24, *target_video_shape(row.geometry)), np.float32)}
        if stage is Stage.TARGET_AUDIO:
            return {"audio_latent": np.zeros((2, 32, target_audio_latents(row.geometry.num_frames)), np.float32)}
        if stage is Stage.REFERENCE_VISUAL:
            measured = [[reference.num_latent_frames, reference.latent_height, reference.latent_width]]
            rows = np.zeros((reference.visual_rows, 96), np.float32)
            return {"ref_visual_rows": rows, "ref_visual_geometry": np.array(measured, np.int64)}
        return {"text_embedding": np.zeros((2, 32), np.float32), "text_token_tags": np.ones(2, np.int64)}


def media_rows(folder: Path) -> list[RowInput]:
    """Rows whose targets are decoded from a video file and resized with Lanczos; no two are taken for the same."""
    video, picture = folder / "media" / "long.mp4", folder / "media" / "person.png"
    image = ReferenceInput(
        kind=ReferenceKind.IMAGE,
        size=Size(64, 64),
        num_frames=1,
        visual_digest="person",
        frames=partial(picture_block, picture, size=Size(64, 64)),
    )
    geometry = MEDIA_GEOMETRY
    return [
        RowInput(
            sample_id=f"row-{index}",
            caption="",
            geometry=geometry,
            format=Format.PACKED,
            file_name=video.name,
            target_digest=f"target {index}",
            media_version="measured",
            target_frames=partial(frame_blocks, video, size=geometry.size, num_frames=geometry.num_frames),
            target_waveform=partial(_drawn_sound, index, target_audio_samples(geometry.num_frames, Format.PACKED)),
            references=(image,),
        )
        for index in range(MEDIA_ROWS)
    ]


def measure_waiting(folder: Path, store: Path) -> dict[str, object]:
    """How long a slow device waits for media after its first row, against preparing them in line."""
    rows = media_rows(folder)
    before, blocks = time.perf_counter(), 0
    for row in rows[:2]:
        blocks += sum(1 for _ in row.target_frames())
    block_sec = (time.perf_counter() - before) / blocks
    device = SlowDevice(block_sec * SLOWNESS)
    report = encode_rows(rows, device, RowStore(store))
    assert len(report.rows) == MEDIA_ROWS, report.findings
    later = sum(device.waited[row.sample_id] for row in rows[1:])
    in_line = block_sec * blocks / 2 * (MEDIA_ROWS - 1)
    return {
        "name": f"{MEDIA_ROWS} rows for a device {SLOWNESS:g} times slower than preparation: waiting after the first row",
        "waited_share": later / in_line,
        "waited_sec": later,
        "first_row_waited_sec": device.waited[rows[0].sample_id],
        "prepared_in_line_sec": in_line,
        "device_sec": device.worked,
        "max_waited_share": 0.05,
    }


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """Each figure with its target; see the issue that set it."""
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    folder = scratch / "ref2va_encoding"
    checkpoint = write_tiny_checkpoint(folder / "checkpoint")
    staged, by_row = (
        run_fresh(f"benchmarks.ref2va_encoding:{name}", str(checkpoint), str(folder / name))
        for name in ("encode_stage_major", "encode_row_by_row")
    )
    if staged.value["digest"] != by_row.value["digest"]:
        raise SystemExit(
            "ref2va_encoding: the two sides made different bytes, required are the same. Nothing to compare."
        )
    yield {
        "name": f"{ROWS} rows, each component loaded once against once a row; the same bytes",
        "ratio": staged.value["cpu_sec"] / by_row.value["cpu_sec"],
        "cpu_sec": staged.value["cpu_sec"],
        "cpu_sec_row_by_row": by_row.value["cpu_sec"],
        "loads": staged.value["loads"],
        "loads_row_by_row": by_row.value["loads"],
        "max_ratio": 0.6,
    }
    yield {
        "name": "the same as whole processes, the libraries' import included",
        "ratio": staged.cpu_sec / by_row.cpu_sec,
        "cpu_sec": staged.cpu_sec,
        "cpu_sec_row_by_row": by_row.cpu_sec,
        "peak_mb": staged.peak_mb,
        "peak_mb_row_by_row": by_row.peak_mb,
    }
    write_demo_datasets(folder / "media_source")
    yield measure_waiting(folder / "media_source", folder / "waiting")
