"""Decoding encoded rows again: which rows, the two figures against plain computations, and a check that never blocks."""

import json
import math
from dataclasses import replace

import dagster as dg
import numpy as np
import pytest
from encoder_rows import GEOMETRY, FakeEncoder, frames, image, row, waveform
from hypothesis import given
from hypothesis import strategies as st

from muvap_assets.codes import Code, Severity
from muvap_assets.definitions import build_defs
from muvap_assets.defs import ref2va
from muvap_assets.demo.ref2va import write_demo_datasets
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version
from muvap_assets.ref2va import line
from muvap_assets.ref2va.contract import DatasetOptions, Geometry
from muvap_assets.ref2va.decode_check import (
    DECODE_CHECK_FILE,
    DecodedRow,
    DecodeReport,
    audio_snr_db,
    chosen_ids,
    decode_rows,
    kept_figures,
    psnr_db,
    verify_decoded,
)
from muvap_assets.ref2va.encode import encode_rows
from muvap_assets.ref2va.encoder import Component, Stage
from muvap_assets.ref2va.records import read_shard, read_tensors
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.ref2va.standing_rows import read_rows

ROWS = {"a": 11, "b": 12, "c": 13}
PIXELS = {name: frames(seed, GEOMETRY.num_frames, GEOMETRY.size) for name, seed in ROWS.items()}
SOUND = {name: waveform(seed, 29_333) for name, seed in ROWS.items()}
BOTH = [Component.VAE, Component.AUDIO_VAE]


def rows_of(**options):
    return [row(name, image(1), seed=seed, **options) for name, seed in ROWS.items()]


def asked(count, **thresholds):
    return DatasetOptions(decode_check=count, **thresholds)


@pytest.fixture
def encoder():
    return FakeEncoder()


@pytest.fixture
def encoded(tmp_path, encoder):
    report = encode_rows(rows_of(), encoder, RowStore(tmp_path / "store"))
    assert report.findings == ()
    encoder.loads.clear()
    return report.rows


def plain_psnr(found, expected):
    return 10 * math.log10(1 / np.mean((found.astype(np.float64) - expected.astype(np.float64) / 255) ** 2))


def plain_snr(found, expected):
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    return 10 * math.log10((expected**2).sum() / ((found[:, : expected.shape[1]] - expected) ** 2).sum())


# --- which rows -------------------------------------------------------------------------------------------------------


@given(st.sets(st.text(min_size=1, max_size=8), min_size=1, max_size=30), st.integers(0, 40), st.randoms())
def test_the_chosen_rows_depend_on_the_ids_alone(ids, count, random):
    shuffled = sorted(ids)
    random.shuffle(shuffled)
    chosen = chosen_ids(shuffled, count)
    assert chosen == chosen_ids(ids, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(ids))
    assert set(chosen) <= ids
    assert chosen == chosen_ids(ids, count + 1)[:count]


def test_a_row_that_is_added_displaces_at_most_one():
    ids = [f"clip-{index}" for index in range(50)]
    before = chosen_ids(ids, 5)
    for added in range(50):
        assert len(set(before) - set(chosen_ids([*ids, f"new-{added}"], 5))) <= 1


# --- the figures ------------------------------------------------------------------------------------------------------


def test_psnr_equals_a_plain_computation_over_all_pixels_at_once():
    noisy = np.clip(PIXELS["a"] / 255 + np.random.default_rng(0).normal(0, 0.1, PIXELS["a"].shape), 0, 1)
    found = psnr_db(
        (noisy[start : start + 17].astype(np.float32), PIXELS["a"][start : start + 17]) for start in (0, 17)
    )
    assert found == pytest.approx(plain_psnr(noisy, PIXELS["a"]), abs=1e-4)
    assert 19 < found < 23


def test_snr_equals_a_plain_computation_and_leaves_out_what_comes_after_the_target():
    noisy = SOUND["a"] + np.random.default_rng(0).normal(0, 0.02, SOUND["a"].shape).astype(np.float32)
    longer = np.concatenate([noisy, np.ones((2, 267), np.float32)], axis=1)
    assert audio_snr_db(longer, SOUND["a"]) == pytest.approx(plain_snr(noisy, SOUND["a"]), abs=1e-4)
    assert audio_snr_db(longer, SOUND["a"]) == pytest.approx(20, abs=0.1)


def test_a_perfect_match_is_a_hundred_db():
    assert psnr_db([(PIXELS["a"] / np.float32(255), PIXELS["a"])]) == 100
    assert audio_snr_db(SOUND["a"], SOUND["a"]) == 100


def test_a_silent_target_is_measured_against_sixty_db_below_full_scale():
    silence = np.zeros((2, 800), np.float32)
    assert audio_snr_db(silence, silence) == 100
    assert audio_snr_db(silence + np.float32(1e-3), silence) == pytest.approx(0, abs=1e-4)
    assert audio_snr_db(silence + np.float32(0.1), silence) == pytest.approx(-40, abs=1e-4)


def test_silence_lies_at_zero_db_and_another_recording_of_the_same_power_at_minus_three():
    assert audio_snr_db(np.zeros_like(SOUND["a"]), SOUND["a"]) == 0
    assert audio_snr_db(SOUND["b"], SOUND["a"]) == pytest.approx(-3, abs=0.2)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_an_error_and_not_a_figure(value):
    pixels, sound = PIXELS["a"] / np.float32(255), SOUND["a"].copy()
    pixels[3, 2, 1, 0], sound[1, 7] = value, value
    for compare in (lambda: psnr_db([(pixels, PIXELS["a"])]), lambda: audio_snr_db(sound, SOUND["a"])):
        with pytest.raises(ValidationError, match="not finite"):
            compare()


def test_sound_shorter_than_the_target_is_an_error():
    with pytest.raises(ValidationError, match=r"a waveform \[2, 100\]; required: \[2, 29333\]"):
        audio_snr_db(SOUND["a"][:, :100], SOUND["a"])


@pytest.mark.real
def test_another_video_and_a_frames_own_mean_colour_lie_below_the_default_threshold(real_media):
    from muvap_assets.ref2va.contract import Size
    from muvap_assets.ref2va.prepare import frame_blocks

    def clip(name):
        blocks = frame_blocks(real_media / name, size=Size(416, 224), num_frames=22)
        return np.concatenate([block.copy() for block in blocks])

    one, other = clip("bigbuckbunny.mp4"), clip("bikes.mp4")
    least = DatasetOptions().decode_check_min_psnr_db
    for target, wrong in ((one, other), (other, one)):
        mean = np.broadcast_to((target / np.float32(255)).mean((1, 2), keepdims=True), target.shape)
        assert psnr_db([(wrong / np.float32(255), target)]) < least
        assert psnr_db([(mean.astype(np.float32), target)]) < least


# --- decoding rows ----------------------------------------------------------------------------------------------------


def test_the_figures_of_the_real_decoders_equal_a_plain_decode_of_the_published_row(tmp_path, tiny_encoder, one_thread):
    import torch

    options = asked(2)
    report = encode_rows(rows_of(), tiny_encoder, RowStore(tmp_path / "store"))
    loads = tiny_encoder.loads.copy()
    found = decode_rows(rows_of(), report.rows, tiny_encoder, options)
    assert tiny_encoder.loads - loads == dict.fromkeys(BOTH, 1)
    assert [each.id for each in found.rows] == chosen_ids(ROWS, 2)
    vae, audio_vae = (tiny_encoder._open(component).model for component in BOTH)
    files = {each.sample_id: each.path for each in report.rows}
    for each in found.rows:
        (record,) = read_shard(files[each.id])
        values = []
        for model, latents, axis in ((vae, record.vae_latent[None], 5), (audio_vae, record.audio_latent, 3)):
            shape = (1, -1, *(1,) * (axis - 2))
            mean, std = (
                torch.tensor(each).view(shape) for each in (model.config.latents_mean, model.config.latents_std)
            )
            values.append(model.decode(torch.tensor(latents) * std + mean).sample.numpy())
        rgb = values[0][0].transpose(1, 2, 3, 0) * [0.229, 0.224, 0.225] + [0.485, 0.456, 0.406]
        assert each.psnr_db == pytest.approx(plain_psnr(rgb.clip(0, 1), PIXELS[each.id]), abs=0.006)
        target = waveform(ROWS[each.id], 29_333)
        assert each.audio_snr_db == pytest.approx(plain_snr(values[1][:, 0], target), abs=0.006)
        assert each.problem == ""


def test_each_vae_is_loaded_once_for_all_rows_and_neither_for_none(encoder, encoded):
    assert decode_rows(rows_of(), encoded, encoder, asked(0)) == DecodeReport.of(asked(0))
    assert encoder.loads == []
    report = decode_rows(rows_of(), encoded, encoder, asked(9))
    assert encoder.loads == BOTH
    assert len(report.rows) == 3
    stages = [stage for stage, _ in encoder.decoded]
    assert stages == [Stage.TARGET_VIDEO] * 3 + [Stage.TARGET_AUDIO] * 3


def test_rows_that_decode_to_their_media_reach_the_most(encoder, encoded):
    report = decode_rows(rows_of(), encoded, encoder, asked(3))
    assert {(each.psnr_db, each.audio_snr_db, each.problem) for each in report.rows} == {(100.0, 100.0, "")}
    assert {each.id: each.key for each in report.rows} == {each.sample_id: each.key for each in encoded}


def test_latents_of_another_row_give_a_clearly_lower_figure_and_a_finding(tmp_path, encoder, encoded):
    a, b, c = encoded
    swapped = [replace(a, path=b.path), replace(b, path=a.path), c]
    report = decode_rows(rows_of(), swapped, encoder, asked(3))
    figures = {each.id: each for each in report.rows}
    assert figures["a"].psnr_db == pytest.approx(plain_psnr(PIXELS["b"] / 255, PIXELS["a"]), abs=0.006)
    assert figures["a"].psnr_db < 12
    assert figures["a"].audio_snr_db == pytest.approx(-3, abs=0.2)
    assert figures["c"].psnr_db == 100
    report.write(tmp_path)
    check = verify_decoded(tmp_path, {each.sample_id: each.key for each in encoded})
    assert not check.passed
    assert {(v.sample_id, v.found.split()[0]) for v in check.findings} == {
        (name, figure) for name in "ab" for figure in ("psnr_db", "audio_snr_db")
    }


def test_figures_that_are_known_are_not_made_again(encoder, encoded):
    first = decode_rows(rows_of(), encoded, encoder, asked(2))
    encoder.loads.clear()
    known = {each.key: each for each in first.rows}
    assert decode_rows(rows_of(), encoded, encoder, asked(2), known=known) == first
    assert encoder.loads == []
    encoder.decoded.clear()
    third = decode_rows(rows_of(), encoded, encoder, asked(3), known=known)
    assert third.rows[:2] == first.rows
    assert {where for _, where in encoder.decoded} == {f"row {third.rows[2].id}"}


def test_known_figures_follow_their_row_to_another_place_in_the_manifest(encoder, encoded):
    first = decode_rows(rows_of(), encoded, encoder, asked(3))
    moved = [replace(each, row=40 + place) for place, each in enumerate(rows_of())]
    again = decode_rows(moved, encoded, encoder, asked(3), known={each.key: each for each in first.rows})
    assert {each.id: each.row for each in again.rows} == {"a": 40, "b": 41, "c": 42}


def test_media_that_changed_since_end_their_row_and_not_the_next_component(tmp_path, tiny_encoder):
    """A decoder left in the middle of a row must not keep its weights alive: the next would be refused."""
    report = encode_rows(rows_of(), tiny_encoder, RowStore(tmp_path / "store"))
    a, b, c = rows_of()
    short = replace(a, target_frames=lambda: iter([PIXELS["a"][:17]]))
    other = replace(b, target_frames=lambda: iter([PIXELS["b"][:, :32]]))
    found = decode_rows([short, other, c], report.rows, tiny_encoder, asked(3))
    figures = {each.id: each for each in found.rows}
    assert "17 frames; required: the 22 it declares" in figures["a"].problem
    assert "frames uint8 [22, 32, 128, 3]" in figures["b"].problem
    assert figures["c"].problem == ""
    assert all(each.audio_snr_db is not None for each in found.rows)


def test_a_row_that_does_not_decode_says_why_and_the_others_are_measured(encoder, encoded):
    def failing(stage, latents, where):
        if where == "row b":
            raise RuntimeError("cuDNN failed")
        yield from FakeEncoder.decode(encoder, stage, latents, where)

    encoder.decode = failing
    report = decode_rows(rows_of(), encoded, encoder, asked(3))
    figures = {each.id: each for each in report.rows}
    assert figures["b"].problem == "RuntimeError: cuDNN failed; RuntimeError: cuDNN failed"
    assert figures["b"].psnr_db is figures["b"].audio_snr_db is None
    assert figures["a"].psnr_db == figures["c"].psnr_db == 100


def test_five_frames_have_sound_to_compare_and_no_clip_to_decode(tmp_path, encoder):
    rows = rows_of(geometry=Geometry(64, 64, 5))
    report = encode_rows(rows, encoder, RowStore(tmp_path / "store"))
    found = decode_rows(rows, report.rows, encoder, asked(1))
    assert [(each.psnr_db, each.audio_snr_db, each.problem) for each in found.rows] == [(None, 100.0, "")]
    found.write(tmp_path)
    assert verify_decoded(tmp_path, {each.sample_id: each.key for each in report.rows}).passed


def test_only_the_columns_of_the_tensors_asked_for_are_read(encoded):
    (record,) = read_shard(encoded[0].path)
    tensors = read_tensors(encoded[0].path, ["audio_latent"])
    assert list(tensors) == ["audio_latent"]
    np.testing.assert_array_equal(tensors["audio_latent"], record.audio_latent)


# --- the check --------------------------------------------------------------------------------------------------------

STANDING = {"a": "key a", "b": "key b"}
FIRST, SECOND = chosen_ids(STANDING, 2)


def figures(name, psnr=30.0, snr=5.0, **values):
    return DecodedRow(**{"id": name, "row": 1, "key": f"key {name}", "psnr_db": psnr, "audio_snr_db": snr, **values})


def verified(folder, *rows, standing=STANDING, **options):
    DecodeReport.of(asked(2, **options), rows).write(folder)
    assert DecodeReport.read(folder) == DecodeReport.of(asked(2, **options), rows)
    return verify_decoded(folder, standing)


def test_without_rows_asked_for_the_check_passes_and_says_so(tmp_path):
    DecodeReport.of(DatasetOptions()).write(tmp_path)
    check = verify_decoded(tmp_path, STANDING)
    assert check.passed
    assert check.numbers == {"rows": 0, "rows_requested": 0}


def test_figures_are_reported_with_their_least_and_their_mean(tmp_path):
    check = verified(tmp_path, figures(FIRST, 30.0, 5.0), figures(SECOND, 25.0, 8.0))
    assert check.passed
    assert check.numbers == {
        **{"rows": 2, "rows_requested": 2},
        **{"psnr_db_min": 25.0, "psnr_db_mean": 27.5, "psnr_db_required": 20.0},
        **{"audio_snr_db_min": 5.0, "audio_snr_db_mean": 6.5, "audio_snr_db_required": 0.0},
    }


def test_a_figure_below_its_threshold_warns_by_name_and_never_blocks(tmp_path):
    check = verified(tmp_path, figures(FIRST, psnr=19.99), figures(SECOND, snr=-0.01))
    assert (check.passed, check.severity, check.blocks) == (False, Severity.WARNING, False)
    assert [(v.sample_id, v.code, v.found, v.required) for v in check.findings] == [
        (FIRST, Code.DECODE_DIFFERS, "psnr_db is 19.99 dB", "at least 20 dB"),
        (SECOND, Code.DECODE_DIFFERS, "audio_snr_db is -0.01 dB", "at least 0 dB"),
    ]
    assert {v.severity for v in check.findings} == {Severity.WARNING}


def test_thresholds_are_the_datasets_own(tmp_path):
    rows = figures(FIRST, psnr=12.0, snr=-4.0), figures(SECOND, psnr=11.0, snr=-6.0)
    check = verified(tmp_path, *rows, decode_check_min_psnr_db=11.0, decode_check_min_audio_snr_db=-5.0)
    assert [(v.sample_id, v.found) for v in check.findings] == [(SECOND, "audio_snr_db is -6.00 dB")]


def test_figures_of_another_file_of_the_row_do_not_count(tmp_path):
    check = verified(tmp_path, figures(FIRST, key="key of an older file"), figures(SECOND))
    assert [(v.sample_id, v.code) for v in check.findings] == [(FIRST, Code.DECODE_FAILED)]
    assert check.numbers["rows"] == 1


def test_a_part_without_the_file_has_a_check_that_did_not_run(tmp_path):
    check = verify_decoded(tmp_path, STANDING)
    assert check.blocks
    assert [v.code for v in check.findings] == [Code.CHECK_NOT_RUN]


def test_figures_of_another_recipe_or_of_a_failure_are_not_taken_over(tmp_path):
    report = DecodeReport.of(asked(2), [figures("a"), figures("b", problem="out of memory")])
    assert kept_figures(tmp_path) == {}
    report.write(tmp_path)
    assert kept_figures(tmp_path) == {"key a": figures("a")}
    replace(report, recipe=0).write(tmp_path)
    assert kept_figures(tmp_path) == {}
    (tmp_path / DECODE_CHECK_FILE).write_text('{"rows": [{"id": 1')
    assert kept_figures(tmp_path) == {}


@pytest.mark.parametrize(
    ("option", "value"),
    [("decode_check", -1), ("decode_check_min_psnr_db", float("nan")), ("decode_check_min_audio_snr_db", float("inf"))],
)
def test_options_outside_what_they_may_be_are_refused_by_name(option, value):
    with pytest.raises(ConfigError, match=option):
        DatasetOptions(**{option: value})


# --- through Dagster --------------------------------------------------------------------------------------------------


class Platform:
    """A code location over the demo's packed dataset, with an encoder that the test gives."""

    def __init__(self, tmp_path, checkpoint, instance, monkeypatch):
        self.instance, self.layout, self.folder = instance, Layout(tmp_path / "data"), tmp_path
        write_demo_datasets(tmp_path / "sources")
        monkeypatch.setenv("MUVAP_H3_CHECKPOINT", str(checkpoint))
        monkeypatch.setenv("MUVAP_H3_DEVICE", "cpu")
        self.encoder = FakeEncoder()
        monkeypatch.setattr(line, "open_h3", lambda layout, spec: self.encoder)
        self.artifact = self.layout.ref2va_encoded_latents("clips", 0)

    def run(self, key, partition, **options):
        entry = {"manifest": str(self.folder / "sources" / "clips.jsonl"), "width": 128, "height": 64, "num_frames": 22}
        datasets = self.folder / "datasets.yaml"
        datasets.write_text(json.dumps({"ref2va": {"clips": {**entry, **options}}}))
        job = build_defs(datasets_file=datasets, data_root=self.layout.root).resolve_implicit_global_asset_job_def()
        return job.execute_in_process(
            asset_selection=[key], partition_key=partition, instance=self.instance, raise_on_error=False
        )

    def encode(self, **options):
        part = dg.MultiPartitionKey({"dataset": "clips", "part": "000"})
        return self.run(ref2va.ENCODED_LATENTS, part, **options)


@pytest.fixture
def platform(tmp_path, tiny_checkpoint, monkeypatch):
    with dg.DagsterInstance.ephemeral() as instance:
        made = Platform(tmp_path, tiny_checkpoint, instance, monkeypatch)
        assert made.run(ref2va.MANIFEST, "clips").success
        yield made


def check_of(result):
    (check,) = [c for c in result.get_asset_check_evaluations() if c.check_name == "decodes_back"]
    return check


def test_a_part_without_the_option_passes_the_check_with_no_row_decoded(platform):
    result = platform.encode()
    assert result.success
    check = check_of(result)
    assert (check.passed, check.metadata["rows"].value) == (True, 0)
    assert platform.encoder.decoded == []


def test_rows_that_do_not_decode_to_their_media_warn_and_are_published_all_the_same(platform):
    platform.encoder.decode = lambda stage, latents, where: FakeEncoder().decode(stage, latents, where)
    result = platform.encode(decode_check=2)
    assert result.success
    check = check_of(result)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert check.metadata["rows"].value == 2
    assert check.metadata["psnr_db_min"].value < 20
    codes = {record.data["code"] for record in check.metadata["findings"].records}
    assert codes == {"decode_differs"}
    (event,) = result.get_asset_materialization_events()
    table = event.step_materialization_data.materialization.metadata["decoded"].records
    standing = {row.id for row in read_rows(platform.artifact.current)}
    assert [record.data["id"] for record in table] == chosen_ids(standing, 2)
    assert {c.passed for c in result.get_asset_check_evaluations() if c.check_name != "decodes_back"} == {True}


def test_rows_that_cannot_be_decoded_at_all_warn_and_are_published_all_the_same(platform):
    def failing(stage, latents, where):
        raise RuntimeError("no such kernel")

    platform.encoder.decode = failing
    result = platform.encode(decode_check=1)
    assert result.success
    (record,) = check_of(result).metadata["findings"].records
    assert record.data["code"] == "decode_failed"
    assert "no such kernel" in record.data["found"]


def test_an_unchanged_part_is_decoded_once_and_stays_the_same_version(platform):
    assert platform.encode(decode_check=2).success
    version = current_version(platform.artifact)
    platform.encoder.loads.clear()
    assert check_of(platform.encode(decode_check=2)).passed
    assert platform.encoder.loads == []
    assert current_version(platform.artifact) == version
    assert check_of(platform.encode(decode_check=3)).metadata["rows"].value == 3
    assert platform.encoder.loads == BOTH
