"""What a fuzz target is, and how cases of it are run: in order, by number, each held to its time, memory and error tree.

A target takes bytes that were made hostile and puts them before a real entry point. It may accept them or refuse them, by
an error of the package's own tree or a list of findings. Anything else is a failure: another exception, a hang, memory
without bound, a published version that changed, or a finding that cannot be written down.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from muvap_assets.errors import MuvapError
from muvap_assets.findings import Finding

SEED = 20_261_130
NAMES = (
    *(
        "corpus",
        "datasets_yaml",
        "digest_cache",
        "face_boxes",
        "file_info",
        "flac",
        "frame_rate",
        "index_arrow",
        "journal",
    ),
    *("jpeg", "loader_csv", "mp4", "msdwild", "npy_faces", "npy_sound", "original_csv", "pack", "png", "predictions"),
    *("raw_manifest", "rttm", "shard", "dataset", "tsv", "versions", "wav"),
)
"""Every target; named here so that collecting the tests loads no decoder."""

CPU_SEC, WALL_SEC = 10.0, 60.0
GROWTH_BYTES = 1 << 30
"""How much a case may add to what the process holds: a picture of 89 megapixels is decoded, turned and made opaque."""

ADDRESS_SPACE_BYTES = 4 << 30
"""Beyond what is mapped at the start: a claim of more is an error of allocation at once, and never touches the machine."""

MESSAGE_CHARACTERS = 20_000
KEPT = 12


class Hung(BaseException):
    """A case took too long; no ``except Exception`` on the way may swallow it."""


class Unwritable(AssertionError):
    """A finding that cannot be written to a report, or that is longer than anybody reads."""


@dataclass(frozen=True)
class Target:
    """``prepare(folder)`` writes valid files and returns ``case``: called with a random source, it makes hostile bytes.

    ``case(rng)`` returns the bytes and where to put them; ``run()`` puts the file before the entry point and says whether
    it was accepted.
    """

    name: str
    prepare: Callable[[Path], Prepared]


@dataclass
class Prepared:
    """One target ready to run."""

    make: Callable[[random.Random], Iterable[tuple[Path, bytes]]]
    run: Callable[[], bool]
    restore: Callable[[], None] = lambda: None
    intact: Callable[[], str | None] = lambda: None


@dataclass
class Report:
    """How a target did. ``failures`` are distinct ones, each with the first case that showed it."""

    target: str
    seed: int
    cases: int = 0
    accepted: int = 0
    refused: int = 0
    slowest_ms: float = 0.0
    slowest_case: int = 0
    seconds: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def line(self) -> str:
        """The target's result in one line."""
        return (
            f"{self.target}: {self.cases} cases, seed {self.seed}, {self.accepted} accepted, {self.refused} refused, "
            f"slowest {self.slowest_ms:.0f} ms, {self.cases / max(self.seconds, 1e-9):.0f} cases/s"
        )


def case_random(target: str, seed: int, case: int) -> random.Random:
    """The random source of one case, the same on every machine."""
    return random.Random(f"{target}/{seed}/{case}")


def check_findings(findings: Iterable[Finding]) -> bool:
    """Whether nothing keeps the input out; each finding is written as reports and the terminal do."""
    accepted = True
    for finding in findings:
        accepted = accepted and finding.severity != "error"
        text = json.dumps(finding.to_dict(), ensure_ascii=False)
        if len(text) > MESSAGE_CHARACTERS:
            raise Unwritable(f"a finding of {len(text)} characters ({finding.code})")
        try:
            (text + finding.message()).encode("utf-8")
        except UnicodeEncodeError as error:
            raise Unwritable(f"a finding that is no text ({finding.code}: {error})") from error
    return accepted


def run_target(target: Target, folder: Path, *, seed: int, first: int, count: int, progress: Progress) -> Report:
    """Run cases ``first`` to ``first + count`` and report."""
    folder.mkdir(parents=True, exist_ok=True)
    prepared = target.prepare(folder)
    report = Report(target.name, seed)
    progress.at(target.name, -1)
    if not prepared.run():
        raise AssertionError(f"{target.name}: the valid files are not accepted")
    base = _held_bytes()
    started = time.monotonic()
    for case in range(first, first + count):
        progress.at(target.name, case)
        begin = time.process_time()
        files = list(prepared.make(case_random(target.name, seed, case)))
        for path, content in files:
            path.write_bytes(content)
        failure = _guarded(prepared, report)
        taken = (time.process_time() - begin) * 1000
        report.cases += 1
        if taken > report.slowest_ms:
            report.slowest_ms, report.slowest_case = taken, case
        held = _held_bytes()
        if failure is None and held - base > GROWTH_BYTES:
            failure = "memory", f"{(held - base) >> 20} MiB more than the valid files take", ""
            base = held
        failure = failure or _unchanged(prepared)
        if failure is not None:
            _keep(report, failure, case, files)
        prepared.restore()
    report.seconds = time.monotonic() - started
    return report


def _guarded(prepared: Prepared, report: Report) -> tuple[str, str, str] | None:
    unraisable: list[Any] = []
    sys.unraisablehook = unraisable.append
    signal.setitimer(signal.ITIMER_PROF, CPU_SEC)
    signal.setitimer(signal.ITIMER_REAL, WALL_SEC)
    try:
        if prepared.run():
            report.accepted += 1
        else:
            report.refused += 1
    except MuvapError as error:
        report.refused += 1
        text = str(error)
        if not text.strip() or len(text) > 20 * MESSAGE_CHARACTERS:
            return "message", f"{type(error).__name__} of {len(text)} characters", traceback.format_exc(limit=-6)
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as fault:
            return "message", f"an error that is no text ({fault})", traceback.format_exc(limit=-6)
    except Hung as error:
        return "hang", str(error), traceback.format_exc(limit=-12)
    except BaseException as error:
        return type(error).__name__, str(error)[:300], traceback.format_exc(limit=-8)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = sys.__unraisablehook__
    if unraisable:
        problem = unraisable[0]
        return "unraisable", f"{problem.exc_type.__name__}: {problem.exc_value}", str(problem.err_msg)
    return None


def _unchanged(prepared: Prepared) -> tuple[str, str, str] | None:
    fault = prepared.intact()
    return None if fault is None else ("changed", fault, "")


def _keep(report: Report, failure: tuple[str, str, str], case: int, files: list[tuple[Path, bytes]]) -> None:
    kind, message, trace = failure
    place = next((line.strip() for line in reversed(trace.splitlines()) if "muvap_assets" in line), "")
    for known in report.failures:
        if (known["kind"], known["place"]) == (kind, place):
            known["times"] += 1
            return
    if len(report.failures) < KEPT:
        shown = {path.name: content[:100].hex() for path, content in files}
        report.failures.append(
            {
                "case": case,
                "kind": kind,
                "message": message,
                "place": place,
                "trace": trace,
                "times": 1,
                "begins": shown,
            }
        )


def _held_bytes() -> int:
    # Not ru_maxrss, which a process inherits from the one that started it.
    told = Path("/proc/self/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0]) * 1024


class Progress:
    """Which case is running, in a file that outlives the process: a crash in native code is laid to its case."""

    RECORD = struct.Struct("<40sq")

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(self.RECORD.size))
        with path.open("r+b") as stream:
            self._map = mmap.mmap(stream.fileno(), self.RECORD.size)

    def at(self, target: str, case: int) -> None:
        """Note the case that begins."""
        self.RECORD.pack_into(self._map, 0, target.encode(), case)

    @classmethod
    def read(cls, path: Path) -> tuple[str, int]:
        """The case noted last."""
        name, case = cls.RECORD.unpack(path.read_bytes())
        return name.rstrip(b"\0").decode(), case


def hold_process(report_stream: Any) -> None:
    """Bound this process: its address space, and each case's time by the clock and by the processor."""

    def stop(number: int, frame: Any) -> None:
        what = f"{CPU_SEC:.0f} s of processor" if number == signal.SIGPROF else f"{WALL_SEC:.0f} s"
        raise Hung(f"it took more than {what}")

    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limit = mapped + ADDRESS_SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def report_json(report: Report) -> str:
    """A report as one line."""
    return json.dumps(asdict(report))
