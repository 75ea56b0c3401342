"""``dagster asset materialize``, as the README documents it, against an instance on disk."""

import hashlib
import json
import os
import subprocess
import sys

import dagster as dg
import pytest

from muvap_assets.defs import asd
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version

SETTINGS = "telemetry: {enabled: false}\n"


@pytest.fixture
def home(corpus, tmp_path):
    rec = corpus.wav("rec.wav", 48_000)
    for i in range(3):
        corpus.row(f"clip_{i}", audio_path=rec, start_sec=i / 2)
    corpus.write()
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(SETTINGS)
    entry = {"kind": "tsv", "manifest": str(corpus.root / "train.tsv")}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": {"talks": entry}}))
    return home


def materialize(home, select, partition="talks"):
    command = ["dagster", "asset", "materialize", "--select", select, "--partition", partition]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "MUVAP_DATASETS": str(home.parent / "datasets.yaml"),
        "MUVAP_DATA_ROOT": str(home.parent / "data"),
    }
    return subprocess.run(
        [sys.executable, "-m", *command, "-m", "muvap_assets.definitions"],
        env=environment,
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def bytes_below(folder):
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.slow
def test_a_good_corpus_exits_0_and_one_label_too_many_does_not(corpus, home, tmp_path):
    line = 'key:"asd/manifest" or key:"asd/loudness_index" or key:"asd/packed_shards"'
    assert materialize(home, "asd/manifest").returncode == 0
    assert materialize(home, line).returncode == 0
    layout = Layout(tmp_path / "data")
    before, version = bytes_below(layout.root / "asd"), current_version(layout.asd_manifest("talks"))

    corpus.rows[1]["labels"] = str([0] * 26)
    corpus.write()
    failed = materialize(home, line)

    assert failed.returncode != 0
    assert "train.tsv row 3 (clip_1): labels: labels has 26 entries, faces has 25 frames" in failed.stderr
    assert bytes_below(layout.root / "asd") == before
    assert current_version(layout.asd_manifest("talks")) == version
    with dg.DagsterInstance.from_config(str(home)) as instance:
        runs = instance.get_runs(limit=1)
        assert runs[0].status is dg.DagsterRunStatus.FAILURE
        logs = instance.all_logs(runs[0].run_id)
        events = [entry.get_dagster_event() for entry in logs if entry.is_dagster_event]
        assert not [event for event in events if event.is_step_materialization]
        assert {event.step_key for event in events if event.is_step_start} == {"asd__manifest"}
        evaluations = {
            e.asset_check_evaluation_data.check_name: e.asset_check_evaluation_data
            for e in events
            if e.event_type is dg.DagsterEventType.ASSET_CHECK_EVALUATION
        }
        assert set(evaluations) == set(asd.MANIFEST_CHECKS)
        stored = evaluations["labels_match_faces"]
        (row,) = stored.metadata["findings"].records
        assert (stored.passed, stored.partition, row.data["row"]) == (False, "talks", 3)
        assert "labels has 26 entries, faces has 25 frames" in row.data["found"]
        assert len(instance.fetch_materializations(asd.MANIFEST, limit=10).records) == 2
        assert len(instance.fetch_materializations(asd.PACKED_SHARDS, limit=10).records) == 1


def test_an_unknown_partition_exits_non_zero(home):
    assert materialize(home, "asd/manifest", partition="nobody").returncode != 0


@pytest.mark.slow
def test_a_range_of_partitions_is_refused_in_one_line(home):
    command = ["dagster", "asset", "materialize", "-m", "muvap_assets.definitions", "--select", "asd/manifest"]
    refused = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *command, "--partition-range", "talks...talks"],
        env={**os.environ, "DAGSTER_HOME": str(home), "MUVAP_DATASETS": str(home.parent / "datasets.yaml")},
        cwd=home.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: --partition-range: found a range; required: one partition a run")
    assert refused.stderr.count("\n") == 1
