"""The page of a pack's sample says what the pack and the loader say."""

import re
import subprocess
import sys
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from asd.loader_packs import random_track, write_small_pack
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sample_pages import HOSTILE, TRACKS, Parsed, content, labels_of, muvap, write_pack

from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.pages import asd_sample
from muvap_assets.pages.asd_sample import Part, sample_page


@pytest.fixture
def pack(corpus):
    return write_pack(corpus)


def faces_of(data, shape=(8, 8)):
    sheets = [np.asarray(Image.open(content(uri))) for uri in data["sheets"]]
    return np.concatenate(sheets).reshape(-1, *shape)


def slow_targets(labels, past=(20, 15, 10, 5), future=(5, 10)):
    """The bins around each frame, each by itself: half of a bin's frames, or more, make it one."""
    made = []
    for k in range(len(labels)):
        cells, edge = [], k + 1 - sum(past)
        for length in (*past, *future):
            inside = [labels[i] for i in range(edge, edge + length) if 0 <= i < len(labels)]
            cells.append(int(2 * sum(inside) >= length))
            edge += length
        made.append("".join(map(str, cells)))
    return made


@pytest.mark.parametrize("name", TRACKS)
def test_faces_labels_and_targets_are_those_of_the_sample(pack, name):
    fps, frames = Fraction(TRACKS[name][0]), TRACKS[name][1]
    data = Parsed(sample_page(pack, HOSTILE if name == "same" else name, Part())).data
    count = max(1, floor(Fraction(frames) / fps * 25))
    shows = [min(floor((k + Fraction(1, 2)) / 25 * fps), frames - 1) for k in range(count)]
    labels = labels_of(frames)
    assert (data["firstFrame"], data["firstModel"], data["audioStartSec"]) == (0, 0, 0)
    assert data["shows"] == shows
    assert data["labels"] == "".join(map(str, labels))
    assert data["targets"] == slow_targets([labels[j] for j in shows])
    assert faces_of(data)[:, 3, 4].tolist() == list(range(frames))


def test_a_part_says_so_and_holds_all_that_its_frames_show(pack):
    start, stop, fps = Fraction(7, 20), Fraction(7, 5), Fraction(30000, 1001)
    page = sample_page(pack, "third", Part.parse("0.35", "1.05"))
    parsed = Parsed(page)
    data, native = parsed.data, range(floor(start * fps), ceil(stop * fps))
    first_model = floor(start * 25)
    assert f"A part: seconds 0.35 to 1.4 of 2.035367, native frames {native[0]} to {native[-1]} of 61." in page
    assert "The rest is not here." in page
    assert data["firstModel"] == first_model
    assert data["shows"] == [floor((k + Fraction(1, 2)) / 25 * fps) for k in range(first_model, ceil(stop * 25))]
    seen = {*native, *data["shows"]}
    held = range(data["firstFrame"], data["firstFrame"] + len(data["labels"]))
    assert (held[0], held[-1]) == (min(seen), max(seen))
    assert faces_of(data)[:, 0, 0].tolist() == list(held)
    whole = Parsed(sample_page(pack, "third", Part())).data
    assert data["targets"] == whole["targets"][first_model : ceil(stop * 25)]


@settings(max_examples=30)
@given(
    fps=st.sampled_from(["12.5", "24", "25", "30000/1001", "59.94", "100"]),
    frames=st.integers(1, 90),
    start=st.fractions(0, 1, max_denominator=1000),
    length=st.fractions(Fraction(1, 1000), 1, max_denominator=1000),
    share=st.fractions(0, Fraction(999, 1000), max_denominator=1000),
)
def test_any_time_of_any_part_has_its_faces_and_labels(tmp_path_factory, fps, frames, start, length, share):
    rate = Fraction(fps)
    whole = frames / rate
    start = start * (whole - Fraction(1, 1000))  # a start less than a millisecond before the end is refused
    track = random_track(np.random.default_rng(frames), "one", fps, frames)
    folder = write_small_pack(tmp_path_factory.mktemp("packs") / "pack", [[track]])
    data = Parsed(sample_page(folder, "one", Part(start=start, seconds=length * whole))).data
    stop = min(start + length * whole, whole)
    at = start + share * (stop - start)
    native, model, count = floor(at * rate), floor(at * 25), max(1, floor(whole * 25))
    faces = faces_of(data, track.faces.shape[1:])
    assert data["labels"][native - data["firstFrame"]] == str(track.labels[native])
    assert np.array_equal(faces[native - data["firstFrame"]], track.faces[native])
    place = model - data["firstModel"]
    assert place >= 0
    if model < count:
        shows = min(floor((model + Fraction(1, 2)) / 25 * rate), frames - 1)
        assert data["shows"][place] == shows
        assert np.array_equal(faces[shows - data["firstFrame"]], track.faces[shows])
        assert data["labels"][shows - data["firstFrame"]] == str(track.labels[shows])
    else:
        assert place >= len(data["shows"])


def test_a_part_past_the_end_is_what_there_is(pack):
    assert "A part: seconds 1 to 1.6 of 1.6, native frames 12 to 19 of 20." in sample_page(
        pack, "slow", Part.parse("1", "100")
    )


def test_the_gain_is_the_loaders(pack):
    sample = next(sample for sample in PackReader(pack) if sample.entry.sample_id == "third")
    gain = min(10 ** (-25 / 20) / sample.entry.audio_rms, 10.0, 0.99 / sample.entry.audio_peak)
    assert f"{gain:.4f} ({20 * np.log10(gain):+.2f} dB)" in sample_page(pack, "third", Part())


def test_the_same_sample_gives_the_same_bytes(pack):
    assert sample_page(pack, "third", Part()) == sample_page(pack, "third", Part())
    assert str(pack.parent) not in sample_page(pack, "third", Part())


def test_a_sample_that_is_too_long_is_refused_with_what_fits(pack, monkeypatch):
    monkeypatch.setattr(asd_sample, "MAX_MEDIA_BYTES", 40_000)
    done = muvap("show", pack, "third", "-o", pack.parent / "page.html")
    assert done.exit_code == 1
    needed = 61 * 64 + 2 * 32566
    assert f"third: 2.035367 seconds are {needed:,} bytes of faces and sound; required: at most 40,000" in done.output
    assert not (pack.parent / "page.html").exists()
    (proposed,) = re.findall(r"about ([\d.]+) seconds .* --start-sec 0 --seconds \1\.\n", done.output)
    assert 1 < float(proposed) < 1.2
    assert muvap("show", pack, "third", "-o", pack.parent / "page.html", "--seconds", proposed).exit_code == 0


def test_labels_that_are_not_known_are_not_shown(corpus):
    corpus.row("filler", labels_known="false")
    done = muvap("pack", corpus.write(), "-o", corpus.root / "out")
    assert done.exit_code == 0, done.output
    page = sample_page(corpus.root / "out" / "asd" / "packed_shards" / "train" / "current", "filler", Part())
    data = Parsed(page).data
    assert (data["labels"], data["targets"]) == (None, None)
    assert "labels: not known" in page
    assert "target, past" not in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["thrid"], "no sample 'thrid'; required: one of its 4. Near it: third."),
        (
            ["third", "--start-sec", "3"],
            "third: --start-sec 3; required: less than its 2.035367 seconds, by a millisecond",
        ),
        (["third", "--start-sec", "-1"], "--start-sec: '-1'; required: seconds, a decimal or a fraction."),
        (["third", "--seconds", "1e3"], "--seconds: '1e3'; required: seconds, a decimal or a fraction."),
        (["third", "--seconds", "1/0"], "--seconds: '1/0'; required: seconds, a decimal or a fraction."),
        (["third", "--seconds", "0"], "--seconds: '0'; required: 0.001 or more."),
        (
            ["third", "--start-sec", "2.0353"],
            "third: --start-sec 2.0353; required: less than its 2.035367 seconds, by a",
        ),
    ],
)
def test_what_cannot_be_shown_is_refused_by_name(pack, arguments, said):
    done = muvap("show", pack, *arguments, "-o", pack.parent / "page.html")
    assert (done.exit_code, said in done.output) == (1, True), done.output
    assert not (pack.parent / "page.html").exists()


def test_a_folder_that_is_no_pack_is_refused(tmp_path):
    done = muvap("show", tmp_path, "any", "-o", tmp_path / "page.html")
    assert done.exit_code == 1
    assert "dataset.json: missing" in done.output


def test_a_page_is_made_without_torch(pack):
    script = (
        "import sys; from pathlib import Path; from muvap_assets.pages import asd_sample, ref2va_row; "
        "asd_sample.sample_page(Path(sys.argv[1]), 'third', asd_sample.Part()); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script, pack], check=True, capture_output=True, text=True).stdout
    assert {"torch", "av", "cv2", "matplotlib", "dagster"}.isdisjoint(loaded.split())
