"""AVA and WASD by ``dagster asset materialize --partition``, as docs/asd.md documents it."""

import json
import os
import subprocess
import sys

import pytest
from loader_miniature import Miniature, Track

from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.demo.corpus import read_frame_number

LINE = 'key:"asd/manifest" or key:"asd/loudness_index" or key:"asd/packed_shards"'


@pytest.mark.parametrize(
    ("kind", "video", "separator"), [("ava", "HV0H6oc4Kvs", ":"), ("wasd", "G16p2gY-26M_905-935", "_")]
)
@pytest.mark.slow
def test_a_split_is_materialized_by_its_partition(tmp_path, kind, video, separator):
    tracks = [Track(f"{video}_0000_0060:{i}", video, fps, 20) for i, fps in enumerate(("25", "29.97"))]
    corpus = Miniature(tmp_path / kind, tracks, split="val", separator=separator).write()
    corpus.write_original()
    entry = {"kind": kind, "root": kind, "split": "val", "dataset": kind}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": {f"{kind}_val": entry}}))
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path / "home"),
        "MUVAP_DATASETS": str(tmp_path / "datasets.yaml"),
        "MUVAP_DATA_ROOT": str(tmp_path / "data"),
    }
    command = ["dagster", "asset", "materialize", "--select", LINE, "--partition", f"{kind}_val"]
    done = subprocess.run(
        [sys.executable, "-m", *command, "-m", "muvap_assets.definitions"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pack = PackReader(tmp_path / "data" / "asd" / "packed_shards" / f"{kind}_val" / "current")
    assert [sample.entry.sample_id for sample in pack] == [track.entity_id for track in tracks]
    for sample, track in zip(pack, tracks, strict=True):
        assert sample.entry.dataset == kind
        assert sample.labels.tolist() == track.labels
        assert [read_frame_number(face) for face in sample.faces] == list(range(20))
