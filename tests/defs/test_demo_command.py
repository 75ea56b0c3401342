"""``make demo`` beside the data root its datasets file reads."""

import json

from click.testing import CliRunner

from muvap_assets.defs.demo import main


def test_a_data_root_the_datasets_file_does_not_read_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    datasets = tmp_path / "datasets.yaml"
    datasets.write_text(json.dumps({"corpora": {"train": {"kind": "tsv", "manifest": "elsewhere/train.tsv"}}}))
    monkeypatch.setenv("MUVAP_DATASETS", str(datasets))
    done = CliRunner().invoke(main, ["--data-root", str(tmp_path / "data")])
    assert done.exit_code == 1
    assert str(tmp_path / "elsewhere" / "train.tsv") in done.output
    assert f"the demo's were written to {tmp_path / 'data' / 'demo'}" in done.output
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["demo"]
