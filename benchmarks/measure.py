"""Run one function in a fresh process and say what it cost: wall and CPU seconds, and the peak of its resident memory."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process cost, and the value its function returned."""

    wall_sec: float
    cpu_sec: float
    peak_mb: float
    value: Any


def run_fresh(target: str, *arguments: str) -> Cost:
    """Call ``module:function`` with text arguments in a process of its own; the function returns a JSON value."""
    command = [sys.executable, "-m", "benchmarks.measure", target, *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def _peak_mb() -> float:
    """High-water mark of this process alone; ``ru_maxrss`` would begin with the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def _main(target: str, arguments: list[str]) -> None:
    module, _, name = target.partition(":")
    function: Callable[..., Any] = getattr(__import__(module, fromlist=[name]), name)
    started = time.perf_counter()
    value = function(*arguments)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cost = {
        "wall_sec": time.perf_counter() - started,
        "cpu_sec": used.ru_utime + used.ru_stime,
        "peak_mb": _peak_mb(),
        "value": value,
    }
    print(json.dumps(cost))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
