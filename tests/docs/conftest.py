"""Workspaces for the pages: the demo as `make demo` leaves it, without Dagster's records, and corpora as readers have them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from loader_miniature import Miniature as LoaderMiniature
from loader_miniature import Track
from msdwild_miniature import Miniature as MsdwildMiniature
from walks import make_workspace

from muvap_assets.asd import line
from muvap_assets.datasets import load_datasets
from muvap_assets.demo.corpus import write_demo_corpus
from muvap_assets.layout import Layout
from muvap_assets.ref2va.cache import rebuild_index

MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture(scope="session")
def asd_demo(made_once: MadeOnce) -> Path:
    """A workspace with the asd line of the demo, to be read or copied."""
    return made_once("asd-demo", _make_asd_demo)


def _make_asd_demo(workspace: Path) -> None:
    make_workspace(workspace)
    data = workspace / "data"
    write_demo_corpus(data / "demo" / "asd")
    datasets, layout = load_datasets(workspace / "resources" / "datasets.yaml"), Layout(data)
    for name in datasets.corpora:
        for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
            assert make(layout, datasets.corpus(name)).published


@pytest.fixture(scope="session")
def demo(asd_demo: Path, made_once: MadeOnce) -> Path:
    """A workspace with both lines of the demo, to be read or copied."""
    return made_once("demo", partial(_make_demo, asd_demo))


def _make_demo(asd_demo: Path, workspace: Path) -> None:
    from muvap_assets.demo.sources import CHECKPOINT, write_sources
    from muvap_assets.ref2va import line as ref2va
    from muvap_assets.ref2va.encoder_spec import EncoderSpec

    copied(asd_demo, workspace)
    data = workspace / "data"
    write_sources(data / "demo")
    datasets, layout = load_datasets(workspace / "resources" / "datasets.yaml"), Layout(data)
    spec = EncoderSpec(checkpoint=data / "demo" / CHECKPOINT, device="cpu")
    for name in datasets.ref2va:
        dataset = datasets.ref2va_dataset(name)
        assert ref2va.make_manifest(layout, dataset, spec).published
        for part in range(dataset.parts):
            assert ref2va.make_encoded_latents(layout, dataset, part, spec).published
        assert ref2va.make_parquet_cache_index(layout, dataset).published


def copied(workspace: Path, target: Path) -> Path:
    """A workspace of one's own, links kept, and indexes written for where their datasets now lie."""
    shutil.copytree(workspace, target, symlinks=True)
    for dataset in target.glob("data/ref2va/parquet_cache_index/*/current"):
        rebuild_index(dataset.resolve())
    return target


@pytest.fixture
def fresh() -> Callable[[Path, Path], Path]:
    """See :func:`copied`."""
    return copied


def write_corpora(folder: Path) -> None:
    """AVA, WASD and MSDWild in miniature, below ``folder``, as their tools lay them out."""
    entity = "HV0H6oc4Kvs_0960_1020"
    tracks = [Track(f"{entity}:{i}", "HV0H6oc4Kvs", fps=fps) for i, fps in enumerate(("25", "29.97", "30"), 1)]
    for split in ("train", "val"):
        LoaderMiniature(folder / "ava", tracks, split=split).write().write_original()
        video = f"{split}_5-35"
        own = [Track(f"{video}_0000_0030:1", video, fps="30", frames=40, start_sec="5.00")]
        LoaderMiniature(folder / "wasd", own, split=split).write()
    mini = MsdwildMiniature(folder / "msdwild")
    frames = 31 * 10
    mini.video("00001", frames, Fraction(10), at=[1.0, 12.0])
    mini.boxes("00001", frames)
    mini.speaks("00001", "0", 1, 4)
    mini.speaks("00001", "1", 12, 6)
    mini.write("few.train")


@pytest.fixture
def corpora() -> Callable[[Path], None]:
    """See :func:`write_corpora`."""
    return write_corpora
