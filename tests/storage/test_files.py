"""A file is replaced whole or not at all, by one process at a time; a killed one leaves nothing that stays."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from muvap_assets.layout import Layout
from muvap_assets.retention import RemovalKind, Retention, maintain
from muvap_assets.storage.files import abandoned_partials, read_lossy_json, replacing, write_lossy_json

WRITER = """
import sys
from pathlib import Path
from muvap_assets.storage.files import replacing
with replacing(Path(sys.argv[1])) as partial:
    partial.write_text("half")
    print("ready", flush=True)
    sys.stdin.read()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def killed_while_writing(path, meanwhile=lambda: None):
    """Start a process that writes ``path``, and end it with SIGKILL in the middle."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        meanwhile()
        child.kill()


def test_a_file_is_there_whole_or_as_it_was(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with replacing(path) as partial:
        partial.write_text("one")
        assert not path.exists()
    assert path.read_text() == "one"
    with pytest.raises(RuntimeError), replacing(path) as partial:
        partial.write_text("two")
        raise RuntimeError
    assert path.read_text() == "one"
    assert names(path.parent) == ["file.txt"]


def test_a_file_has_the_mode_of_any_other_file_of_the_user(tmp_path):
    before = os.umask(0o027)
    try:
        write_lossy_json(tmp_path / "file.json", 1)
        (tmp_path / "other").touch()
    finally:
        os.umask(before)
    assert (tmp_path / "file.json").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_bytes_and_name_are_synced_the_name_after_the_bytes(tmp_path, monkeypatch):
    events, fsync, replace = [], os.fsync, Path.replace
    monkeypatch.setattr(
        os, "fsync", lambda fd: (events.append(str(Path(f"/proc/self/fd/{fd}").readlink())), fsync(fd))[1]
    )
    monkeypatch.setattr(Path, "replace", lambda self, to: (events.append("replace"), replace(self, to))[1])
    write_lossy_json(tmp_path / "file.json", 1)
    assert events == [str(tmp_path / ".file.json.partial"), "replace", str(tmp_path)]


def test_the_next_writer_of_the_file_takes_over_what_a_killed_one_left(tmp_path):
    path = tmp_path / "file.txt"
    killed_while_writing(path)
    assert names(tmp_path) == [".file.txt.partial"]
    with replacing(path) as partial:
        assert partial.read_bytes() == b""
        partial.write_text("x")
    assert (names(tmp_path), path.read_text()) == (["file.txt"], "x")


@pytest.mark.parametrize(
    "place", ["cache/media/digests.json", "row_store/parts/text/ab/abcd.part", "reports/a/b/v.jsonl"]
)
def test_maintenance_removes_what_a_killed_writer_left_and_nothing_of_a_living_one(tmp_path, place):
    def clean():
        return maintain(Layout(tmp_path), Retention()).removed

    living = []
    killed_while_writing(tmp_path / place, lambda: living.extend(clean()))
    assert living == []
    (removal,) = clean()
    assert (removal.kind, removal.freed_bytes) == (RemovalKind.STAGING, 4)
    assert removal.name == f"{place.rpartition('/')[0]}/.{place.rpartition('/')[2]}.partial"
    assert clean() == []


def test_a_partial_file_is_found_and_left_to_whoever_asks(tmp_path):
    killed_while_writing(tmp_path / "file.txt")
    assert list(abandoned_partials(tmp_path)) == [tmp_path / ".file.txt.partial"]
    assert names(tmp_path) == [".file.txt.partial"]


def test_writers_of_one_file_come_one_after_the_other_and_see_what_the_one_before_wrote(tmp_path):
    path = tmp_path / "count.json"

    def add(number):
        with replacing(path) as partial:
            partial.write_text(json.dumps([*(read_lossy_json(path) or []), number]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    assert sorted(json.loads(path.read_text())) == list(range(40))
    assert names(tmp_path) == ["count.json"]


def test_a_planted_link_is_not_written_through(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / ".file.txt.partial").symlink_to(mine)
    with pytest.raises(OSError, match="symbolic"), replacing(tmp_path / "file.txt"):
        pass
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"9" * 5_000, b'"' + b"\xed\xa0\x80"])
def test_a_json_file_that_is_torn_or_hostile_is_as_good_as_none(tmp_path, content):
    path = tmp_path / "file.json"
    assert read_lossy_json(path) is None
    path.write_bytes(content)
    assert read_lossy_json(path) is None
