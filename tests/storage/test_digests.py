"""Digests are read once, remembered by what only a write changes, and shared by runs that overlap."""

import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from muvap_assets.storage import digests as module
from muvap_assets.storage.digests import KEPT_DAYS, Digests, state_of

RUN = """
import sys
from pathlib import Path
from muvap_assets.storage.digests import Digests
digests = Digests(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.readline()
for path in sys.argv[2:]:
    digests.of(Path(path))
print("read", flush=True)
sys.stdin.readline()
digests.save()
"""
HOSTILE = [
    "",
    "{",
    "[" * 100_000,
    "[]",
    "7",
    "null",
    '{"files": 5}',
    '{"files": ["x"]}',
    '{"files": {"KEY": 5}}',
    '{"files": {"KEY": ["STATE", 5, 20000]}}',
    '{"files": {"KEY": ["STATE", "zz", 20000]}}',
    '{"files": {"KEY": ["STATE", "../../etc", 20000]}}',
    '{"files": {"KEY": ["STATE", null, 1e999]}}',
    '{"files": {"KEY": [{}, [], "day"]}}',
    '{"files": {"KEY": ["STATE", "DIGEST", Infinity]}}',
    '{"KEY|5|STATE": 5, "x": "y"}',
    '{"KEY|5|STATE": ["DIGEST"]}',
]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(autouse=True)
def later(monkeypatch):
    """Set the clock to so many seconds after the test began, where it stands: change times cannot be set back."""
    began = time.time()

    def set_clock(seconds):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: began + seconds))

    set_clock(0)
    return set_clock


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a|b.bin"
    path.write_bytes(b"one")
    return path


def remembered(cache, *paths, folders=False):
    """What a run of its own reads, and what it recognizes."""
    digests = Digests(cache)
    found = [digests.of(path, folders=folders) for path in paths]
    digests.save()
    return found, digests.hashed, digests.trusted


def stored(cache):
    return {path: digest for path, (_, digest, _) in json.loads(cache.read_text())["files"].items()}


def test_a_settled_file_is_read_by_the_first_run_alone(tmp_path, file, later):
    later(600)
    cache = tmp_path / "deep" / "digests.json"
    assert remembered(cache, file) == ([sha256(b"one")], 1, 0)
    written = cache.read_bytes()
    assert remembered(cache, file) == ([sha256(b"one")], 0, 1)
    assert cache.read_bytes() == written


def test_a_file_written_a_moment_ago_is_read_once_by_each_run(tmp_path, file):
    cache = tmp_path / "digests.json"
    for _ in range(2):
        assert remembered(cache, file, file) == ([sha256(b"one")] * 2, 1, 0)
    assert stored(cache) == {str(file): sha256(b"one")}


def test_a_file_that_was_unsettled_when_it_was_read_is_not_settled_by_a_long_run(tmp_path, file, later):
    cache = tmp_path / "digests.json"
    digests = Digests(cache)
    digests.of(file)
    later(3600)
    digests.of(file)
    digests.save()
    assert remembered(cache, file)[1:] == (1, 0)


def test_a_modification_time_in_the_future_does_not_matter_and_a_change_time_there_does(tmp_path, file, later):
    os.utime(file, (4_000_000_000, 4_000_000_000))
    later(600)
    assert state_of(file).is_settled
    later(-3600)  # a clock that was set back
    assert not state_of(file).is_settled


@pytest.mark.parametrize("same_inode", [True, False])
def test_another_content_of_the_same_size_and_modification_time_is_read(tmp_path, file, later, same_inode):
    later(600)
    cache, status = tmp_path / "digests.json", file.stat()
    remembered(cache, file)
    if same_inode:
        file.write_bytes(b"two")
    else:
        other = tmp_path / "other"
        other.write_bytes(b"two")
        other.replace(file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert remembered(cache, file) == ([sha256(b"two")], 1, 0)
    assert stored(cache) == {str(file): sha256(b"two")}


def test_a_folder_counts_with_the_names_and_bytes_of_its_files_where_it_is_asked_for(tmp_path, later):
    folder = tmp_path / "frames"
    (folder / "deeper").mkdir(parents=True)
    (folder / "b.jpg").write_bytes(b"b")
    (folder / "a.jpg").write_bytes(b"a")
    later(600)
    cache = tmp_path / "digests.json"
    expected = sha256(b"".join(f"{name}.jpg\0{sha256(name.encode())}\n".encode() for name in "ab"))
    assert remembered(cache, folder, folders=True) == ([expected], 1, 0)
    assert remembered(cache, folder, folders=True) == ([expected], 0, 1)
    (folder / "b.jpg").rename(folder / "c.jpg")
    assert remembered(cache, folder, folders=True)[1] == 1
    with pytest.raises(IsADirectoryError):
        Digests().of(folder)


def test_what_is_missing_or_no_file_is_an_error_and_is_not_remembered(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    digests = Digests(tmp_path / "digests.json")
    for name in ("gone", "pipe"):
        with pytest.raises(OSError, match=name):
            digests.of(tmp_path / name, folders=True)
    digests.save()
    assert (digests.hashed, digests.trusted) == (0, 0)


def test_runs_that_overlap_keep_the_entries_of_each_other(tmp_path, file):
    """Both load an empty cache, both read, and both save: neither knew of the other."""
    cache, shared = tmp_path / "digests.json", tmp_path / "shared"
    shared.write_bytes(b"shared")
    files = [tmp_path / f"{number}" for number in range(6)]
    for number, path in enumerate(files):
        path.write_bytes(str(number).encode())
    runs = []
    for mine in (files[:3], files[3:]):
        command = [sys.executable, "-c", RUN, str(cache), str(shared), *map(str, mine)]
        runs.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    try:
        assert [run.stdout.readline() for run in runs] == ["ready\n"] * 2
        for answer in ("read\n", ""):
            for run in runs:
                run.stdin.write("\n")
                run.stdin.flush()
            assert [run.stdout.readline() for run in runs] == [answer] * 2
    finally:
        for run in runs:
            run.communicate()
    expected = {str(path): sha256(str(number).encode()) for number, path in enumerate(files)}
    assert stored(cache) == {**expected, str(shared): sha256(b"shared")}


def test_threads_read_a_file_once(file, monkeypatch):
    read, real = [], module.file_sha256
    monkeypatch.setattr(module, "file_sha256", lambda path: (read.append(path), time.sleep(0.05), real(path))[2])
    digests = Digests()
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(digests.of, [file] * 8)) == {sha256(b"one")}
    assert read == [file]


def test_what_nobody_asked_for_in_a_year_is_dropped_and_what_is_in_use_stays(tmp_path, later):
    cache, kept, vanished = tmp_path / "digests.json", tmp_path / "kept", tmp_path / "vanished"
    kept.write_bytes(b"kept")
    vanished.write_bytes(b"vanished")
    remembered(cache, kept, vanished)
    vanished.unlink()
    later(KEPT_DAYS * 86_400)
    assert remembered(cache, kept)[2] == 0  # it was read before it was settled
    assert stored(cache).keys() == {str(kept), str(vanished)}
    later((KEPT_DAYS + 1) * 86_400)
    assert remembered(cache, kept)[2] == 1
    assert stored(cache).keys() == {str(kept)}


@pytest.mark.parametrize("content", HOSTILE)
def test_a_cache_of_any_content_only_costs_the_reading(tmp_path, file, later, content):
    later(600)
    cache = tmp_path / "digests.json"
    for name, value in (("KEY", str(file)), ("STATE", state_of(file).text), ("DIGEST", "0" * 64)):
        content = content.replace(name, value)
    cache.write_text(content)
    assert remembered(cache, file) == ([sha256(b"one")], 1, 0)
    assert remembered(cache, file) == ([sha256(b"one")], 0, 1)


def test_caches_of_earlier_versions_are_read(tmp_path, file, later):
    later(600)
    state, digest, former = state_of(file).text, "1" * 64, "2" * 64
    media = {f"{file}|3|{state}": digest, f"{file}|3|1234": former, f"{file}|unsettled|{former}": former}
    sources = {"schema": 1, "files": {str(file): [state, digest]}, "names": {}}
    with_former = {"files": {str(file): [state, digest, 20_000, former]}}
    for number, earlier in enumerate((media, sources, with_former)):
        cache = tmp_path / f"{number}.json"
        cache.write_text(json.dumps(earlier))
        assert remembered(cache, file) == ([digest], 0, 1)
