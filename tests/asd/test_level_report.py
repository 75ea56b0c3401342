"""Recordings whose level is out of the ordinary, each with the limit it passed."""

import math

import pytest

from muvap_assets.asd.level_report import unusual_levels
from muvap_assets.asd.levels import LoudnessTarget
from muvap_assets.asd.loudness import LoudnessStats


def recording(name, dbfs, clipped=0, samples=100_000):
    rms = 0.0 if dbfs is None else 10 ** (dbfs / 20)
    return LoudnessStats(
        recording_id=name,
        audio_path=f"{name}.wav",
        sha256=name,
        duration_sec=samples / 16_000,
        rate_hz=16_000,
        channels=1,
        samples_16k=samples,
        mean=0.0,
        rms=rms,
        peak=min(1.0, rms * 3),
        dbfs=None if dbfs is None else 20 * math.log10(rms),
        clipped_samples=clipped,
        silent=dbfs is None,
    )


@pytest.mark.parametrize(
    ("dbfs", "clipped", "kinds"),
    [
        (-25.0, 0, []),
        (-44.9, 0, []),
        (-45.1, 0, ["quiet"]),
        (-9.1, 0, []),
        (-8.9, 0, ["loud"]),
        (-20.0, 100, []),
        (-20.0, 101, ["clipped"]),
        (-5.0, 5_000, ["loud", "clipped"]),
        (None, 0, ["silent"]),
    ],
)
def test_a_recording_is_told_once_for_each_limit_it_passes(dbfs, clipped, kinds):
    assert [each.kind for each in unusual_levels([recording("a", dbfs, clipped)])] == kinds


def test_what_was_found_and_the_limit_are_given_in_words_and_units():
    quiet, loud, clipped = unusual_levels([recording("a", -50.0), recording("b", -3.0, 2_500)])
    assert (quiet.audio_path, quiet.found) == ("a.wav", "-50.0 dBFS")
    assert quiet.limit == "-45 dBFS: 20 dB of gain, the most, bring it to -25"
    assert (loud.recording_id, loud.found, loud.limit) == ("b", "-3.0 dBFS", "-9 dBFS")
    assert (clipped.found, clipped.limit) == ("2500 samples, 2.50%, beyond full scale", "0.1% of the samples")


def test_what_is_quiet_depends_on_the_level_a_loader_wants():
    target = LoudnessTarget(rms_dbfs=-20, max_gain_db=6)
    assert [each.kind for each in unusual_levels([recording("a", -27.0)], target)] == ["quiet"]
    assert unusual_levels([recording("a", -25.9)], target) == []
