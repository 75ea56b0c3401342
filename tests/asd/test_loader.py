"""Chunks and batches against the slow reading of ``loader_packs``, and what the loader refuses."""

from __future__ import annotations

import json
import math
import tempfile
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_packs import (
    Chunk,
    model_frames,
    past_and_future,
    random_track,
    slow_audio,
    slow_chunk,
    slow_spans,
    write_small_pack,
)
from torch.utils.data import DataLoader

from muvap_assets.asd.batch_sampler import EpochBatch, FrameBudgetBatchSampler
from muvap_assets.asd.batches import Fit
from muvap_assets.asd.chunks import ChunkOptions, ChunkPlan
from muvap_assets.asd.levels import LoudnessTarget
from muvap_assets.asd.loader import UNKNOWN_LABEL, PackedASDDataset, as_is, data_loader
from muvap_assets.asd.packs import layout
from muvap_assets.asd.prefetch import PrefetchLoader
from muvap_assets.asd.targets import INDEPENDENT_WINDOW, independent
from muvap_assets.errors import ConfigError, FormatError, ValidationError

RATES = ["25", "24", "30", "60", "50", "12.5", "10", "29.97", "30000/1001", "23.976", "100", "0.5", "49.9"]
MODEL_RATES = ["25", "25", "50", "12.5", "24", "30000/1001", "7", "100"]


def assert_row(batch, row, chunk: Chunk):
    """One row of a batch is a chunk, followed by padding."""
    n, frames = len(chunk.labels), batch.labels.shape[1]
    assert (int(batch.tracks[row]), int(batch.starts[row]), int(batch.lengths[row])) == (chunk.track, chunk.first, n)
    for name in ("faces", "labels", "targets", "scored"):
        given_values, expected = getattr(batch, name)[row].numpy(), getattr(chunk, name)
        np.testing.assert_array_equal(given_values[:n], expected, err_msg=name)
        assert given_values.dtype == expected.dtype
        assert not given_values[n:].any()
    np.testing.assert_array_equal(batch.audio[row].numpy()[: len(chunk.audio)], chunk.audio)
    assert not batch.audio[row, len(chunk.audio) :].any()
    assert batch.real[row].tolist() == [k < n for k in range(frames)]


def expected_chunks(tracks, model_fps, window, context, normalize=True, targets=past_and_future):
    rate = Fraction(model_fps)
    return [
        slow_chunk(tracks, number, span, rate, normalize, targets)
        for number, track in enumerate(tracks)
        for span in slow_spans(model_frames(track, rate), window, context)
    ]


@st.composite
def packs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tracks = []
    for number in range(draw(st.integers(1, 5))):
        fps = draw(st.sampled_from(RATES))
        most = max(1, min(60, floor_frames(fps)))
        frames = draw(st.integers(1, most))
        samples = round(frames / Fraction(fps) * 16_000)
        levels = draw(st.sampled_from([(0.0, 0.1, 0.9), (0.2, 0.5, 1.2), (-0.01, 1e-4, 0.5), (0.3, 0.0, 0.0)]))
        padded = draw(st.sampled_from([0, 0, samples // 10, samples]))
        track = random_track(rng, f"t{number}", fps, frames, padded=padded)
        tracks.append(type(track)(**{**vars(track), "mean": levels[0], "rms": levels[1], "peak": levels[2]}))
    cut = draw(st.integers(0, len(tracks)))
    return tracks, [part for part in (tracks[:cut], tracks[cut:]) if part]


def floor_frames(fps):
    return math.floor(Fraction(6, 5) * Fraction(fps))


@settings(max_examples=30, deadline=None)
@given(
    packs(), st.sampled_from(MODEL_RATES), st.sampled_from([None, 1, 7, 20]), st.sampled_from([0, 3, 30]),
    st.booleans(), st.booleans(), st.data(),
)  # fmt: skip
def test_every_field_of_every_chunk_is_that_of_the_slow_reading(
    pack, model_fps, window, context, normalize, as_packs, data
):
    tracks, parts = pack
    chunks = expected_chunks(tracks, model_fps, window, context, normalize)
    with tempfile.TemporaryDirectory() as folder:
        if as_packs:
            roots = [write_small_pack(Path(folder, str(i)), [part]) for i, part in enumerate(parts)]
        else:
            roots = [write_small_pack(Path(folder, "pack"), parts)]
        options = {"model_fps": model_fps, "window": window, "context": context, "normalize": normalize}
        dataset = PackedASDDataset(roots, targets=past_and_future, **options)
        assert len(dataset) == len(chunks)
        assert dataset.lengths().tolist() == [len(chunk.labels) for chunk in chunks]
        for item, chunk in enumerate(chunks):
            batch = dataset[item]
            assert batch.sample_ids == (tracks[chunk.track].sample_id,)
            assert batch.audio.shape == (1, math.floor(len(chunk.labels) * 16_000 / Fraction(model_fps)))
            assert_row(batch, 0, chunk)
        items = data.draw(st.lists(st.integers(0, len(chunks) - 1), min_size=1, max_size=5))
        padded = PackedASDDataset(roots, targets=past_and_future, fit="pad", **options)[items[0]]
        assert_row(padded, 0, chunks[items[0]])
        padded = PackedASDDataset(roots, targets=past_and_future, fit="pad", **options).__getitems__(items)
        cropped = dataset.__getitems__(items)
        shortest = min(len(chunks[item].labels) for item in items)
        for row, item in enumerate(items):
            chunk = chunks[item]
            assert_row(padded, row, chunk)
            surplus = chunk.stop - chunk.first - shortest
            front = min(surplus, chunk.scored_from - chunk.first)
            span = (chunk.first + front, chunk.scored_from, chunk.stop - (surplus - front))
            assert_row(
                cropped,
                row,
                slow_chunk(tracks, chunk.track, span, Fraction(model_fps), normalize, past_and_future),
            )
        for batch in (padded, cropped):
            rows, frames = batch.labels.shape
            assert rows == len(items) == len(batch)
            assert batch.faces.shape[:2] == batch.targets.shape[:2] == batch.scored.shape == batch.real.shape
            assert batch.audio.shape == (rows, math.floor(frames * 16_000 / Fraction(model_fps)))
            assert torch.isfinite(batch.audio).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=8), st.integers(1, 60), st.integers(0, 30), st.integers(0, 9))
def test_with_jitter_every_frame_is_scored_exactly_once_an_epoch(lengths, window, context, epoch):
    options = ChunkOptions(window=window, context=context, jitter=True, seed=5)
    plan = ChunkPlan(np.array(lengths), options, epoch)
    spans = plan.spans(np.arange(len(plan)))
    seen = [np.zeros(length, int) for length in lengths]
    for track, first, scored_from, stop in zip(spans.tracks, spans.first, spans.scored_from, spans.stop, strict=True):
        assert first == max(0, scored_from - context)
        assert 1 <= stop - scored_from <= window
        pieces = -(-lengths[track] // window)
        step = -(-lengths[track] // pieces)
        assert pieces == 1 or stop - scored_from >= step // 2
        seen[track][scored_from:stop] += 1
    assert all((counts == 1).all() for counts in seen)
    np.testing.assert_array_equal(plan.lengths(), spans.stop - spans.first)


def test_jitter_moves_from_epoch_to_epoch_and_is_the_same_for_one_seed():
    def cuts(seed, epoch):
        plan = ChunkPlan(np.full(20, 1000), ChunkOptions(window=100, jitter=True, seed=seed), epoch)
        return plan.spans(np.arange(len(plan))).scored_from.tolist()

    assert cuts(0, 3) == cuts(0, 3)
    assert len({str(cuts(seed, epoch)) for seed in (0, 1) for epoch in range(4)}) == 8
    first_cuts = [cuts(0, epoch)[1] for epoch in range(60)]
    assert len(set(first_cuts)) > 30
    assert {1 <= cut <= 100 for cut in first_cuts} == {True}


@pytest.fixture
def tracks():
    rng = np.random.default_rng(0)
    return [random_track(rng, f"t{i}", fps, frames) for i, (fps, frames) in enumerate([("25", 90), ("30", 50)])]


def test_jittered_chunks_hold_what_the_slow_reading_gives_for_their_spans(tracks, tmp_path):
    pack = write_small_pack(tmp_path / "pack", [tracks])
    dataset = PackedASDDataset(pack, window=20, context=5, jitter=True, targets=past_and_future, fit="pad")
    for epoch in range(3):
        count = len(dataset.lengths(epoch))
        batch = dataset.__getitems__(EpochBatch(list(range(count)), epoch))
        dataset.set_epoch(epoch)
        assert len(dataset) == count
        assert batch.labels.equal(dataset.__getitems__(range(count)).labels)
        for row in range(count):
            first, length = int(batch.starts[row]), int(batch.lengths[row])
            scored_from = first + int(batch.scored[row].numpy().argmax())
            span = (first, scored_from, first + length)
            assert_row(
                batch, row, slow_chunk(tracks, int(batch.tracks[row]), span, Fraction(25), True, past_and_future)
            )


def test_the_targets_of_a_chunk_are_cut_from_those_of_its_whole_track(tracks, tmp_path):
    pack = write_small_pack(tmp_path / "pack", [tracks])
    dataset = PackedASDDataset(pack, window=13, context=4, targets=independent)
    for chunk in expected_chunks(tracks, "25", 13, 4, targets=independent):
        item = next(i for i in range(len(dataset)) if is_chunk(dataset[i], chunk))
        assert_row(dataset[item], 0, chunk)
        assert dataset[item].targets.dtype == torch.uint8


def test_a_window_of_another_rate_than_the_timeline_is_refused_and_one_of_the_same_is_not(tracks, tmp_path):
    """Its bins would last half as long as they say, or twice."""
    pack = write_small_pack(tmp_path / "pack", [tracks])
    fast = replace(INDEPENDENT_WINDOW, frame_hz="50")
    for targets, rate in ((independent, "50"), (partial(independent, window=fast), "25")):
        with pytest.raises(ConfigError, match=r"Hz on a timeline of (25|50) Hz; required: one rate"):
            PackedASDDataset(pack, model_fps=rate, targets=targets)
    batch = PackedASDDataset(pack, model_fps="50", targets=partial(independent, window=fast))[0]
    assert np.array_equal(batch.targets[0].numpy(), independent(batch.labels[0].numpy(), fast))


def test_much_that_cropping_would_leave_is_told_and_little_or_padding_is_not(tmp_path, caplog):
    rng = np.random.default_rng(0)
    short = [random_track(rng, name, frames=frames) for name, frames in (("a", 40), ("b", 40), ("c", 2))]
    pack = write_small_pack(tmp_path / "pack", [short])
    for fit, tracks in (("pad", 3), ("crop", 2), ("crop", 3)):
        dataset = PackedASDDataset(pack, fit=fit)
        sampler = FrameBudgetBatchSampler(dataset.lengths(0)[:tracks])
        data_loader(dataset, sampler)
        PrefetchLoader(dataset, sampler)
    assert [record.name for record in caplog.records] == ["muvap_assets.asd.loader"] * 2
    assert "fit='crop' leaves" in caplog.records[0].getMessage()


def is_chunk(batch, chunk):
    return (int(batch.tracks[0]), int(batch.starts[0]), int(batch.lengths[0])) == (
        chunk.track, chunk.first, chunk.stop - chunk.first,
    )  # fmt: skip


def test_a_dataset_with_jitter_refuses_batches_planned_from_an_array_of_lengths(tmp_path):
    rng = np.random.default_rng(0)
    pack = write_small_pack(tmp_path / "pack", [[random_track(rng, f"t{i}", frames=90 + i) for i in range(8)]])
    dataset = PackedASDDataset(pack, window=20, jitter=True, fit="pad")
    sampler = FrameBudgetBatchSampler(dataset.lengths())
    for read in (
        lambda: data_loader(dataset, sampler),
        lambda: PrefetchLoader(dataset, sampler),
        lambda: list(DataLoader(dataset, batch_sampler=sampler, collate_fn=as_is)),
    ):
        with pytest.raises(
            ConfigError, match=r"of one epoch; required: those of each.* Give FrameBudgetBatchSampler\(data"
        ):
            read()
    for epoch in range(4):
        planned = FrameBudgetBatchSampler(dataset)
        planned.set_epoch(epoch)
        scored = sum(int(dataset.__getitems__(items).scored.sum()) for items in planned)
        assert scored == int(dataset.tracks.frames.sum())
    fixed = PackedASDDataset(pack, window=20)
    assert len(list(data_loader(fixed, FrameBudgetBatchSampler(fixed.lengths())))) > 1


def test_the_plan_of_a_dataset_names_its_packs_and_windows_and_no_place(tracks, tmp_path):
    here, there = (write_small_pack(tmp_path / name, [tracks]) for name in ("here", "there"))
    options = {"window": 13, "context": 4}
    plan = PackedASDDataset(here, **options).fingerprint()
    assert plan == PackedASDDataset(there, **options, seed=5, fit="pad").fingerprint()
    assert (plan["model_fps"], plan["window"], plan["context"], plan["jitter_seed"]) == ("25", 13, 4, None)
    assert json.loads(json.dumps(plan)) == plan
    other = write_small_pack(tmp_path / "other", [tracks[:1]])
    for changed in (
        PackedASDDataset(other, **options),
        PackedASDDataset([here, other], **options),
        PackedASDDataset(here, window=14, context=4),
        PackedASDDataset(here, window=13, context=4, model_fps="50"),
        PackedASDDataset(here, **options, jitter=True),
    ):
        assert changed.fingerprint() != plan


# --- audio ---


@pytest.mark.parametrize("model_fps", ["25", "30", "30000/1001", "7"])
def test_the_audio_of_a_chunk_is_exactly_the_slice_of_the_whole_track(tmp_path, model_fps):
    rng = np.random.default_rng(1)
    pack = write_small_pack(tmp_path / "pack", [[random_track(rng, "a", "29.97", 200, padded=700)]])
    whole = PackedASDDataset(pack, model_fps=model_fps)[0].audio[0]
    dataset = PackedASDDataset(pack, model_fps=model_fps, window=23, context=9)
    for item in range(len(dataset)):
        batch = dataset[item]
        begin = math.floor(int(batch.starts[0]) * 16_000 / Fraction(model_fps))
        assert batch.audio[0].equal(whole[begin : begin + batch.audio.shape[1]])


@pytest.mark.parametrize(
    ("signal", "levels"),
    [
        (np.zeros(16_000), (0.0, 0.0, 0.0)),
        (np.full(16_000, 9830), (0.3, 0.0, 0.0)),
        (np.eye(1, 16_000, 80)[0] * 32_767, (1 / 16_000, 0.0079, 0.99991)),
        (np.resize([0, 1], 16_000), (0.5 / 32768, 0.5 / 32768, 0.5 / 32768)),
        (np.resize([-32768, 32767], 16_000), (0.0, 1.0, 1.0)),
    ],
    ids=["silence", "DC", "impulse", "one bit of noise", "full scale"],
)
def test_no_signal_makes_nan_and_silence_is_not_raised(tmp_path, signal, levels):
    track = random_track(np.random.default_rng(0), "a", "25", 25, mean=levels[0], rms=levels[1], peak=levels[2])
    track = type(track)(**{**vars(track), "audio": signal.astype(np.int16)})
    pack = write_small_pack(tmp_path / "pack", [[track]])
    audio = PackedASDDataset(pack)[0].audio[0]
    assert torch.isfinite(audio).all()
    assert audio.abs().max() <= 0.9901
    np.testing.assert_array_equal(audio.numpy(), slow_audio(track, 0, 25, Fraction(25), True))
    if levels[2] * 32768 < 1:
        assert audio.abs().max() < 1e-4


def test_a_recording_is_brought_to_its_level_within_the_limits():
    target = LoudnessTarget()
    gains = target.gains(np.array([0.1, 0.001, 0.02, 0.0]), np.array([0.5, 0.01, 0.9, 0.0]))
    assert 20 * np.log10(gains[0] * 0.1) == pytest.approx(-25)
    assert gains[1:].tolist() == [pytest.approx(10), pytest.approx(0.99 / 0.9), 1.0]
    louder = LoudnessTarget(rms_dbfs=-20, max_gain_db=6, max_peak=0.5)
    assert louder.gains(np.array([0.2, 0.01]), np.array([0.5, 0.02])).tolist() == [
        pytest.approx(0.5), pytest.approx(10**0.3),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match=r"max_peak=-1.*positive peak"):
        LoudnessTarget(max_peak=-1)


def test_what_lies_past_a_recordings_end_is_silence_also_after_its_mean_was_removed(tmp_path):
    track = random_track(np.random.default_rng(0), "a", "25", 25, padded=6000, mean=0.25)
    audio = PackedASDDataset(write_small_pack(tmp_path / "pack", [[track]]))[0].audio[0]
    assert audio.shape == (16_000,)
    assert not audio[10_000:].any()
    assert audio[:10_000].all()


@pytest.mark.parametrize("frames", [1, 3])
def test_a_track_of_one_or_three_frames_is_whole_frames_padded_with_silence(tmp_path, frames):
    rng = np.random.default_rng(0)
    dataset = PackedASDDataset(write_small_pack(tmp_path / "pack", [[random_track(rng, "a", "100", frames)]]))
    batch = dataset[0]
    assert batch.audio.shape == (1, 640)
    assert batch.faces.shape == (1, 1, 3, 2)
    assert not batch.audio[0, frames * 160 :].any()
    assert batch.scored.tolist() == [[True]]


# --- what is refused ---


def test_labels_that_are_not_known_are_marked_and_make_no_targets(tracks, tmp_path):
    unknown = type(tracks[1])(**{**vars(tracks[1]), "known": False})
    pack = write_small_pack(tmp_path / "pack", [[tracks[0], unknown]])
    labels = PackedASDDataset(pack)[1].labels
    assert set(labels.unique().tolist()) == {UNKNOWN_LABEL}
    with pytest.raises(ValidationError, match=r"1 finding\(s\)\n  \(t1\): labels: marked unknown: filler"):
        PackedASDDataset(pack, targets=independent)


def test_packs_of_two_face_shapes_are_refused(tracks, tmp_path):
    other = random_track(np.random.default_rng(0), "wide", shape=(3, 4))
    roots = [write_small_pack(tmp_path / "a", [tracks]), write_small_pack(tmp_path / "b", [[other]])]
    with pytest.raises(ConfigError, match=r"b: faces of 3x4; required: 3x2, as in .*a\. Pack both"):
        PackedASDDataset(roots)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"window": 0}, "window 0; required: at least 1 frame"),
        ({"window": 100.5}, "window 100.5; required: at least 1 frame, a whole number"),
        ({"context": -1}, "context -1; required: 0 frames or more"),
        ({"context": "9"}, "context '9'; required: 0 frames or more"),
        ({"fit": "stretch"}, "fit 'stretch'; required: crop or pad"),
        ({"blocks": -1}, "blocks -1; required: 0 or more"),
        ({"blocks": 1.5}, "blocks 1.5; required: 0 or more"),
        ({"targets": "independent"}, "targets 'independent'; required: a function"),
        ({"model_fps": "fast"}, "frame rate 'fast': not a rate"),
        ({"targets": lambda labels: labels[1:]}, r"targets \(one frame\)"),
        ({"targets": lambda labels: labels.astype(object)}, r"targets \(one frame\): object"),
        ({"jitter": True, "window": 9, "seed": -1}, "seed -1; required: 0 or more"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(tracks, tmp_path, options, match):
    pack = write_small_pack(tmp_path / "pack", [tracks])
    with pytest.raises(ConfigError, match=match):
        len(PackedASDDataset(pack, **options))


def test_no_pack_and_no_item_are_refused(tracks, tmp_path):
    with pytest.raises(ConfigError, match="roots: no pack"):
        PackedASDDataset([])
    with pytest.raises(FormatError, match=r"dataset\.json: missing .* Materialize or pack it again"):
        PackedASDDataset(tmp_path)
    with pytest.raises(FormatError, match="gone: no such folder"):
        PackedASDDataset(tmp_path / "gone")
    (tmp_path / "current").mkdir()
    with pytest.raises(FormatError, match=r"versions; required: the folder of a pack\. .* open its `current`\.$"):
        PackedASDDataset(tmp_path)
    dataset = PackedASDDataset(write_small_pack(tmp_path / "pack", [tracks]))
    with pytest.raises(ConfigError, match="batch: no item"):
        dataset.__getitems__([])
    for item in (2, -3):
        with pytest.raises(IndexError, match="required: within 2"):
            dataset[item]
    assert dataset[-1].sample_ids == ("t1",)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda labels: labels[: 1 + len(labels) // 2], r"targets \(t0\): uint8 \[46\]; required: uint8 \[90\]"),
        (lambda labels: labels.astype(np.float64 if len(labels) > 1 else np.uint8), "float64 .90.; required: uint8"),
        (lambda labels: np.where(labels > 2, 1.0, np.nan if len(labels) > 1 else 0.0), "NaN or infinity"),
    ],
)
def test_targets_of_another_shape_or_type_or_not_finite_are_refused(tracks, tmp_path, wrong, match):
    dataset = PackedASDDataset(write_small_pack(tmp_path / "pack", [tracks]), targets=wrong)
    with pytest.raises(ConfigError, match=match):
        dataset[0]


@pytest.mark.parametrize(("field", "value"), [("rms", float("nan")), ("peak", float("inf"))])
def test_a_level_that_is_not_finite_never_becomes_audio(tracks, tmp_path, monkeypatch, field, value):
    monkeypatch.setattr(layout, "_json_row", lambda entry: {})  # JSON holds no such number
    broken = type(tracks[1])(**{**vars(tracks[1]), field: value})
    with pytest.raises(FormatError, match=rf"t1: audio_{field} (nan|inf) \(.*\); required: a finite level"):
        PackedASDDataset(write_small_pack(tmp_path / "pack", [[tracks[0], broken]]))


# --- batches ---


def test_a_transform_runs_on_each_batch(tracks, tmp_path):
    def doubled(batch):
        batch.audio.mul_(2)
        return batch

    pack = write_small_pack(tmp_path / "pack", [tracks])
    plain, loud = PackedASDDataset(pack), PackedASDDataset(pack, transform=doubled)
    assert loud[0].audio.equal(plain[0].audio * 2)


def test_a_batch_moves_and_clones_as_a_whole(tracks, tmp_path):
    dataset = PackedASDDataset(write_small_pack(tmp_path / "pack", [tracks]), blocks=1)
    batch = dataset[0]
    copy, moved = batch.clone(), batch.to("meta")
    assert moved.faces.device.type == "meta"
    assert moved.targets is None
    assert moved.sample_ids == ("t0",)
    assert batch.faces.equal(copy.faces)
    dataset[1]
    assert not batch.audio.equal(copy.audio)


def test_blocks_are_used_in_turn_and_without_them_no_batch_is_overwritten(tracks, tmp_path):
    pack = write_small_pack(tmp_path / "pack", [tracks])
    shared, own = PackedASDDataset(pack, window=10, blocks=3), PackedASDDataset(pack, window=10)
    batches = [(shared[i], own[i]) for i in range(len(own))]
    for shown, true in batches[-3:]:
        assert shown.faces.equal(true.faces)
    assert len({shown.audio.data_ptr() for shown, _ in batches}) == 3
    assert [true.faces.equal(own[i].faces) for i, (_, true) in enumerate(batches)] == [True] * len(own)


def test_a_block_holds_batches_of_any_size_one_after_another(tracks, tmp_path):
    pack = write_small_pack(tmp_path / "pack", [tracks])
    shared = PackedASDDataset(pack, window=10, blocks=1, fit=Fit.PAD, targets=past_and_future)
    own = PackedASDDataset(pack, window=10, fit=Fit.PAD, targets=past_and_future)
    for items in ([0], [0, 5, 9], [3], [12, 1], list(range(13)), [2]):
        for name in ("audio", "faces", "labels", "targets", "scored", "real", "lengths", "starts", "tracks"):
            assert getattr(shared.__getitems__(items), name).equal(getattr(own.__getitems__(items), name))


def test_workers_need_more_blocks_than_the_batches_they_prepare(tracks, tmp_path):
    dataset = PackedASDDataset(write_small_pack(tmp_path / "pack", [tracks]), blocks=3)
    sampler = FrameBudgetBatchSampler(dataset)
    with pytest.raises(ConfigError, match="blocks 3; required: at least 4"):
        data_loader(dataset, sampler, num_workers=1)
    data_loader(dataset, sampler, num_workers=0)
