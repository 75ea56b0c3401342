"""Scores come back to the annotation's frames, and the metric is the official one wherever that one is defined."""

import doctest
from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.asd import ava_metric, evaluation
from muvap_assets.asd.ava_metric import AveragePrecision, ava_average_precision
from muvap_assets.asd.evaluation import lift
from muvap_assets.asd.timeline import model_frame_count, source_indices
from muvap_assets.errors import ConfigError, ValidationError

rates = st.sampled_from(["10", "12.5", "15", "23.976", "24", "25", "29.97", "30000/1001", "30", "50", "59.94", "60"])


def exact_model_index(j, fps):
    """The model interval that holds the centre of native frame ``j``, without the clamp."""
    return floor((j + Fraction(1, 2)) / Fraction(fps) * 25)


def official_average_precision(labels, scores):
    """The official computation restated row by row: rank, precision and recall, envelope, area."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    positives = sum(labels)
    precision, recall, hits = [0.0], [0.0], 0
    for rank, i in enumerate(order, 1):
        hits += labels[i]
        precision.append(hits / rank)
        recall.append(hits / positives)
    precision.append(0.0)
    recall.append(1.0)
    for i in range(len(precision) - 2, -1, -1):
        precision[i] = max(precision[i], precision[i + 1])
    steps = [i for i in range(1, len(recall)) if recall[i] != recall[i - 1]]
    return sum((recall[i] - recall[i - 1]) * precision[i] for i in steps)


def table(seed, rows=None, decimals=None):
    rng = np.random.default_rng(seed)
    rows = rows or int(rng.integers(1, 60))
    labels = (rng.random(rows) < rng.uniform(0.05, 0.95)).astype(np.uint8)
    labels[rng.integers(rows)] = 1
    scores = rng.permutation(rows) + rng.random(rows) * 0.5 + 2 * labels * rng.random(rows)
    if decimals is not None:
        scores = np.round(scores / scores.max(), decimals)
    return labels, scores


def average_precision(labels, scores):
    return ava_average_precision(labels, scores, labels_known=True)


@settings(deadline=None, max_examples=50)
@given(frames=st.integers(1, 400), fps=rates)
def test_every_native_frame_gets_the_score_of_the_model_frame_that_holds_its_centre(frames, fps):
    count = model_frame_count(frames, fps)
    lifted = lift(np.arange(count), frames, fps)
    assert len(lifted) == frames
    assert lifted.tolist() == [min(exact_model_index(j, fps), count - 1) for j in range(frames)]


@settings(deadline=None, max_examples=50)
@given(frames=st.integers(1, 400), fps=st.sampled_from(["10", "12.5", "15", "23.976", "24", "25"]), data=st.data())
def test_up_to_25_fps_labels_lifted_from_the_model_timeline_are_those_sampled_onto_it(frames, fps, data):
    labels = np.array(data.draw(st.lists(st.integers(0, 1), min_size=frames, max_size=frames)), np.float32)
    lifted = lift(labels[source_indices(frames, fps)], frames, fps)
    unclamped = [j for j in range(frames) if exact_model_index(j, fps) < model_frame_count(frames, fps)]
    assert lifted[unclamped].tolist() == labels[unclamped].tolist()
    assert len(unclamped) >= frames - 1


@settings(deadline=None, max_examples=50)
@given(frames=st.integers(1, 400), fps=st.sampled_from(["29.97", "30000/1001", "30", "50", "59.94", "60"]))
def test_above_25_fps_scores_are_constant_within_a_model_frame(frames, fps):
    count = model_frame_count(frames, fps)
    scores = np.random.default_rng(frames).random(count)
    lifted = lift(scores, frames, fps)
    assert len(lifted) == frames
    holders = [min(exact_model_index(j, fps), count - 1) for j in range(frames)]
    assert set(holders) == set(range(count))
    assert lifted.tolist() == [scores[holder] for holder in holders]


def test_lifting_keeps_the_dtype_and_follows_another_model_rate():
    assert lift(np.float32([0.5, 0.25]), 4, 50).dtype == np.float32
    assert lift([0.1, 0.2, 0.3, 0.4], 2, 25, model_fps=50).tolist() == [0.2, 0.4]
    assert lift([], 0, 25).tolist() == []


@pytest.mark.parametrize("count", [0, 24, 26])
def test_another_number_of_scores_than_model_frames_is_refused(count):
    with pytest.raises(
        ValidationError, match=f"scores: {count}; required: 25, one a model frame of 30 native frames at 30"
    ):
        lift(np.zeros(count), 30, "30")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused_with_its_place(bad):
    with pytest.raises(ValidationError, match=rf"scores: {bad} at 1; required: finite"):
        lift([0.5, bad, 0.5], 3, 25)
    with pytest.raises(ValidationError, match=rf"scores: {bad} at 1; required: finite"):
        average_precision([0, 1, 0], [0.5, bad, 0.5])


@pytest.mark.parametrize(("scores", "found"), [([[0.1, 0.2]], r"float64 \[1, 2\]"), (["a", "b"], r"<U1 \[2\]")])
def test_scores_of_another_shape_or_type_are_refused(scores, found):
    with pytest.raises(ValidationError, match=f"scores: {found}; required: finite real numbers"):
        lift(scores, 2, 25)


def test_lifting_refuses_a_rate_that_is_none():
    with pytest.raises(ConfigError, match="frame rate 'fast'"):
        lift([0.1], 1, "fast")


def test_a_thousand_tables_without_ties_have_the_official_average_precision():
    for seed in range(1000):
        labels, scores = table(seed)
        assert len(set(scores.tolist())) == len(scores)
        result = average_precision(labels, scores)
        assert result.value == pytest.approx(official_average_precision(labels.tolist(), scores.tolist()), abs=1e-12)
        assert (result.highest, result.tied_rows) == (result.value, 0)
        assert (result.rows, result.positives) == (len(labels), int(labels.sum()))


def test_with_ties_the_value_is_the_official_one_at_worst_and_the_highest_the_one_at_best():
    for seed in range(200):
        labels, scores = table(seed, decimals=1)
        result = average_precision(labels, scores)
        # A stable sort by score keeps the order of the rows, so the rows' order is the order within a tie.
        worst, best = np.argsort(labels, kind="stable"), np.argsort(-labels.astype(int), kind="stable")
        assert result.value == pytest.approx(official_average_precision(labels[worst].tolist(), scores[worst].tolist()))
        assert result.highest == pytest.approx(official_average_precision(labels[best].tolist(), scores[best].tolist()))
        between = official_average_precision(labels.tolist(), scores.tolist())
        assert result.value - 1e-12 <= between <= result.highest + 1e-12


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 1000), shuffle=st.randoms(use_true_random=False))
def test_no_order_of_the_rows_changes_the_value(seed, shuffle):
    labels, scores = table(seed, decimals=1)
    order = list(range(len(labels)))
    shuffle.shuffle(order)
    assert average_precision(labels[order], scores[order]) == average_precision(labels, scores)


def test_rows_of_one_score_enter_together_and_are_counted():
    constant = average_precision([1, 0, 1, 0], [0.3] * 4)
    assert (constant.value, constant.highest, constant.tied_rows) == (0.5, 1.0, 4)
    pair = average_precision([1, 1, 0], [0.9, 0.4, 0.4])
    assert (pair.value, pair.highest, pair.tied_rows) == (pytest.approx(0.5 + 0.5 * 2 / 3), 1.0, 2)
    assert average_precision([1, 1, 0], np.float32([0.0, -0.0, -1])).tied_rows == 2
    assert str(constant) == "50.0000% (4 rows, 2 positive, 4 tied, up to 100.0000%)"


@pytest.mark.parametrize("rows", [0, 3])
def test_without_positives_the_value_is_undefined_and_nothing_crashes(rows):
    result = average_precision([0] * rows, np.linspace(0, 1, rows))
    assert result == AveragePrecision(value=None, highest=None, rows=rows, positives=0, tied_rows=0)
    assert str(result) == f"undefined (no positives in {rows} rows)"


def test_a_split_without_annotation_is_never_scored():
    # Filler is all ones: any scores at all would have an average precision of 1.
    with pytest.raises(ValidationError, match=r"labels: marked unknown.*annotated labels for average precision"):
        ava_average_precision([1, 1, 1], [0.1, 0.2, 0.3], labels_known=False)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1], "scores: 3; required: 2, one a label"),
        ([0, 2, 1], "labels: 2 at 1; required: 0 or 1"),
        ([0, np.nan, 1], "labels: nan at 1"),
        ([[0, 1, 1]], r"labels: int64 \[1, 3\]"),
        (["NOT_SPEAKING"] * 3, r"labels: <U12 \[3\]"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, message):
    with pytest.raises(ValidationError, match=message):
        average_precision(labels, [0.1, 0.2, 0.3])


@pytest.mark.parametrize("module", [evaluation, ava_metric])
def test_the_worked_examples_hold(module):
    assert doctest.testmod(module).failed == 0
