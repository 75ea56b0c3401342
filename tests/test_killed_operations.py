"""Whatever changes a data root may be killed at any step: done again it gives the same, and maintenance leaves nothing of it.

``killed_operations.py`` kills, and says what was wrong. It stops each process before it kills it, so that every kill lands.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("killed_operations.py")
STAGES = {
    "asd": ["manifest", "loudness_index", "packed_shards"],
    "ref2va": ["manifest", "encoded_latents", "parquet_cache_index"],
}
UPKEEP = {"asd": ["rollback", "purge", "maintenance"], "ref2va": ["index rebuild", "rollback", "purge", "maintenance"]}
PUBLISHING = {
    "first file in staging",
    "before the version",
    "before the link",
    "before current moves",
    "before the journal's line",
    "after the journal's line",
}


def killed(line, folder, count, *operations, checkpoint=""):
    """What the driver tells of each operation, once nothing is wrong."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", DRIVER, line, folder, checkpoint, str(count), *operations],
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    told = {each["operation"]: each for each in map(json.loads, done.stdout.splitlines())}
    wrong = [
        (name, kill["where"], kill["landed"], *kill["wrong"])
        for name, each in told.items()
        for kill in each["kills"]
        if not kill["landed"] or kill["wrong"]
    ]
    assert wrong == []
    return told


def test_killed_where_a_version_becomes_current_the_same_call_ends_what_was_begun(tmp_path):
    told = killed("asd", tmp_path, 3, "manifest", "loudness_index")
    assert [len(each["kills"]) for each in told.values()] == [4, 4]


@pytest.mark.slow
@pytest.mark.parametrize("line", ["asd", "ref2va"])
def test_fifteen_kills_of_each_stage_and_of_what_removes_change_nothing_and_leave_nothing(line, tmp_path, request):
    checkpoint = request.getfixturevalue("tiny_checkpoint") if line == "ref2va" else ""
    told = killed(line, tmp_path, 15, checkpoint=checkpoint)
    assert list(told) == STAGES[line] + UPKEEP[line]
    for name in UPKEEP[line]:
        assert len(told[name]["kills"]) == 5
    for name in STAGES[line]:
        *stopped, last = [kill["where"].partition(":")[0] for kill in told[name]["kills"]]
        assert len(stopped) == 15
        assert set(stopped) > PUBLISHING
        assert "bytes of a file" in last
