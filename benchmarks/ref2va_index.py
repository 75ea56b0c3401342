"""Indexing 20,000 one-row shards against a loop over their footers, and verifying them again when nothing changed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from muvap_assets.ref2va.cache import place_index, verify_index, write_index
from muvap_assets.ref2va.contract import Format, Geometry, ReferenceGeometry
from muvap_assets.ref2va.records import Record, write_shard
from muvap_assets.ref2va.shard_scan import scan_shards

SHARDS, ROUNDS = 20_000, 3
_ID = b"row_00000"


def footer_loop(root: Path) -> int:
    """What the training side does where it finds no index: open every shard in turn and ask for its rows."""
    return sum(pq.ParquetFile(path).metadata.num_rows for path in sorted(root.rglob("*.parquet")))


def write_shards(root: Path, count: int) -> None:
    """``count`` shards that differ in the id their summary gives; one is written, the others are it with another id."""
    rng = np.random.default_rng(0)

    def drawn(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    image = ReferenceGeometry(media_type="image", has_audio=False, num_latent_frames=1, latent_height=4, latent_width=6)
    record = Record(
        id=_ID.decode(),
        format=Format.PACKED,
        vae_latent=drawn(24, 2, 2, 2),
        audio_latent=drawn(2, 32, 8),
        text_embedding=drawn(11, 8),
        text_token_tags=np.ones(11, dtype=np.int64),
        visual_rows=drawn(6, 96),
        audio_rows=drawn(0, 32),
        references=(image,),
        reference_noise_seed=42,
        file_name="media/target.mp4",
        caption="The person walks through the scene.",
        geometry=Geometry(32, 32, 5),
    )
    folder = root / "bucket=32x32-5f"
    folder.mkdir(parents=True)
    write_shard(folder / "template", [record], {"encoder": "0" * 64, "row_key": "0" * 64})
    content = (folder / "template").read_bytes()
    (folder / "template").unlink()
    for number in range(count):
        shard = content.replace(b'"id": "' + _ID, b'"id": "row_%05d' % number)
        (folder / f"data_{number:08d}.parquet").write_bytes(shard)


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """The two figures of the issue: at most a third of the loop's time, and no shard read where none changed."""
    root = scratch / "dataset"
    write_shards(root, SHARDS)
    loops, scans = [], []
    footer_loop(root)  # once unmeasured: both sides read files the system holds in memory
    for _ in range(ROUNDS):  # in turn, so that a busy machine slows both
        loops.append(seconds(lambda: footer_loop(root)))
        scans.append(seconds(lambda: scan_shards(root)))
    loop, scan = statistics.median(loops), statistics.median(scans)
    yield {
        "name": f"indexing {SHARDS:,} one-row shards, digests included, against reading their footers in a loop",
        "ratio": statistics.median(mine / theirs for mine, theirs in zip(scans, loops, strict=True)),
        "max_ratio": 1 / 3,
        "wall_sec": scan,
        "loop_sec": loop,
    }
    index = scan_shards(root)
    write_index(root, index)
    place_index(root, index)
    started = time.perf_counter()
    verdict = verify_index(root)
    yield {
        "name": "verifying the same again, unchanged",
        "wall_sec": time.perf_counter() - started,
        "violations": len(verdict.findings),
        "max_violations": 0,
        "shards_read": len(verdict.read),
        "max_shards_read": 0,
    }
