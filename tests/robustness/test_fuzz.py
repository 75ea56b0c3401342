"""Hostile files before every entry point: refused by name or accepted, never a traceback, a hang, a crash or a lost version.

`make test` runs a few hundred cases a target. The runs marked slow take ``MUVAP_FUZZ_CASES`` a target; where it is not set 10,000,
and 2,000 of the costly ones. ``MUVAP_FUZZ_SEED`` gives another seed. A failure prints how to replay its case alone, and the case's
files lie where it says.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from fuzz_engine import NAMES, SEED, Progress, Report, case_random

HERE = Path(__file__).parent
WORKER = HERE / "fuzz_worker.py"
FAST_CASES, SLOW_CASES = (200, 20), (10_000, 2_000)
COSTLY = frozenset({"mp4", "versions", "pack", "dataset", "journal", "shard", "datasets_yaml", "raw_manifest"})
"""Cases of these take many milliseconds each: the second of the two numbers above is theirs."""

SAFE_TO_LOSE = frozenset({"digest_cache", "journal"})
"""What these hold is passed over where it is damaged, and refused never."""

SILENT_SEC = 120
"""A worker that begins no case for so long hangs in native code, where no signal handler of Python's runs."""


def _memory_folder(fallback: Path) -> Path:
    """A folder in memory where there is one: cases write thousands of small files."""
    shared = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="muvap-fuzz-", dir=shared)) if os.access(shared, os.W_OK) else fallback


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parent.parent, HERE.parent)))}


def run_targets(names: Sequence[str], seed: int, count: int, folder: Path) -> dict[str, Report]:
    """Run cases of each target in a process of its own for all; one that crashes or hangs it is reported, the rest go on."""
    reports: dict[str, Report] = {}
    while left := [name for name in names if name not in reports]:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / "work", ignore_errors=True)
        status = _run(left, seed, count, folder)
        for line in (folder / "stdout").read_text().splitlines():
            report = Report(**json.loads(line))
            reports[report.target] = report
        if status != 0:
            progress = folder / "progress"
            target, case = Progress.read(progress) if progress.exists() else (left[0], -1)
            target = target or left[0]
            told = (folder / "stderr").read_text(errors="replace")[-3000:]
            failure = {
                "case": case,
                "kind": f"exit status {status}",
                "message": "the process ended",
                "place": "",
                "trace": told,
                "times": 1,
            }
            reports[target] = Report(target, seed, failures=[failure])
    return reports


def _run(names: Sequence[str], seed: int, count: int, folder: Path) -> int:
    progress = folder / "progress"
    command = [sys.executable, str(WORKER), *names, "--seed", str(seed), "--count", str(count)]
    command += ["--folder", str(folder / "work"), "--progress", str(progress)]
    with (folder / "stderr").open("wb") as stderr, (folder / "stdout").open("wb") as stdout:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env=_environment())
        last, since = None, time.monotonic()
        while process.poll() is None:
            time.sleep(0.05)
            now = progress.read_bytes() if progress.exists() else b""
            if now != last:
                last, since = now, time.monotonic()
            elif time.monotonic() - since > SILENT_SEC:
                process.kill()
                process.wait()
    return process.returncode


def explain(report: Report, kept: Path) -> str:
    """Every failure of a target, with the case's files saved and the command that runs it alone."""
    lines = [report.line()]
    for failure in report.failures:
        options = f"{report.target} --seed {report.seed} --first {failure['case']} --count 1"
        place = kept / f"{report.target}-{failure['case']}"
        command = [
            sys.executable,
            str(WORKER),
            *options.split(),
            "--keep",
            str(place),
            "--folder",
            str(place / "valid"),
        ]
        subprocess.run(command, env=_environment(), check=False, capture_output=True)
        lines.append(
            f"case {failure['case']}: {failure['kind']} ({failure['times']} cases): {failure['message']}\n{failure['trace']}"
        )
        lines.append(f"its files: {place}\nalone: PYTHONPATH=.:tests python tests/robustness/fuzz_worker.py {options}")
    return "\n".join(lines)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = _memory_folder(tmp_path_factory.mktemp("fuzz"))
    yield place
    shutil.rmtree(place)


def _seed() -> int:
    return int(os.environ.get("MUVAP_FUZZ_SEED", SEED))


def _cases(target: str, counts: tuple[int, int]) -> int:
    return counts[target in COSTLY]


@pytest.fixture(scope="module")
def few(folder, request):
    """Reports of the selected targets over a few cases each, of all in one process: most of the time is its start."""
    selected = {item.callspec.params["target"] for item in request.session.items if item.name.startswith("test_a_few_")}
    reports = {}
    for names, count in zip((selected - COSTLY, selected & COSTLY), FAST_CASES, strict=True):
        reports |= run_targets(sorted(names), _seed(), count, folder / f"few-{count}")
    return reports


@pytest.mark.parametrize("target", sorted(NAMES))
def test_a_few_hostile_files_are_refused_by_name(few, target, tmp_path):
    report = few[target]
    sys.stdout.write(f"{report.line()}\n")
    assert not report.failures, explain(report, tmp_path)
    assert report.cases == _cases(target, FAST_CASES)


@pytest.mark.slow
@pytest.mark.parametrize("target", sorted(NAMES))
def test_thousands_of_hostile_files_are_refused_by_name(target, tmp_path, capsys):
    count, folder = int(os.environ.get("MUVAP_FUZZ_CASES", _cases(target, SLOW_CASES))), _memory_folder(tmp_path)
    report = run_targets([target], _seed(), count, folder)[target]
    shutil.rmtree(folder)
    with capsys.disabled():
        sys.stdout.write(f"\n{report.line()}\n")
    assert not report.failures, explain(report, tmp_path)
    assert report.cases == count
    assert report.refused or target in SAFE_TO_LOSE, "no case was hostile enough to be refused"


FAKES = """
import sys, time
import fuzz_engine as engine
from pathlib import Path
from fuzz_engine import Prepared, Progress, Target, Unwritable, hold_process, run_target
from muvap_assets.errors import ConfigError

engine.CPU_SEC, engine.GROWTH_BYTES = 0.3, 50 << 20
held = []

def hang():
    while True:
        pass

def grow():
    held.append(bytearray(100 << 20))
    return True

def refuse():
    raise ConfigError("x: found a; required: b. Do c.")

def fail(error):
    raise error

def of(run, intact=lambda: None):
    calls = iter([True])
    def prepare(folder):
        return Prepared(lambda rng: [], lambda: next(calls, False) or run(), intact=intact)
    return Target("fake", prepare)

hold_process(None)
folder = Path(sys.argv[1])
for run, intact in (
    (lambda: fail(TypeError("no error of ours")), lambda: None),
    (hang, lambda: None),
    (grow, lambda: None),
    (lambda: True, lambda: "version 1 changed"),
    (lambda: fail(Unwritable("no text")), lambda: None),
    (lambda: fail(ConfigError("")), lambda: None),
    (refuse, lambda: None),
):
    report = run_target(of(run, intact), folder, seed=1, first=0, count=1, progress=Progress(folder / "progress"))
    print(*([failure["kind"] for failure in report.failures] or ["fine"]), flush=True)
"""


def test_the_engine_reports_every_kind_of_failure(tmp_path):
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(HERE)!r})\n{FAKES}", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())
    kinds = ["TypeError", "hang", "memory", "changed", "Unwritable", "message", "fine"]
    assert done.stdout.split() == kinds, done.stderr


def test_a_crash_of_the_process_is_laid_to_its_case_and_the_other_targets_go_on(tmp_path, monkeypatch):
    crashing = tmp_path / "worker.py"
    crashing.write_text(
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from pathlib import Path\n"
        "from fuzz_engine import Progress, Report, report_json\n"
        "words = sys.argv[1:]\n"
        "progress = Progress(Path(words[words.index('--progress') + 1]))\n"
        "for name in words[: words.index('--seed')]:\n"
        "    progress.at(name, 17)\n"
        "    if name == 'crash':\n"
        "        os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    print(report_json(Report(name, 1, cases=5)), flush=True)\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "WORKER", crashing)
    reports = run_targets(["one", "crash", "two"], 1, 5, tmp_path / "work")
    assert {name: report.cases for name, report in reports.items()} == {"one": 5, "crash": 0, "two": 5}
    (failure,) = reports["crash"].failures
    assert (failure["case"], failure["kind"]) == (17, f"exit status {-signal.SIGSEGV}")


def test_a_case_is_the_same_every_time_and_another_for_another_number():
    first, second = (case_random("tsv", 1, number).random() for number in (0, 1))
    assert case_random("tsv", 1, 0).random() == first != second
