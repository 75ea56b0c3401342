"""Capacities: the smallest that fits, the best few by brute force, and nothing is ever cropped."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from published_rows import LONG, WIDE, clean_record, published

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.cache import read_index
from muvap_assets.ref2va.capacities import Capacities, measured, oversized, propose
from muvap_assets.ref2va.plan_report import plan_report


def padding(lengths, capacities):
    """Rows of padding when each length takes the smallest capacity that holds it; None where one fits none."""
    total = 0
    for length in lengths:
        fitting = [capacity for capacity in capacities if capacity >= length]
        if not fitting:
            return None
        total += min(fitting) - length
    return total


@settings(deadline=None)
@given(st.lists(st.integers(1, 2500), min_size=1, max_size=25), st.integers(1, 5))
def test_no_choice_of_as_many_capacities_wastes_less(lengths, count):
    proposal = propose(lengths, count)
    every = range(256, 2561, 256)
    best = min(
        waste
        for size in range(1, count + 1)
        for chosen in combinations(every, size)
        if (waste := padding(lengths, chosen)) is not None
    )
    assert proposal.waste_rows == padding(lengths, proposal.capacities) == best
    assert len(proposal.capacities) <= count
    assert list(proposal.capacities) == sorted(set(proposal.capacities))
    assert sum(proposal.documents) == len(lengths)
    assert min(proposal.documents) > 0
    assert proposal.total_rows == sum(lengths)


def test_no_more_capacities_are_proposed_than_help():
    assert propose([10, 20, 256, 300], 4).capacities == (256, 512)
    assert propose([10], 4).capacities == (256,)


def test_many_lengths_are_planned_in_little_time():
    lengths = [256 * (number * 7919 % 900) + 1 for number in range(20_000)]
    assert len(propose(lengths, 4).capacities) == 4


def test_one_released_image_and_a_default_target_take_the_capacity_of_the_facts():
    assert Capacities((52_480, 52_736)).smallest(52_717) == 52_736
    assert propose([52_717], 1).waste_rows == 19


@settings(deadline=None)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=6, unique=True), st.integers(1, 8000))
def test_the_smallest_fitting_capacity_is_chosen(multiples, length):
    values = sorted(256 * multiple for multiple in multiples)
    assert Capacities(tuple(values)).smallest(length) == next((value for value in values if value >= length), None)


@pytest.mark.parametrize("values", [(), (255,), (0,), (-256,), (512, 256), (256, 256)])
def test_capacities_are_ascending_positive_multiples_of_256(values):
    with pytest.raises(ConfigError, match="fixed_sequence_capacities"):
        Capacities(values)


@pytest.mark.parametrize(("lengths", "count"), [([], 1), ([0], 1), ([5], 0)])
def test_nothing_to_propose_for_is_an_error(lengths, count):
    with pytest.raises(ConfigError, match="required is at least one of each"):
        propose(lengths, count)


def test_a_document_longer_than_every_capacity_is_rejected_with_its_length(tmp_path):
    folder = published(tmp_path, clean_record("a", tokens=300), clean_record("b"))
    (found,) = oversized(read_index(folder).rows, Capacities((256,)))
    assert (found.code, found.sample_id) == (Code.CAPACITY_EXCEEDED, "a")
    assert found.message() == (
        "bucket=32x32-5f/data_00000000.parquet (a): joint sequence of 330 rows; required: at most 256, the largest "
        "capacity. Add the capacity 512, or leave the row out of the dataset; it is never cropped."
    )
    with pytest.raises(ConfigError, match="required are 330 rows for the longest document"):
        measured([330], Capacities((256,)))


def test_the_plan_report_says_what_an_epoch_will_be(tmp_path):
    records = [
        clean_record("a"),
        clean_record("b"),
        clean_record("c"),
        clean_record("l", LONG),
        clean_record("w", WIDE, tokens=400),
    ]
    index = read_index(published(tmp_path, *records))
    report = plan_report(index, world_sizes=(2, 8), sp_size=2)
    assert {bucket.name: bucket.repeats for bucket in report.buckets} == {
        "bucket=32x32-22f": {2: 0, 8: 3},
        "bucket=32x32-5f": {2: 0, 8: 1},
        "bucket=64x32-5f": {2: 0, 8: 3},
    }
    assert report.steps == {2: 5, 8: 3}
    assert report.joint_lengths == {"min": 41, "p50": 41, "p90": 432, "max": 432}
    assert report.capacities.capacities == (256, 512)
    assert report.capacities.waste_rows == 3 * (256 - 41) + (256 - 104) + (512 - 432)
    text = "\n".join(report.lines())
    assert "bucket=32x32-22f" in text
    assert "capacities [256, 512] take [4, 1] documents" in text
    assert report.to_dict()["rows"] == 5
    given_ones = plan_report(index, capacities=Capacities((512,)))
    assert given_ones.capacities.documents == (5,)
