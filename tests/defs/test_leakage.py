"""Two splits of one corpus that share something: a warning with the pairs, on a real Dagster instance."""

import json
import shutil

import dagster as dg
import pytest
from loader_miniature import Miniature, Track

from muvap_assets.definitions import build_defs
from muvap_assets.defs import asd
from muvap_assets.layout import Layout


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


class Splits:
    """A training and a validation split in one AVA root, as two partitions."""

    def __init__(self, tmp_path, train, val, instance, **options):
        self.instance, self.root, self.data = instance, tmp_path / "ava", tmp_path / "data"
        self.train, self.val = (
            Miniature(self.root, tracks, split=split).write() for tracks, split in ((train, "train"), (val, "val"))
        )
        entries = {
            f"ava_{split}": {"kind": "ava", "root": str(self.root), "split": split, **options}
            for split in ("train", "val")
        }
        (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": entries}))
        self.defs = build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=self.data)

    def check(self, partition):
        """What the check found when the partition's manifest was made; it never keeps one from being published."""
        result = self.defs.resolve_implicit_global_asset_job_def().execute_in_process(
            asset_selection=[asd.MANIFEST], partition_key=partition, instance=self.instance
        )
        assert result.success
        (found,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "splits_share_nothing"]
        assert (found.partition, found.severity) == (partition, dg.AssetCheckSeverity.WARN)
        return found

    def pairs(self, partition):
        found = self.check(partition)
        records = found.metadata["findings"].records if "findings" in found.metadata else []
        assert found.passed is not bool(records)
        report = Layout(self.data).asd_manifest(partition).reports / "leakage.jsonl"
        assert len(report.read_text().splitlines()) == len(records)
        return [(record.data["code"], record.data["found"]) for record in records]


def test_splits_of_other_videos_pass_and_say_what_they_were_compared_with(tmp_path, instance):
    splits = Splits(tmp_path, [Track("a_0_1:1", "a")], [Track("b_0_1:1", "b", frames=30)], instance)
    first = splits.check("ava_train")
    assert (first.passed, first.metadata["compared_with"].value) == (True, "")
    assert first.metadata["not_published"].value == "ava_val"
    second = splits.check("ava_val")
    assert (second.passed, second.metadata["compared_with"].value) == (True, "ava_train")


def test_a_video_in_both_splits_is_told_once_with_the_clips_of_each(tmp_path, instance):
    train = [Track(f"a_0_1:{i}", "a") for i in range(2)]
    splits = Splits(tmp_path, train, [Track("a_0_1:7", "a", frames=30)], instance)
    assert splits.pairs("ava_train") == []
    assert splits.pairs("ava_val") == [
        ("shared_video", "the same video id (a): 'a_0_1:7' here and 'a_0_1:0', 'a_0_1:1' of ava_train")
    ]
    assert [code for code, _ in splits.pairs("ava_train")] == ["shared_video"]


def test_the_same_recording_under_another_name_is_told(tmp_path, instance):
    splits = Splits(tmp_path, [Track("a_0_1:1", "a")], [Track("b_0_1:1", "b", start_sec="7")], instance)
    shutil.copy(splits.train.wav(splits.train.tracks[0]), splits.val.wav(splits.val.tracks[0]))
    crop = next(splits.val.crops(splits.val.tracks[0]).iterdir())
    crop.write_bytes(crop.read_bytes() + b"\0")
    splits.check("ava_train")
    ((code, found),) = splits.pairs("ava_val")
    assert code == "shared_recording"
    assert found.endswith("'b_0_1:1' here and 'a_0_1:1' of ava_train")


def test_the_same_face_files_under_another_name_are_told(tmp_path, instance):
    splits = Splits(tmp_path, [Track("a_0_1:1", "a")], [Track("b_0_1:1", "b", start_sec="7")], instance)
    splits.check("ava_train")
    ((code, found),) = splits.pairs("ava_val")
    assert code == "shared_media"
    assert found.endswith("'b_0_1:1' here and 'a_0_1:1' of ava_train")


def test_corpora_of_other_names_and_folders_are_not_compared(tmp_path, instance, corpus):
    splits = Splits(tmp_path, [Track("a_0_1:1", "a")], [Track("a_0_1:1", "a")], instance)
    corpus.row("x")
    entry = {"kind": "tsv", "manifest": str(corpus.write())}
    entries = {"talks": entry, "ava_train": {"kind": "ava", "root": str(splits.root), "split": "train"}}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": entries}))
    splits.defs = build_defs(datasets_file=tmp_path / "datasets.yaml", data_root=splits.data)
    splits.check("ava_train")
    assert splits.check("talks").metadata["not_published"].value == ""
    assert splits.check("talks").metadata["compared_with"].value == ""
