"""Publishing finished rows: all of them or nothing, each shard the very bytes of its row, under names that follow the manifest."""

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from encoder_rows import FakeEncoder, audio, image, row, tree
from published_rows import (
    LONG,
    SMALL,
    WIDE,
    clean_record,
    dataset_artifact,
    finished,
    published,
    rows_of_report,
    sft_record,
)

from muvap_assets.codes import Code
from muvap_assets.errors import PublishError, ValidationError
from muvap_assets.publish import content_version, current_version
from muvap_assets.ref2va import publication
from muvap_assets.ref2va.cache import Depth
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.encode import encode_rows
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.publication import (
    LOCATION_DEPENDENT,
    FinishedRow,
    PublicationOptions,
    publish_dataset,
)
from muvap_assets.ref2va.publication_checks import PUBLICATION_CHECKS, verify_dataset
from muvap_assets.ref2va.records import read_shard, write_shard
from muvap_assets.ref2va.row_store import RowStore

OPTIONS = PublicationOptions(format=Format.PACKED, provenance={"encoder": "abc", "code_version": "1"})


def publish(root, rows, options=OPTIONS):
    return publish_dataset(dataset_artifact(root), rows, options, workers=1)


def shards(folder):
    """Id of the row in every shard, by relative path, read by plain means."""
    return {path.relative_to(folder).as_posix(): read_shard(path)[0].id for path in sorted(folder.rglob("*.parquet"))}


# --- what lies there ---------------------------------------------------------------------------------------------------


def test_rows_become_shards_of_one_row_numbered_by_manifest_order_within_their_bucket(tmp_path):
    folder = published(
        tmp_path,
        clean_record("z"),
        clean_record("m", WIDE),
        clean_record("a"),
        clean_record("k", LONG),
        clean_record("b"),
    )
    assert shards(folder) == {
        "bucket=32x32-22f/data_00000000.parquet": "k",
        "bucket=32x32-5f/data_00000000.parquet": "z",
        "bucket=32x32-5f/data_00000001.parquet": "a",
        "bucket=32x32-5f/data_00000002.parquet": "b",
        "bucket=64x32-5f/data_00000000.parquet": "m",
    }


def test_the_pickle_is_the_two_tuples_the_training_side_loads(tmp_path):
    folder = published(tmp_path, *(clean_record(name) for name in "abcdefg"))
    loaded = pickle.loads((folder / "map_style_cache/file_info.pkl").read_bytes())
    files = sorted(os.path.realpath(path) for path in folder.rglob("*.parquet"))
    assert loaded == (tuple(files), (1,) * 7)
    assert all(type(part) is tuple for part in loaded)


def test_a_shard_is_the_row_of_the_store_itself_and_takes_no_space_of_its_own(tmp_path):
    folder = published(tmp_path, clean_record("a"))
    assert (folder / "bucket=32x32-5f/data_00000000.parquet").samefile(tmp_path / "store/a.row")


def test_where_no_hard_link_is_possible_the_row_is_copied(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    folder = published(tmp_path, clean_record("a"))
    shard = folder / "bucket=32x32-5f/data_00000000.parquet"
    assert not shard.samefile(tmp_path / "store/a.row")
    assert shard.read_bytes() == (tmp_path / "store/a.row").read_bytes()


def test_dataset_json_tells_where_the_data_come_from_and_no_versioned_file_names_a_place(tmp_path):
    folder = published(tmp_path, clean_record("a"), clean_record("b", WIDE), provenance=OPTIONS.provenance)
    facts = json.loads((folder / "dataset.json").read_text())
    assert facts["schema_version"] == "minimax_h3_ref2va_packed_v1"
    assert (facts["rows"], facts["buckets"]) == (2, {"bucket=32x32-5f": 1, "bucket=64x32-5f": 1})
    assert facts["provenance"] == {"encoder": "abc", "code_version": "1"}
    for name, content in tree(folder).items():
        assert name in LOCATION_DEPENDENT or str(tmp_path).encode() not in content


def test_training_yaml_is_the_data_section_of_the_contract(tmp_path):
    folder = published(tmp_path, clean_record("a"))
    assert yaml.safe_load((folder / "training.yaml").read_text()) == {
        "training": {
            "data": {
                "data_path": str(folder.resolve()),
                "preprocessed_data_type": "ref2va",
                "train_batch_size": 1,
                "native_shape_bucketing": True,
                "max_presentation_tokens": 65536,
                "require_existing_parquet_cache": True,
                "fixed_sequence_capacities": [256],
            }
        }
    }


def test_the_same_rows_give_the_same_version_in_any_place(tmp_path):
    one, other = (published(tmp_path / name, clean_record("a"), clean_record("b")) for name in ("one", "two"))
    assert one.name == other.name == content_version(one, LOCATION_DEPENDENT)
    assert one != other


def test_every_declared_check_runs_and_passes(tmp_path):
    outcome = publish(tmp_path, finished(tmp_path / "store", clean_record("a"), clean_record("b", WIDE)))
    assert [check.name for check in outcome.checks] == list(PUBLICATION_CHECKS)
    assert all(check.passed for check in outcome.checks)
    assert {check.name: dict(check.numbers) for check in outcome.checks}["rows_complete"] == {"rows": 2}


def test_both_formats_are_published(tmp_path):
    folder = published(tmp_path, *(sft_record(clean_record(name)) for name in "ab"))
    assert json.loads((folder / "dataset.json").read_text())["format"] == "sft"


# --- all or nothing (B24) ----------------------------------------------------------------------------------------------


def test_one_missing_and_one_failed_row_publish_nothing_and_are_both_named(tmp_path):
    before = published(tmp_path, clean_record("old"))
    rows = finished(tmp_path / "store", clean_record("a"), clean_record("gone"), clean_record("c"))
    rows[1].path.unlink()
    rows[2] = replace(rows[2], path=None, reason="3 of 192 values are not finite")
    with pytest.raises(ValidationError) as error:
        publish(tmp_path, rows)
    assert [(found.code, found.row, found.sample_id) for found in error.value.findings] == [
        (Code.ROW_MISSING, 2, "gone"),
        (Code.ROW_MISSING, 3, "c"),
    ]
    assert "no finished row: 3 of 192 values are not finite; required: every row of the manifest" in str(error.value)
    artifact = dataset_artifact(tmp_path)
    assert current_version(artifact) == before.name
    assert [path.name for path in artifact.folder.iterdir() if not path.is_symlink()] == [before.name]
    assert list(artifact.staging.iterdir()) == []


def test_no_row_at_all_is_no_dataset(tmp_path):
    with pytest.raises(ValidationError, match="no row; required: at least one"):
        publish(tmp_path, [])


def test_damaged_foreign_and_doubled_rows_are_all_named_at_once(tmp_path):
    rows = finished(tmp_path / "store", clean_record("a"), clean_record("cut"), sft_record(clean_record("sft")))
    rows[1].path.write_bytes(rows[1].path.read_bytes()[:-20])
    rows.append(FinishedRow(sample_id="other", path=rows[0].path, row=4))
    rows.append(replace(rows[0], row=5))
    with pytest.raises(ValidationError) as error:
        publish(tmp_path, rows)
    found = {(finding.code, finding.sample_id) for finding in error.value.findings}
    assert found == {
        (Code.SHARD_UNREADABLE, "cut"),
        (Code.SCHEMAS_MIXED, "sft"),
        (Code.SAMPLE_ID_INVALID, "other"),
        (Code.SAMPLE_ID_DUPLICATE, "a"),
    }


def test_latents_of_another_shape_than_the_columns_say_are_refused_not_filed_by_request(tmp_path):  # B08
    requested = replace(clean_record("a", SMALL), geometry=WIDE)
    write_shard(tmp_path / "a.row", [requested])
    with pytest.raises(ValidationError, match=r"columns that say bucket=64x32-5f; required: bucket=32x32-5f"):
        publish(tmp_path, [FinishedRow(sample_id="a", path=tmp_path / "a.row", row=1)])


def test_a_row_over_the_presentation_limit_is_refused(tmp_path):
    rows = finished(tmp_path / "store", clean_record("a", tokens=12))
    with pytest.raises(ValidationError, match="12 presentation tokens; required: at most 11"):
        publish(tmp_path, rows, replace(OPTIONS, max_presentation_tokens=11))


@pytest.mark.parametrize("damage", ["payload", "nan"])
def test_a_row_that_reads_back_wrong_blocks_publication(tmp_path, damage):
    record = clean_record("a")
    if damage == "nan":
        record.vae_latent[0, 0, 0, 0] = float("nan")
    rows = finished(tmp_path / "store", record, clean_record("b"))
    if damage == "payload":
        content = bytearray(rows[0].path.read_bytes())
        content[len(content) // 4] ^= 0xFF
        rows[0].path.write_bytes(content)
    outcome = publish(tmp_path, rows)
    assert outcome.published is None
    assert [check.name for check in outcome.blocking] == ["shards_whole"]
    assert outcome.blocking[0].findings[0].source == "bucket=32x32-5f/data_00000000.parquet"
    assert not dataset_artifact(tmp_path).folder.exists()


KILLED_EXPORTS = """
import os, shutil, signal, sys, time
from published_rows import *
from muvap_assets.errors import PublishError
from muvap_assets.layout import Layout
from muvap_assets.ref2va.publication import export_dataset
from muvap_assets.retention import Retention, maintain

root, ends_by = Path(sys.argv[1]), sys.argv[2]
layout, published, target = Layout(root / "data"), Path(sys.argv[3]), root / "exported" / "clips"
STEPS = ("os.link", "os.rename", "os.remove", "os.symlink", "os.mkdir", "os.rmdir")


def killed(moment):
    \"""Whether an export came to its ``moment``-th step, where it is killed.\"""
    child = os.fork()
    if not child:
        left = [moment]
        def halt(event, arguments):
            left[0] -= event in STEPS
            if event in STEPS and not left[0]:
                os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(600)
        sys.addaudithook(halt)
        export_dataset(layout, published, target, workers=1)
        os._exit(0)
    _, status = os.waitpid(child, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True
    return False


def tree(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "stamps.json"}


export_dataset(layout, published, target, workers=1)
whole, left_at = tree(target), 0
for moment in range(1, 1000):
    shutil.rmtree(target, ignore_errors=True)
    if not killed(moment):
        break
    left_at += len(list(target.parent.iterdir())) - target.exists() > 0
    if ends_by == "maintenance":
        dry = maintain(layout, Retention(), dry_run=True)
        report = maintain(layout, Retention())
        assert dry.removed == report.removed, (dry.removed, report.removed)
        assert maintain(layout, Retention()).removed == []
        assert {p.name for p in target.parent.iterdir()} <= {"clips"}
    else:
        try:
            export_dataset(layout, published, target, workers=1)
        except PublishError:
            pass  # it was over when it was killed
        assert tree(target) == whole
    assert tree(target) in ({}, whole)
    assert {p.name for p in target.parent.iterdir()} <= {"clips"}
    assert list(layout.staging.rglob("*")) == [layout.exports], list(layout.staging.rglob("*"))
    shutil.rmtree(target, ignore_errors=True)
    assert {p.stat().st_nlink for p in layout.row_store.rglob("*.row")} == {2}
print(moment, left_at)
"""


@pytest.mark.parametrize("ends_by", ["maintenance", "the next export"])
def test_what_an_export_killed_at_any_step_left_is_removed_by(tmp_path, ends_by):
    """The row store's files are linked by the published version and nothing else afterwards."""
    rows = finished(tmp_path / "data" / "row_store" / "rows" / "ab", *(clean_record(name) for name in "abc"))
    folder = publish(tmp_path / "data", rows).published.path
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    words = [sys.executable, "-c", KILLED_EXPORTS, tmp_path, ends_by, folder]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    moments, left_at = map(int, done.stdout.split())
    assert moments > left_at > 10


# --- growing and changing (B26, acceptance 5) --------------------------------------------------------------------------


def test_publishing_the_same_again_changes_nothing_and_a_grown_dataset_is_a_new_version(tmp_path):
    rows = finished(tmp_path / "store", clean_record("a"), clean_record("b"))
    first = publish(tmp_path, rows).published
    before = tree(first.path)
    again = publish(tmp_path, rows).published
    assert (again.version, again.created) == (first.version, False)
    assert tree(first.path) == before
    grown = publish(tmp_path, [*rows, *finished(tmp_path / "store", clean_record("c"))]).published
    assert grown.created
    assert grown.version != first.version
    assert current_version(dataset_artifact(tmp_path)) == grown.version
    assert tree(first.path) == before
    assert sorted(shards(grown.path).values()) == ["a", "b", "c"]


def test_a_folder_that_is_not_that_version_is_never_written_into(tmp_path):
    rows = finished(tmp_path / "store", clean_record("a"))
    first = publish(tmp_path, rows).published
    (first.path / "notes.txt").write_text("mine")
    with pytest.raises(PublishError, match="holds something else than version"):
        publish(tmp_path, rows)
    assert (first.path / "notes.txt").read_text() == "mine"


def test_a_changed_caption_costs_one_encode_and_leaves_every_other_shard_as_it_was(tmp_path):
    store = RowStore(tmp_path / "store")
    inputs = [row(name, image(number), audio(number), seed=number) for number, name in enumerate("abc")]
    first = publish(tmp_path, rows_of_report(inputs, encode_rows(inputs, FakeEncoder(), store))).published.path
    inputs[1] = replace(inputs[1], caption="Another caption altogether")
    report = encode_rows(inputs, FakeEncoder(), store)
    assert report.encoded == {Stage.TEXT: 1}
    second = publish(tmp_path, rows_of_report(inputs, report)).published.path
    assert first != second
    changed = "bucket=128x64-22f/data_00000001.parquet"
    for name in shards(first):
        same = (first / name).read_bytes() == (second / name).read_bytes()
        assert same is (name != changed)


def test_a_row_whose_encode_failed_keeps_its_reason_until_publication(tmp_path):  # B30
    store = RowStore(tmp_path / "store")
    inputs = [row(name, seed=number) for number, name in enumerate("abc")]
    report = encode_rows(inputs, FakeEncoder(poison=["b"]), store)
    with pytest.raises(ValidationError, match=r"\(b\): no finished row: 1 of .* values are not finite"):
        publish(tmp_path, rows_of_report(inputs, report))


# --- a disk that is full -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 kB, where this process may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here; the same is tested with an injected error")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_publishes_nothing_and_the_old_version_still_opens(tmp_path, small_disk):
    old = published(small_disk, clean_record("old"))
    rows = finished(tmp_path / "elsewhere", *(clean_record(f"r{number}") for number in range(12)))
    with pytest.raises(PublishError, match=r"is full .* nothing was\s+published"):
        publish(small_disk, rows)
    assert current_version(dataset_artifact(small_disk)) == old.name
    assert list((small_disk / ".staging").iterdir()) == []
    assert all(check.passed for check in verify_dataset(old))


@pytest.mark.parametrize("place", ["link", "index", "pickle", "training"])
def test_running_out_of_space_at_any_write_is_told_and_leaves_the_old_version(tmp_path, monkeypatch, place):
    old = published(tmp_path, clean_record("old"))
    rows = finished(tmp_path / "store", clean_record("a"), clean_record("b"))

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    names = {"link": "link", "index": "write_index", "pickle": "place_index", "training": "write_training"}
    monkeypatch.setattr(publication, names[place], full)
    with pytest.raises(PublishError, match="is full"):
        publish(tmp_path, rows)
    monkeypatch.undo()
    assert current_version(dataset_artifact(tmp_path)) == old.name
    assert all(check.passed for check in verify_dataset(old, depth=Depth.FULL))
    assert list((tmp_path / ".staging").iterdir()) == []
