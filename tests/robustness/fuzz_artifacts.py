"""Fuzz targets over what this package publishes: shards, indexes, packs, pickles, journals, versions and their caches.

Here a second promise is held: whatever lies in a damaged file, the others beside it stay as they were.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from corpus_builder import CorpusBuilder
from fuzz_engine import Prepared, Target, check_findings
from fuzz_mutations import damaged, document, json_bytes, npy, pickled

sys.path.append(str(Path(__file__).parent.parent / "ref2va"))
from published_rows import clean_record, published

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.loudness import read_loudness_index
from muvap_assets.asd.manifest_files import read_manifest, read_notes
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.packs.report import report_pack
from muvap_assets.asd.packs.summary import summarize_pack
from muvap_assets.asd.packs.verify import verify_pack
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.asd.tracks import Tracks
from muvap_assets.errors import MuvapError
from muvap_assets.findings import Finding
from muvap_assets.journal import events
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import CheckOutcome, content_version, current_version, point_current, run_checked
from muvap_assets.ref2va.cache import Depth, open_index, verify_index
from muvap_assets.ref2va.capacities import propose
from muvap_assets.ref2va.file_info import read_file_info, write_file_info
from muvap_assets.ref2va.index_rows import read_index_file
from muvap_assets.ref2va.plan_report import plan_report
from muvap_assets.ref2va.publication_checks import verify_dataset
from muvap_assets.ref2va.records import SCHEMA_KEY, pyarrow_schema_ref2va, read_shard, to_row, write_shard
from muvap_assets.ref2va.shard_scan import index_file
from muvap_assets.ref2va.verify import verify_row_file
from muvap_assets.retention import Retention, maintain
from muvap_assets.sources import corpus_source, fingerprint
from muvap_assets.version_diff import diff_versions
from muvap_assets.versions import roll_back, standing_versions

_INTS = (0, 1, -1, 2, 5, 7, 255, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63), None)
_TEXTS = (
    "",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a\0b",
    "x" * 400,
    "float32",
    "float16",
    "object",
    "1/0",
    "1e999",
    None,
)


def _typed(rng: random.Random, kind: pa.DataType, value: Any) -> Any:
    """Another value that an Arrow column of this type holds."""
    if pa.types.is_string(kind):
        return rng.choice(_TEXTS)
    if pa.types.is_binary(kind):
        return rng.choice((b"", b"\0", bytes(400), (value or b"")[:-1], (value or b"") + b"\0", None))
    if pa.types.is_integer(kind):
        info = np.iinfo(kind.to_pandas_dtype())
        return rng.choice([n for n in _INTS if n is None or info.min <= n <= info.max])
    if pa.types.is_floating(kind):
        return rng.choice((0.0, -1.0, 1e308, float("nan"), float("inf"), 24.0, None))
    if pa.types.is_list(kind):
        return _typed_list(rng, kind, list(value or []))
    if pa.types.is_struct(kind) and value is not None and rng.random() < 0.85:
        field = rng.choice(list(kind))
        return {**value, field.name: _typed(rng, field.type, value[field.name])}
    return rng.choice((True, False, None)) if pa.types.is_boolean(kind) else None


def _typed_list(rng: random.Random, kind: pa.DataType, items: list[Any]) -> list[Any] | None:
    match rng.randrange(5):
        case 0:
            return None
        case 1:
            return []
        case 2:
            return [*items, *items]
    if items:
        place = rng.randrange(len(items))
        items[place] = _typed(rng, kind.value_type, items[place])
    return items


def _one_column(rng: random.Random, table: pa.Table) -> pa.Table:
    """The table with one to three cells of another value, or a column dropped, doubled or of another type."""
    rows, schema = table.to_pylist(), table.schema
    for _ in range(rng.choice((1, 1, 2, 3))):
        field = rng.choice(list(schema))
        row = rng.choice(rows)
        row[field.name] = _typed(rng, field.type, row[field.name])
    free = pa.schema([field.with_nullable(True) for field in schema], metadata=schema.metadata)
    made = pa.Table.from_pylist(rows, schema=free)
    match rng.randrange(12):
        case 0:
            made = made.drop_columns([rng.choice(schema.names)])
        case 1:
            made = made.append_column(rng.choice((*schema.names, "more")), pa.array([0] * len(rows)))
        case 2:
            place = rng.randrange(len(schema))
            made = made.set_column(place, schema.names[place], pa.array([0] * len(rows)))
        case 3:
            made = pa.concat_tables([made, made.slice(0, 1)])
        case 4:
            made = made.slice(0, 0)
        case _:
            made = _tightened(made, schema)
    return made


def _tightened(made: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the columns declared as they should be where no null forbids it, so that the values are looked at."""
    try:
        return made.cast(schema)
    except (pa.ArrowException, ValueError):
        return made


def _parquet(table: pa.Table, rng: random.Random | None = None, metadata: Mapping[bytes, bytes] | None = None) -> bytes:
    stream = BytesIO()
    with pq.ParquetWriter(stream, table.schema, compression="zstd", use_dictionary=False) as writer:
        writer.write_table(table, row_group_size=1 if rng is None or rng.random() < 0.9 else None)
        if metadata:
            writer.add_key_value_metadata(dict(metadata))
    return stream.getvalue()


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches():
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


# --- ref2va -----------------------------------------------------------------------------------------------------------


def _shard(folder: Path) -> Prepared:
    path = folder / "data_00000000.parquet"
    record = clean_record("a")
    write_shard(path, [record], {"encoder": "test"})
    valid = path.read_bytes()
    stored = {key: value for key, value in (pq.read_metadata(path).metadata or {}).items() if key != SCHEMA_KEY}
    table = pa.Table.from_pylist([to_row(record)], schema=pyarrow_schema_ref2va)

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        match rng.randrange(4):
            case 0:
                content = damaged(rng, valid)
            case 1:  # the footer alone, which says where and how large everything is
                length = int.from_bytes(valid[-8:-4], "little")
                content = valid[: -8 - length] + damaged(rng, valid[-8 - length : -8])
                content += (len(content) - (len(valid) - 8 - length)).to_bytes(4, "little") + b"PAR1"
            case 2:
                key = rng.choice([name for name in stored if not name.startswith(b"ARROW")])
                told = json_bytes(rng, document(rng, json.loads(stored[key])))
                content = _parquet(table, rng, {**stored, key: rng.choice((told, told, damaged(rng, stored[key])))})
            case _:
                content = _parquet(_one_column(rng, table), rng, stored)
        yield path, content

    def run() -> bool:
        findings = verify_row_file(path)
        accepted = check_findings(findings)
        result = index_file(path, "bucket=32x32-5f/data_00000000.parquet")
        if isinstance(result, Finding):
            accepted = check_findings([result]) and accepted
        try:
            read_shard(path)
        except MuvapError:
            return False
        return accepted

    return Prepared(make, run)


def _index_arrow(folder: Path) -> Prepared:
    root = published(folder / "data", clean_record("a"), clean_record("b"))
    path = folder / "index.arrow"
    valid = (root / "map_style_cache" / "index.arrow").read_bytes()
    path.write_bytes(valid)
    table = pa.ipc.open_file(pa.BufferReader(valid)).read_all()

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        yield path, damaged(rng, valid) if rng.random() < 0.5 else _arrow(_one_column(rng, table))

    def run() -> bool:
        index = read_index_file(path)
        plan_report(index).to_dict()
        propose(index.lengths, 2)
        return all(row.geometry is not None for row in index.rows)

    return Prepared(make, run)


def _file_info(folder: Path) -> Prepared:
    path = folder / "file_info.pkl"
    write_file_info(path, [f"/data/a/data_{i:08d}.parquet" for i in range(4)], [1] * 4)
    valid = path.read_bytes()

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        yield path, damaged(rng, valid) if rng.random() < 0.4 else pickled(rng, valid)

    def run() -> bool:
        files, counts = read_file_info(path)
        return len(files) + len(counts) >= 0

    return Prepared(make, run)


class _Tree:
    """A published folder of which a case damages one file; all others have to stay as they are."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
        self.touched: set[Path] = set()
        self.before = self._state()

    def _state(self) -> dict[Path, tuple[int, int, int]]:
        return {
            path: ((status := path.lstat()).st_size, status.st_mtime_ns, status.st_ino)
            for path in self.root.rglob("*")
            if path not in self.touched
        }

    def intact(self) -> str | None:
        """What changed beside the file that the case damaged."""
        state = self._state()
        expected = {path: facts for path, facts in self.before.items() if path not in self.touched}
        if state == expected:
            return None
        return f"changed by reading: {sorted(str(p.relative_to(self.root)) for p in set(state) ^ set(expected)) or 'contents'}"

    def restore(self) -> None:
        """Put the damaged file back."""
        for path in self.touched:
            path.write_bytes(self.files[path])
        self.touched.clear()
        self.before = self._state()


def _mutated_file(rng: random.Random, path: Path, content: bytes) -> bytes:
    """Hostile bytes in place of a file, by the kind its name tells."""
    if rng.random() < 0.3:
        return damaged(rng, content)
    try:
        if path.suffix == ".arrow":
            return _arrow(_one_column(rng, pa.ipc.open_file(pa.BufferReader(content)).read_all()))
        if path.suffix == ".parquet":
            table = pq.read_table(pa.BufferReader(content))
            return _parquet(_one_column(rng, table), rng)
        if path.suffix == ".json":
            return json_bytes(rng, document(rng, json.loads(content)))
        if path.suffix == ".pkl":
            return pickled(rng, content)
        if path.suffix == ".npy":
            return npy(rng, content)
    except (pa.ArrowException, IndexError):  # a table without rows to change, or a value Arrow has no place for
        return damaged(rng, content)
    return damaged(rng, content)


@dataclass
class _PreparedTree(Prepared):
    tree: _Tree = field(kw_only=True)


def _tree_target(
    root: Path, run: Callable[[], bool], leave: Callable[[Path], bool] = lambda path: False
) -> _PreparedTree:
    tree = _Tree(root)
    names = [path for path in tree.files if not leave(path)]

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        path = rng.choice(names)
        tree.touched.add(path)
        yield path, _mutated_file(rng, path, tree.files[path])

    return _PreparedTree(make, run, tree.restore, tree.intact, tree=tree)


def _dataset(folder: Path) -> Prepared:
    root = published(folder / "data", clean_record("a"), clean_record("b"))

    def run() -> bool:
        verdict = verify_index(root, depth=Depth.CHANGED, workers=1)
        accepted = check_findings(verdict.findings)
        for check in verify_dataset(root, depth=Depth.CHANGED, workers=1):
            accepted = check_findings(check.findings) and check.passed and accepted
        open_index(root, require_existing=True)
        return accepted

    return _tree_target(root, run)


# --- asd --------------------------------------------------------------------------------------------------------------


def _asd_line(folder: Path) -> Layout:
    builder = CorpusBuilder(folder / "corpus")
    builder.root.mkdir()
    builder.row("one")
    builder.row("two")
    corpus = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=builder.write()), dataset="talks")
    layout = Layout(folder / "root")
    for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
        make(layout, corpus)
    return layout


def _pack(folder: Path) -> Prepared:
    root = _asd_line(folder).asd_packed_shards("talks").current.resolve()

    def run() -> bool:
        accepted = True
        for check in verify_pack(root):
            accepted = check_findings(check.findings) and check.passed and accepted
        reader = PackReader(root)
        for sample in reader:
            int(sample.audio.sum()) + int(sample.labels.sum()) + int(sample.faces.sum())
        summarize_pack(root)
        if accepted:  # `muvap verify` reports only what holds
            report_pack(root)
        Tracks([root], FrameRate.parse(25))
        return accepted

    return _tree_target(root, run)


def _versions(folder: Path) -> Prepared:
    """Versions of every artifact with rows: compared, and read as the next step of the line reads them."""
    layout = _asd_line(folder)
    manifest = layout.asd_manifest("talks").current.resolve()
    loudness = layout.asd_loudness_index("talks").current.resolve()
    encoded = folder / "root" / "ref2va" / "encoded"
    encoded.mkdir(parents=True)
    rows = [
        {
            "id": name,
            "row": 1,
            "key": "0" * 64,
            "sha256": "0" * 64,
            "bucket": "b",
            "text_tokens": 3,
            "sequence_length": 9,
        }
        for name in "ab"
    ]
    (encoded / "rows.json").write_text(json.dumps(rows))
    copies = {}
    for place in (manifest, loudness, encoded):
        copies[place] = Path(shutil.copytree(place, folder / "copies" / place.name))

    def run() -> bool:
        accepted = True
        touched = {path.relative_to(folder / "copies").parts[0] for path in prepared.tree.touched}
        for before, after in copies.items():
            if touched and after.name not in touched:
                continue
            try:
                diff_versions(before, after)
                diff_versions(after, before)
            except MuvapError:
                accepted = False
        for read, place in ((read_manifest, manifest), (read_notes, manifest), (read_loudness_index, loudness)):
            if touched and copies[place].name not in touched:
                continue
            try:
                read(copies[place])
            except MuvapError:
                accepted = False
        return accepted

    prepared = _tree_target(folder / "copies", run, lambda path: path.suffix in (".tsv", ".jsonl"))
    return prepared


def _journal(folder: Path) -> Prepared:
    """A journal made hostile beside two good versions, neither of which may change."""
    artifact = Artifact(folder / "root", "asd", "packed_shards", "talks")
    versions = []
    for text in ("one", "two"):
        outcome = run_checked(
            artifact,
            build=lambda place, text=text: (place / "rows.txt").write_text(text),
            check=lambda place, value: [CheckOutcome.of("whole", [])],
            declared=("whole",),
        )
        versions.append(outcome.published.version)
    valid = artifact.journal.read_bytes()
    scratch = folder / "scratch"
    scratch.mkdir()

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        lines = [json.loads(text) for text in valid.decode().splitlines()]
        content = b"".join(json_bytes(rng, document(rng, entry), None) + b"\n" for entry in lines)
        yield artifact.journal, damaged(rng, valid) if rng.random() < 0.4 else content

    def run() -> bool:
        events(artifact)
        if {version.version for version in standing_versions(artifact)} != set(versions):
            raise AssertionError("a standing version is not listed")
        maintain(Layout(folder / "root"), Retention(keep_versions=1), dry_run=True)
        roll_back(artifact, versions[0])
        return current_version(artifact) == versions[0]

    def restore() -> None:
        artifact.journal.write_bytes(valid)
        point_current(artifact, versions[1], scratch)

    def intact() -> str | None:
        changed = [version for version in versions if content_version(artifact.version(version)) != version]
        return f"versions {changed} changed" if changed else None

    return Prepared(make, run, restore, intact)


def _digest_cache(folder: Path) -> Prepared:
    """The cache of digests is safe to lose: whatever it holds, a source has the fingerprint it had."""
    builder = CorpusBuilder(folder / "corpus")
    builder.root.mkdir()
    builder.row("one")
    corpus = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=builder.write()), dataset="talks")
    layout = Layout(folder / "root")
    source = corpus_source(corpus, {"on_violation": "fail"})
    known = fingerprint(source, layout).digest
    path = next((layout.cache / "sources").glob("*.json"))
    stored = {
        "schema": 1,
        "files": {str(file): ["state", "0" * 64] for file in builder.root.iterdir()},
        "names": {"a" * 64: ["one.wav", "one.npy"]},
    }

    def make(rng: random.Random) -> Iterable[tuple[Path, bytes]]:
        content = json.dumps(stored).encode()
        yield path, damaged(rng, content) if rng.random() < 0.3 else json_bytes(rng, document(rng, stored))

    def run() -> bool:
        if fingerprint(source, layout).digest != known:
            raise AssertionError("another fingerprint for the same files")
        return True

    return Prepared(make, run)


ARTIFACT_TARGETS = (
    Target("shard", _shard),
    Target("index_arrow", _index_arrow),
    Target("file_info", _file_info),
    Target("dataset", _dataset),
    Target("pack", _pack),
    Target("versions", _versions),
    Target("journal", _journal),
    Target("digest_cache", _digest_cache),
)
