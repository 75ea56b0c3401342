"""MSDWild from folders to packs: real MP4s whose faces carry their frame's number and whose sound clicks at known times."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fractions import Fraction

import cv2
import numpy as np
import pytest
import soundfile
from msdwild_miniature import PLACES, RATE_HZ, SIDE, Miniature, click_times, clicks, number_in, write_mp4

from muvap_assets.asd import line
from muvap_assets.asd.corpora.tsv import read_tsv
from muvap_assets.asd.loudness import build_loudness_index
from muvap_assets.asd.manifest_files import read_manifest
from muvap_assets.asd.packs import video_writer
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.codes import Code, Severity
from muvap_assets.datasets import parse_datasets
from muvap_assets.errors import ValidationError
from muvap_assets.layout import Layout
from muvap_assets.media.video import VideoSource
from muvap_assets.media.video_faces import BORDER_GREY

STEPS = (line.make_manifest, line.make_loudness_index, line.make_packed_shards)


@pytest.fixture
def mini(tmp_path):
    root = tmp_path / "msdwild"
    root.mkdir()
    return Miniature(root)


@pytest.fixture
def two_faces(mini):
    """Two seconds of two faces at 25 frames a second, clicks at 0.5 and 1.5 s."""
    mini.video("00001", 50, at=[0.5, 1.5])
    mini.boxes("00001", 50)
    mini.speaks("00001", "0", "0.2", "0.5")
    mini.speaks("00001", "1", "1.01", "0.4")
    return mini


def corpus_of(mini, **options):
    mini.write(options.get("split", "all"))
    windows = {"window_sec": 1, "overlap_sec": "0.4", "min_window_sec": options.get("window_sec", 1)}
    entry = {"kind": "msdwild", "root": str(mini.root), **windows, **options}
    return parse_datasets({"corpora": {"wild": entry}}, mini.root / "datasets.yaml").corpus("wild")


def manifest(mini, **options):
    return line.validate_corpus(corpus_of(mini, **options))


def publish(mini, tmp_path, **options):
    """Run the line; returns the clips and the samples of the pack, in one order."""
    layout, corpus = Layout(tmp_path / "data"), corpus_of(mini, **options)
    for step in STEPS:
        outcome = step(layout, corpus)
        assert outcome.published, [check.findings for check in outcome.checks if not check.passed]
    clips = read_manifest(layout.asd_manifest("wild").current)
    return clips, list(PackReader(layout.asd_packed_shards("wild").current))


def found(report):
    return [(finding.sample_id, finding.code) for finding in report.findings]


def pack(clips, root, folder, **options):
    folder.mkdir()
    levels = dict.fromkeys({clip.recording_id for clip in clips}, Levels())
    write_pack(folder, clips, root, levels, inputs={}, **options)
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class Levels:
    mean, rms, peak = 0.0, 0.1, 0.5


# --- frame by frame ---


@pytest.mark.parametrize("fps", ["24", "25", "30000/1001", "30", "60"])
def test_faces_labels_and_sound_are_those_of_the_very_frames(mini, tmp_path, fps):
    rate, frames = Fraction(fps), 76
    at = [0.25, 0.75, 1.1]
    mini.video("00001", frames, rate, at=at)
    missing = {(0, 9), (0, 10), (1, 40)}
    mini.boxes("00001", frames, missing=missing)
    turns = {0: (Fraction("0.3"), Fraction("0.9")), 1: (Fraction("0.711"), Fraction("1.25"))}
    for speaker, (start, stop) in turns.items():
        mini.speaks("00001", speaker, float(start), float(stop - start))
    clips, samples = publish(mini, tmp_path, min_face_share="0.9")
    assert len(samples) == len(clips) >= 2
    for clip, sample in zip(clips, samples, strict=True):
        face, first = clip.boxes.face_id, clip.boxes.first_frame
        assert (clip.source_fps.value, sample.source_fps.value) == (rate, rate)
        assert len(sample.faces) == len(sample.labels) == round(rate) == clip.source_frames
        for i, crop in enumerate(sample.faces):
            if (face, first + i) in missing:
                assert (crop == BORDER_GREY).all()
            else:
                assert number_in(crop) == (face, (first + i) % 256)
        start, stop = turns[face]
        centres = [(first + i + Fraction(1, 2)) / rate for i in range(clip.source_frames)]
        assert sample.labels.tolist() == [int(start <= centre < stop) for centre in centres]
        begin, end = first / rate, (first + clip.source_frames) / rate
        expected = [time - begin for time in at if begin <= time < end - Fraction(1, 100)]
        assert sample.start_sec == clip.start_sec == begin
        assert click_times(sample.audio) == pytest.approx([float(t) for t in expected], abs=0.002)


def test_a_crop_is_what_cv2_makes_of_the_box_of_the_decoded_picture(two_faces, tmp_path):
    clips, samples = publish(two_faces, tmp_path)
    video = cv2.VideoCapture(str(two_faces.media / "00001.mp4"))
    pictures = [cv2.cvtColor(video.read()[1], cv2.COLOR_BGR2GRAY) for _ in range(50)]
    for clip, sample in zip(clips, samples, strict=True):
        x, y = PLACES[clip.boxes.face_id]
        for i, crop in enumerate(sample.faces):
            cut = pictures[clip.boxes.first_frame + i][y : y + SIDE, x : x + SIDE]
            expected = cv2.resize(cut, (112, 112), interpolation=cv2.INTER_LINEAR)
            assert np.abs(crop.astype(int) - expected).max() <= 3  # two ways from luma to grey levels


def test_a18_what_lies_outside_the_picture_is_grey(mini, tmp_path):
    mini.video("00001", 25)
    lines = [f"{frame},face,0,-60,-60,60,60,0" for frame in range(25)]
    mini.boxes("00001", 0, extra=lines)
    mini.speaks("00001", "0", 0, 1)
    _, (sample,) = publish(mini, tmp_path)
    half = 112 // 2
    assert (sample.faces[:, : half - 1] == BORDER_GREY).all()
    assert (sample.faces[:, :, : half - 1] == BORDER_GREY).all()
    assert (sample.faces[:, half + 1 :, half + 1 :] != BORDER_GREY).mean() > 0.9


def test_a18_an_empty_box_rejects_its_windows_and_names_frame_and_time(mini):
    mini.video("00001", 75)
    lines = ["10,face,0,20,20,20,60,0", "12,face,0,20,20,60,20,0", "11,face,0,-90,20,-10,60,0"]
    mini.boxes("00001", 75, faces=(0,), missing={(0, 10), (0, 11), (0, 12)}, extra=lines)
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini)
    assert [clip.boxes.first_frame for clip in report.clips] == [15, 30, 45]
    assert found(report) == [
        ("00001_0_000000", Code.BOX_EMPTY),
        ("00001_0_000000", Code.BOX_OUTSIDE),
    ]
    assert (
        "face 0, frame 10 at 0.400 s: box 20, 20, 20, 60 is thinner than a pixel (and 1 more"
        in report.findings[0].found
    )
    assert "frame 11 at 0.440 s: box -90, 20, -10, 60 lies outside the picture of 176x144" in report.findings[1].found


# --- one recording, one video ---


def test_a23_all_tracks_of_a_video_share_one_recording_measured_once(two_faces, tmp_path):
    clips, samples = publish(two_faces, tmp_path)
    assert len(clips) == 4
    assert len({clip.recording_id for clip in clips}) == 1
    assert len({(s.entry.audio_mean, s.entry.audio_rms, s.entry.audio_peak) for s in samples}) == 1
    index = Layout(tmp_path / "data").asd_loudness_index("wild").current
    assert len(line.read_loudness_index(index)) == 1


def test_a_video_is_decoded_once_for_all_its_tracks_and_no_further_than_the_last(two_faces, tmp_path, monkeypatch):
    report = manifest(two_faces, window_sec="0.8")
    decoded, real = [], VideoSource.frames
    opened = []
    monkeypatch.setattr(video_writer, "open_video", lambda path: opened.append(path) or VideoSource(path))
    monkeypatch.setattr(VideoSource, "frames", lambda self: (decoded.append(f.index) or f for f in real(self)))
    pack(report.clips, two_faces.root, tmp_path / "pack")
    last = max(clip.boxes.first_frame + clip.source_frames for clip in report.clips)
    assert len(report.clips) == 8
    assert [path.name for path in opened] == ["00001.mp4"]
    counted = [index for index in decoded if index > 0]
    assert counted == list(range(1, last + (last < 50)))


def test_the_bytes_of_a_pack_depend_on_no_number_of_threads(mini, tmp_path):
    for name, frames in (("00001", 50), ("00002", 40), ("00003", 30)):
        mini.video(name, frames)
        mini.boxes(name, frames)
        for speaker in "01":
            mini.speaks(name, speaker, 0, 1)
    report = manifest(mini)
    packs = [
        pack(report.clips, mini.root, tmp_path / f"pack_{workers}", workers=workers, shard_bytes=1_000_000)
        for workers in (1, 2, 5)
    ]
    assert packs[0] == packs[1] == packs[2]
    assert "shard-000001/faces.npy" in packs[0]
    assert f"grey {BORDER_GREY} outside the picture" in packs[0]["dataset.json"].decode()


def test_the_published_tsv_is_again_the_same_corpus(mini, tmp_path):
    mini.video("00001", 61, Fraction(30000, 1001), at=[0.5])
    mini.boxes("00001", 61)
    for speaker in "01":
        mini.speaks("00001", speaker, 0, 1)
    clips, samples = publish(mini, tmp_path)
    assert clips[-1].start_sec == Fraction(18 * 1001, 30000)
    folder = Layout(tmp_path / "data").asd_manifest("wild").current
    again = read_tsv(folder / "manifest.tsv")
    assert not again.findings
    entry = {"kind": "tsv", "manifest": str(folder / "manifest.tsv"), "dataset": "wild"}
    corpus = parse_datasets({"corpora": {"again": entry}}, tmp_path / "datasets.yaml").corpus("again")
    layout = Layout(tmp_path / "second")
    for step in STEPS:
        assert step(layout, corpus).published
    for first, second in zip(samples, PackReader(layout.asd_packed_shards("again").current), strict=True):
        assert first.entry.sample_id == second.entry.sample_id
        assert first.start_sec == second.start_sec
        for name in ("faces", "labels", "audio"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


# --- sound ---


@pytest.mark.parametrize(
    ("video_start", "sound_start", "shift"),
    [("0", "0.5", 0.5), ("0.5", "0", -0.5), ("0.5", "0.75", 0.25)],
)
def test_a49_sound_is_placed_against_the_first_frame_and_its_offset_told(
    mini, tmp_path, video_start, sound_start, shift
):
    at = [0.75, 1.25]
    sound = clicks(2, at)
    mini.video("00001", 50, sound=sound, video_start=Fraction(video_start), sound_start=Fraction(sound_start))
    mini.boxes("00001", 50, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini, window_sec=2, overlap_sec=0, max_missing_audio_share=0.3)
    offset = next(v for v in report.findings if v.code is Code.AUDIO_OFFSET)
    assert offset.severity is Severity.WARNING
    direction, told = ("after", "silence was put") if shift > 0 else ("before", "its start was cut off")
    # the encoder's priming belongs to the sound: it is decoded, and lies where its timestamps say
    assert f"s {direction} its first frame" in offset.found
    assert told in offset.hint
    _, (sample,) = publish(mini, tmp_path, window_sec=2, overlap_sec=0, max_missing_audio_share=0.3)
    expected = [time + shift for time in at if 0 <= time + shift < 1.99]
    assert click_times(sample.audio) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(
    ("hole", "options", "share", "severity"),
    [
        ((20, 50), {}, 30 * 0.064 / 4, Severity.ERROR),
        ((20, 50), {"max_missing_audio_share": 0.5}, 30 * 0.064 / 4, Severity.WARNING),
        ((20, 21), {}, 0.064 / 4, Severity.WARNING),
        ((0, 0), {"sound_start": "0.5"}, 0.5 / 4, Severity.ERROR),
        ((0, 0), {"sound_start": "0.15"}, 0.15 / 4, Severity.WARNING),
        ((0, 0), {"sound_start": "0.04"}, 0, None),
    ],
)
def test_what_is_missing_of_a_videos_sound_within_a_clip_is_held_to_the_rule_of_its_end(
    mini, hole, options, share, severity
):
    start = Fraction(options.pop("sound_start", 0))
    mini.video("00001", 100, sound=clicks(4, []), sound_start=start, hole=(hole[0] * 1024, hole[1] * 1024))
    mini.boxes("00001", 100, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini, window_sec=4, overlap_sec=0, **options)
    told = [v for v in report.findings if v.code is Code.AUDIO_SHORT]
    assert [v.severity for v in told] == [severity] * bool(severity)
    assert len(report.clips) == (severity is not Severity.ERROR)
    for finding in told:
        seconds, percent = re.findall(r"has holes of ([\d.]+) s, ([\d.]+)% of the clip", finding.found)[0]
        assert float(seconds) == pytest.approx(4 * share, abs=0.07)  # an AAC packet more or less
        assert float(percent) == pytest.approx(100 * share, abs=2)


def test_a_hole_concerns_only_the_clips_it_falls_into(mini):
    mini.video("00001", 100, sound=clicks(4, []), hole=(20 * 1024, 25 * 1024))  # 1.28 to 1.6 s
    mini.boxes("00001", 100, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini, window_sec=1, overlap_sec=0)
    assert found(report) == [("00001_0_000025", Code.AUDIO_SHORT)]
    assert [clip.sample_id for clip in report.clips] == ["00001_0_000000", "00001_0_000050", "00001_0_000075"]


def test_wav_files_shipped_beside_the_videos_are_heard_instead(two_faces, tmp_path):
    wavs = two_faces.root / "wav"
    wavs.mkdir()
    spoken = (clicks(2, [0.3]) * 32767).astype(np.int16)
    soundfile.write(wavs / "00001.wav", spoken, RATE_HZ, subtype="PCM_16")
    clips, samples = publish(two_faces, tmp_path, audio=str(wavs))
    assert {clip.audio_path for clip in clips} == {"wav/00001.wav"}
    for clip, sample in zip(clips, samples, strict=True):
        np.testing.assert_array_equal(sample.audio, spoken[clip.start_sample :][: clip.audio_samples])


def test_a25_a_window_after_the_recording_has_ended_is_rejected(two_faces):
    wavs = two_faces.root / "wav"
    wavs.mkdir()
    soundfile.write(wavs / "00001.wav", clicks(1.2, [0.3])[: RATE_HZ * 9 // 10], RATE_HZ)
    report = manifest(two_faces, audio=str(wavs), window_sec=1, overlap_sec=0)
    assert [clip.padded_samples for clip in report.clips] == [RATE_HZ // 10] * 2
    assert found(report) == [
        ("00001_0_000000", Code.AUDIO_SHORT),
        ("00001_1_000000", Code.AUDIO_SHORT),
        ("00001_0_000025", Code.AUDIO_NO_OVERLAP),
        ("00001_1_000025", Code.AUDIO_NO_OVERLAP),
    ]


def test_a_video_is_no_recording_of_faces_that_come_from_elsewhere(corpus):
    video = corpus.root / "talk.mp4"
    write_mp4(video, [np.zeros((32, 32), np.uint8)] * 25, Fraction(25), sound=clicks(1, []))
    corpus.row("a", audio_path="talk.mp4")
    report = line.validate_corpus(line_corpus(corpus))
    assert found(report) == [("a", Code.AUDIO_UNSUPPORTED)]


def line_corpus(corpus):
    entry = {"kind": "tsv", "manifest": str(corpus.write())}
    return parse_datasets({"corpora": {"talks": entry}}, corpus.root / "datasets.yaml").corpus("talks")


@pytest.mark.parametrize("sound", [None, np.zeros(0, np.float32)])
def test_a_video_without_sound_is_named(mini, sound):
    mini.video("00001", 25, sound=sound)
    mini.boxes("00001", 25, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini)
    assert report.clips == ()
    assert found(report)[0][1] in (Code.AUDIO_MISSING, Code.AUDIO_EMPTY)


# --- videos that are not what they should be ---


@pytest.mark.parametrize("last", ["61,face,0,4,8,84,88,0", "61,face,-3,4,8,84,88,0"])
def test_boxes_beyond_the_last_frame_refuse_the_whole_video_with_both_counts(mini, last):
    mini.video("00001", 60)
    mini.boxes("00001", 60, faces=(0,), extra=[last])
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini)
    assert report.clips == ()
    counted = [finding for finding in report.findings if finding.code is Code.LABEL_COUNT_MISMATCH]
    assert len(counted) == report.row_count > 1
    assert "60 frames decode, its boxes need 62; required: a frame for each box of the file" in counted[0].message()


def test_a_video_that_goes_on_after_its_last_box_is_whole(mini):
    mini.video("00001", 60)
    mini.boxes("00001", 55, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    assert [clip.boxes.first_frame for clip in manifest(mini, min_window_sec=1).clips] == [0, 15, 30]


@pytest.mark.parametrize(("boxes", "labels", "found"), [(62, 30, "its boxes need 62"), (60, 61, "frames 0 to 60")])
def test_a_canonical_row_is_held_to_the_frames_of_its_video(mini, boxes, labels, found):
    mini.video("v", 60)
    mini.boxes("v", boxes, faces=(0,))
    header = "sample_id audio_path visual_path source_fps labels start_sec visual_kind boxes_path face_id first_frame"
    row = ["a", "v.mp4", "v.mp4", "25", f"[{','.join('0' * labels)}]", "0", "video_boxes", "v.csv", "0", "0"]
    path = mini.media / "manifest.tsv"
    path.write_text("\t".join(header.split()) + "\n" + "\t".join(row) + "\n")
    entry = {"kind": "tsv", "manifest": str(path)}
    report = line.validate_corpus(parse_datasets({"corpora": {"v": entry}}, mini.root / "d.yaml").corpus("v"))
    assert report.clips == ()
    (counted,) = [finding for finding in report.findings if finding.code is Code.LABEL_COUNT_MISMATCH]
    assert "60 frames decode" in counted.found
    assert found in counted.found


@pytest.mark.parametrize("policy", ["fail", "quarantine"])
def test_a_corpus_without_a_clip_is_refused_and_nothing_is_published(mini, tmp_path, policy):
    mini.video("00001", 20)
    mini.boxes("00001", 20, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    outcome = line.make_manifest(Layout(tmp_path / "data"), corpus_of(mini, on_violation=policy))
    assert outcome.published is None
    empty = [v for check in outcome.blocking for v in check.findings if v.code is Code.MANIFEST_EMPTY]
    assert "no clip; required: at least one. See what was left out" in empty[0].message()
    with pytest.raises(ValidationError, match="no clip; required: at least one"):
        build_loudness_index(tmp_path, [], tmp_path, inputs={})


def test_a_video_of_variable_rate_is_rejected_from_the_frame_that_leaves_the_grid(mini):
    ticks = [frame * 3600 for frame in range(30)] + [frame * 3600 + 90_000 for frame in range(30, 75)]
    mini.video("00001", 75, pts=ticks, sound=clicks(4, []))
    mini.boxes("00001", 75, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini)
    assert report.clips == ()
    assert Code.VIDEO_TIMESTAMPS in {finding.code for finding in report.findings}


def test_frames_that_waver_by_less_than_half_their_distance_keep_their_rate(mini):
    wave = np.random.default_rng(0).integers(-700, 700, 75)
    wave[[0, 74]] = 0
    mini.video("00001", 75, pts=[frame * 3600 + int(wave[frame]) for frame in range(75)])
    mini.boxes("00001", 75, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    report = manifest(mini)
    assert len(report.clips) == 4
    assert float(report.clips[0].source_fps) == pytest.approx(25, rel=0.01)


def test_a_last_frame_of_odd_length_does_not_change_the_rate(mini):
    mini.video("00001", 75, last_duration=90_000)
    mini.boxes("00001", 75, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    with VideoSource(mini.media / "00001.mp4") as source:
        assert abs(source.rate - 25) > 1
    report = manifest(mini)
    assert [clip.source_fps.text for clip in report.clips] == ["25"] * 4


def test_a_cut_or_damaged_video_is_a_finding_of_each_of_its_rows(two_faces, tmp_path):
    path = two_faces.media / "00001.mp4"
    report = manifest(two_faces)
    assert len(report.clips) == 4
    path.write_bytes(b"not a video")
    damaged = line.validate_corpus(corpus_of(two_faces))
    assert damaged.clips == ()
    assert found(damaged) == [("00001", Code.VIDEO_UNREADABLE)]
    with pytest.raises(ValidationError, match="00001_1_000015"):
        pack(report.clips, two_faces.root, tmp_path / "pack")


def test_a_download_that_broke_off_is_told_with_how_far_it_decodes(mini):
    mini.video("00001", 75, sound=None, options={"movflags": "faststart"})
    mini.boxes("00001", 75, faces=(0,))
    mini.speaks("00001", "0", 0, 1)
    path = mini.media / "00001.mp4"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])
    wavs = mini.root / "wav"
    wavs.mkdir()
    soundfile.write(wavs / "00001.wav", clicks(3, [0.3]), RATE_HZ)
    report = manifest(mini, audio=str(wavs))
    assert report.clips == ()
    (finding, *_) = report.findings
    assert finding.code is Code.LABEL_COUNT_MISMATCH
    assert "frames decode (decoding stopped: " in finding.found


def test_a_video_that_became_shorter_since_it_was_validated_is_not_packed(two_faces, tmp_path):
    report = manifest(two_faces)
    two_faces.video("00001", 30)
    with pytest.raises(ValidationError) as failure:
        pack(report.clips, two_faces.root, tmp_path / "pack")
    codes = {finding.code for finding in failure.value.findings}
    assert codes == {Code.AUDIO_CHANGED, Code.LABEL_COUNT_MISMATCH}
    assert "30 frames decode, the clip needs 40 (" in str(failure.value)


def test_boxes_that_changed_since_they_were_validated_are_not_packed(two_faces, tmp_path):
    report = manifest(two_faces)
    (two_faces.media / "00001.csv").write_text("0,face,0,1,1,1,1,0\n")
    with pytest.raises(ValidationError, match="face 1 has no box on any frame of the clip"):
        pack(report.clips, two_faces.root, tmp_path / "pack")


# --- the whole platform ---


@pytest.mark.real
def test_real_video_goes_through_with_boxes_and_turns_of_our_own(real_media, tmp_path):
    mini = Miniature(tmp_path / "msdwild")
    mini.media.mkdir(parents=True)
    (mini.media / "00001.mp4").symlink_to(real_media / "bigbuckbunny.mp4")
    # One face moves into the picture from the left, the other is cut by its lower right corner.
    lines = [f"{i},face,0,{4 * i - 200},100,{4 * i + 100},400,0" for i in range(132)]
    lines += [f"{i},face,3,1100,560,1400,800,1" for i in range(132)]
    mini.boxes("00001", 0, extra=lines)
    mini.speaks("00001", "0", "0.5", "1.25")
    mini.speaks("00001", "3", "2", "2")
    clips, samples = publish(mini, tmp_path, window_sec=3, overlap_sec=1)
    assert [(c.boxes.face_id, c.boxes.first_frame, c.source_frames) for c in clips] == [
        (face, first, 75) for first in (0, 50) for face in (0, 3)
    ]
    video = cv2.VideoCapture(str(real_media / "bigbuckbunny.mp4"))
    pictures = []
    while (read := video.read())[0]:
        pictures.append(cv2.cvtColor(read[1], cv2.COLOR_BGR2GRAY))
    assert len(pictures) == 132
    for clip, sample in zip(clips, samples, strict=True):
        first = clip.boxes.first_frame
        for i in (0, 37, 74):
            left, top, side = (4 * (first + i) - 200, 100, 300) if clip.boxes.face_id == 0 else (1100, 530, 300)
            square = np.full((side, side), BORDER_GREY, np.uint8)
            part = pictures[first + i][max(top, 0) : top + side, max(left, 0) : left + side]
            y, x = max(-top, 0), max(-left, 0)
            square[y : y + part.shape[0], x : x + part.shape[1]] = part
            expected = cv2.resize(square, (112, 112), interpolation=cv2.INTER_LINEAR).astype(int)
            assert np.abs(sample.faces[i] - expected).mean() < 2
        span = (Fraction(1, 2), Fraction(7, 4)) if clip.boxes.face_id == 0 else (Fraction(2), Fraction(4))
        centres = [(first + i + Fraction(1, 2)) / 25 for i in range(75)]
        assert sample.labels.tolist() == [int(span[0] <= centre < span[1]) for centre in centres]
        assert len(sample.audio) == 48_000
        assert np.abs(sample.audio.astype(int)).max() > 100
    assert len({clip.recording_id for clip in clips}) == 1


@pytest.mark.slow
def test_a_partition_is_materialized_from_the_command_line(two_faces, tmp_path):
    two_faces.write()
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    entry = {"kind": "msdwild", "root": str(two_faces.root), "window_sec": 1, "overlap_sec": 0.4}
    (tmp_path / "datasets.yaml").write_text(json.dumps({"corpora": {"wild": entry}}))
    select = 'key:"asd/manifest" or key:"asd/loudness_index" or key:"asd/packed_shards"'
    command = ["dagster", "asset", "materialize", "--select", select, "--partition", "wild"]
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "MUVAP_DATASETS": str(tmp_path / "datasets.yaml"),
        "MUVAP_DATA_ROOT": str(tmp_path / "data"),
    }
    done = subprocess.run(
        [sys.executable, "-m", *command, "-m", "muvap_assets.definitions"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    samples = list(PackReader(Layout(tmp_path / "data").asd_packed_shards("wild").current))
    assert [number_in(sample.faces[3]) for sample in samples] == [(0, 3), (1, 3), (0, 18), (1, 18)]
