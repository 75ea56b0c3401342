"""Runs fuzz cases in a process of its own, one JSON report a target on standard output.

A failure is replayed alone with the line it prints:

    PYTHONPATH=.:tests python tests/robustness/fuzz_worker.py tsv --seed 20261130 --first 17 --count 1 --keep /tmp/case
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

from fuzz_artifacts import ARTIFACT_TARGETS
from fuzz_engine import NAMES, SEED, Progress, Report, case_random, hold_process, report_json, run_target
from fuzz_media import MEDIA_TARGETS
from fuzz_text import TEXT_TARGETS

TARGETS = {target.name: target for target in (*TEXT_TARGETS, *MEDIA_TARGETS, *ARTIFACT_TARGETS)}


def main() -> int:
    """Run what the command line names."""
    if set(NAMES) != set(TARGETS):
        raise SystemExit(f"fuzz_engine.NAMES and the targets differ: {set(NAMES) ^ set(TARGETS)}")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="+", choices=sorted(TARGETS))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--progress", type=Path)
    parser.add_argument("--keep", type=Path, help="write the case's files here and do not run it")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="muvap-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        for name in options.targets:
            (folder / name).mkdir(parents=True, exist_ok=True)
            prepared = TARGETS[name].prepare(folder / name)
            for path, content in prepared.make(case_random(name, options.seed, options.first)):
                (options.keep / path.name).write_bytes(content)
        return 0
    warnings.simplefilter("ignore")  # as in production; what they are about is held by the tests of each module
    hold_process(sys.stdout)
    progress = Progress(options.progress or folder / "progress")
    for name in options.targets:
        report: Report = run_target(
            TARGETS[name], folder / name, seed=options.seed, first=options.first, count=options.count, progress=progress
        )
        sys.stdout.write(f"{report_json(report)}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
