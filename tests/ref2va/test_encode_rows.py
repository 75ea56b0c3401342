"""Encoding rows: what is made again, what is kept, and what a bad row or a second process changes: nothing else."""

import pickle
import threading
import weakref
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from encoder_rows import FakeEncoder, audio, frames, image, row, tree, video

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.layout import Layout
from muvap_assets.progress import no_progress
from muvap_assets.ref2va.contract import Dataset, DatasetOptions, Format, Geometry, Size
from muvap_assets.ref2va.encode import EncodeOptions, encode_rows
from muvap_assets.ref2va.encoder import Component, EncoderFingerprint, Stage
from muvap_assets.ref2va.line import encode_admitted
from muvap_assets.ref2va.prefetch import stage_media
from muvap_assets.ref2va.records import read_shard
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.ref2va.verify import verify_row_file

ALL = dict.fromkeys(Stage, 1)


@pytest.fixture
def store(tmp_path):
    return RowStore(tmp_path / "store")


def three_rows():
    return [
        row("a", image(1), audio(2), seed=11),
        row("b", video(3, sound=1600), image(4), seed=12),
        row("c", image(5), image(6), audio(7), seed=13),
    ]


def made(store, rows, encoder=None, **options):
    """Parts made by stage, of a run that encodes every row."""
    report = encode_rows(rows, encoder or FakeEncoder(), store, EncodeOptions(**options))
    assert report.findings == ()
    assert [each.sample_id for each in report.rows] == [each.sample_id for each in rows]
    return dict(report.encoded)


def test_every_row_stands_as_a_checked_file_of_one_row_that_no_sweep_for_parquet_takes(store):
    rows = three_rows()
    report = encode_rows(rows, FakeEncoder(), store)
    for each, encoded in zip(rows, report.rows, strict=True):
        assert verify_row_file(encoded.path) == []
        (record,) = read_shard(encoded.path)
        assert (record.id, record.caption, record.geometry) == (each.sample_id, each.caption, each.geometry)
        assert [reference.media_type for reference in record.references] == [
            reference.kind.media_type for reference in each.references
        ]
    assert list(store.root.rglob("*.parquet")) == []
    assert report.encoded == {stage: 3 for stage in Stage}


def test_each_component_is_loaded_once_for_all_rows_in_one_order(store):
    encoder = FakeEncoder()
    encode_rows([row(f"r{index}", seed=index) for index in range(8)], encoder, store)
    assert encoder.loads == list(Component)[:3]


def test_a_run_with_nothing_missing_loads_nothing(store):
    made(store, three_rows())
    encoder = FakeEncoder()
    assert made(store, three_rows(), encoder) == {}
    assert encoder.loads == []


# --- what a change makes again (B23) -----------------------------------------------------------------------------------


def test_an_inserted_row_is_encoded_alone(store):
    rows = three_rows()
    made(store, rows)
    assert made(store, [row("new", image(9), audio(9), seed=19), *rows]) == ALL


def test_a_changed_caption_makes_that_rows_text_again(store):
    rows = three_rows()
    made(store, rows)
    rows[1] = replace(rows[1], caption="Another")
    encoder = FakeEncoder()
    assert made(store, rows, encoder) == {Stage.TEXT: 1}
    assert encoder.loads == [Component.TEXT_ENCODER]
    assert encoder.calls == [(Stage.TEXT, "b")]


def test_swapped_visual_references_make_visual_rows_and_text_again(store):
    rows = three_rows()
    made(store, rows)
    first, second, sound = rows[2].references
    rows[2] = replace(rows[2], references=(second, first, sound))
    assert made(store, rows) == {Stage.REFERENCE_VISUAL: 1, Stage.TEXT: 1}


def test_an_image_and_a_sound_swapped_make_only_the_presentation_again(store):
    rows = three_rows()
    made(store, rows)
    rows[0] = replace(rows[0], references=tuple(reversed(rows[0].references)))
    assert made(store, rows) == {Stage.TEXT: 1}


def test_a_changed_width_makes_the_target_video_again(store):
    rows = three_rows()
    made(store, rows)
    geometry = Geometry(160, 64, 22)
    rows[0] = replace(rows[0], geometry=geometry, target_frames=lambda: iter([frames(11, 22, Size(160, 64))]))
    assert made(store, rows) == {Stage.TARGET_VIDEO: 1}


def test_a_changed_target_makes_its_video_and_sound_again(store):
    rows = three_rows()
    made(store, rows)
    rows[0] = replace(rows[0], target_digest="other bytes")
    assert made(store, rows) == {Stage.TARGET_VIDEO: 1, Stage.TARGET_AUDIO: 1}


def test_a_longer_target_makes_what_it_cuts_again(store):
    still, moving = row("a", image(1), audio(2), seed=11), row("b", video(3, count=22), seed=12)
    made(store, [still, moving])
    longer = Geometry(128, 64, 39)
    assert made(store, [row("a", image(1), audio(2), seed=11, geometry=longer)]) == {
        Stage.TARGET_VIDEO: 1,
        Stage.TARGET_AUDIO: 1,
    }
    changed = made(store, [row("b", video(3, count=39), seed=12, geometry=longer)])
    assert changed == {Stage.TARGET_VIDEO: 1, Stage.TARGET_AUDIO: 1, Stage.REFERENCE_VISUAL: 1, Stage.TEXT: 1}


def test_the_other_format_makes_only_the_sound_it_cuts_otherwise_again(store):
    geometry = Geometry(32, 32, 124)
    made(store, [row("a", image(1), geometry=geometry)])
    assert made(store, [row("a", image(1), geometry=geometry, format=Format.SFT)]) == {Stage.TARGET_AUDIO: 1}


def test_an_encoder_with_another_conditioner_makes_text_again(store):
    made(store, three_rows())
    encoder = FakeEncoder()
    encoder.fingerprint = EncoderFingerprint({stage: {"fake": "2" if stage is Stage.TEXT else "1"} for stage in Stage})
    assert made(store, three_rows(), encoder) == {Stage.TEXT: 3}


def test_another_media_version_makes_everything_again(store):
    made(store, three_rows())
    rows = [replace(each, media_version="newer") for each in three_rows()]
    assert made(store, rows) == {stage: 3 for stage in Stage}


def test_renaming_a_row_encodes_nothing(store):
    made(store, three_rows())
    rows = three_rows()
    rows[0] = replace(rows[0], sample_id="renamed")
    assert made(store, rows) == {}


def test_rows_that_read_the_same_share_their_parts(store):
    report = encode_rows([row("a", image(1)), row("b", image(1))], FakeEncoder(), store)
    assert report.encoded == {stage: 1 for stage in Stage if stage is not Stage.REFERENCE_AUDIO}
    assert len(report.rows) == 2


def test_a_row_without_sound_references_needs_no_encoding_of_them(store):
    encoder = FakeEncoder()
    made(store, [row("a", image(1))], encoder)
    assert Stage.REFERENCE_AUDIO not in [stage for stage, _ in encoder.calls]


# --- damage ------------------------------------------------------------------------------------------------------------


def test_a_damaged_part_is_made_again(store):
    rows = three_rows()
    first = encode_rows(rows, FakeEncoder(), store)
    expected = [each.path.read_bytes() for each in first.rows]
    part = next((store.root / "parts" / "text").rglob("*.part"))
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    for each in first.rows:
        each.path.unlink()
    report = encode_rows(rows, FakeEncoder(), store)
    assert (report.encoded, report.corrupt) == ({Stage.TEXT: 1}, 1)
    assert [each.path.read_bytes() for each in report.rows] == expected


def test_a_damaged_row_is_assembled_again_without_encoding(store):
    rows = three_rows()
    first = encode_rows(rows, FakeEncoder(), store)
    expected = first.rows[1].path.read_bytes()
    first.rows[1].path.write_bytes(expected[:-20])
    report = encode_rows(rows, FakeEncoder(), store)
    assert report.encoded == {}
    assert report.rows[1].path.read_bytes() == expected


# --- one row's failure is its own (B30) --------------------------------------------------------------------------------


def test_a_row_that_turns_nan_is_rejected_by_name_and_the_others_are_kept(store):
    report = encode_rows(three_rows(), FakeEncoder(poison=["b"]), store, EncodeOptions(source="train.jsonl"))
    assert [each.sample_id for each in report.rows] == ["a", "c"]
    (finding,) = report.findings
    assert finding.code is Code.TENSOR_NON_FINITE
    assert finding.message() == (
        "train.jsonl row 1 (b): vae_latent: 1 of 5,376 values are not finite (0.02%) in stage target_video; required: "
        "finite values throughout. Encode the row again; if it recurs, look at its media, and at the checkpoint if it happens "
        "to other rows."
    )
    assert made(store, [three_rows()[1]]).keys() >= {Stage.TARGET_VIDEO}, "nothing of it that is wrong was kept"


def test_a_failed_row_is_not_encoded_any_further(store):
    encoder = FakeEncoder(poison=["b"])
    encode_rows(three_rows(), encoder, store)
    assert [stage for stage, name in encoder.calls if name == "b"] == [Stage.TARGET_VIDEO]


def test_media_that_breaks_while_it_is_decoded_rejects_its_row_alone(store):
    def torn():
        yield frames(11, 5, Size(128, 64))
        raise ValidationError(Finding(Code.FILE_UNREADABLE, Path("a.mp4"), "packet 7 is torn"))

    rows = three_rows()
    rows[0] = replace(rows[0], target_frames=torn)
    report = encode_rows(rows, FakeEncoder(), store)
    assert [each.sample_id for each in report.rows] == ["b", "c"]
    (finding,) = report.findings
    assert (finding.code, finding.sample_id, finding.found) == (Code.FILE_UNREADABLE, "a", "a.mp4: packet 7 is torn")


def test_an_unexpected_error_of_a_library_rejects_its_row_alone(store):
    def broken():
        raise RuntimeError("no kernel for this")

    rows = three_rows()
    rows[2] = replace(rows[2], target_waveform=broken)
    report = encode_rows(rows, FakeEncoder(), store)
    assert [each.sample_id for each in report.rows] == ["a", "b"]
    assert "RuntimeError: no kernel for this" in report.findings[0].found


def test_a_full_disk_ends_the_run(store, monkeypatch):
    monkeypatch.setattr(store, "write_part", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    with pytest.raises(OSError, match="No space"):
        encode_rows(three_rows(), FakeEncoder(), store)


def test_references_encoded_to_other_rows_than_declared_reject_the_row(store):  # B15
    class Fewer(FakeEncoder):
        def _tensors(self, stage, row, value):
            tensors = super()._tensors(stage, row, value)
            if stage is Stage.REFERENCE_VISUAL:
                tensors["ref_visual_geometry"][0] = (1, 2, 2)
            return tensors

    report = encode_rows([row("a", image(1))], Fewer(), store)
    assert report.rows == ()
    assert {finding.code for finding in report.findings} == {Code.REFERENCE_ROWS_MISMATCH}
    assert list((store.root / "rows").rglob("*.row")) == []


def test_an_oversized_presentation_is_rejected_by_its_plan_before_anything_is_loaded(store):
    encoder = FakeEncoder()
    report = encode_rows(
        [row("a", image(1), caption="x" * 100)], encoder, store, EncodeOptions(max_presentation_tokens=99)
    )
    (finding,) = report.findings
    assert finding.code is Code.PRESENTATION_TOO_LONG
    assert "110 presentation tokens (reference 0: 10, caption: 100)" in finding.found
    assert encoder.loads == []


def test_the_limit_of_the_dataset_is_the_one_that_rows_are_encoded_under(tmp_path):
    hundred_and_ten = row("a", image(1), caption="x" * 100)
    for limit, encoded in ((110, 1), (109, 0)):
        options = DatasetOptions(max_presentation_tokens=limit)
        dataset = Dataset(name="clips", manifest=tmp_path / "clips.jsonl", options=options)
        report = encode_admitted(Layout(tmp_path), dataset, [hundred_and_ten], FakeEncoder(), no_progress)
        assert len(report.rows) == encoded
        assert [f"at most {limit};" in finding.required for finding in report.findings] == [True] * (1 - encoded)


# --- progress, sharing -------------------------------------------------------------------------------------------------


def test_findings_survive_a_process_pool():
    error = ValidationError(Finding(Code.DEVICE_MEMORY, Place(sample_id="a"), "out of memory"))
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.findings) == (str(error), error.findings)


def test_progress_names_stage_and_row_and_counts_to_the_end(store):
    seen = []
    encode_rows(three_rows(), FakeEncoder(), store, progress=seen.append)
    assert [each.done for each in seen] == list(range(15))
    assert {each.total for each in seen} == {15}
    assert [(each.stage, each.sample_id) for each in seen[:2]] == [
        (Stage.TARGET_VIDEO, "a"),
        (Stage.REFERENCE_VISUAL, "a"),
    ]
    assert seen[0].left_sec is None
    assert all(each.left_sec > 0 and each.parts_per_sec > 0 for each in seen[1:])


def test_shares_encoded_apart_give_the_bytes_of_one_run(tmp_path):  # B32
    rows = [row(f"r{index}", image(index), seed=index) for index in range(5)]
    whole, shared = RowStore(tmp_path / "whole"), RowStore(tmp_path / "shared")
    encode_rows(rows, FakeEncoder(), whole)
    for share in range(2):
        encode_rows(rows[share::2], FakeEncoder(), shared)
    assert tree(shared.root) == tree(whole.root)


# --- the real encoder --------------------------------------------------------------------------------------------------


def test_eight_rows_load_each_component_once_and_each_is_gone_before_the_next(tiny_encoder, store, monkeypatch):
    alive = []
    before = type(tiny_encoder)._open

    def watched(self, component):
        assert all(reference() is None for reference in alive), f"loading {component} while another lives"
        session = before(self, component)
        alive.append(weakref.ref(session.model))
        return session

    monkeypatch.setattr(type(tiny_encoder), "_open", watched)
    small = Geometry(32, 32, 5)
    rows = [row(f"r{index}", image(index, Size(64, 64)), seed=index, geometry=small) for index in range(8)]
    report = encode_rows(rows, tiny_encoder, store)
    assert report.findings == ()
    assert tiny_encoder.loads == Counter(dict.fromkeys(Component, 1))
    assert len(alive) == 3
    assert all(reference() is None for reference in alive)


@pytest.mark.parametrize("kind", ["fake", "real"])
def test_fake_and_real_encoder_keep_one_contract(kind, request, store):
    encoder = FakeEncoder() if kind == "fake" else request.getfixturevalue("tiny_encoder")
    one = row("a", image(1), audio(2), video(3, count=30, sound=1700))
    plan = encoder.plan_tokens(one.caption, [reference.presented for reference in one.references])
    for component in Component:
        with encoder.loaded(component) as loaded:
            for stage in component.stages:
                media = stage_media(stage, one, encoder.conditioner_frames)
                tensors = loaded.encode(stage, one, media, 0)
                shapes = {name: (str(values.dtype), values.shape) for name, values in tensors.items()}
                assert (
                    shapes
                    == {
                        Stage.TARGET_VIDEO: {"vae_latent": ("float32", (24, 7, 4, 8))},
                        Stage.TARGET_AUDIO: {"audio_latent": ("float32", (2, 32, 37))},
                        Stage.REFERENCE_VISUAL: {
                            "ref_visual_rows": ("float32", (6 + 7 * 6, 96)),
                            "ref_visual_geometry": ("int64", (2, 3)),
                        },
                        Stage.REFERENCE_AUDIO: {
                            "ref_audio_rows": ("float32", (2 * (12 + 3), 32)),
                            "ref_audio_latents": ("int64", (2,)),
                        },
                        Stage.TEXT: {
                            "text_embedding": ("float32", (plan.total, 32)),
                            "text_token_tags": ("int64", (plan.total,)),
                        },
                    }[stage]
                )
                assert all(values.flags.c_contiguous for values in tensors.values())
                if stage in (Stage.TARGET_VIDEO, Stage.TARGET_AUDIO):
                    (latents,) = tensors.values()
                    decoded = list(loaded.decode(stage, latents, "row a"))
                    assert [(str(block.dtype), block.shape) for block in decoded] == {
                        Stage.TARGET_VIDEO: [("float32", (17, 64, 128, 3)), ("float32", (5, 64, 128, 3))],
                        Stage.TARGET_AUDIO: [("float32", (2, 37 * 800))],
                    }[stage]
                    assert all(block.min() >= 0 and block.max() <= 1 for block in decoded if block.ndim == 4)


@pytest.mark.parametrize("format", list(Format))
def test_a_row_of_every_reference_kind_is_encoded_whole_with_the_tiny_checkpoint(tiny_encoder, store, format):
    one = row("a", audio(3), image(1), video(2, count=30, sound=1700), video(4, Size(64, 64), 13), format=format)
    report = encode_rows([one], tiny_encoder, store)
    assert report.findings == ()
    (record,) = read_shard(report.rows[0].path)
    assert record.vae_latent.shape == (24, 7, 4, 8)
    assert record.audio_latent.shape == (2, 32, 37)
    assert record.references == tuple(reference.geometry for reference in one.references)
    plan = tiny_encoder.plan_tokens(one.caption, [reference.presented for reference in one.references])
    assert record.text_embedding.shape == (plan.total, 32) == (report.rows[0].text_tokens, 32)
    visual = sum(reference.visual_rows for reference in record.references)
    sound = sum(reference.audio_rows for reference in record.references)
    assert report.rows[0].sequence_length == plan.total + visual + sound + 2 * 37 + 7 * 2 * 4


def test_sft_anchors_are_the_clean_rows_noised_by_the_scheduler(tiny_encoder, store):
    import torch
    from diffusers import MiniMaxH3Scheduler

    from muvap_assets.ref2va.noise import reference_noise

    one = row("a", image(1), video(2))
    packed, sft = (
        read_shard(encode_rows([replace(one, format=format)], tiny_encoder, store).rows[0].path)[0] for format in Format
    )
    noise = reference_noise(sft.references, 42)
    expected = MiniMaxH3Scheduler(shift=12.0).scale_noise(torch.tensor(packed.visual_rows), 0.999, noise).numpy()
    np.testing.assert_array_equal(sft.visual_rows, expected)
    np.testing.assert_array_equal(sft.audio_rows, packed.audio_rows)
    assert not np.array_equal(sft.visual_rows, packed.visual_rows)


def test_preparing_ahead_does_not_change_a_byte(tmp_path, tiny_spec):
    from muvap_assets.ref2va.h3 import H3Encoder

    trees = []
    for workers, blocks in ((1, 1), (3, 8)):
        store = RowStore(tmp_path / f"{workers}")
        encode_rows(three_rows(), H3Encoder(tiny_spec), store, EncodeOptions(workers=workers, blocks_ahead=blocks))
        trees.append(tree(store.root))
    assert trees[0] == trees[1]


def test_the_next_rows_media_is_prepared_while_the_device_works_on_a_row(store):
    prepared = [threading.Event() for _ in range(6)]

    class Watching(FakeEncoder):
        def encode(self, stage, row, media, sequence_length):
            blocks = list(media)
            if stage is Stage.TARGET_VIDEO:
                following = int(row.sample_id[1:]) + 1
                assert all(event.wait(30) for event in prepared[following : following + 1])
            return super().encode(stage, row, iter(blocks), sequence_length)

    def watched_frames(index):
        yield frames(index, 22, Size(128, 64))
        prepared[index].set()

    rows = [replace(row(f"r{i}", seed=i), target_frames=lambda i=i: watched_frames(i)) for i in range(6)]
    assert len(encode_rows(rows, Watching(), store).rows) == 6
