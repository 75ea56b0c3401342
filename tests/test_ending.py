"""The first signal ends a verb, also where a thread of it is stuck in native code that no signal reaches."""

import os
import signal
import subprocess
import sys
import time

import pytest

# Gets stuck where the file named first is opened: a mutex that its thread holds already is never got, by no signal either.
STUCK = """
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
place, *sys.argv[1:] = sys.argv[1:]
system, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
def tell():
    while ctypes.c_int.from_buffer(mutex).value != 2:  # somebody waits for it
        time.sleep(0.01)
    print("stuck", flush=True)
def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike)) and os.fsdecode(arguments[0]).endswith(place):
        threading.Thread(target=tell, daemon=True).start()
        system.pthread_mutex_lock(mutex)
        system.pthread_mutex_lock(mutex)
sys.addaudithook(hook)
from muvap_assets.cli.main import run
run()
"""


@pytest.mark.parametrize(
    ("place", "number", "code", "last"),
    [  # in the main thread, which nothing but the end of the process ends, and in one that decodes, which is left behind
        ("train.tsv", signal.SIGTERM, 143, "ended by SIGTERM while a thread was busy"),
        ("a.wav", signal.SIGINT, 130, "interrupted: what was published stands as it was"),
    ],
)
def test_the_first_signal_ends_a_verb_that_is_stuck(corpus, tmp_path, place, number, code, last):
    corpus.row("a")
    corpus.row("b")
    manifest = corpus.write()
    command = [sys.executable, "-c", STUCK, place, "pack", str(manifest), "-o", str(tmp_path / "root")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert run.stdout.readline() == "stuck\n"
            begun = time.monotonic()
            os.kill(run.pid, number)
            _, said = run.communicate(timeout=60)
        finally:
            run.kill()
    sys.stdout.write(f"ended in {time.monotonic() - begun:.1f} s; 5 are allowed on a machine that is free\n")
    assert run.returncode == code, said
    assert said.splitlines()[-1].startswith(last)
    assert not list((tmp_path / "root").glob("asd/*/*/current"))
