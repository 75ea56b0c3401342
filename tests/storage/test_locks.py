"""Locks count only while their path names them, and die with their process."""

import subprocess
import sys
from contextlib import ExitStack
from threading import Event, Thread

import pytest

from muvap_assets.storage.locks import exclusive, private_place, private_places, remove_abandoned, shared, tried

OWNER = """
import sys
from pathlib import Path
from muvap_assets.storage.locks import private_place
with private_place(Path(sys.argv[1]), "run") as place:
    if sys.argv[2] == "folder":
        place.mkdir()
        (place / "half").write_text("half")
    elif sys.argv[2] == "file":
        place.write_text("half")
    print(place.name, flush=True)
    sys.stdin.read()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_one_holds_it_alone_and_several_share_it(tmp_path):
    lock = tmp_path / "deep" / "lock"
    with shared(lock), shared(lock), tried(lock) as alone:
        assert not alone
    with tried(lock) as alone, tried(lock) as again:
        assert (alone, again) == (True, False)
    with exclusive(lock), tried(lock) as alone:
        assert not alone
    with tried(lock) as alone:
        assert alone


def test_a_lock_that_is_not_there_is_not_made_where_it_is_only_looked_at(tmp_path):
    with pytest.raises(FileNotFoundError), tried(tmp_path / "lock", create=False):
        pass
    assert names(tmp_path) == []


def test_who_waited_for_a_file_that_was_removed_meanwhile_does_not_hold_the_lock_beside_another(tmp_path):
    lock = tmp_path / "lock"
    waiting, held, done = Event(), Event(), Event()

    def wait():
        waiting.set()
        with exclusive(lock):
            held.set()
            done.wait(60)

    waiter, other = Thread(target=wait), tmp_path / "other"
    with exclusive(other):
        with exclusive(lock):
            waiter.start()
            waiting.wait(60)
            held.wait(0.2)  # gives it time to wait for the first file
            other.replace(lock)  # in one step: there is no moment without a locked file of the name
        assert not held.wait(0.2)
    assert held.wait(60)
    with tried(lock) as alone:
        assert not alone
    done.set()
    waiter.join()


@pytest.mark.parametrize("kind", ["folder", "file", "nothing"])
def test_the_private_place_of_a_living_process_stays_and_that_of_a_killed_one_is_removed(tmp_path, kind):
    command = [sys.executable, "-c", OWNER, str(tmp_path), kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        name = child.stdout.readline().strip()
        before = names(tmp_path)
        assert [(place.path.name, place.in_use) for place in private_places(tmp_path)] == [(name, True)]
        assert remove_abandoned(tmp_path) == []
        assert names(tmp_path) == before
        child.kill()
    assert remove_abandoned(tmp_path, "other") == []
    assert remove_abandoned(tmp_path, "run") == [name]
    assert names(tmp_path) == []


def test_private_places_are_many_at_once_and_leave_nothing(tmp_path):
    with ExitStack() as stack:
        places = [stack.enter_context(private_place(tmp_path / "deep", "run")) for _ in range(3)]
        for place in places:
            place.mkdir()
        assert len(set(places)) == 3
    assert names(tmp_path / "deep") == []


def test_what_another_program_locks_beside_is_not_taken_for_a_private_place(tmp_path):
    (tmp_path / ".out-cache").mkdir()
    (tmp_path / ".out-cache.lock").touch()
    assert remove_abandoned(tmp_path, ".out-") == []
    assert names(tmp_path) == [".out-cache", ".out-cache.lock"]
