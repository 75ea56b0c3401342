"""The muvap command itself: verdicts, exit codes, and where output goes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MUVAP = Path(sys.executable).with_name("muvap")


def muvap(*arguments, cwd=None):
    return subprocess.run([MUVAP, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd)


@pytest.fixture
def manifest(corpus):
    corpus.row("good")
    corpus.row("other")
    return corpus.write()


@pytest.fixture
def bad_manifest(corpus):
    corpus.row("good")
    corpus.row("count", labels=[0] * 26)
    corpus.row("rate", source_fps="")
    return corpus.write("bad.tsv")


def test_validate_exits_0_for_a_good_manifest_and_writes_nothing(manifest):
    before = sorted(manifest.parent.rglob("*"))
    done = muvap("validate", manifest)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{manifest}: valid; 2 rows, 2 accepted, 0 rejected")
    assert sorted(manifest.parent.rglob("*")) == before


def test_validate_exits_1_and_lists_every_finding(bad_manifest):
    done = muvap("validate", bad_manifest)
    assert done.returncode == 1
    assert (
        "error: label_count_mismatch: bad.tsv row 3 (count): labels: labels has 26 entries, faces has 25" in done.stdout
    )
    assert "error: source_fps_invalid: bad.tsv row 4 (rate): source_fps: ''" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("NOT VALID; 3 rows, 1 accepted, 2 rejected")


def test_validate_json_is_one_object_on_standard_output(bad_manifest):
    done = muvap("validate", bad_manifest, "--json")
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["ok"], verdict["rows"], verdict["rejected"]) == (1, False, 3, 2)
    assert verdict["finding_counts"] == {"label_count_mismatch": 1, "source_fps_invalid": 1}
    assert verdict["findings"][0]["row"] == 3
    assert all("path" in finding for finding in verdict["findings"])


def test_validate_follows_the_quarantine_policy(bad_manifest):
    assert muvap("validate", bad_manifest, "--quarantine").returncode == 1
    assert muvap("validate", bad_manifest, "--quarantine", "--max-rejected-share", "0.7").returncode == 0


def test_pack_does_the_whole_line_and_prints_where_the_pack_lies(manifest, tmp_path):
    done = muvap("pack", manifest, "-o", tmp_path / "out", "--name", "talks")
    assert done.returncode == 0, done.stderr
    pack = Path(done.stdout.splitlines()[-1])
    assert pack == tmp_path / "out" / "asd" / "packed_shards" / "talks" / "current"
    assert json.loads((pack / "dataset.json").read_text())["samples"] == 2
    assert "asd/packed_shards [talks]: round_trip passed" in done.stdout
    again = muvap("pack", manifest, "-o", tmp_path / "out", "--name", "talks")
    assert again.stdout.count("unchanged") == 3


def test_pack_takes_silent_recordings_up_to_the_share_it_is_told(corpus, tmp_path):
    corpus.row("loud")
    corpus.row("silent", audio_path=corpus.wav("zeros.wav", np.zeros(16_000)))
    manifest = corpus.write()
    refused = muvap("pack", manifest, "-o", tmp_path / "out")
    assert refused.returncode == 1
    assert "silent_share" in refused.stdout
    assert muvap("pack", manifest, "-o", tmp_path / "out", "--max-silent-share", "0.5").returncode == 0


def test_pack_takes_the_rate_of_arrays_whose_rows_give_none(corpus, tmp_path):
    np.save(corpus.root / "wave.npy", np.random.default_rng(0).normal(0, 0.05, 8_000).astype(np.float32))
    corpus.row("array", audio_path="wave.npy")
    manifest = corpus.write()
    refused = muvap("validate", manifest)
    assert refused.returncode == 1
    assert "option `audio_sample_rate`" in refused.stdout
    assert muvap("validate", manifest, "--audio-sample-rate", "8000").returncode == 0
    done = muvap("pack", manifest, "-o", tmp_path / "out", "--audio-sample-rate", "8000")
    assert done.returncode == 0, done.stderr
    assert json.loads((Path(done.stdout.splitlines()[-1]) / "dataset.json").read_text())["audio_samples"] == 16_000


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("train.tsv", ["--format", "sft", "--width", "64"], "--format, --width: given for"),
        (
            "train.tsv",
            ["--format", "sft", "--width", "17"],
            "'--width': found 17, required is a positive multiple of 32",
        ),
        ("train.tsv", ["--allow-outside", "--checkpoint", "."], "--checkpoint, --allow-outside: given for"),
        ("rows.jsonl", ["--quarantine", "--width", "64"], "--quarantine: given for"),
        ("rows.ndjson", ["--max-rejected-share", "0.05"], "--max-rejected-share: given for"),
        ("rows.json", ["--audio-sample-rate", "8000"], "--audio-sample-rate: given for"),
    ],
)
def test_validate_refuses_options_of_the_other_line_by_name(manifest, name, words, told):
    path = manifest.with_name(name)
    path.touch()
    done = muvap("validate", path, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_rows_of_json_a_line_are_known_by_either_suffix(tmp_path):
    verdicts = []
    for name in ("rows.jsonl", "rows.ndjson"):
        (tmp_path / name).write_text('{"id": 7}\n')
        verdicts.append(muvap("validate", name, cwd=tmp_path).stdout.replace(name, "rows"))
    assert verdicts[0] == verdicts[1]
    assert "sample_id_invalid" in verdicts[0]


def test_pack_of_a_bad_manifest_exits_1_and_publishes_nothing(bad_manifest, tmp_path):
    done = muvap("pack", bad_manifest, "-o", tmp_path / "out")
    assert done.returncode == 1
    assert "error: asd/manifest [bad] was not published" in done.stderr
    assert "label_count_mismatch" in done.stdout
    assert not (tmp_path / "out" / "asd").exists()


def test_inspect_and_verify_read_what_pack_wrote(manifest, tmp_path):
    pack = muvap("pack", manifest, "-o", tmp_path / "out").stdout.splitlines()[-1]
    summary = json.loads(muvap("inspect", pack, "--json").stdout)
    assert (summary["samples"], summary["frames"]) == (2, 50)
    assert "samples" in muvap("inspect", pack).stdout
    verified = muvap("verify", pack)
    assert verified.returncode == 0
    assert "normalized_dbfs" in verified.stdout
    labels = Path(pack).resolve() / "shard-000000" / "labels.npy"
    content = bytearray(labels.read_bytes())
    content[-1] = 7
    labels.write_bytes(content)
    damaged = muvap("verify", pack)
    assert damaged.returncode == 1
    assert "labels_binary FAILED" in damaged.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["validate", "--help"], 0),
        (["pack", "--help"], 0),
        (["validate", "none.tsv"], 2),
        (["validate", "--no-such-flag", "x"], 2),
        (["no-such-verb"], 2),
        (["inspect", "."], 1),
        (["verify", "."], 1),
    ],
)
def test_wrong_use_ends_without_a_traceback(tmp_path, arguments, code):
    done = muvap(*arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_demo_writes_the_corpus_once(tmp_path):
    assert "written" in muvap("demo", tmp_path / "demo").stdout
    assert "unchanged" in muvap("demo", tmp_path / "demo").stdout
    assert muvap("validate", tmp_path / "demo" / "asd" / "val.tsv").returncode == 0


def test_the_module_run_as_a_program_is_the_command(manifest):
    command = [sys.executable, "-m", "muvap_assets.cli.main", "validate", str(manifest)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, muvap("validate", manifest).stdout)
    assert done.stdout
