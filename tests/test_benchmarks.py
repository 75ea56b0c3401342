"""How benchmark figures are judged; what they are is measured by ``make bench``, never here."""

import json
import sys

import pytest

from benchmarks import run

SLOW = {"name": "packing", "speedup": 1.5, "min_speedup": 2.3, "peak_mb": 100.0, "max_peak_mb": 150}


@pytest.fixture
def judged(tmp_path, monkeypatch, capsys):
    """The exit code and what is said on both streams when the suites measure ``SLOW`` and waivers are as given."""

    def judge(waivers, *arguments):
        (tmp_path / "waivers.json").write_text(json.dumps(waivers))
        monkeypatch.setattr(run, "WAIVERS", tmp_path / "waivers.json")
        monkeypatch.setattr(run, "SUITES", {"one": lambda scratch: iter([SLOW])})
        monkeypatch.setattr(sys, "argv", ["run", *arguments])
        with pytest.raises(SystemExit) as ended:
            run.main()
        return ended.value.code, *capsys.readouterr()

    return judge


def test_a_missed_target_fails_the_check_and_only_the_check(judged):
    code, out, err = judged([], "--check")
    assert (code, err) == (1, "MISSED packing: speedup 1.50, required is min 2.30\n")
    assert "| packing | 1.50 | min 2.30 |" in out
    assert judged([])[0] == 0


def test_a_waiver_for_that_figure_explains_it_and_one_for_another_does_not(judged):
    waiver = {"name": "packing", "figure": "speedup", "measured": 1.5, "reason": "one core", "profile": "decode 60 %"}
    assert judged([waiver], "--check")[::2] == (0, "WAIVED packing: speedup 1.50, required is min 2.30: one core\n")
    assert judged([{**waiver, "figure": "peak_mb"}], "--check")[0] == 1


@pytest.mark.parametrize("lacking", sorted(run.WAIVER_KEYS))
def test_a_waiver_without_its_reasons_is_refused(tmp_path, lacking):
    waiver = {key: "x" for key in run.WAIVER_KEYS - {lacking}}
    (tmp_path / "waivers.json").write_text(json.dumps([waiver]))
    with pytest.raises(ValueError, match="none empty"):
        run.read_waivers(tmp_path / "waivers.json")


def test_a_figure_is_the_median_of_its_runs(judged, tmp_path):
    assert run.medians([{"name": "a", "ratio": ratio} for ratio in (0.9, 0.1, 0.2)]) == {"name": "a", "ratio": 0.2}
    judged([], "--runs", "3", "--json", str(tmp_path / "figures.json"))
    (record,) = json.loads((tmp_path / "figures.json").read_text())
    assert (record["suite"], record["runs"], record["speedup"]) == ("one", 3, 1.5)
