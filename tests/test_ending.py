"""The first signal ends a verb, also where a thread of it is stuck in native code that no signal reaches."""

import os
import signal
import subprocess
import sys
import time

import pytest

from muvap_assets.demo.ref2va import write_demo_datasets

# Gets stuck where the file named first is opened, once there is what is named second: a mutex that its thread holds already is
# never got, by no signal either.
STUCK = """
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets what it starts in the background ignore it
place, there, *sys.argv[1:] = sys.argv[1:]
system, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(128)
def tell():
    while ctypes.c_int.from_buffer(mutex).value != 2:  # somebody waits for it
        time.sleep(0.01)
    print("stuck", flush=True)
def hook(event, arguments):
    is_path = event == "open" and isinstance(arguments[0], (str, bytes, os.PathLike))
    if is_path and os.fsdecode(arguments[0]).endswith(place) and os.path.lexists(there):
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
    said = ended(code, number, place, "/", "pack", manifest, "-o", tmp_path / "root")
    assert said.splitlines()[-1].startswith(last)
    assert not list((tmp_path / "root").glob("asd/*/*/current"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "place", "made"),
    [("validate", "a.wav", ""), ("pack", "a.wav", "manifest"), ("pack", "a.npy", "loudness_index")],
)
def test_one_sigterm_ends_each_stage_of_asd_whose_decoder_is_stuck(corpus, tmp_path, verb, place, made):
    corpus.row("a")
    corpus.row("b")
    root = tmp_path / "root"
    there = root / "asd" / made / "train" / "current" if made else "/"
    ended(143, signal.SIGTERM, place, there, verb, corpus.write(), *(["-o", root] if verb == "pack" else []))
    assert {path.parts[-3] for path in root.glob("asd/*/*/current")} == ({made, "manifest"} if made else set())
    assert not list((root / ".staging").glob("asd-*"))


@pytest.mark.slow
def test_one_sigterm_ends_an_encode_whose_decoder_is_stuck(tmp_path, tiny_checkpoint):
    write_demo_datasets(tmp_path)
    work = tmp_path / "work"
    places = ["--manifest", tmp_path / "clips.jsonl", "--output-dir", tmp_path / "out", "--work-dir", work]
    options = ["--checkpoint", tiny_checkpoint, "--width", 128, "--height", 64, "--num-frames", 22, "--device", "cpu"]
    ended(143, signal.SIGTERM, "person.png", work / "ref2va/manifest/clips/current", "encode", *places, *options)
    assert not (tmp_path / "out").exists()
    assert not list(work.glob("ref2va/encoded_latents/*/current"))


def ended(code, number, *command):
    """What a verb wrote to standard error that was sent a signal once it was stuck, and ended with ``code``."""
    command = [sys.executable, "-c", STUCK, *map(str, command)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        try:
            assert "stuck\n" in run.stdout
            begun = time.monotonic()
            os.kill(run.pid, number)
            _, said = run.communicate(timeout=60)
        finally:
            run.kill()
    sys.stdout.write(f"ended in {time.monotonic() - begun:.1f} s; 5 are allowed on a machine that is free\n")
    assert run.returncode == code, said
    return said
