"""Files that we wrote and read back, damaged in every way: an error of ours that names the file, or the file is made anew."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from corpus_builder import CorpusBuilder
from encoder_rows import FakeEncoder

from muvap_assets.asd import line as asd
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.cli.main import main
from muvap_assets.defs import asd_pages, ref2va_pages
from muvap_assets.defs.pages import read_inputs
from muvap_assets.demo.ref2va import write_demo_datasets
from muvap_assets.errors import MuvapError
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import Outcome
from muvap_assets.ref2va import line
from muvap_assets.ref2va.contract import Dataset, DatasetOptions
from muvap_assets.ref2va.encoder_spec import EncoderSpec
from muvap_assets.ref2va.publication import export_dataset
from muvap_assets.sources import corpus_source, dataset_source, fingerprint
from muvap_assets.storage.files import write_lossy_json

Door = Callable[["Site"], str]


@dataclass
class Site:
    """A data root with a pack and a dataset, each published with all that comes before it."""

    folder: Path
    spec: EncoderSpec

    @property
    def layout(self) -> Layout:
        return Layout(self.folder / "data")

    @property
    def corpus(self) -> Corpus:
        source = TsvCorpus(kind="tsv", manifest=self.folder / "corpus" / "train.tsv")
        return Corpus(name="talks", source=source, dataset="talks")

    @property
    def dataset(self) -> Dataset:
        options = DatasetOptions(width=128, height=64, num_frames=22)
        return Dataset(name="clips", manifest=self.folder / "src" / "clips.jsonl", options=options)

    def artifact(self, name: str) -> Artifact:
        artifact: Artifact = {
            "asd/manifest": self.layout.asd_manifest("talks"),
            "asd/loudness_index": self.layout.asd_loudness_index("talks"),
            "asd/packed_shards": self.layout.asd_packed_shards("talks"),
            "ref2va/manifest": self.layout.ref2va_manifest("clips"),
            "ref2va/encoded_latents": self.layout.ref2va_encoded_latents("clips", 0),
            "ref2va/parquet_cache_index": self.layout.ref2va_parquet_cache_index("clips"),
        }[name]
        return artifact

    def version(self, name: str) -> Path:
        return self.artifact(name).current.resolve()

    def make(self) -> None:
        """Publish everything, twice, so that every cache is filled."""
        (self.folder / "corpus").mkdir(parents=True)
        builder = CorpusBuilder(self.folder / "corpus")
        for name in ("one", "two"):
            builder.row(name)
        builder.write()
        write_demo_datasets(self.folder / "src")
        for media in (*(self.folder / "corpus").iterdir(), *(self.folder / "src" / "media").iterdir()):
            os.utime(media, (1e9, 1e9))
        for _ in range(2):
            for door in (*MAKE_ASD, *MAKE_REF2VA, sources):
                door(self)
        write_lossy_json(self.layout.cache / "retention.json", {"asd/manifest/talks": 1e9})


# --- doors --------------------------------------------------------------------------------------------------------------


def told(outcome: Outcome[Any]) -> str:
    """What kept an outcome from being published."""
    return "\n".join(found.message() for check in outcome.blocking for found in check.findings)


def muvap(*words: object) -> Door:
    """A command; words that are functions are called with the site."""

    def run(site: Site) -> str:
        arguments = [str(word(site)) if callable(word) else str(word) for word in words]
        result = CliRunner().invoke(main, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code in (0, 1), result.output
        return result.output if result.exit_code else ""

    run.__name__ = f"muvap {words[0]}"
    return run


def at(name: str) -> Callable[[Site], Path]:
    return lambda site: site.version(name)


def root(site: Site) -> Path:
    return site.layout.root


def of_root(*words: object) -> Door:
    return muvap(*words, "--data-root", root)


def diff(name: str) -> Door:
    return of_root("diff", at(name), at(name))


def asd_manifest(site: Site) -> str:
    return told(asd.make_manifest(site.layout, site.corpus))


def split_beside_it(site: Site) -> str:
    """The manifest of another split, which is compared with this one."""
    return told(asd.make_manifest(site.layout, replace(site.corpus, name="other", siblings=("talks",))))


def loudness_index(site: Site) -> str:
    return told(asd.make_loudness_index(site.layout, site.corpus))


def packed_shards(site: Site) -> str:
    return told(asd.make_packed_shards(site.layout, site.corpus))


def ref2va_manifest(site: Site) -> str:
    return told(line.make_manifest(site.layout, site.dataset, site.spec))


def encoded_latents(site: Site) -> str:
    return told(line.make_encoded_latents(site.layout, site.dataset, 0, site.spec))


def cache_index(site: Site) -> str:
    return told(line.make_parquet_cache_index(site.layout, site.dataset))


def sources(site: Site) -> str:
    for source in (corpus_source(site.corpus, {}), dataset_source(site.dataset, {})):
        fingerprint(source, site.layout)
    return ""


def inputs(name: str) -> Door:
    def run(site: Site) -> str:
        read_inputs(site.version(name))
        return ""

    return run


def pack_page(site: Site) -> str:
    asd_pages.pack_page(site.artifact("asd/packed_shards"), site.version("asd/packed_shards"), [])
    return ""


def loudness_page(site: Site) -> str:
    asd_pages.loudness_page(site.artifact("asd/loudness_index"), site.version("asd/loudness_index"), [])
    return ""


def encoded_page(site: Site) -> str:
    name = "ref2va/encoded_latents"
    ref2va_pages.encoded_page(site.artifact(name), site.version(name), line.EMPTY_REPORT, site.spec)
    return ""


def export(site: Site) -> str:
    target = site.folder.with_name("exported")
    export_dataset(site.layout, site.version("ref2va/parquet_cache_index"), target)
    shutil.rmtree(target)
    return ""


MAKE_ASD = (asd_manifest, loudness_index, packed_shards)
MAKE_REF2VA = (ref2va_manifest, encoded_latents, cache_index)


def purge(site: Site) -> str:
    """What is named is current, which is said where everything could be read."""
    said = of_root("purge", "--dry-run", "--sample", "one", "--sample", "walk-1")(site)
    return "" if "what is current still holds it" in said else said


MAINTENANCE = of_root("maintenance", "--dry-run")
PACK, INDEX = "asd/packed_shards", "ref2va/parquet_cache_index"
PACK_DOORS = (
    *(muvap(verb, at(PACK)) for verb in ("inspect", "verify")),
    muvap("show", at(PACK), "one", "-o", lambda site: site.folder.with_name("page.html")),
    *(diff(PACK), pack_page, packed_shards),
)
INDEX_DOORS = (
    *(muvap(verb, at(INDEX)) for verb in ("verify", "inspect", "capacities")),
    muvap("show", at(INDEX), "walk-1", "-o", lambda site: site.folder.with_name("page.html")),
    *(diff(INDEX), cache_index, export),
)


def versions(name: str) -> Door:
    return of_root("versions", name, "talks" if name.startswith("asd") else "clips")


PUBLISHED: dict[str, tuple[Door, ...]] = {
    "asd/manifest manifest.parquet": (loudness_index, packed_shards, split_beside_it, diff("asd/manifest"), purge),
    "asd/manifest provenance.json": (packed_shards, inputs("asd/manifest"), purge),
    "asd/manifest violations.jsonl": (packed_shards, purge),
    "asd/manifest manifest.tsv": (packed_shards, purge),
    "asd/loudness_index loudness_index.parquet": (packed_shards, loudness_page, diff("asd/loudness_index"), purge),
    "asd/loudness_index provenance.json": (packed_shards, inputs("asd/loudness_index"), purge),
    f"{PACK} dataset.json": (*PACK_DOORS, inputs(PACK), purge),
    f"{PACK} index.arrow": PACK_DOORS,
    f"{PACK} shard-000000/index.json": PACK_DOORS[1:3],
    f"{PACK} shard-000000/faces.npy": PACK_DOORS[1:],
    "ref2va/manifest manifest.parquet": (encoded_latents, cache_index, diff("ref2va/manifest"), purge),
    "ref2va/manifest report.json": (cache_index, purge),
    "ref2va/manifest violations.jsonl": (encoded_latents, cache_index, purge),
    "ref2va/manifest provenance.json": (encoded_latents, inputs("ref2va/manifest"), purge),
    "ref2va/encoded_latents rows.json": (cache_index, diff("ref2va/encoded_latents"), MAINTENANCE, purge),
    "ref2va/encoded_latents provenance.json": (cache_index, inputs("ref2va/encoded_latents"), purge),
    "ref2va/encoded_latents device.json": (cache_index, diff("ref2va/encoded_latents")),
    "ref2va/encoded_latents decode_check.json": (encoded_page, purge),
    "ref2va/encoded_latents violations.jsonl": (encoded_page, purge),
    f"{INDEX} dataset.json": (INDEX_DOORS[0], inputs(INDEX), export, purge),
    f"{INDEX} device.json": (diff(INDEX), export),
    f"{INDEX} map_style_cache/index.arrow": INDEX_DOORS,
    f"{INDEX} map_style_cache/file_info.pkl": INDEX_DOORS[:4],
    f"{INDEX} training.yaml": (INDEX_DOORS[0], export),
}
"""Published files, each with the doors of those who read it."""

MADE_ANEW: dict[str, tuple[Door, ...]] = {
    "cache/packs/talks/*.json": (packed_shards, MAINTENANCE),
    "cache/media/digests.json": (ref2va_manifest, purge),
    "cache/media/video-*.json": (ref2va_manifest,),
    "cache/media/sound-*.json": (ref2va_manifest,),
    "cache/media/image-*.json": (ref2va_manifest,),
    "cache/sources/asd-talks.json": (sources,),
    "cache/sources/names/asd-talks.json": (sources,),
    "cache/retention.json": (MAINTENANCE,),
    "journal/asd/packed_shards/talks.jsonl": (versions(PACK), packed_shards, MAINTENANCE),
    "journal/ref2va/parquet_cache_index/clips.jsonl": (versions(INDEX), cache_index, MAINTENANCE),
    "reports/asd/packed_shards/talks/reuse.json": (pack_page, purge),
    "reports/ref2va/manifest/clips/violations.jsonl": (purge,),
    "row_store/rows/*/*.row": (encoded_latents, MAINTENANCE, purge),
    "row_store/parts/text/*/*.part": (encoded_latents, MAINTENANCE, purge),
    "ref2va/parquet_cache_index/clips/*/map_style_cache/stamps.json": (muvap("verify", at(INDEX)), cache_index, export),
}
"""Files that are safe to lose, each with the doors that have to do their work without."""


# --- damage -------------------------------------------------------------------------------------------------------------

OTHERS = (None, [None], {"a": 1}, True, 1.5, 10**400, "text")


def damages(content: bytes, suffix: str, every: bool) -> Iterator[tuple[str, bytes, bool]]:
    """Damages of a file, with what they are called, and whether it still is what a parser takes.

    With ``every``, each value within it is changed in each way.
    """
    yield "empty", b"", False
    yield "truncated", content[: len(content) // 2], False
    yield "last bytes gone", content[:-3], False
    for text in ("null", "[]", "{}", '{"a":', "[null]"):
        yield text, text.encode(), False
    yield "deep", b"[" * 100_000, False
    yield "random", random.Random(7).randbytes(1000), False
    yield "not UTF-8", content.replace(b'"', b"\xff", 3), False
    try:
        text = content.splitlines()[0] if suffix == ".jsonl" else content
        value = yaml.safe_load(text) if suffix == ".yaml" else json.loads(text)
    except (ValueError, IndexError, yaml.YAMLError):
        return
    for name, other in changes(value, every):
        yield name, (json.dumps(other) + "\n").encode(), True


def changes(value: Any, every: bool) -> Iterator[tuple[str, Any]]:
    """``value`` with each key of it, or of the first object of a list, removed, null or of another type."""
    if isinstance(value, list) and value:
        yield from ((f"[0] {name}", [other, *value[1:]]) for name, other in changes(value[0], every))
    elif isinstance(value, dict):
        for key in value:
            yield f"without {key}", {name: each for name, each in value.items() if name != key}
            others = [other for other in OTHERS if type(other) is not type(value[key])]
            for other in others if every else others[:: len(others) - 1]:
                yield f"{key} {str(other)[:20]!r}", value | {key: other}
            if every and isinstance(value[key], dict | list):
                yield from ((f"{key}.{name}", value | {key: each}) for name, each in changes(value[key], every))


@pytest.fixture(scope="module")
def site(tmp_path_factory, tiny_checkpoint) -> Iterator[Site]:
    """The site, and beside it a copy that is never damaged."""
    patch = pytest.MonkeyPatch()
    patch.setattr(line, "open_h3", lambda layout, spec: FakeEncoder())
    site = Site(tmp_path_factory.mktemp("damaged") / "site", EncoderSpec(checkpoint=tiny_checkpoint, device="cpu"))
    site.make()
    site.folder.rename(site.folder.with_name("pristine"))
    copy(site)
    yield site
    patch.undo()


def state(site: Site) -> dict[str, str | int]:
    """Every file that is not safe to lose with its size, and every link with where it leads."""
    found: dict[str, str | int] = {}
    for folder in ("asd", "ref2va", "row_store"):
        for place, folders, names in os.walk(site.layout.root / folder):
            found |= {f"{place}/{name}": os.lstat(f"{place}/{name}").st_size for name in names}
            found |= {f"{place}/{name}": os.readlink(f"{place}/{name}") for name in folders if name == "current"}  # noqa: PTH115
    return found


def restore(site: Site, before: Mapping[str, str | int]) -> None:
    """Undo what a door published; where it took something away, begin with a new copy of all."""
    now = state(site)
    for name in now.keys() - before.keys():
        version = site.layout.root.joinpath(*Path(name).relative_to(site.layout.root).parts[:4])
        shutil.rmtree(version, ignore_errors=True)
    for name in (name for name, link in before.items() if isinstance(link, str) and now[name] != link):
        Path(name).unlink()
        Path(name).symlink_to(str(before[name]))
    if state(site) != before:
        copy(site)


def copy(site: Site) -> None:
    shutil.rmtree(site.folder, ignore_errors=True)
    shutil.copytree(site.folder.with_name("pristine"), site.folder, symlinks=True)


def met(site: Site, path: Path, doors: tuple[Door, ...], every: bool) -> Iterator[tuple[str, str | Exception]]:
    """What each door said or raised of each damage of a file; nothing is said where it did its work."""
    content, before = path.read_bytes(), state(site)
    for what, data, is_whole in damages(content, path.suffix, every):
        for door in doors[:2] if is_whole else doors:
            path.unlink(missing_ok=True)  # and not its other names
            path.write_bytes(data)
            answer: str | Exception
            try:
                answer = door(site)
            except MuvapError as error:
                answer = str(error)
            except Exception as error:
                answer = error
            yield f"{door.__name__}, {what}", answer
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            if state(site) != before:
                restore(site, before)


EMPTY = ("rows.json", "cache_index, []")
"""A list of no rows is whole: the rows of the manifest are missing in it, and that is said."""

DEPTH = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["shallow", "deep"])


@DEPTH
@pytest.mark.parametrize("file", PUBLISHED)
def test_a_damaged_published_file_is_an_error_that_names_it(site, file, every):
    artifact, _, name = file.partition(" ")
    path = site.version(artifact) / name
    wrong = [
        f"{where}: {answer!r:.300}"
        for where, answer in met(site, path, PUBLISHED[file], every)
        if not isinstance(answer, str)
        or (
            answer
            and (name, where) != EMPTY
            and not any(each in answer for each in (path.name, site.version(artifact).name, f"{artifact} ["))
        )
    ]
    assert not wrong, "\n".join(wrong)


@DEPTH
@pytest.mark.parametrize("file", MADE_ANEW)
def test_a_damaged_file_that_is_safe_to_lose_is_made_anew(site, file, every):
    path = min(site.layout.root.glob(file))
    wrong = [f"{where}: {answer!r:.300}" for where, answer in met(site, path, MADE_ANEW[file], every) if answer]
    assert not wrong, "\n".join(wrong)
