"""Opening a pack of a million samples, against reading its JSON indexes into dicts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import run_fresh

SAMPLES, SHARDS, FRAMES, SIZE = 1_000_000, 8, 50, 112
AUDIO = FRAMES * 640


def write(out: str) -> None:
    """A pack of tracks of two seconds; its arrays are holes in their files, for only their headers are read."""
    from muvap_assets.asd.packs.layout import PackHeader, shard_name, write_header, write_index
    from muvap_assets.media.npy import npy_header_bytes

    folder = Path(out)
    each = SAMPLES // SHARDS
    for shard in range(SHARDS):
        place = folder / shard_name(shard)
        place.mkdir(parents=True)
        for name, dtype, shape in (
            ("faces", np.dtype("u1"), (each * FRAMES, SIZE, SIZE)),
            ("labels", np.dtype("u1"), (each * FRAMES,)),
            ("audio", np.dtype("<i2"), (each * AUDIO,)),
        ):
            header = npy_header_bytes(dtype, shape)
            with (place / f"{name}.npy").open("wb") as stream:
                stream.write(header)
                stream.truncate(len(header) + int(np.prod(shape)) * dtype.itemsize)
    write_index(folder, [[_entry(shard, place) for place in range(each)] for shard in range(SHARDS)])
    write_header(
        folder,
        PackHeader(
            face_shape=(SIZE, SIZE),
            shards=SHARDS,
            samples=SAMPLES,
            source_frames=SAMPLES * FRAMES,
            audio_samples=SAMPLES * AUDIO,
            provenance={},
        ),
    )


def _entry(shard: int, place: int):  # noqa: ANN202 - imported where it runs, so that the parent stays small
    from muvap_assets.asd.packs.layout import PackEntry

    return PackEntry(
        shard=shard,
        dataset="benchmark",
        sample_id=f"track_{shard}_{place:07d}",
        source_fps=25.0,
        source_frames=FRAMES,
        start_sec=0.0,
        model_frames=FRAMES,
        face_offset=place * FRAMES,
        audio_offset=place * AUDIO,
        audio_samples=AUDIO,
        label_offset=place * FRAMES,
        audio_mean=0.0,
        audio_rms=0.1,
        audio_peak=0.5,
        speaking_ratio=0.5,
        recording_id=f"{place // 20:016x}",
        padded_samples=0,
        clipped_samples=0,
        source_fps_exact="25",
        start_sec_exact="0",
        labels_known=True,
        faces_crc32=0,
        audio_crc32=0,
        labels_crc32=0,
    )


def open_reader(pack: str) -> int:
    """Open the pack and look at one sample; returns how many there are."""
    from muvap_assets.asd.packs.reader import PackReader

    reader = PackReader(Path(pack))
    if reader[SAMPLES // 2].faces.shape != (FRAMES, SIZE, SIZE):
        raise SystemExit("another sample than was written")
    return len(reader)


def open_dataset(pack: str) -> int:
    """Open it for training, torch and all, and plan an epoch; returns the chunks."""
    from muvap_assets.asd.loader import PackedASDDataset

    return len(PackedASDDataset(pack, window=25))


def read_json(pack: str) -> int:
    """What readers of the JSON indexes do."""
    entries = []
    for path in sorted(Path(pack).glob("shard-*/index.json")):
        entries += json.loads(path.read_text())
    return len({entry["sample_id"]: entry for entry in entries})


def measure(scratch: Path) -> Iterator[dict[str, object]]:
    """The reader, the training dataset and the straightforward way, each in a process of its own."""
    pack = scratch / "million"
    run_fresh("benchmarks.asd_opening:write", str(pack))
    ours, training, theirs = (
        run_fresh(f"benchmarks.asd_opening:{name}", str(pack)) for name in ("open_reader", "open_dataset", "read_json")
    )
    yield {
        "name": f"opening a pack of {ours.value:,} samples",
        "wall_sec": ours.wall_sec,
        "max_wall_sec": 2.0,
        "cpu_sec": ours.cpu_sec,
        "peak_mb": ours.peak_mb,
        "max_peak_mb": 300,
        "ratio": ours.wall_sec / theirs.wall_sec,
        "json_wall_sec": theirs.wall_sec,
        "json_peak_mb": theirs.peak_mb,
    }
    yield {
        "name": f"opening it for training and planning {training.value:,} chunks, torch included",
        "wall_sec": training.wall_sec,
        "cpu_sec": training.cpu_sec,
        "peak_mb": training.peak_mb,
    }
    shutil.rmtree(pack)
