"""Validation: exact counts, the one verdict, tokens, buckets, and the files it leaves."""

import hashlib
import json
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from media_makers import raw_row, target, tone, write_rows, write_video
from PIL import Image

from muvap_assets.errors import EncodeError, FormatError, MediaError, Severity, ViolationCode
from muvap_assets.media.soundtrack import SoundFacts
from muvap_assets.media.video import VideoFacts
from muvap_assets.ref2va.contract import DatasetOptions, Format, Geometry, ReferenceGeometry, Size, TokenPlan
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
            raise EncodeError(ViolationCode.VALUE_INVALID, "caption", found="a", required="b", hint="c")
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
    return [(str(v.code), v.field) for v in report.violations if v.severity is severity]


# --- rows that no file can hold ---------------------------------------------------------------------------------------


class _Counted(MediaFacts):
    """Media that nobody has to make: a video of ten minutes with sound."""

    def video(self, path):
        seconds = Fraction(14_387, 24)
        return VideoFacts(
            frames=14_387, first_sec=Fraction(0), duration_sec=seconds, rate=Fraction(24), width=1344, height=768
        )

    def sound(self, path):
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
    assert f"{2 * 4232 * 1008 * 96 * 4:,} bytes" in report.violations[-1].found
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
    assert report.violations[0].found == (
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


def test_a_sound_that_starts_late_has_a_lead_and_no_hole(folder):
    target(folder / "target.mov", sound_start=Fraction(1, 2))
    report = validate(folder, raw_row())
    assert found(report) == []
    assert ("audio_offset", "target.video") in found(report, Severity.WARNING)


def test_a_hole_in_a_references_sound_is_refused(folder):
    target(folder / "target.mov")
    target(folder / "other.mkv", 30, sound_holes=[(8000, 16_000)])
    target(folder / "late.mkv", 30, sound_holes=[(30_016, 38_016)])
    own = {"type": "video_audio", "video": "other.mkv", "audio": "other.mkv"}
    late = {"type": "video_audio", "video": "late.mkv", "audio": "late.mkv"}
    report = validate(folder, raw_row(references=[late, own, {"type": "audio", "audio": "other.mkv"}]))
    assert found(report) == [("reference_short", "references[1].audio"), ("reference_short", "references[2].audio")]
    assert all("0.250 s from 0.250 s on" in v.found for v in report.violations if v.severity is Severity.ERROR)


def test_sounds_counted_before_gaps_were_are_counted_again(folder):
    target(folder / "target.mkv", 30, sound_holes=[(8000, 16_000)])
    row, cache = raw_row(target={"video": "target.mkv"}), folder / "counts"
    before = validate(folder, row, facts=MediaFacts(cache))
    (entry,) = cache.glob("sound-*.json")
    record = json.loads(entry.read_text())
    assert record["facts"].pop("gaps") == [[8000, 8000]]
    entry.write_text(json.dumps(record))
    facts = MediaFacts(cache)
    assert validate(folder, row, facts=facts).violations == before.violations
    assert facts.decoded == 1
    assert validate(folder, row, facts=MediaFacts(cache)).rows == before.rows


# --- targets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("frames", "admitted"), [(123, 0), (124, 1), (125, 1)])
@pytest.mark.parametrize("suffix", [".mov", ".mkv"])
def test_124_frames_take_124_frames(folder, frames, admitted, suffix):  # B01, B19
    name = target(folder / f"clip{suffix}", frames, sound=tone(170_000)).name
    report = validate(folder, raw_row(target={"video": name}), options=DatasetOptions(width=64, height=64))
    assert len(report.admitted) == admitted
    assert (report.rows_total, len(report.refused_rows)) == (1, 1 - admitted)
    if not admitted:
        message = report.violations[0].message()
        assert "123 source frames at 24.000 fps, 5.125 s, make 123 frames at 24 fps" in message
        assert "the longest valid count is 107" in message


@pytest.mark.parametrize(
    ("fps", "made", "longest"), [(Fraction(24_000, 1001), 101, 90), (Fraction(30), 81, 73), (Fraction(16), 152, 141)]
)
def test_a_short_target_is_told_what_became_of_its_frames(folder, fps, made, longest):  # B02
    target(folder / "target.mov", 101, fps=fps, sound=tone(400_000))
    report = validate(folder, raw_row(), options=DatasetOptions(width=64, height=64, num_frames=158))
    message = report.violations[-1].message()
    seconds = float(101 / fps)
    assert f"101 source frames at {float(fps):.3f} fps, {seconds:.3f} s, make {made} frames at 24 fps" in message
    assert f"the longest valid count is {longest}" in message
    assert "at least the 158 frames of its geometry" in message


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
    message = report.violations[0].message()
    assert "165332 audio samples" in message and "at least the 165333" in message and "covers 107 frames" in message


def test_a_target_without_sound_is_refused(folder):  # B12
    write_video(folder / "target.mov", frames=22)
    report = validate(folder, raw_row())
    assert found(report) == [("target_audio_missing", "target.video")]
    assert "no audio stream" in report.violations[0].message() + report.violations[1].message()


def test_an_all_zero_target_warns(folder):  # B12
    target(folder / "target.mov", sound=np.zeros((2, 30_000), np.float32))
    report = validate(folder, raw_row())
    assert ("audio_silent", "target.video") in found(report, Severity.WARNING)
    assert report.is_valid


@pytest.mark.parametrize(("offset", "warns"), [(Fraction(1, 2), True), (Fraction(1, 40), False)])
def test_sound_that_starts_elsewhere_is_aligned_and_reported(folder, offset, warns):  # B14
    target(folder / "target.mov", sound=tone(40_000), sound_start=offset)
    report = validate(folder, raw_row())
    assert (("audio_offset", "target.video") in found(report, Severity.WARNING)) is warns
    (row,) = report.admitted
    made = row_input(row.plan, row.sample, MediaFacts(), report.options).target_waveform()
    lead = round(offset * 32_000)
    assert np.abs(made[:, :lead]).max() == 0
    np.testing.assert_allclose(made[:, lead:], tone(40_000)[:, : made.shape[1] - lead], atol=1e-4)


def test_a_header_that_promises_more_is_reported_and_not_believed(folder, monkeypatch):  # B01
    from muvap_assets.media import video

    target(folder / "target.mov", 30)
    monkeypatch.setattr(
        video.VideoSource,
        "_decoded",
        lambda self: (frame for i, frame in enumerate(self._container.decode(self._stream)) if i < 20),
    )
    report = validate(folder, raw_row())
    assert "20 frames decode; the header promises 30" in " ".join(v.message() for v in report.violations)
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
        assert f"{frames} source frames at 24.000 fps" in report.violations[-1].message()


def test_rates_that_differ_from_the_decoders_warn_with_both(folder):
    target(folder / "target.mov")
    write_video(folder / "clip.mp4", frames=40, fps=25)
    references = [{"type": "video", "video": "clip.mp4", "fps": 30}, {**AUDIO, "sample_rate": 44_100}]
    close = [{"type": "video", "video": "clip.mp4", "fps": 25.1}, {**AUDIO, "sample_rate": 16_100}]
    report = validate(folder, raw_row("a", references=references), raw_row("b", references=close))
    warnings = [v for v in report.violations if v.code is ViolationCode.RATE_MISMATCH]
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
def test_media_that_cannot_serve_is_a_violation_of_its_row(folder, reference, code):
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
    assert {v.sample_id for v in report.violations if v.severity is Severity.ERROR} == {"bad"}
    assert [row.sample.id for row in report.admitted] == ["good"]
    assert str(folder) not in report.violations[0].message()


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
    except MediaError:
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
    refused = next(v for v in report.violations if v.code is ViolationCode.TOKENS_EXCEEDED)
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
    assert {v.row for v in report.violations if v.severity is Severity.ERROR} == {2, 3, 4, 5}


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
    with pytest.raises(MediaError, match=r"a\.mov: it cannot be read \(Too many levels of symbolic links\)"):
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
    assert files.violations == report.violations
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


def test_a_torn_or_foreign_manifest_is_refused_when_read(folder):
    with pytest.raises(FormatError, match="Materialize ref2va/manifest again"):
        read_manifest(folder)
