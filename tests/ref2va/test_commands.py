"""``muvap encode`` and its companions: the plain command a user types."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from encoder_rows import FakeEncoder
from safetensors.torch import load_file, save_file

from muvap_assets.cli.main import main
from muvap_assets.cli.ref2va import dataset_of
from muvap_assets.demo.ref2va import packed_rows, write_demo_datasets
from muvap_assets.errors import ConfigError
from muvap_assets.layout import Layout
from muvap_assets.ref2va import line
from muvap_assets.ref2va.encoder_spec import EncoderSpec

CANVAS = ["--width", "128", "--height", "64", "--num-frames", "22"]


@pytest.fixture
def sources(tmp_path):
    write_demo_datasets(tmp_path / "sources")
    return tmp_path / "sources"


@pytest.fixture
def fake(monkeypatch):
    encoder = FakeEncoder()
    monkeypatch.setattr(line, "open_h3", lambda layout, spec: encoder)
    return encoder


def muvap(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def encode(manifest, checkpoint, out, *more):
    return muvap(
        "encode",
        "--manifest",
        manifest,
        "--checkpoint",
        checkpoint,
        "--output-dir",
        out,
        "--device",
        "cpu",
        *CANVAS,
        *more,
    )


@pytest.mark.slow
def test_b33_the_console_command_encodes_verifies_and_publishes(sources, tiny_checkpoint, tmp_path):
    out = tmp_path / "encoded"
    command = [Path(sys.executable).with_name("muvap"), "encode", "--manifest", sources / "clips.jsonl"]
    command += ["--checkpoint", tiny_checkpoint, "--output-dir", out, "--device", "cpu", *CANVAS]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{out}: 4 rows in 2 buckets"
    shards = sorted(out.glob("bucket=*/data_*.parquet"))
    assert [shard.relative_to(out).as_posix() for shard in shards] == [
        "bucket=128x64-22f/data_00000000.parquet",
        "bucket=128x64-22f/data_00000001.parquet",
        "bucket=128x64-22f/data_00000002.parquet",
        "bucket=64x128-39f/data_00000000.parquet",
    ]
    with (out / "map_style_cache" / "file_info.pkl").open("rb") as stream:
        assert pickle.load(stream) == (tuple(str(shard) for shard in shards), (1, 1, 1, 1))
    assert muvap("verify", out).exit_code == 0
    assert "packed: 4 rows" in muvap("inspect", out).output
    assert "of what is computed" in muvap("capacities", out, "-k", "2").output
    training = (out / "training.yaml").read_text()
    assert f"data_path: {out}" in training


def test_b26_a_nonempty_output_is_refused_before_anything_is_encoded(sources, tiny_checkpoint, tmp_path, fake):
    out = tmp_path / "encoded"
    out.mkdir()
    (out / "mine.txt").write_text("keep")
    result = encode(sources / "clips.jsonl", tiny_checkpoint, out)
    assert result.exit_code == 1
    assert "not empty" in result.output
    assert fake.calls == []
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("output", "work", "said"),
    [
        ("out,1", None, "output directory"),
        ("a:b/out", None, "output directory"),
        ("bucket=64x64-22f/out", None, "output directory"),
        ("out", "work,1", "work directory"),
        ("out", "out/work", "lies in it"),
        ("out", ".", "around it"),
        ("out", "out", "at the same place"),
        ("out", "link", "lies in it"),
        ("file/out", None, "is no folder that may be written"),
        ("file", None, "not empty"),
        ("/", None, "not empty"),
    ],
)
def test_a_place_that_cannot_work_is_refused_before_anything_is_encoded(
    sources, tiny_checkpoint, tmp_path, fake, monkeypatch, output, work, said
):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("link").symlink_to("out/inner")
    before = sorted(tmp_path.rglob("*"))
    result = encode(sources / "clips.jsonl", tiny_checkpoint, output, *(["--work-dir", work] if work else []))
    assert result.exit_code == 1
    assert result.output.startswith("error: ")
    assert said in result.output
    assert fake.calls == []
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("output", [".", "../empty", "../away/../empty/"])
def test_the_output_may_be_the_empty_folder_one_stands_in(
    sources, tiny_checkpoint, tmp_path, fake, monkeypatch, output
):
    here = tmp_path / "empty"
    here.mkdir()
    (tmp_path / "away").mkdir()
    monkeypatch.chdir(here)
    result = encode(sources / "clips.jsonl", tiny_checkpoint, output)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"{here}: 4 rows in 2 buckets"
    assert len(list(here.glob("bucket=*/data_*.parquet"))) == 4
    assert (tmp_path / "empty.work").is_dir()


def test_a_failed_row_leaves_the_output_absent_and_the_next_run_encodes_only_it(
    sources, tiny_checkpoint, tmp_path, fake
):
    out = tmp_path / "encoded"
    fake.poison = {"talk-1"}
    failed = encode(sources / "clips.jsonl", tiny_checkpoint, out)
    assert failed.exit_code == 1
    assert "tensor_non_finite" in failed.output
    assert "(talk-1)" in failed.output
    assert not out.exists()
    fake.poison, fake.calls = set(), []
    assert encode(sources / "clips.jsonl", tiny_checkpoint, out).exit_code == 0
    assert {sample for _, sample in fake.calls} == {"talk-1"}


def test_decoded_rows_are_shown_with_their_figures_and_warnings_and_published(sources, tiny_checkpoint, tmp_path, fake):
    fake.decode = lambda stage, latents, where: FakeEncoder().decode(stage, latents, where)  # black and silent
    result = encode(sources / "clips.jsonl", tiny_checkpoint, tmp_path / "out", "--decode-check", "2")
    assert result.exit_code == 0
    assert "decodes_back warning (rows 2, rows_requested 2, psnr_db_min" in result.output
    (head,) = [line for line in result.output.splitlines() if line.startswith("decoded again")]
    assert head.split() == ["decoded", "again", "psnr", "dB", "audio", "snr", "dB"]
    assert result.output.count("warning: decode_differs: ") == 2
    assert (tmp_path / "out").is_dir()


def test_a_seed_no_row_can_store_is_refused_before_anything_is_encoded(sources, tiny_checkpoint, tmp_path, fake):
    out, seed = tmp_path / "out", ["--reference-noise-seed", 2**63]
    refused = encode(sources / "clips.jsonl", tiny_checkpoint, out, *seed)
    assert (refused.exit_code, fake.calls) == (2, [])
    assert "'--reference-noise-seed': found 9223372036854775808, required is" in refused.output


def test_rows_that_name_their_media_absolute_are_published_as_if_named_relative(
    sources, tiny_checkpoint, tmp_path, fake
):
    text = (sources / "clips.jsonl").read_text()
    assert '"media/' in text
    (sources / "absolute.jsonl").write_text(text.replace('"media/', f'"{sources}/media/'))
    for name in ("clips", "absolute"):
        assert encode(sources / f"{name}.jsonl", tiny_checkpoint, tmp_path / name).exit_code == 0
    shards = [
        {p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("data_*")}
        for n in ("clips", "absolute")
    ]
    assert len(shards[0]) == 4
    assert shards[0] == shards[1]
    assert not any(str(sources).encode() in content for content in shards[1].values())


def test_zero_rows_is_not_success(tiny_checkpoint, tmp_path, fake):
    manifest = tmp_path / "none.jsonl"
    manifest.write_text("")
    assert encode(manifest, tiny_checkpoint, tmp_path / "out").exit_code == 1
    assert muvap("validate", manifest).exit_code == 1
    assert not (tmp_path / "out").exists()


def test_validate_manifest_only_writes_nothing_and_counts_tokens(sources, tiny_checkpoint, tmp_path, fake):
    result = encode(sources / "clips.jsonl", tiny_checkpoint, tmp_path / "out", "--validate-manifest-only")
    assert result.exit_code == 0
    assert "valid; 4 rows, 4 admitted" in result.output
    assert "partial" not in result.output
    assert fake.calls == []
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "rest"), [("rows.jsonl", "muvap validate --json"), ("rows.txt", "run it again")])
def test_the_way_to_see_every_finding_is_one_that_takes_the_file(tiny_checkpoint, tmp_path, name, rest):
    manifest = tmp_path / name
    manifest.write_text("{}\n" * 20)
    result = encode(manifest, tiny_checkpoint, tmp_path / "out", "--validate-manifest-only")
    (line,) = [line for line in result.output.splitlines() if line.startswith("... and ")]
    assert rest in line


def test_validate_without_a_checkpoint_says_partial_and_prints_the_bucket_table(sources):
    result = muvap("validate", sources / "clips.jsonl", *CANVAS)
    assert result.exit_code == 0
    assert "partial: tokens were not counted" in result.output
    assert "bucket=128x64-22f  3" in result.output


def test_validate_json_names_every_finding(sources, tmp_path):
    rows = packed_rows()
    rows[0]["target"] = {"video": "media/gone.mp4"}
    rows[1]["references"] = []
    manifest = sources / "bad.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = muvap("validate", manifest, "--json", *CANVAS)
    verdict = json.loads(result.stdout)
    assert result.exit_code == 1
    assert verdict["rows_refused"] == 2
    errors = [found for found in verdict["findings"] if found["severity"] == "error"]
    assert {found["sample_id"] for found in errors} == {"walk-1", "walk-2"}
    assert sum(verdict["finding_counts"].values()) == len(verdict["findings"])


def test_the_command_takes_the_limits_of_references(sources):
    result = muvap("validate", sources / "clips.jsonl", *CANVAS, "--max-references", "0")
    assert result.exit_code == 1
    assert "required: at most 0 (max_references)" in result.output


def test_a_moved_dataset_is_noticed_and_indexed_anew(sources, tiny_checkpoint, tmp_path, fake):
    out, moved = tmp_path / "encoded", tmp_path / "elsewhere"
    assert encode(sources / "clips.jsonl", tiny_checkpoint, out).exit_code == 0
    out.rename(moved)
    noticed = muvap("inspect", moved)
    assert noticed.exit_code == 1
    assert "muvap index rebuild" in noticed.output
    assert muvap("index", "rebuild", moved).exit_code == 0
    assert muvap("verify", moved).exit_code == 0


def test_a_released_checkpoint_is_not_encoded_on_the_cpu(sources, tiny_checkpoint, tmp_path, monkeypatch):
    from muvap_assets.ref2va import checkpoint

    monkeypatch.setattr(checkpoint, "parameter_count", lambda folder: 10_000_000_000)
    result = encode(sources / "clips.jsonl", tiny_checkpoint, tmp_path / "out")
    assert result.exit_code == 1
    assert "CUDA" in result.output or "cuda" in result.output
    assert "Traceback" not in result.output


def cut_short(path):
    path.write_bytes(path.read_bytes()[:-100])


def without_a_tensor(path):
    tensors = load_file(path)
    tensors.pop(min(tensors))
    save_file(tensors, path, metadata={"format": "pt"})


DAMAGE = [
    ("vae/diffusion_pytorch_model.safetensors", cut_short, "vae: diffusion_pytorch_model.safetensors cannot be loaded"),
    ("audio_vae/diffusion_pytorch_model.safetensors", without_a_tensor, "audio_vae: missing_keys"),
    ("audio_vae/config.json", Path.unlink, "audio_vae: it lacks config.json"),
    ("text_encoder/model.safetensors", cut_short, "text_encoder: model.safetensors cannot be loaded"),
    ("text_encoder/model.safetensors", without_a_tensor, "text_encoder: missing_keys"),
    ("text_encoder/model.safetensors", Path.unlink, "text_encoder: it holds no safetensors file"),
    ("tokenizer/tokenizer.json", Path.unlink, "tokenizer: it lacks tokenizer.json"),
    ("transformer_ref", shutil.rmtree, "no transformer_ref"),
    (
        "modular_model_index.json",
        lambda path: path.write_text("[" * 100_000),
        "modular_model_index.json cannot be read",
    ),
]


@pytest.mark.parametrize("device", ["cpu", "cuda:33"])
def test_a_checkpoint_and_a_device_that_cannot_encode_are_refused_together_before_media_are_looked_at(
    sources, tiny_checkpoint, tmp_path, device
):
    for file, damage, told in DAMAGE[:-2] if device == "cpu" else DAMAGE:
        checkpoint = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
        damage(checkpoint / file)
        shutil.rmtree(sources / "media", ignore_errors=True)
        result = encode(sources / "clips.jsonl", checkpoint, tmp_path / "out", "--device", device)
        assert result.exit_code == 1
        *devices, one = result.output.splitlines()
        assert told in one
        assert [line.startswith(f"error: encoder: device is '{device}'") for line in devices] == [True] * (
            device != "cpu"
        )
        assert not (tmp_path / "out.work").exists()
        shutil.rmtree(checkpoint)


def test_a_part_with_a_checkpoint_that_cannot_encode_is_refused_before_media_are_looked_at(
    sources, tiny_checkpoint, tmp_path
):
    layout, dataset = Layout(tmp_path / "data"), dataset_of(sources / "clips.jsonl", {"num_frames": 22})
    checkpoint = shutil.copytree(tiny_checkpoint, tmp_path / "checkpoint")
    spec = EncoderSpec(checkpoint=checkpoint, device="cpu")
    assert line.make_manifest(layout, dataset, spec).published is not None
    shutil.rmtree(sources / "media")
    for file in ("vae/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"):
        cut_short(checkpoint / file)
    with pytest.raises(ConfigError) as raised:
        line.make_encoded_latents(layout, dataset, 0, spec)
    assert [line.partition(": ")[2][:9] for line in str(raised.value).splitlines()] == ["diffusion", "model.saf"]
    assert not layout.row_store.joinpath("parts").exists()
