"""Validation: exact counts, the one verdict, tokens, buckets, and the files it leaves."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import av
import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from media_makers import raw_row, target, tone, write_rows, write_video
from PIL import Image, ImageCms

from muvap_assets.codes import Code, Severity
from muvap_assets.errors import FormatError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.media.soundtrack import SoundFacts
from muvap_assets.media.video import VideoFacts
from muvap_assets.ref2va.contract import DatasetOptions, Format, Geometry, ReferenceGeometry, Size, TokenPlan
from muvap_assets.ref2va.findings import Findings, check_video
from muvap_assets.ref2va.manifest import validate_manifest
from muvap_assets.ref2va.manifest_files import read_manifest, write_manifest
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.prepare import frame_blocks, row_input, target_waveform

IMAGE = {"type": "image", "image": "picture.png"}
AUDIO = {"type": "audio", "audio": "voice.wav"}
SMALL = DatasetOptions(width=64, height=64, num_frames=22)


class OneTokenACharacter:
    """A planner with a plain rule."""

    def __init__(self):
        self.seen = []

    def plan_tokens(self, caption, references):
        self.seen.append(references)
        if "<|image_pad|>" in caption:
            raise ValidationError(Finding(Code.VALUE_INVALID, Place(field="caption"), "a", required="b"))
        return TokenPlan(len(caption), tuple(10 * reference.frames for reference in references))


@pytest.fixture
def folder(tmp_path):
    """A dataset folder with an image and a voice; targets are made by the tests."""
    Image.new("RGB", (64, 32), "navy").save(tmp_path / "picture.png")
    soundfile.write(tmp_path / "voice.wav", tone(16_000, rate=16_000).T, 16_000)
    return tmp_path


def validate(folder, *rows, options=SMALL, **settings):
    return validate_manifest(write_rows(folder / "train.jsonl", rows), options, **settings)


def found(report, severity=Severity.ERROR):
    return [(str(v.code), v.field) for v in report.findings if v.severity is severity]


# --- rows that no file can hold ---------------------------------------------------------------------------------------


class _Counted(MediaFacts):
    """Media that nobody has to make: a video of ten minutes with sound."""

    def video(self, path):
        return VideoFacts(
            frames=14_387,
            first_sec=Fraction(0),
            duration_sec=Fraction(14_387, 24),
            rate=Fraction(24),
            width=1344,
            height=768,
            hidden_frames=0,
            header_end_sec=Fraction(0),
            interlaced_frames=0,
            colour="",
        )

    def sound(self, path, stream=None):
        return SoundFacts(
            rate_hz=32_000, channels=2, samples=600 * 32_000, first_sec=Fraction(0), peak=0.5, gaps=(), stopped=""
        )


@pytest.mark.parametrize(("frames", "codes"), [(4510, []), (4527, ["target_geometry"]), (14_387, ["target_geometry"])])
def test_latents_that_fit_no_cell_are_refused_before_they_are_made(folder, frames, codes):
    """24 channels of 4 bytes, [T, 168, 100]: under 2**31 bytes up to 1331 latent frames, and 4,510 frames make 1327."""
    (folder / "target.mov").touch()
    options = DatasetOptions(width=1600, height=2688, num_frames=frames)
    report = validate(folder, raw_row(), options=options, facts=_Counted())
    assert found(report) == [("cell_too_large", field) for field in codes]


def test_references_whose_latents_fit_no_cell_are_refused_and_the_longest_target_is_written(folder):
    """Two videos of [4232, 48, 84] make 2 * 4232 * 1008 rows of 96 values: 3.3 GB. One makes 1.6 GB."""
    (folder / "target.mov").touch()
    video = {"type": "video", "video": "target.mov"}
    options = DatasetOptions(width=64, height=64, num_frames=14_387)
    report = validate(folder, raw_row(references=[video, video]), options=options, facts=_Counted())
    assert found(report) == [("cell_too_large", "references")]
    assert f"{2 * 4232 * 1008 * 96 * 4:,} bytes" in report.findings[-1].found
    one = validate(folder, raw_row(references=[video]), options=options, facts=_Counted())
    assert found(one) == []
    write_manifest(folder, one)
    assert read_manifest(folder).samples[0].id == "a"


# --- holes in sound ---------------------------------------------------------------------------------------------------


def test_a_hole_in_a_targets_sound_is_refused_by_its_place_and_length(folder):
    """A clip of 124 frames whose sound stops after a second and goes on three seconds later."""
    sound, options = tone(5 * 32_000 + 8000), DatasetOptions(width=64, height=64, num_frames=124)
    clip = write_video(folder / "clip.mkv", frames=124, sound=sound, sound_holes=[(32_000, 128_000)])
    report = validate(folder, raw_row(target={"video": clip.name}), options=options)
    assert found(report) == [("target_audio_short", "target.video")]
    assert report.findings[0].found == (
        "3.000 s without sound within the 5.167 s that are used (gaps: 1, the longest 3.000 s from 1.000 s on)"
    )


@pytest.mark.parametrize(
    ("holes", "codes"),
    [
        ([(8000, 9312)], []),  # 41 ms, such as a lost packet
        ([(8000, 9344)], ["target_audio_short"]),
        ([(8000, 8960), (16_000, 16_960)], ["target_audio_short"]),  # each is short, both are not
        ([(29_344, 33_600)], []),  # past the 22 frames that are used
        ([(28_000, 33_600)], []),
        ([(27_968, 33_600)], ["target_audio_short"]),
    ],
)
def test_what_is_missing_of_a_used_sound_counts_together_up_to_a_frame(folder, holes, codes):
    """In Matroska, whose times are whole milliseconds, 32 samples."""
    target(folder / "target.mkv", 30, sound_holes=holes)
    report = validate(folder, raw_row(target={"video": "target.mkv"}))
    assert [code for code, _ in found(report)] == codes


@pytest.mark.parametrize(
    ("late", "holes", "codes"),
    [
        (Fraction(10), [], ["target_audio_short"]),  # beyond the whole clip: wholly silent
        (Fraction(1, 2), [], ["target_audio_short"]),
        (Fraction(42, 1000), [], ["target_audio_short"]),
        (Fraction(41, 1000), [], []),
        (Fraction(30, 1000), [(8000, 8640)], ["target_audio_short"]),  # 30 ms before it and 20 ms within
    ],
)
def test_a_targets_sound_that_is_missing_at_its_start_counts_as_a_hole(folder, late, holes, codes):
    target(folder / "target.mkv", 22, sound=tone(60_000), sound_start=late, sound_holes=holes)
    report = validate(folder, raw_row(target={"video": "target.mkv"}))
    assert [code for code, _ in found(report)] == codes
    if late == 10:
        assert "0.917 s without sound within the 0.917 s that are used" in report.findings[1].found
        assert ("audio_offset", "target.video") in found(report, Severity.WARNING)


def test_a_references_sound_may_start_late_and_is_told(folder):
    target(folder / "target.mov")
    target(folder / "late.mov", 30, sound_start=Fraction(1, 2))
    late = {"type": "video_audio", "video": "late.mov", "audio": "late.mov"}
    report = validate(folder, raw_row(references=[late]))
    assert found(report) == []
    assert ("audio_offset", "references[0].audio") in found(report, Severity.WARNING)


def test_a_hole_in_a_references_sound_is_refused(folder):
    target(folder / "target.mov")
    target(folder / "other.mkv", 30, sound_holes=[(8000, 16_000)])
    target(folder / "late.mkv", 30, sound_holes=[(30_016, 38_016)])
    own = {"type": "video_audio", "video": "other.mkv", "audio": "other.mkv"}
    late = {"type": "video_audio", "video": "late.mkv", "audio": "late.mkv"}
    report = validate(folder, raw_row(references=[late, own, {"type": "audio", "audio": "other.mkv"}]))
    assert found(report) == [("reference_short", "references[1].audio"), ("reference_short", "references[2].audio")]
    assert all("0.250 s from 0.250 s on" in v.found for v in report.findings if v.severity is Severity.ERROR)


@pytest.mark.parametrize(
    ("kind", "fact"),
    [("sound", "gaps"), ("video", "header_end_sec"), ("video", "interlaced_frames"), ("image", "colour")],
)
def test_counts_remembered_without_a_fact_that_is_needed_now_are_made_again(folder, kind, fact):
    target(folder / "target.mkv", 30, sound_holes=[(8000, 16_000)])
    row, cache = raw_row(target={"video": "target.mkv"}), folder / "counts"
    before = validate(folder, row, facts=MediaFacts(cache))
    (entry,) = cache.glob(f"{kind}-*.json")
    record = json.loads(entry.read_text())
    record["facts"].pop(fact)
    entry.write_text(json.dumps(record))
    facts = MediaFacts(cache)
    assert validate(folder, row, facts=facts).findings == before.findings
    assert facts.decoded == 1
    assert validate(folder, row, facts=MediaFacts(cache)).rows == before.rows


# --- pictures that are missing ----------------------------------------------------------------------------------------


def ending_at(folder, block, **options):
    """A Matroska file whose blocks end at the video's number ``block``: the reader meets no error, only the end."""
    whole = write_video(folder / "whole.mkv", frames=96, sound=tone(4 * 32_000), **options)
    with av.open(str(whole)) as container:
        places = [packet.pos for packet in container.demux(video=0) if packet.size]
    content = bytearray(whole.read_bytes())
    content[places[block] : places[block] + 8] = bytes(8)
    (folder / "target.mkv").write_bytes(content)
    with av.open(str(folder / "target.mkv")) as container:
        return sum(1 for _ in container.decode(video=0))


@pytest.mark.parametrize(
    ("codec", "block", "severity"),
    [
        ("libx265", 46, Severity.ERROR),
        ("libx264", 46, Severity.ERROR),
        ("libx264", 83, Severity.ERROR),  # 13 frames are 0.542 s, and more than 5 %
        ("libx264", 84, Severity.WARNING),  # 12 frames are half a second
    ],
)
def test_a_stream_that_decodes_short_of_its_own_duration_is_refused(folder, codec, block, severity):
    options = {"codec": codec, "options": {"g": "250", "bf": "0", "x265-params": "log-level=none"}}
    assert ending_at(folder, block, **options) == block
    report = validate(folder, raw_row(target={"video": "target.mkv"}))
    (stopped,) = [v for v in report.findings if v.code is Code.VIDEO_STOPPED]
    assert stopped.severity is severity
    assert f"{block} frames decode; they end at {block / 24:.3f} s, the header promises 4.000 s" in stopped.found
    assert bool(report.admitted) is (severity is Severity.WARNING)


def test_a_long_stream_may_lack_five_per_cent(folder):
    """Of 200 s, 10: more than half a second."""
    facts = MediaFacts().video(write_video(folder / "clip.mkv", frames=24))
    for missing, severity in ((239, Severity.WARNING), (241, Severity.ERROR)):
        findings = Findings("rows")
        frames = 4800 - missing
        seconds = {"duration_sec": Fraction(frames, 24), "header_end_sec": Fraction(200)}
        check_video(findings, "target.video", replace(facts, frames=frames, **seconds))
        assert [(v.code, v.severity) for v in findings.found] == [(Code.VIDEO_STOPPED, severity)]


def test_frames_that_the_index_lists_and_the_decoder_loses_are_counted_less_those_an_edit_list_hides(folder):
    """As ``ffmpeg -ss 2.3 -c copy`` leaves a clip: 39 of 112 frames are there only to decode the rest."""
    whole = write_video(folder / "whole.mp4", frames=128, options={"g": "250"}, sound=tone(8 * 32_000))
    with av.open(str(whole)) as source, av.open(str(folder / "cut.mp4"), "w") as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.pts -= round(Fraction(39, 24) / packet.time_base)
                packet.dts -= round(Fraction(39, 24) / packet.time_base)
                packet.stream = stream
                copy.mux(packet)
    facts = MediaFacts().video(folder / "cut.mp4")
    assert (facts.header_frames, facts.hidden_frames, facts.frames, facts.missing_sec) == (128, 39, 89, 0)
    findings = Findings("rows")
    check_video(findings, "target.video", facts)
    assert findings.found == []
    check_video(findings, "target.video", replace(facts, frames=76, duration_sec=Fraction(76, 24)))
    assert [v.severity for v in findings.found] == [Severity.ERROR]
    assert findings.found[0].found == "76 frames decode; the header promises 89"


def test_a_picture_that_ends_before_the_used_span_is_refused_whatever_the_sound_lasts(folder):
    target(folder / "target.mkv", 21, sound=tone(30_000))
    report = validate(folder, raw_row(target={"video": "target.mkv"}))
    assert found(report) == [("target_short", "target.video")]


@pytest.mark.parametrize(
    ("samples", "warns"), [(22 * 32_000 // 24 + 16_000, False), (22 * 32_000 // 24 + 16_064, True)]
)
def test_a_picture_half_a_second_shorter_than_its_sound_is_told(folder, samples, warns):
    target(folder / "target.mov", sound=tone(samples))
    report = validate(folder, raw_row())
    assert report.is_valid
    assert (("video_stopped", "target.video") in found(report, Severity.WARNING)) is warns


# --- shapes and colours -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "canvas", "aspect", "nearest"),
    [
        ((128, 96), (1344, 768), None, "1024x768"),
        ((96, 128), (832, 480), None, "768x1024"),
        ((128, 64), (832, 480), None, "1440x704"),  # 2 to 1.733
        ((112, 64), (832, 480), None, None),
        ((128, 72), (1344, 768), None, None),
        ((64, 64), (64, 64), 2, "1440x704"),
        ((96, 96), (768, 384), 2, None),  # squeezed pixels on a canvas that shows them as they are
        ((320, 64), (320, 320), None, "crop it"),
    ],
)
def test_a_target_whose_shape_its_canvas_does_not_have_is_told_the_nearest_that_has(
    folder, size, canvas, aspect, nearest
):
    target(folder / "target.mov", size=size, aspect=aspect)
    report = validate(folder, raw_row(), options=DatasetOptions(width=canvas[0], height=canvas[1], num_frames=22))
    told = [v for v in report.findings if v.code is Code.VIDEO_ASPECT]
    assert report.is_valid
    assert len(told) == (nearest is not None)
    for warning in told:
        assert warning.severity is Severity.WARNING
        assert f"{size[0]}x{size[1]} pixels" in warning.found
        assert f"on a canvas of {canvas[0]}x{canvas[1]}" in warning.found
        assert nearest in warning.hint


def test_shapes_are_told_from_ten_per_cent_on(folder):
    """On 10 to 11, 1 to 1 is 11:10 and just within."""
    target(folder / "target.mov", size=(64, 64))
    for canvas, told in (((320, 352), 0), ((288, 320), 1), ((352, 320), 0), ((320, 288), 1)):
        report = validate(folder, raw_row(), options=DatasetOptions(width=canvas[0], height=canvas[1], num_frames=22))
        assert len([v for v in report.findings if v.code is Code.VIDEO_ASPECT]) == told


@pytest.mark.parametrize(
    ("transfer", "primaries", "named"),
    [(16, 9, "PQ (SMPTE ST 2084), BT.2020 primaries"), (18, 9, "HLG (ARIB STD-B67), BT.2020 primaries"), (1, 1, "")],
)
def test_video_of_high_dynamic_range_is_told(folder, transfer, primaries, named):
    target(folder / "target.mov", colour=(transfer, primaries))
    report = validate(folder, raw_row(references=[{"type": "video", "video": "target.mov"}]))
    told = [v for v in report.findings if v.code is Code.COLOUR_UNCONVERTED]
    assert report.is_valid
    assert [(v.field, v.found) for v in told] == [(f, named) for f in ("target.video", "references[0].video") if named]
    assert all("the inference path converts none" in v.hint for v in told)


def test_interlaced_video_is_told(folder):
    target(folder / "target.mov", options={"x264-params": "tff=1"})
    with av.open(str(folder / "target.mov")) as container:
        assert all(frame.interlaced_frame for frame in container.decode(video=0))
    report = validate(folder, raw_row())
    told = [v for v in report.findings if v.code is Code.VIDEO_INTERLACED]
    assert [(v.severity, v.found) for v in told] == [(Severity.WARNING, "22 of 22 frames are interlaced")]


def test_a_reference_picture_with_a_profile_of_its_own_is_told(folder):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    target(folder / "target.mov")
    Image.new("RGB", (64, 32)).save(folder / "torn.png", icc_profile=profile[:300])
    Image.new("RGB", (64, 32)).save(folder / "plain.png", icc_profile=profile)
    references = [{"type": "image", "image": name} for name in ("torn.png", "plain.png")]
    report = validate(folder, raw_row(references=references))
    assert report.is_valid
    told = [(v.field, str(v.severity)) for v in report.findings if v.code is Code.COLOUR_UNCONVERTED]
    assert told == [("references[0].image", "warning")]


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frames", "admitted"), [(123, 0), (124, 1), (125, 1)])
@pytest.mark.parametrize("suffix", [".mov", ".mkv"])
def test_124_frames_take_124_frames(folder, frames, admitted, suffix):  # B01, B19
    name = target(folder / f"clip{suffix}", frames, sound=tone(170_000)).name
    report = validate(folder, raw_row(target={"video": name}), options=DatasetOptions(width=64, height=64))
    assert len(report.admitted) == admitted
    assert (report.rows_total, len(report.refused_rows)) == (1, 1 - admitted)
    if not admitted:
        message = report.findings[0].message()
        assert "123 source frames at 24.000 fps, 5.125 s, make 123 frames at 24 fps" in message
        assert "the longest valid count is 107" in message


@pytest.mark.parametrize(
    ("fps", "made", "longest"), [(Fraction(24_000, 1001), 101, 90), (Fraction(30), 81, 73), (Fraction(16), 152, 141)]
)
def test_a_short_target_is_told_what_became_of_its_frames(folder, fps, made, longest):  # B02
    target(folder / "target.mov", 101, fps=fps, sound=tone(400_000))
    report = validate(folder, raw_row(), options=DatasetOptions(width=64, height=64, num_frames=158))
    message = next(v for v in report.findings if v.code is Code.TARGET_SHORT).message()
    seconds = float(101 / fps)
    assert f"101 source frames at {float(fps):.3f} fps, {seconds:.3f} s, make {made} frames at 24 fps" in message
    assert f"the longest valid count is {longest}" in message
    assert "at least 158 frames at 24 fps" in message


def test_130_frames_are_refused_and_not_snapped(folder):  # acceptance 4
    target(folder / "target.mov", 141, sound=tone(200_000))
    report = validate(folder, raw_row(target_geometry={"width": 64, "height": 64, "num_frames": 130}))
    assert found(report) == [("geometry_invalid", "target_geometry.num_frames")]
    assert not report.admitted


@pytest.mark.parametrize(("frames", "latents"), [(158, 263), (209, 348), (260, 433), (311, 518), (362, 603)])
def test_long_targets_are_admitted_with_the_right_audio(folder, frames, latents):  # acceptance 4, B20
    target(folder / "target.mov", frames, size=(32, 32), sound=tone(frames * 4000 // 3))
    report = validate(folder, raw_row(), options=DatasetOptions(width=32, height=32, num_frames=frames))
    (row,) = report.admitted
    plan = row_input(row.plan, row.sample, MediaFacts(), report.options)
    assert -(-plan.target_waveform().shape[1] // 800) == latents
    beyond = ("beyond_released_range", "target_geometry.num_frames") in found(report, Severity.WARNING)
    assert beyond is (frames > 345)


def test_audio_exactly_as_long_as_the_clip_passes_in_both_formats(folder):  # B13
    target(folder / "target.mov", 124, sound=tone(165_333))
    for format in Format:
        report = validate(folder, raw_row(), options=DatasetOptions(format=format, width=64, height=64))
        assert report.is_valid
        assert report.rows[0].target.audio_samples == 165_333


def test_audio_a_sample_short_of_the_clip_fails_and_says_what_it_covers(folder):
    target(folder / "target.mov", 124, sound=tone(165_332))
    report = validate(folder, raw_row(), options=DatasetOptions(width=64, height=64))
    assert found(report) == [("target_audio_short", "target.video")]
    message = report.findings[0].message()
    assert "165332 audio samples" in message and "at least the 165333" in message and "covers 107 frames" in message


def test_a_target_without_sound_is_refused(folder):  # B12
    write_video(folder / "target.mov", frames=22)
    report = validate(folder, raw_row())
    assert found(report) == [("target_audio_missing", "target.video")]
    assert "no audio stream" in report.findings[0].message() + report.findings[1].message()


def test_an_all_zero_target_warns(folder):  # B12
    target(folder / "target.mov", sound=np.zeros((2, 30_000), np.float32))
    report = validate(folder, raw_row())
    assert ("audio_silent", "target.video") in found(report, Severity.WARNING)
    assert report.is_valid


@pytest.mark.parametrize(("offset", "warns"), [(Fraction(-1, 2), True), (Fraction(1, 40), False)])
def test_sound_that_starts_elsewhere_is_aligned_and_reported(folder, offset, warns):  # B14
    starts = {"start": max(0, -offset), "sound_start": max(0, offset)}
    target(folder / "target.mov", sound=tone(60_000), **starts)
    report = validate(folder, raw_row())
    assert (("audio_offset", "target.video") in found(report, Severity.WARNING)) is warns
    (row,) = report.admitted
    made = row_input(row.plan, row.sample, MediaFacts(), report.options).target_waveform()
    lead = round(offset * 32_000)
    aligned = np.pad(tone(60_000), ((0, 0), (lead, 0))) if lead > 0 else tone(60_000)[:, -lead:]
    np.testing.assert_allclose(made, aligned[:, : made.shape[1]], atol=1e-4)


def test_a_header_that_promises_more_is_reported_and_not_believed(folder, monkeypatch):  # B01
    from muvap_assets.media import video

    target(folder / "target.mov", 30)
    monkeypatch.setattr(
        video.VideoSource,
        "_decoded",
        lambda self: (frame for i, frame in enumerate(self._container.decode(self._stream)) if i < 20),
    )
    report = validate(folder, raw_row())
    assert "20 frames decode; the header promises 30" in " ".join(v.message() for v in report.findings)
    assert [code for code, _ in found(report)] == ["target_short"]


def test_rotation_swaps_the_canvas_of_sft(folder):  # B04
    target(folder / "target.mov", 124, size=(64, 32), rotation=(270, False), sound=tone(170_000))
    (row,) = validate(folder, raw_row(), options=DatasetOptions(format=Format.SFT)).admitted
    assert (row.target.video.width, row.target.video.height) == (32, 64)
    assert row.plan.geometry == Geometry(704, 1440, 124)


@pytest.mark.parametrize(("frames", "expected"), [(124, 124), (140, 124), (141, 141), (370, 362), (600, 362)])
def test_sft_takes_the_longest_count_that_fits(folder, frames, expected):
    target(folder / "target.mov", frames, size=(64, 32))
    (row,) = validate(folder, raw_row(), options=DatasetOptions(format=Format.SFT)).admitted
    assert row.plan.geometry.num_frames == expected


def test_sft_refuses_clips_under_124_frames_and_odd_shapes(folder):
    target(folder / "target.mov", 123, size=(64, 32))
    target(folder / "wide.mov", 124, size=(160, 32))
    report = validate(
        folder, raw_row("a"), raw_row("b", target={"video": "wide.mov"}), options=DatasetOptions(format=Format.SFT)
    )
    assert found(report) == [("target_short", "target.video"), ("video_aspect", "target.video")]


def test_the_target_canvas_does_not_depend_on_the_references(folder):  # acceptance 9
    target(folder / "target.mov", 124, size=(64, 32), sound=tone(170_000))
    write_video(folder / "tall.mp4", frames=124, size=(32, 96))
    Image.new("RGB", (30, 100)).save(folder / "tall.png")
    lists = [
        [IMAGE],
        [{"type": "image", "image": "tall.png"}],
        [{"type": "video", "video": "tall.mp4"}, AUDIO, {"type": "image", "image": "tall.png"}],
    ]
    for options in (DatasetOptions(format=Format.SFT), DatasetOptions(width=96, height=64)):
        rows = [raw_row(str(i), references=references) for i, references in enumerate(lists)]
        report = validate(folder, *rows, options=options)
        assert len({row.plan.geometry for row in report.admitted}) == 1
        assert len(report.admitted) == 3


# --- references -------------------------------------------------------------------------------------------------------


def test_each_reference_has_the_geometry_of_the_inference_rules(folder):  # B05, B15
    target(folder / "target.mov")
    write_video(folder / "clip.mp4", frames=40, fps=25, size=(64, 32), sound=tone(64_000), sound_codec="aac")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (64, 32)).save(folder / "phone.jpg", exif=exif)
    clip = {"type": "video_audio", "video": "clip.mp4", "audio": "clip.mp4"}
    references = [{"type": "image", "image": "phone.jpg"}, {"type": "video", "video": "clip.mp4"}, AUDIO, clip]
    (row,) = validate(folder, raw_row(references=references)).admitted
    image, video, audio, both = (reference.geometry for reference in row.plan.references)
    assert image == ReferenceGeometry(
        media_type="image", has_audio=False, num_latent_frames=1, latent_height=256, latent_width=128
    )
    assert video == ReferenceGeometry(
        media_type="video", has_audio=False, num_latent_frames=7, latent_height=44, latent_width=90
    )
    assert audio == ReferenceGeometry(media_type="audio", has_audio=True, num_audio_latents=37)
    assert (both.media_type, both.has_audio, both.num_audio_latents) == ("video", True, 37)


@pytest.mark.parametrize(("frames", "target_frames", "ok"), [(12, 22, False), (13, 22, True), (60, 5, False)])
def test_a_video_reference_needs_13_frames_after_the_cut(folder, frames, target_frames, ok):
    target(folder / "target.mov")
    write_video(folder / "clip.mp4", frames=frames)
    geometry = {"width": 64, "height": 64, "num_frames": target_frames}
    row = raw_row(references=[{"type": "video", "video": "clip.mp4"}], target_geometry=geometry)
    report = validate(folder, row)
    assert (found(report) == []) is ok
    if not ok:
        assert found(report) == [("reference_short", "references[0].video")]
        assert f"{frames} source frames at 24.000 fps" in report.findings[-1].message()


def test_rates_that_differ_from_the_decoders_warn_with_both(folder):
    target(folder / "target.mov")
    write_video(folder / "clip.mp4", frames=40, fps=25)
    references = [{"type": "video", "video": "clip.mp4", "fps": 30}, {**AUDIO, "sample_rate": 44_100}]
    close = [{"type": "video", "video": "clip.mp4", "fps": 25.1}, {**AUDIO, "sample_rate": 16_100}]
    report = validate(folder, raw_row("a", references=references), raw_row("b", references=close))
    warnings = [v for v in report.findings if v.code is Code.RATE_MISMATCH]
    assert [(v.row, v.field) for v in warnings] == [(1, "references[0].fps"), (1, "references[1].sample_rate")]
    assert "the manifest says 30 fps, the decoder 25 fps" in warnings[0].message()
    assert "44100 Hz, the decoder 16000 Hz" in warnings[1].message()
    assert report.admitted[0].plan.references[0].num_frames == 22


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ({"type": "image", "image": "moving.gif"}, "image_multi_frame"),
        ({"type": "image", "image": "page.png"}, "image_unreadable"),
        ({"type": "image", "image": "strip.png"}, "image_aspect"),
        ({"type": "video", "video": "page.png"}, "video_unreadable"),
        ({"type": "video", "video": "wide.mp4"}, "video_aspect"),
        ({"type": "video_audio", "video": "ok.mp4", "audio": "ok.mp4"}, "audio_missing"),
        ({"type": "video_audio", "video": "ok.mp4", "audio": "page.ogg"}, "audio_unreadable"),
    ],
)
def test_media_that_cannot_serve_is_a_finding_of_its_row(folder, reference, code):
    target(folder / "target.mov")
    first, second = (Image.new("RGB", (8, 8), colour) for colour in ("red", "blue"))
    first.save(folder / "moving.gif", save_all=True, append_images=[second])
    for name in ("page.png", "page.ogg"):
        (folder / name).write_text("<html>404</html>")
    Image.new("RGB", (100, 20)).save(folder / "strip.png")
    write_video(folder / "wide.mp4", frames=22, size=(160, 32))
    write_video(folder / "ok.mp4", frames=22)
    report = validate(folder, raw_row("bad", references=[IMAGE, reference]), raw_row("good"))
    assert [code for code, _ in found(report)] == [code]
    assert {v.sample_id for v in report.findings if v.severity is Severity.ERROR} == {"bad"}
    assert [row.sample.id for row in report.admitted] == ["good"]
    assert str(folder) not in report.findings[0].message()


# --- the verdict is the encoder's ----------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frames=st.integers(1, 50),
    fps=st.sampled_from([Fraction(24), Fraction(25), Fraction(30), Fraction(30_000, 1001), Fraction(16), Fraction(60)]),
    asked=st.sampled_from([5, 22, 39]),
    samples=st.integers(1, 60_000),
    video_start=st.sampled_from([Fraction(0), Fraction(1, 4)]),
    suffix=st.sampled_from([".mov", ".mkv"]),
)
def test_a_row_is_admitted_exactly_when_it_prepares(folder, frames, fps, asked, samples, video_start, suffix):
    """Acceptance 9: over generated media, the verdict equals what preparing does."""
    path = write_video(
        folder / f"drawn{suffix}", frames=frames, fps=fps, size=(32, 32), sound=tone(samples), start=video_start
    )
    options = DatasetOptions(width=32, height=32, num_frames=asked)
    report = validate(folder, raw_row(target={"video": path.name}), options=options)
    with_origin = report.rows[0].target.video.first_sec
    try:
        made = sum(len(block) for block in frame_blocks(path, size=Size(32, 32), num_frames=asked))
        limit = asked * 32_000 // 24 + 800
        required = min(round(Fraction(asked * 40, 24)) * 800, asked * 32_000 // 24)
        target_waveform(path, origin=with_origin, limit=limit, required=required)
    except ValidationError:
        assert not report.admitted
    else:
        assert made == asked
        assert len(report.admitted) == 1


def test_the_code_location_may_import_validation_without_its_decoders():
    script = """
import sys
import muvap_assets.ref2va.manifest_files, muvap_assets.ref2va.prepare
print([name for name in ("torch", "diffusers", "transformers", "av", "cv2", "dagster") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_validating_imports_no_model_library(folder):  # acceptance 9
    target(folder / "target.mov")
    write_rows(folder / "train.jsonl", [raw_row(references=[IMAGE, AUDIO])])
    script = f"""
import sys
from pathlib import Path
from muvap_assets.ref2va.contract import DatasetOptions
from muvap_assets.ref2va.manifest import validate_manifest
from muvap_assets.ref2va.manifest_files import write_manifest
report = validate_manifest(Path({str(folder / "train.jsonl")!r}), DatasetOptions(width=64, height=64, num_frames=22))
write_manifest(Path({str(folder)!r}), report)
print(report.is_valid, [name for name in ("torch", "diffusers", "transformers", "dagster") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True []", done.stderr


# --- tokens, buckets, report ---------------------------------------------------------------------------------------------


def test_tokens_are_counted_by_the_planner_and_refused_by_part(folder):  # B18
    target(folder / "target.mov")
    planner = OneTokenACharacter()
    options = DatasetOptions(width=64, height=64, num_frames=22, max_presentation_tokens=100)
    report = validate(
        folder,
        raw_row("short", caption="x" * 80, references=[IMAGE, AUDIO]),
        raw_row("long", caption="x" * 95, references=[IMAGE, AUDIO]),
        raw_row("odd", caption="an <|image_pad|>"),
        options=options,
        planner=planner,
    )
    assert [row.sample.id for row in report.admitted] == ["short"]
    (row,) = report.admitted
    assert row.tokens.total == 90
    assert [reference.frames for reference in planner.seen[0]] == [1, 0]
    rows = 7 * 2 * 2 + 2 * 37 + (2048 // 32) * (4096 // 32) + 2 * 37
    assert row.sequence_length == 90 + rows
    assert row.capacity % 256 == 0 and 0 <= row.capacity - row.sequence_length < 256
    refused = next(v for v in report.findings if v.code is Code.TOKENS_EXCEEDED)
    assert "105 presentation tokens (reference 0: 10, reference 1: 0, caption: 95)" in refused.message()
    assert "nothing is truncated" in refused.message()
    assert ("value_invalid", "caption") in found(report)
    assert not report.is_partial


def test_without_a_planner_the_report_is_partial(folder):
    target(folder / "target.mov")
    report = validate(folder, raw_row())
    assert report.is_partial
    assert report.is_valid
    assert report.rows[0].sequence_length is None


def test_the_bucket_table_names_rows_frames_and_repeats(folder):  # B07, B08
    target(folder / "target.mov")
    other = {"width": 96, "height": 64, "num_frames": 5}
    rows = [raw_row(str(i)) for i in range(5)] + [raw_row("x", target_geometry=other)]
    report = validate(folder, *rows, options=DatasetOptions(width=64, height=64, num_frames=22, global_batch_rows=4))
    assert [(b.name, b.rows, b.frames, b.repeats) for b in report.buckets] == [
        ("bucket=64x64-22f", 5, 110, 3),
        ("bucket=96x64-5f", 1, 5, 3),
    ]
    assert ("bucket_single_row", "bucket=96x64-5f") in found(report, Severity.WARNING)
    assert report.is_valid


def test_every_row_ends_as_admitted_or_refused(folder):  # B19
    target(folder / "target.mov")
    write_video(folder / "mute.mov", frames=22)
    path = folder / "train.jsonl"
    rows = [raw_row("a"), raw_row("b", target={"video": "mute.mov"}), raw_row("a"), raw_row("c", caption=3)]
    path.write_text("\n".join([*map(json.dumps, rows), "broken"]))
    report = validate_manifest(path, SMALL)
    assert report.rows_total == 5
    assert len(report.admitted) + len(report.refused_rows) == 5
    assert {v.row for v in report.findings if v.severity is Severity.ERROR} == {2, 3, 4, 5}


def test_counting_again_is_free_and_a_lost_cache_costs_only_counting(folder):
    target(folder / "target.mov")
    cache = folder / "counts"
    row = raw_row(references=[IMAGE, AUDIO])
    first = MediaFacts(cache)
    before = validate(folder, row, facts=first)
    assert first.decoded == 4
    again = MediaFacts(cache)
    assert validate(folder, row, facts=again).rows == before.rows
    assert again.decoded == 0
    for entry in cache.iterdir():
        entry.write_text("{torn")
    torn = MediaFacts(cache)
    assert validate(folder, row, facts=torn).rows == before.rows
    assert torn.decoded == 4


def test_a_count_belongs_to_the_bytes_not_to_the_name(folder):
    target(folder / "target.mov")
    cache = folder / "counts"
    assert validate(folder, raw_row(), facts=MediaFacts(cache)).is_valid
    target(folder / "target.mov", 10)
    assert [code for code, _ in found(validate(folder, raw_row(), facts=MediaFacts(cache)))] == [
        "target_short",
        "target_audio_short",
    ]


def test_a_silent_reference_is_told_and_one_of_integer_scale_is_refused(folder):
    target(folder / "target.mov")
    soundfile.write(folder / "voice.wav", np.zeros(16_000), 16_000)
    silent = validate(folder, raw_row(references=[IMAGE, AUDIO]))
    assert ("audio_silent", "references[1].audio") in found(silent, Severity.WARNING)
    assert found(silent) == []
    cast = (np.sin(np.arange(16_000) / 9) * 9_830).astype(np.float32)
    soundfile.write(folder / "voice.wav", cast, 16_000, subtype="FLOAT")
    assert found(validate(folder, raw_row(references=[IMAGE, AUDIO]))) == [("audio_scale", "references[1].audio")]


def swapped_in(path, make):
    """Put what ``make`` writes in the place of ``path``, with its size and modification time."""
    status = path.stat()
    new = make(path.with_name(f"new_{path.name}"))
    assert new.stat().st_size == status.st_size
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
    new.replace(path)


def white_noise(path, seed):
    samples = np.random.default_rng(seed).uniform(-0.5, 0.5, 16_000)
    soundfile.write(path, samples, 16_000)
    return path


def test_a_file_of_the_same_size_and_time_swapped_in_makes_the_row_anew(folder, monkeypatch):
    def digests():
        facts = MediaFacts(folder / "counts")
        report = validate(folder, raw_row(references=[IMAGE, AUDIO]), facts=facts)
        (plan,), (row,) = report.plans, report.rows
        made = row_input(plan, row.sample, facts, SMALL)
        return made.target_digest, made.references[1].audio_digest, report.media_read, report.media_trusted

    monkeypatch.setattr("muvap_assets.storage.digests.SETTLED_SEC", -1.0)
    target(folder / "target.mov")
    white_noise(folder / "voice.wav", seed=1)
    first, second = digests(), digests()
    assert first[2:] == (3, 0)
    assert second == (*first[:2], 0, 3)
    swapped_in(folder / "voice.wav", lambda path: white_noise(path, seed=2))
    third = digests()
    assert third[0] == first[0]
    assert third[1] != first[1]
    assert third[1].startswith(hashlib.sha256((folder / "voice.wav").read_bytes()).hexdigest())
    assert third[2:] == (1, 2)


def test_a_link_in_a_circle_is_a_missing_file(tmp_path):
    (tmp_path / "a.mov").symlink_to("a.mov")
    with pytest.raises(ValidationError, match=r"a\.mov: it cannot be read \(Too many levels of symbolic links\)"):
        MediaFacts(tmp_path / "counts").digest(tmp_path / "a.mov")


def test_threads_count_the_same(folder):
    target(folder / "target.mov")
    write_video(folder / "clip.mp4", frames=30)
    row = raw_row(references=[IMAGE, AUDIO, {"type": "video", "video": "clip.mp4"}])
    assert validate(folder, row, workers=3).rows == validate(folder, row).rows


def test_the_written_manifest_reads_back(folder, tmp_path_factory):
    target(folder / "target.mov")
    geometry = {"width": 64, "height": 96, "num_frames": 22}
    rows = [
        raw_row("a", references=[IMAGE, {**AUDIO, "sample_rate": 16_000}], target_geometry=geometry),
        raw_row("b", caption='Ünïcode\n"quoted"'),
        raw_row("c", target={"video": "voice.wav"}),
    ]
    report = validate(folder, *rows, planner=OneTokenACharacter())
    out = tmp_path_factory.mktemp("written")
    write_manifest(out, report)
    files = read_manifest(out)
    assert files.samples == tuple(row.sample for row in report.admitted)
    assert files.findings == report.findings
    assert files.report["rows_total"] == 3 and files.report["rows_refused"] == 1
    assert files.report["partial"] is False
    assert files.report["estimated_bytes"] == sum(row.estimated_bytes for row in report.admitted)
    table = files.table.to_pylist()
    assert [row["admitted"] for row in table] == [True, True, False]
    assert table[0]["bucket"] == "bucket=64x96-22f"
    assert (table[0]["source_frames"], table[0]["frames_at_24"], table[0]["longest_valid_frames"]) == (22, 22, 22)
    assert (table[0]["audio_samples_required"], table[0]["audio_channels"]) == (29_333, 2)
    for path in out.iterdir():
        assert str(folder).encode() not in path.read_bytes()
    second = tmp_path_factory.mktemp("again")
    write_manifest(second, validate(folder, *rows, planner=OneTokenACharacter()))
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {p.name: p.read_bytes() for p in second.iterdir()}


def test_chosen_streams_read_back_and_add_columns_only_where_there_are_some(folder, tmp_path_factory):
    target(folder / "target.mov")
    chosen = raw_row("a", target={"video": "target.mov", "audio_stream": 0}, references=[IMAGE, AUDIO])
    tables = []
    for row in (chosen, raw_row("b", references=[IMAGE, AUDIO])):
        report = validate(folder, row)
        out = tmp_path_factory.mktemp("written")
        write_manifest(out, report)
        files = read_manifest(out)
        assert files.samples == tuple(row.sample for row in report.admitted)
        tables.append(files.table)
    assert files.samples[0].audio_stream is None
    assert set(tables[0].schema.names) - set(tables[1].schema.names) == {"target_audio_stream"}


def test_a_torn_or_foreign_manifest_is_refused_when_read(folder):
    with pytest.raises(FormatError, match=r"manifest.parquet: missing .* Materialize or pack it again"):
        read_manifest(folder)
