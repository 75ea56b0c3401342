"""What a corpus or dataset is made of, and whether its content changed. Knows both lines, and nothing of Dagster.

A fingerprint is a digest over the text files of a source, the bytes of every media file they name, and the options of
its entry in ``datasets.yaml``. Content decides: a file that was touched or copied over itself changes nothing, a file
swapped under the same name does, and so does one that appears where it was missing.

Reading everything each time would be slow, so digests are remembered on disk by size, modification and change time and
inode. That cache is safe to lose. A file changed less than two seconds ago is never taken from it: within the
resolution of a clock, it may change again and look the same. Its change time says so, which only the system sets: a copy
may carry a modification time of years ahead.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muvap_assets.asd.contract import Corpus
from muvap_assets.datasets import Datasets
from muvap_assets.disk import SETTLED_SEC, state_of
from muvap_assets.layout import Layout
from muvap_assets.publish import file_sha256
from muvap_assets.ref2va.contract import Dataset
from muvap_assets.ref2va.raw_manifest import read_bounded

LINES = ("asd", "ref2va")
MISSING = "missing"
_CACHE_SCHEMA = 1
_NOT_CONTENT = frozenset({"max_age_hours"})
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
        OutOfTime: the deadline passed.
    """
    cache = _DigestCache(layout.cache / "sources" / f"{source.line}-{source.name}.json", deadline)
    try:
        texts = {name: cache.digest(path) for name, path in source.texts.items()}
        listed = [json.dumps(source.options, sort_keys=True), *(f"{name}\0{digest}" for name, digest in texts.items())]
        places = [*map(str, source.texts.values()), *(_listing_state(folder) for folder in source.listings)]
        named = cache.names(_digest([*listed, *places]), source.media)
        media = [(name, cache.digest(source.root / name)) for name in named]
    finally:
        cache.save()
    return Fingerprint(
        digest=_digest([*listed, *(f"{n}\0{d}" for n, d in media)])[:16],
        files=len(texts) + len(media),
        missing=[*texts.values(), *(digest for _, digest in media)].count(MISSING),
        hashed=cache.hashed,
        trusted=cache.trusted,
    )


@dataclass(slots=True)
class _DigestCache:
    """Digests of files and folders by path and state, and which media a text names, in one JSON file."""

    path: Path
    deadline: float
    hashed: int = 0
    trusted: int = 0
    _known: dict[str, list[str]] = field(default_factory=dict)
    _seen: dict[str, list[str]] = field(default_factory=dict)
    _names: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            if stored["schema"] == _CACHE_SCHEMA:
                self._known = {key: value for key, value in stored["files"].items() if _are_texts(value, 2)}
                self._names = {key: value for key, value in stored["names"].items() if _are_texts(value)}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            self._known, self._names = {}, {}  # lost or torn: only the reading is lost with it

    def digest(self, path: Path) -> str:
        """Digest of a file's bytes, or of all files directly in a folder; ``MISSING`` where there is neither."""
        if time.monotonic() > self.deadline:
            raise OutOfTime
        try:
            state, changed = _folder_state(path) if path.is_dir() else state_of(path.stat())
        except OSError:
            return MISSING
        key = str(path)
        known = self._known.get(key)
        if known is not None and known[0] == state:
            self._seen[key] = known
            self.trusted += 1
            return known[1]
        digest = self._read(path)
        self.hashed += 1
        if digest != MISSING and time.time() - changed > SETTLED_SEC:
            self._seen[key] = [state, digest]
        return digest

    def _read(self, path: Path) -> str:
        try:
            if path.is_dir():
                files = sorted(entry for entry in path.iterdir() if entry.is_file())
                return _digest(f"{entry.name}\0{file_sha256(entry)}" for entry in files)
            return file_sha256(path) if path.is_file() else MISSING
        except OSError:
            return MISSING

    def names(self, texts: str, read: Callable[[], Iterable[str]]) -> list[str]:
        """The media that texts, options and listings of this digest name, each once, in one order."""
        if texts not in self._names:
            self._names = {texts: sorted(set(read()))}
        return self._names[texts]

    def save(self) -> None:
        """Write down what still matters. An unfinished look keeps what was known of files it did not come to."""
        kept = {**self._known, **self._seen} if time.monotonic() > self.deadline else self._seen
        stored = {"schema": _CACHE_SCHEMA, "names": self._names, "files": kept}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(f".{self.path.name}-{uuid.uuid4().hex}")
        scratch.write_text(json.dumps(stored), encoding="utf-8")
        scratch.replace(self.path)


def _folder_state(folder: Path) -> tuple[str, float]:
    with os.scandir(folder) as entries:
        states = {entry.name: state_of(entry.stat()) for entry in entries if entry.is_file()}
    changed = max([folder.stat().st_ctime, *(changed for _, changed in states.values())])
    return _digest(f"{name}\0{states[name][0]}" for name in sorted(states)), changed


def _listing_state(folder: Path) -> str:
    """Where a folder is, and when an entry of it or of a folder in it was last added, removed or renamed."""
    try:
        with os.scandir(folder) as entries:
            times = sorted(f"{entry.name}\0{entry.stat().st_mtime_ns}" for entry in entries if entry.is_dir())
        return _digest([str(folder), str(folder.stat().st_mtime_ns), *times])
    except OSError:
        return f"{folder} {MISSING}"


def _are_texts(value: Any, count: int | None = None) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value) and count in (None, len(value))


def _digest(parts: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


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
