"""Real files through validation and preparation: 25 fps with 5.1 sound as target, a silent clip and a voice as references."""

from fractions import Fraction

import numpy as np
import pytest
import soundfile
import soxr
from media_makers import raw_row, write_rows
from PIL import Image

from muvap_assets.codes import Severity
from muvap_assets.findings import errors_of
from muvap_assets.ref2va.contract import DatasetOptions, Format, Geometry, ModelSizes
from muvap_assets.ref2va.manifest import validate_manifest
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.prepare import row_input

pytestmark = pytest.mark.real
SMALL = ModelSizes(canvas_short_edge=64, canvas_max_pixels=8192, reference_image_short_edge=64)


@pytest.fixture
def folder(tmp_path, real_media):
    """A dataset folder with the real files linked in."""
    for name in ("bigbuckbunny.mp4", "bikes.mp4", "sample.wav"):
        (tmp_path / name).symlink_to((real_media / name).resolve())
    return tmp_path


def validate(folder, options, **fields):
    row = raw_row(target={"video": "bigbuckbunny.mp4"}, **fields)
    return validate_manifest(write_rows(folder / "train.jsonl", [row]), options)


def test_a_25_fps_clip_with_surround_sound_serves_as_a_124_frame_target(folder):  # acceptance 3
    from muvap_assets.media.video import VideoSource

    with VideoSource(folder / "bikes.mp4") as bikes:
        Image.fromarray(next(bikes.frames()).pixels()).save(folder / "bikes.png")
    options = DatasetOptions(width=128, height=64, allow_outside=True, sizes=SMALL)
    references = [
        {"type": "video", "video": "bikes.mp4"},
        {"type": "image", "image": "bikes.png"},
        {"type": "audio", "audio": "sample.wav"},
    ]
    report = validate(folder, options, references=references)
    assert not [v for v in report.findings if v.severity is Severity.ERROR]
    (report_row,) = report.admitted
    target = report_row.target
    assert (target.video.frames, target.video.rate, target.video.width, target.video.height) == (132, 25, 1280, 720)
    assert (target.video.duration_sec, target.frames_at_24, target.longest_valid_frames) == (
        Fraction(132, 25),
        127,
        124,
    )
    assert (target.sound.channels, target.sound.rate_hz, target.sound.samples) == (6, 48_000, 254_976)
    row = row_input(report_row.plan, report_row.sample, MediaFacts(), options)
    frames = np.concatenate(list(row.target_frames()))
    assert frames.shape == (124, 64, 128, 3)
    assert row.target_waveform().shape == (2, 165_333)
    video, image, voice = row.references
    assert (video.num_frames, video.size, video.geometry.visual_rows) == (124, (128, 64), 37 * 2 * 4)
    assert (image.size, image.geometry.visual_rows) == ((160, 64), 10)
    sound, rate = soundfile.read(folder / "sample.wav", dtype="float32")
    expected = soxr.resample(sound[: 124 * rate // 24], rate, 32_000)
    np.testing.assert_array_equal(voice.waveform(), np.stack([expected, expected]))
    assert voice.geometry.num_audio_latents == 207


def test_the_target_frames_are_those_of_the_24_fps_rule(folder):
    import av

    options = DatasetOptions(width=64, height=64, num_frames=56, allow_outside=True, sizes=SMALL)
    references = [{"type": "video", "video": "bikes.mp4"}]
    (report_row,) = validate(folder, options, references=references).admitted
    made = np.concatenate(list(row_input(report_row.plan, report_row.sample, MediaFacts(), options).target_frames()))
    with av.open(str(folder / "bigbuckbunny.mp4")) as container:
        decoded = [
            frame.to_ndarray(format="rgb24") for _, frame in zip(range(60), container.decode(video=0), strict=False)
        ]
    slots = [int(Fraction(24 * index, 25) + Fraction(1, 2)) for index in range(61)]
    kept = [index for index in range(60) for _ in range(slots[index + 1] - slots[index])][:56]
    for frame, index in zip(made, kept, strict=True):
        expected = Image.fromarray(decoded[index]).resize((64, 64), Image.Resampling.LANCZOS)
        np.testing.assert_array_equal(frame, np.asarray(expected))


def test_a_clip_without_sound_is_refused_as_target(folder):
    options = DatasetOptions(width=64, height=64, allow_outside=True)
    row = raw_row(target={"video": "bikes.mp4"}, references=[{"type": "video", "video": "bikes.mp4"}])
    report = validate_manifest(write_rows(folder / "train.jsonl", [row]), options)
    assert [str(v.code) for v in errors_of(report.findings)] == ["target_audio_missing"]


def test_sft_keeps_the_clips_own_geometry(folder):
    options = DatasetOptions(format=Format.SFT, allow_outside=True)
    report = validate(folder, options, references=[{"type": "video", "video": "bikes.mp4"}])
    (row,) = report.admitted
    assert row.plan.geometry == Geometry(1344, 768, 124)
    assert row.plan.references[0].geometry.latent_width * 16 == row.plan.references[0].size.width
