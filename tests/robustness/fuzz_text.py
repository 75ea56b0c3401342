"""Fuzz targets over files of text: manifests of every corpus, raw rows, settings, predictions, journals."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterable
from fractions import Fraction
from pathlib import Path

import numpy as np
import soundfile
from fuzz_engine import Prepared, Target, check_findings
from fuzz_mutations import damaged, document, json_bytes, table
from media_makers import raw_row, tone, write_video
from msdwild_files import write_msdwild

from muvap_assets.asd.ava_csv import read_original
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.ava import AvaCorpus
from muvap_assets.asd.corpora.msdwild import MsdwildCorpus
from muvap_assets.asd.corpora.rttm import labels_at_centres, read_rttm
from muvap_assets.asd.corpora.tsv import TsvCorpus, read_tsv
from muvap_assets.asd.line import validate_corpus
from muvap_assets.asd.prediction_files import read_ground_truth, read_predictions
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.datasets import load_datasets
from muvap_assets.media.face_boxes import read_face_boxes
from muvap_assets.ref2va.contract import Dataset, DatasetOptions
from muvap_assets.ref2va.raw_manifest import read_raw_manifest
from muvap_assets.sources import dataset_source

TSV = (
    "sample_id\taudio_path\tvisual_path\tsource_fps\tlabels\tstart_sec\tvisual_kind\taudio_sample_rate\tboxes_path\t"
    "face_id\tfirst_frame\tlicense\tconsent\tlabels_known\tvideo_id\n"
    "one\tsound.wav\tfaces.npy\t25\t[0,0,1,1,0]\t0.2\tnpy\t\t\t\t\tcc\tyes\ttrue\tv1\n"
    "two\tsound.npy\tfaces.npy\t30000/1001\t[1,0,1,1,0]\t1/3\t\t16000\t\t\t\t\t\tfalse\tv2\n"
    "three\tsound.wav\tcrops\t29.97\t[1.0,0.0]\t0\tjpeg_directory\t\t\t\t\t\t\t\tv3\n"
)


def _table_target(
    path: Path, text: str, delimiter: str, run: Callable[[], bool], folder: Path, others: Iterable[Path] = ()
) -> Prepared:
    path.write_text(text, encoding="utf-8")

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        mutated = damaged(rng, text.encode()) if rng.random() < 0.35 else table(rng, text, delimiter)
        yield path, mutated

    return Prepared(make, run)


def _tsv(folder: Path) -> Prepared:
    path = folder / "train.tsv"

    def run() -> bool:
        return check_findings(read_tsv(path).findings)

    return _table_target(path, TSV, "\t", run, folder)


def _corpus(folder: Path) -> Prepared:
    """The TSV with its media behind it: what a path leads to is looked at as well."""
    rng = np.random.default_rng(0)
    soundfile.write(folder / "sound.wav", rng.normal(0, 0.1, 16_000), 16_000)
    np.save(folder / "sound.npy", rng.normal(0, 0.1, 16_000).astype(np.float32))
    np.save(folder / "faces.npy", rng.integers(0, 255, (5, 112, 112), np.uint8))
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe.wav")
    path = folder / "train.tsv"
    text = "".join(TSV.splitlines(keepends=True)[:3])
    write_video(folder / "video.mp4", frames=5, fps=25, size=(32, 32), sound=tone(3200, 1, 16_000), rate=16_000)
    (folder / "boxes.csv").write_text("".join(f"{frame},face,0,2,2,14,14,0\n" for frame in range(5)))
    text += "four\tvideo.mp4\tvideo.mp4\t25\t[0,0,1,1,0]\t0\tvideo_boxes\t\tboxes.csv\t0\t0\t\t\t\tv4\n"
    corpus = Corpus(name="c", source=TsvCorpus(kind="tsv", manifest=path), dataset="d")

    def run() -> bool:
        return check_findings(validate_corpus(corpus).findings)

    prepared = _table_target(path, text, "\t", run, folder)
    plain = prepared.make

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        if rng.random() < 0.7:
            return plain(rng)
        name = rng.choice(
            ("loop", "loop/x", "pipe.wav", "..", "/dev/zero", "/dev/null", "a" * 300, "b/" * 3000, "faces.npy/x")
        )
        return [
            (
                path,
                text.replace(
                    rng.choice(("sound.wav", "sound.npy", "faces.npy", "boxes.csv", "video.mp4")), name
                ).encode(),
            )
        ]

    return Prepared(make, run)


ENTITY = "HV0H6oc4Kvs_0960_1020:1"


def _loader(folder: Path) -> Prepared:
    """AVA's loader CSV beside its original one; both are made hostile."""
    video = ENTITY.split("_")[0]
    times = [960 + i / 25 for i in range(6)]
    original = "".join(
        f"{video},{time:.2f},0.1,0.2,0.3,0.4,{'SPEAKING_AUDIBLE' if i % 2 else 'NOT_SPEAKING'},{ENTITY}\n"
        for i, time in enumerate(times)
    )
    loader = f"{ENTITY}\t6\t25\t[0, 1, 0, 1, 0, 1]\t7\n"
    for part in ("csv", f"clips_videos/train/{video}/{ENTITY}", f"clips_audios/train/{video}"):
        (folder / part).mkdir(parents=True)
    (folder / f"clips_audios/train/{video}/{ENTITY}.wav").write_bytes(b"")
    files = {folder / "csv/train_loader.csv": loader, folder / "csv/train_orig.csv": original}
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
    corpus = AvaCorpus(kind="ava", root=folder, split="train")

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        chosen = rng.choice([*files, None])
        for path, text in files.items():
            if chosen not in (None, path):
                yield path, text.encode()
            elif rng.random() < 0.35:
                yield path, damaged(rng, text.encode())
            else:
                yield path, table(rng, text, "\t" if "loader" in path.name else ",")

    def run() -> bool:
        return check_findings(corpus.read().findings)

    return Prepared(make, run)


def _original(folder: Path) -> Prepared:
    path = folder / "orig.csv"
    boxes = ",".join(f"entity_box_{corner}" for corner in ("x1", "y1", "x2", "y2"))
    header = f"video_id,frame_timestamp,{boxes},label,entity_id,label_id,instance_id\n"
    rows = "".join(f"v,{i / 25},0.1,0.2,0.3,0.4,NOT_SPEAKING,v_0_1:{i % 2},0,i\n" for i in range(6))

    def run() -> bool:
        return check_findings(read_original(path).findings)

    return _table_target(path, header + rows, ",", run, folder)


RTTM = "".join(f"SPEAKER clip{i % 2} 1 {i}.25 1.5 <NA> <NA> {i % 3} <NA> <NA>\n" for i in range(6)) + ";; a comment\n"


def _rttm(folder: Path) -> Prepared:
    path = folder / "all.rttm"

    def run() -> bool:
        found = read_rttm(path)
        for speakers in found.turns.values():
            for turns in speakers.values():
                labels_at_centres(turns, 3, 50, FrameRate.parse("29.97"))
        return check_findings(found.findings)

    return _table_target(path, RTTM, " ", run, folder)


def _boxes(folder: Path) -> Prepared:
    path = folder / "clip.csv"
    text = "".join(f"{i // 2},face,{i % 2},{i}.5,10,{i + 40},50.25,0\n" for i in range(12))

    def run() -> bool:
        listing = read_face_boxes(path)
        for face in np.unique(listing.boxes.face_ids).tolist():
            listing.boxes.window(face, 0, 6)
        return check_findings([finding.placed(source=path.name) for finding in listing.findings])

    return _table_target(path, text, ",", run, folder)


def _msdwild(folder: Path) -> Prepared:
    """A whole split: turns and boxes are hostile, the video is real."""
    root, files = write_msdwild(folder)
    corpus = MsdwildCorpus(kind="msdwild", root=root, window_sec=1, overlap_sec="0.5", min_window_sec="0.2")

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        chosen = rng.choice(list(files))
        for path, text in files.items():
            if path != chosen:
                yield path, text.encode()
            else:
                yield (
                    path,
                    damaged(rng, text.encode())
                    if rng.random() < 0.3
                    else table(rng, text, "," if path.suffix == ".csv" else " "),
                )

    def run() -> bool:
        return check_findings(corpus.read().findings)

    return Prepared(make, run)


def _raw(folder: Path) -> Prepared:
    path = folder / "clips.json"
    for name in ("target.mov", "picture.png", "voice.wav"):
        (folder / name).write_bytes(b"x")
    (folder / "loop").symlink_to("loop")
    rows = [
        raw_row("a", target_geometry={"width": 64, "height": 32, "num_frames": 22}),
        raw_row(
            "b",
            references=[
                {
                    "type": "video_audio",
                    "video": "target.mov",
                    "audio": "voice.wav",
                    "fps": "30000/1001",
                    "sample_rate": 16_000,
                }
            ],
        ),
        raw_row("c", references=[{"type": "image", "image": "picture.png"}, {"type": "audio", "audio": "voice.wav"}]),
    ]
    options = DatasetOptions(width=64, height=32, num_frames=22)
    source = dataset_source(Dataset(name="clips", manifest=path, options=options), {})

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        value = document(rng, rows)
        match rng.randrange(5):
            case 0:
                content = json_bytes(rng, value)
            case 1:
                content = json_bytes(rng, {"data": value})
            case 2:
                content = json_bytes(rng, value[0] if isinstance(value, list) and value else value)
            case 3:
                lines = value if isinstance(value, list) else [value]
                content = b"\n".join(json_bytes(rng, line, None) for line in lines)
            case _:
                content = damaged(rng, json.dumps(rows).encode())
        yield path, damaged(rng, content) if rng.random() < 0.1 else content

    def run() -> bool:
        manifest = read_raw_manifest(path, options)
        for name in source.media():  # what watches the source reads the same text
            os.fsencode(name)
        return check_findings(manifest.findings)

    path.write_text(json.dumps(rows), encoding="utf-8")
    return Prepared(make, run)


DATASETS = {
    "nightly_cron": "0 3 * * *",
    "corpora": {
        "talks": {
            "kind": "tsv",
            "manifest": "talks/train.tsv",
            "on_violation": "quarantine",
            "max_missing_audio_share": 0.2,
        },
        "ava_train": {"kind": "ava", "root": "$HOME/ava", "split": "train", "dataset": "ava", "max_age_hours": 24},
        "wild": {"kind": "msdwild", "root": "wild", "window_sec": 30, "overlap_sec": 10, "unmatched_faces": "reject"},
    },
    "ref2va": {"clips": {"manifest": "clips.jsonl", "width": 832, "height": 480, "num_frames": 22, "parts": 2}},
}
_YAML_PIECES = (
    *(
        "&a [*a]",
        "*a",
        "&a",
        "<<: *a",
        "!!python/object/apply:os.system [echo]",
        "!!binary x",
        "2001-99-99",
        "2001-01-01",
    ),
    *(
        "!!map [1]",
        "!!set {a}",
        "!!omap [a: 1]",
        "!!pairs [1]",
        "!!int x",
        "!!float x",
        "!!timestamp x",
        "? [a]\n: b",
        "!!str",
    ),
    *(
        "9" * 5000,
        "0b2",
        "0o9",
        "0x",
        "190:20:30",
        ".inf",
        ".nan",
        "~",
        "|\n",
        ">",
        "%YAML 9.9",
        "---\n",
        "...\n",
        "\t",
        "- ",
    ),
    *(
        "[" * 2000,
        "{" * 500,
        "\u0085",
        "\x00",
        "'",
        '"',
        "#",
        "@",
        "`",
        "!!null x",
        "!!bool x",
        "!<x> y",
        "!x y",
        "a: b: c",
    ),
)


def _datasets(folder: Path) -> Prepared:
    path = folder / "datasets.yaml"
    text = _as_yaml(DATASETS)
    path.write_text(text, encoding="utf-8")

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        match rng.randrange(4):
            case 0:
                content = json_bytes(rng, document(rng, DATASETS), 1)
            case 1:
                place = rng.choice([i for i, character in enumerate(text) if character in " :\n"])
                content = (text[:place] + " " + rng.choice(_YAML_PIECES) + text[place:]).encode(
                    "utf-8", "surrogatepass"
                )
            case 2:
                words = text.split(" ")
                words[rng.randrange(len(words))] = rng.choice(_YAML_PIECES)
                content = " ".join(words).encode("utf-8", "surrogatepass")
            case _:
                content = damaged(rng, text.encode())
        yield path, content

    def run() -> bool:
        load_datasets(path)
        return True

    return Prepared(make, run)


def _as_yaml(value: dict) -> str:
    import yaml

    return yaml.safe_dump(value, sort_keys=False)


def _predictions(folder: Path) -> Prepared:
    truth_path, path = folder / "truth.csv", folder / "predictions.csv"
    rows = [f"v,{i / 25:.2f},0.1,0.2,0.3,0.4,SPEAKING_AUDIBLE,v:{i % 2}" for i in range(6)]
    truth = "\n".join(rows) + "\n"
    predictions = "\n".join(f"{row},0.{i}" for i, row in enumerate(rows)) + "\n"
    truth_path.write_text(truth)
    path.write_text(predictions)

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        for place, text in ((truth_path, truth), (path, predictions)):
            if rng.random() < (0.3 if place == truth_path else 0.9):
                yield place, damaged(rng, text.encode()) if rng.random() < 0.35 else table(rng, text, ",")
            else:
                yield place, text.encode()

    def run() -> bool:
        read_predictions(path, read_ground_truth(truth_path, labels_known=True))
        return True

    return Prepared(make, run)


def _rates(folder: Path) -> Prepared:
    """Text of one frame rate, the field that all arithmetic hangs on."""
    path = folder / "rate"
    path.write_text("30000/1001")

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        text = rng.choice(("29.97", "30000/1001", "25", "1/3", "999.999999"))
        place = rng.randint(0, len(text))
        piece = rng.choice((*"0123456789./eE+-_ \u0660\u0661\u0966\uff10\u00b2\u0bf0", "/\u0660", "/0", "00"))
        yield path, (text[:place] + piece + text[place + rng.randint(0, 3) :]).encode()

    def run() -> bool:
        rate = FrameRate.parse(path.read_text())
        return isinstance(rate.value, Fraction)

    return Prepared(make, run)


TEXT_TARGETS = (
    Target("tsv", _tsv),
    Target("corpus", _corpus),
    Target("loader_csv", _loader),
    Target("original_csv", _original),
    Target("rttm", _rttm),
    Target("face_boxes", _boxes),
    Target("msdwild", _msdwild),
    Target("raw_manifest", _raw),
    Target("datasets_yaml", _datasets),
    Target("predictions", _predictions),
    Target("frame_rate", _rates),
)
