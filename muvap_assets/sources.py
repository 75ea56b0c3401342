"""What a corpus or dataset is made of, and whether its content changed. Knows both lines, and nothing of Dagster.

A fingerprint is a digest over the text files of a source, the bytes of every media file they name, and the options of
its entry in ``datasets.yaml``. Content decides: a file that was touched or copied over itself changes nothing, a file
swapped under the same name does, and so does one that appears where it was missing.

Reading everything each time would be slow, so digests are remembered (``storage.digests``), and so is what media the texts
name. Both are safe to lose.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muvap_assets.asd.contract import Corpus
from muvap_assets.datasets import Datasets
from muvap_assets.layout import Layout
from muvap_assets.options import NOT_CONTENT
from muvap_assets.ref2va.contract import Dataset
from muvap_assets.ref2va.raw_manifest import read_bounded
from muvap_assets.storage.digests import Digests, texts_sha256
from muvap_assets.storage.files import read_lossy_json, write_lossy_json
from muvap_assets.storage.locks import tried

MISSING = "missing"
_NOT_CONTENT = NOT_CONTENT | {"max_age_hours"}
_MEDIA_KEYS = frozenset({"image", "video", "audio"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The files behind one partition.

    ``texts`` name what the rows are read from; ``media`` reads which files or folders the rows name, as they are written;
    ``options`` are plain JSON values. ``listings`` are folders whose entries decide beside the texts what the rows name.
    """

    line: str
    name: str
    root: Path
    texts: Mapping[str, Path]
    media: Callable[[], Iterable[str]]
    options: Mapping[str, Any]
    listings: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What a source holds. ``hashed`` files were read to know it, ``trusted`` ones recognized by size and time."""

    digest: str
    files: int
    missing: int
    hashed: int
    trusted: int


class OutOfTime(Exception):
    """The deadline passed. What was read so far is remembered, so that the next call goes on from there."""


def source_of(datasets: Datasets, line: str, name: str) -> Source:
    """The source of one partition of a line's manifest.

    Raises:
        ConfigError: there is no such corpus or dataset.
    """
    if line == "asd":
        return corpus_source(datasets.corpus(name), _options(datasets.corpora[name]))
    return dataset_source(datasets.ref2va_dataset(name), _options(datasets.ref2va[name]))


def corpus_source(corpus: Corpus, options: Mapping[str, Any]) -> Source:
    """The source of a corpus of any kind: its reader says which texts the rows are read from, and the rows name the media."""
    return Source(
        line="asd",
        name=corpus.name,
        root=corpus.root,
        texts=dict(sorted(corpus.source.inputs().items())),
        media=corpus.source.media,
        options=options,
        listings=corpus.source.listings(),
    )


def dataset_source(dataset: Dataset, options: Mapping[str, Any]) -> Source:
    """The source of a ref2va dataset. Rows that break the schema count too: what they name may be what is missing."""
    return Source(
        line="ref2va",
        name=dataset.name,
        root=dataset.manifest.parent,
        texts={"manifest": dataset.manifest},
        media=lambda: _media_in(dataset.manifest),
        options=options,
    )


def fingerprint(source: Source, layout: Layout, *, deadline: float = float("inf")) -> Fingerprint:
    """Look at everything a source is made of, reading only what may have changed.

    Args:
        source: what to look at.
        layout: holds the cache of digests.
        deadline: on :func:`time.monotonic`.

    Raises:
        OutOfTime: the deadline passed, or a purge of the data root is under way, which removes from the cache too.
    """
    with tried(layout.in_use, share=True) as free:
        if not free:
            raise OutOfTime
        return _fingerprint(source, layout, deadline)


def _fingerprint(source: Source, layout: Layout, deadline: float) -> Fingerprint:
    folder, cache_name = layout.cache / "sources", f"{source.line}-{source.name}.json"
    digests = Digests(folder / cache_name)
    try:
        texts = {name: _digest_of(path, digests, deadline) for name, path in source.texts.items()}
        listed = [json.dumps(source.options, sort_keys=True), *(f"{name}\0{digest}" for name, digest in texts.items())]
        places = [*map(str, source.texts.values()), *(_listing_state(folder) for folder in source.listings)]
        named = _media_of(source, texts_sha256([*listed, *places]), folder / "names" / cache_name)
        media = [(name, _digest_of(source.root / name, digests, deadline)) for name in named]
    finally:
        digests.save()
    return Fingerprint(
        digest=texts_sha256([*listed, *(f"{n}\0{d}" for n, d in media)])[:16],
        files=len(texts) + len(media),
        missing=[*texts.values(), *(digest for _, digest in media)].count(MISSING),
        hashed=digests.hashed,
        trusted=digests.trusted,
    )


def _digest_of(path: Path, digests: Digests, deadline: float) -> str:
    """Digest of a file, or of the files directly in a folder; ``MISSING`` where neither can be read."""
    if time.monotonic() > deadline:
        raise OutOfTime
    try:
        return digests.of(path, folders=True)
    except (OSError, ValueError):  # a name that no path can have
        return MISSING


def _media_of(source: Source, texts: str, memo: Path) -> list[str]:
    """The media that the texts, options and listings of digest ``texts`` name, each once, in one order."""
    match read_lossy_json(memo):
        case {"texts": known, "names": [*names]} if known == texts and all(isinstance(name, str) for name in names):
            return names
    names = sorted(set(source.media()))
    write_lossy_json(memo, {"texts": texts, "names": names})
    return names


def _listing_state(folder: Path) -> str:
    """Where a folder is, and when an entry of it or of a folder in it was last added, removed or renamed."""
    try:
        with os.scandir(folder) as entries:
            times = sorted(f"{entry.name}\0{entry.stat().st_mtime_ns}" for entry in entries if entry.is_dir())
        return texts_sha256([str(folder), str(folder.stat().st_mtime_ns), *times])
    except OSError:
        return f"{folder} {MISSING}"


def _options(entry: Any) -> dict[str, Any]:
    """An entry's options without its paths: a folder that was moved as a whole holds what it held."""
    dumped = entry.model_dump(mode="json")
    return {name: dumped[name] for name, value in entry if not isinstance(value, Path) and name not in _NOT_CONTENT}


def _media_in(manifest: Path) -> Iterator[str]:
    """Every media path in a JSON or JSON Lines text, whatever else is wrong with it."""
    try:
        text = read_bounded(manifest).decode("utf-8-sig", errors="replace")
    except (OSError, ValueError):
        return
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        documents = [document for line in text.splitlines() if (document := _parsed(line)) is not None]
    yield from _paths_below(documents)


def _is_path(text: str) -> bool:
    """Whether the system takes it as a path at all."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _paths_below(value: Any) -> Iterator[str]:
    waiting = [value]  # not by recursion: what JSON nests, its reader may follow deeper than a function here
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, list):
            waiting.extend(reversed(holder))
        elif isinstance(holder, dict):
            paths = {name for name in holder if name in _MEDIA_KEYS and isinstance(holder[name], str)}
            yield from (holder[name].strip() for name in holder if name in paths and _is_path(holder[name]))
            waiting.extend(holder[name] for name in reversed(holder) if name not in paths)
