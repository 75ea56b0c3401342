"""A decoder that hangs is named while it does, given up at its limit, and what its file is for is a finding."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from dagster_processes import write_instance
from PIL import Image

from muvap_assets.asd.packs.set_aside import read_set_aside
from muvap_assets.codes import Code
from muvap_assets.demo.ref2va import packed_rows, write_demo_datasets
from muvap_assets.errors import ValidationError
from muvap_assets.threads import being_decoded, delivered, item_timeout, thread_pool, watched


def test_what_tells_of_something_now_and_then_may_take_as_long_as_it_likes():
    def work():
        for number in range(6):
            time.sleep(0.05)
            delivered(Path(f"{number}"))
        return 6

    with item_timeout(0.2):
        assert watched(work) == 6


def test_what_tells_of_nothing_is_left_behind_and_ends_before_it_uses_what_comes_later():
    comes, used, ended = threading.Event(), [], threading.Event()

    def work():
        try:
            delivered(Path("a.wav"))
            comes.wait(60)
            delivered(Path("a.wav"))
            used.append("a block")
        finally:
            ended.set()

    with item_timeout(0.2), thread_pool(1) as pool:
        left = pool.submit(watched, work)
        with pytest.raises(ValidationError, match=r"a\.wav: nothing more decoded within 0\.2 s") as error:
            left.result(60)
        assert error.value.finding.code is Code.DECODER_STUCK
        assert pool.submit(watched, lambda: "the next").result(60) == "the next"
    assert being_decoded() == []
    comes.set()
    assert ended.wait(60)
    assert used == []


@pytest.mark.parametrize("error", [KeyError("x"), ValidationError([], "manifest"), KeyboardInterrupt()])
def test_what_a_decoder_raises_is_raised_where_it_is_waited_for(error):
    def work():
        raise error

    with pytest.raises(type(error)):
        watched(work)


def test_the_thread_of_a_decoder_that_came_back_is_used_for_the_next_file():
    assert len({watched(threading.get_ident) for _ in range(200)}) < 200


def test_a_pool_that_is_left_by_an_error_waits_for_no_decoder():
    comes, begun = threading.Event(), threading.Event()

    def work():
        begun.set()
        comes.wait(60)

    def leave():
        with thread_pool(1) as pool:
            pool.submit(watched, work)
            assert begun.wait(60)
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        leave()
    assert time.monotonic() - started < 30
    comes.set()


# --- whole stages -----------------------------------------------------------------------------------------------------

# A mutex that its thread holds already is never got, by no signal either: what waits for it hangs as native code does.
STUCK = """
import ctypes, json, os, sys
system, mutex, place = ctypes.CDLL(None), ctypes.create_string_buffer(128), []
def hook(event, arguments):
    if event != "open" or not place or not isinstance(arguments[0], (str, bytes, os.PathLike)):
        return
    if os.fsdecode(arguments[0]).endswith(place[0]):
        system.pthread_mutex_lock(mutex)
        system.pthread_mutex_lock(mutex)
sys.addaudithook(hook)
from pathlib import Path
from muvap_assets import progress
from muvap_assets.errors import ValidationError
from muvap_assets.layout import Layout
progress.NAMED_SEC = 0.4
def stage(name, stuck, make, *arguments):
    lines, place[:] = [], [stuck]
    try:
        outcome = make(*arguments, progress.ProgressLog(lines.append, name))
        found = getattr(outcome.value, "findings", ())
        published = outcome.published and outcome.published.version
    except ValidationError as error:
        found, published = error.findings, None
    place.clear()
    print(json.dumps([name, published, [str(each.code) for each in found], [each.message() for each in found], lines]))
"""

ASD = f"""{STUCK}
from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.policy import OnViolation, Policy
root, layout = Path(sys.argv[1]), Layout(Path(sys.argv[2]))
def corpus(manifest, **options):
    policy = Policy(item_timeout_sec=1, **options)
    return Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=root / manifest), dataset="talks", policy=policy)
strict, lenient = corpus("train.tsv"), corpus("train.tsv", on_violation=OnViolation.QUARANTINE, max_rejected_share=0.5)
stage("fail", "b.wav", line.make_manifest, layout, strict)
stage("quarantine", "b.wav", line.make_manifest, layout, lenient)
stage("manifest", "none", line.make_manifest, layout, strict)
stage("loudness", "b.wav", line.make_loudness_index, layout, strict)
stage("loudness", "none", line.make_loudness_index, layout, strict)
stage("audio", "b.wav", line.make_packed_shards, layout, strict)
stage("faces", "b/0.04.jpg", line.make_packed_shards, layout, strict)
stage("pack", "b/0.04.jpg", line.make_packed_shards, layout, lenient)
stage("pack", "b.wav", line.make_packed_shards, layout, lenient)
stage("pack", "none", line.make_packed_shards, layout, strict)
"""


def ran(script, *arguments):
    """What each stage of a script said, and that the process could end at once with its decoders left behind."""
    run = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


@pytest.mark.slow
def test_each_stage_of_asd_names_a_stuck_decoder_and_goes_on_without_its_row_or_publishes_nothing(corpus, tmp_path):
    for first, name in enumerate("ab"):
        folder = corpus.root / name
        folder.mkdir()
        for frame in range(25):
            Image.new("L", (112, 112), 40 * first + frame).save(folder / f"{frame / 25:.2f}.jpg")
        corpus.row(name, visual_path=name, visual_kind="jpeg_directory")
    corpus.write()
    stages = ran(ASD, corpus.root, tmp_path / "root")
    said = {(name, bool(published)): found for name, published, *found in stages}
    for name, file in (("fail", "b.wav"), ("loudness", "b.wav"), ("audio", "b.wav"), ("faces", "0.04.jpg")):
        codes, messages, lines = said[name, False]
        assert codes == ["decoder_stuck"], (name, messages)
        assert "b" in messages[0] and file in messages[0] and "nothing more decoded within 1 s" in messages[0]
        assert any("decoding" in line and file in line for line in lines), (name, lines)
    assert said["quarantine", True][0] == ["decoder_stuck"]
    without_faces, without_audio, whole = [published for name, published, *_ in stages if name == "pack"]
    assert len({without_faces, without_audio, whole}) == 3
    for version, left_out in ((without_faces, "0.04.jpg"), (without_audio, "b.wav")):
        (finding,) = read_set_aside(tmp_path / "root" / "asd" / "packed_shards" / "talks" / version)
        assert (finding.code, finding.sample_id) == (Code.DECODER_STUCK, "b")
        assert left_out in finding.message()


REF2VA = f"""{STUCK}
from muvap_assets.ref2va import line
from muvap_assets.ref2va.contract import Dataset, DatasetOptions
from muvap_assets.ref2va.encoder_spec import EncoderSpec
manifest, layout, checkpoint = Path(sys.argv[1]), Layout(Path(sys.argv[2])), Path(sys.argv[3])
options = DatasetOptions(width=128, height=64, num_frames=22, item_timeout_sec=3)
dataset, spec = Dataset(name="clips", manifest=manifest, options=options), EncoderSpec(checkpoint=checkpoint, device="cpu")
stage("manifest", sys.argv[4], line.make_manifest, layout, dataset, spec)
stage("manifest", "none", line.make_manifest, layout, dataset, spec)
stage("encode", sys.argv[4], line.make_encoded_latents, layout, dataset, 0, spec)
stage("encode", "none", line.make_encoded_latents, layout, dataset, 0, spec)
"""


@pytest.mark.slow
def test_each_stage_of_ref2va_names_a_stuck_decoder_and_publishes_nothing_without_its_row(tmp_path, tiny_checkpoint):
    write_demo_datasets(tmp_path / "sources")
    rows = packed_rows()
    image = next(each["image"] for row in rows for each in row["references"] if "image" in each)
    naming = sum(Path(image).name in json.dumps(row) for row in rows)
    stages = ran(REF2VA, tmp_path / "sources" / "clips.jsonl", tmp_path / "root", tiny_checkpoint, Path(image).name)
    assert [(name, bool(published)) for name, published, *_ in stages] == [
        *(("manifest", False), ("manifest", True)),
        *(("encode", False), ("encode", True)),
    ]
    for _, _, codes, messages, lines in stages[::2]:
        stuck = [message for code, message in zip(codes, messages, strict=True) if code == "decoder_stuck"]
        assert len(stuck) == naming
        assert all(f"{Path(image).name}: nothing more decoded within 3 s" in message for message in stuck)
        assert any("decoding" in line and Path(image).name in line for line in lines), lines
    assert "decoder_stuck" not in [*stages[1][2], *stages[3][2]]


DAGSTER = f"""{STUCK}
import runpy
place[:] = [os.environ["STUCK_AT"]]
sys.argv[1:1] = ["asset", "materialize", "-m", "muvap_assets.definitions"]
runpy.run_module("dagster", run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("limit_sec", [1, 600])
def test_a_run_of_dagster_names_a_stuck_decoder_and_ends_at_its_limit_or_by_one_signal(corpus, tmp_path, limit_sec):
    corpus.row("a")
    corpus.row("b")
    entry = {"kind": "tsv", "manifest": str(corpus.write()), "item_timeout_sec": limit_sec}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": {"talks": entry}}))
    write_instance(tmp_path / "home")
    environment = {
        **os.environ,
        "STUCK_AT": "b.wav",
        "DAGSTER_HOME": str(tmp_path / "home"),
        "MUVAP_DATASETS": str(tmp_path / "datasets.yaml"),
        "MUVAP_DATA_ROOT": str(tmp_path / "data"),
    }
    command = [sys.executable, "-c", DAGSTER, "--select", "asd/manifest", "--partition", "talks"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as run:
        try:
            said = []
            for line in run.stderr:
                said.append(line)
                if "decoding" in line and "b.wav" in line:
                    break
            begun = time.monotonic()
            if limit_sec > 100:
                run.send_signal(signal.SIGTERM)
            said += run.communicate(timeout=60)[1]
        finally:
            run.kill()
    sys.stdout.write(f"ended in {time.monotonic() - begun:.1f} s\n")
    assert run.returncode != 0
    assert ("nothing more decoded within 1 s" in "".join(said)) == (limit_sec == 1)
    assert not list((tmp_path / "data").glob("asd/*/*/current"))
    assert not list((tmp_path / "data" / ".staging").glob("asd-*"))
