"""Speaker turns, and labels at frame centres against a definition that loops over every frame."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muvap_assets.asd.corpora.rttm import Turn, labels_at_centres, read_rttm
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code

TURN = "SPEAKER {name} 1 {start} {duration} <NA> <NA> {speaker} <NA> <NA>\n"


def write(path, *lines):
    path.write_text("".join(lines))
    return read_rttm(path)


def test_turns_are_kept_exactly_by_recording_and_speaker(tmp_path):
    rttm = write(
        tmp_path / "a.rttm",
        ";; comment\n",
        TURN.format(name="00001", start="0.1", duration="2.35", speaker="0"),
        "SPKR-INFO 00001 1 <NA> <NA> <NA> unknown 0 <NA> <NA>\n",
        "\n",
        TURN.format(name="00001", start="3", duration="0", speaker="1"),
        "SPEAKER 00002 1 12.5 1 <NA> <NA> spk\r\n",
    )
    assert not rttm.findings
    assert rttm.turns == {
        "00001": {"0": (Turn(Fraction(1, 10), Fraction(49, 20)),), "1": (Turn(Fraction(3), Fraction(3)),)},
        "00002": {"spk": (Turn(Fraction(25, 2), Fraction(27, 2)),)},
    }


@pytest.mark.parametrize(
    "line",
    [
        TURN.format(name="00001", start="-1", duration="1", speaker="0"),
        TURN.format(name="00001", start="1", duration="-1", speaker="0"),
        TURN.format(name="00001", start="nan", duration="1", speaker="0"),
        TURN.format(name="00001", start="1", duration="1e400", speaker="0"),
        "SPEAKER 00001 1 0 1 <NA>\n",
    ],
)
def test_a_turn_that_cannot_be_read_is_named_with_its_line_and_its_recording(tmp_path, line):
    good = TURN.format(name="00002", start="1", duration="1", speaker="0")
    rttm = write(tmp_path / "a.rttm", good, line)
    (finding,) = rttm.findings
    assert (finding.code, finding.row, finding.sample_id) == (Code.RTTM_INVALID, 2, "00001")
    assert rttm.broken == {"00001"}
    assert set(rttm.turns) == {"00002"}


def test_a_turn_of_no_recording_keeps_the_whole_file_out(tmp_path):
    rttm = write(tmp_path / "a.rttm", TURN.format(name="1", start="1", duration="1", speaker="0"), "SPEAKER\n")
    assert [(v.code, v.row, v.sample_id) for v in rttm.findings] == [(Code.RTTM_INVALID, None, None)]


def test_a_missing_file_and_one_without_turns_are_the_same_finding(tmp_path):
    for rttm in (read_rttm(tmp_path / "none.rttm"), write(tmp_path / "empty.rttm", ";; nothing\n")):
        assert [finding.code for finding in rttm.findings] == [Code.RTTM_MISSING]
        assert not rttm.turns


@given(
    fps=st.sampled_from(["24", "25", "29.97", "30000/1001", "30", "60"]),
    first=st.integers(0, 5000),
    count=st.integers(1, 80),
    turns=st.lists(st.tuples(st.integers(0, 300_000), st.integers(0, 5000)), max_size=4),
)
def test_a_label_is_1_where_a_turn_holds_the_centre_of_the_frame(fps, first, count, turns):
    rate = FrameRate.parse(fps)
    spans = [Turn(Fraction(start, 1000), Fraction(start + length, 1000)) for start, length in turns]
    centres = [(j + Fraction(1, 2)) / rate.value for j in range(first, first + count)]
    expected = [int(any(span.start_sec <= t < span.stop_sec for span in spans)) for t in centres]
    labels = labels_at_centres(spans, first, count, rate)
    assert labels.dtype == np.uint8
    assert labels.tolist() == expected


def test_a_turn_from_centre_to_centre_holds_its_first_frame_and_not_its_last():
    centre = [(j + Fraction(1, 2)) / 25 for j in range(4)]
    labels = labels_at_centres([Turn(centre[1], centre[3])], 0, 4, FrameRate.parse("25"))
    assert labels.tolist() == [0, 1, 1, 0]
