"""Frames and sound at the model's rates, against independent computations."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
import soundfile
import soxr
from encoder_rows import FakeEncoder
from media_makers import number_of, numbered, target, tone, write_tracks, write_video
from PIL import Image

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.media.video import VideoSource
from muvap_assets.ref2va.contract import DatasetOptions, Format, Geometry, RawSample, Reference, ReferenceKind, Size
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.plan import plan_row
from muvap_assets.ref2va.prepare import frame_blocks, media_version, row_input, waveform
from muvap_assets.ref2va.row_store import part_key

SQUARE = Size(64, 64)


def numbers(path, num_frames, **options):
    blocks = list(frame_blocks(path, size=SQUARE, num_frames=num_frames, **options))
    return [number_of(frame) for block in blocks for frame in block], [len(block) for block in blocks]


@pytest.mark.parametrize(
    "fps", [Fraction(24), Fraction(25), Fraction(30_000, 1001), Fraction(30), Fraction(50), Fraction(16), Fraction(48)]
)
@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_frames_are_held_to_the_slot_of_the_next(tmp_path, fps, suffix):
    path = write_video(tmp_path / f"clip{suffix}", frames=70, fps=fps)
    shown = []
    for index in range(70):
        first, stop = (int(Fraction(24 * i) / fps + Fraction(1, 2)) for i in (index, index + 1))
        shown += [index] * (stop - first)
    found, sizes = numbers(path, 22)
    assert found == shown[:22]
    assert sizes == [17, 5]


def test_a_variable_rate_is_followed_by_timestamps_not_by_index(tmp_path):  # B03
    pts = [*range(0, 24), *range(24, 72, 3)]  # at 24 ticks a second: 1 s at 24 fps, then 2 s at 8 fps
    path = write_video(tmp_path / "vfr.mp4", frames=len(pts), pts=pts, time_base=Fraction(1, 24))
    found, _ = numbers(path, 56)
    assert found[:24] == list(range(24))
    assert found[24:39] == [24] * 3 + [25] * 3 + [26] * 3 + [27] * 3 + [28] * 3
    assert found[48] == 32  # at 2 s; by index and average rate it would be frame 26


def test_the_rotation_is_applied_before_resizing(tmp_path):  # B04
    stored = np.zeros((32, 64, 3), np.uint8)
    stored[:16, :32] = 255
    path = write_video(tmp_path / "phone.mp4", frames=[stored] * 5, rotation=(270, False))
    (block,) = frame_blocks(path, size=Size(32, 64), num_frames=5)
    assert block.shape == (5, 64, 32, 3)
    assert block[0, 5, 28].min() > 200  # clockwise: the bright corner is top right
    assert block[0, 5, 3].max() < 50


def test_resizing_is_pillows_lanczos_onto_the_asked_canvas(tmp_path):
    noise = [np.random.default_rng(i).integers(0, 255, (48, 64, 3), np.uint8) for i in range(5)]
    path = write_video(tmp_path / "clip.mp4", frames=noise)
    with VideoSource(path) as source:
        decoded = [frame.pixels() for frame in source.frames()]
    (block,) = frame_blocks(path, size=Size(96, 32), num_frames=5)  # no aspect rescue
    for made, stored in zip(block, decoded, strict=True):
        expected = Image.fromarray(stored).resize((96, 32), Image.Resampling.LANCZOS)
        np.testing.assert_array_equal(made, np.asarray(expected))


def test_a_video_that_is_shorter_than_asked_is_refused_and_never_extended(tmp_path):
    path = write_video(tmp_path / "clip.mp4", frames=21)
    with pytest.raises(ValidationError, match="yields only 21 frames"):
        numbers(path, 22)


def test_blocks_already_handed_out_are_not_written_to_again(tmp_path):
    path = write_video(tmp_path / "clip.mp4", frames=39)
    blocks = list(frame_blocks(path, size=SQUARE, num_frames=39))
    assert [number_of(frame) for block in blocks for frame in block] == list(range(39))


@pytest.mark.parametrize("rate", [16_000, 44_100, 48_000, 32_000])
def test_sound_equals_one_resampling_of_the_whole(tmp_path, rate):
    sound = tone(rate, rate=rate)
    soundfile.write(tmp_path / "voice.wav", sound.T, rate, subtype="FLOAT")
    whole = soxr.resample(sound.T, rate, 32_000).T
    np.testing.assert_array_equal(waveform(tmp_path / "voice.wav", limit=10**6), whole)
    np.testing.assert_array_equal(waveform(tmp_path / "voice.wav", limit=12_345), whole[:, :12_345])


def test_a_reference_is_cut_at_its_own_rate_before_it_is_resampled(tmp_path):
    sound = tone(48_000, rate=48_000)
    soundfile.write(tmp_path / "voice.wav", sound.T, 48_000, subtype="FLOAT")
    cut = soxr.resample(sound[:, :44_000].T, 48_000, 32_000).T
    np.testing.assert_array_equal(waveform(tmp_path / "voice.wav", limit=10**6, source_limit=44_000), cut)


def test_an_overriding_sample_rate_replaces_the_decoders(tmp_path):
    soundfile.write(tmp_path / "voice.wav", tone(16_000).T, 16_000)
    assert waveform(tmp_path / "voice.wav", limit=10**6, rate_hz=8_000).shape == (2, 64_000)


def test_non_finite_sound_is_refused(tmp_path):
    sound = tone(1000)
    sound[0, 3] = np.nan
    soundfile.write(tmp_path / "voice.wav", sound.T, 32_000, subtype="FLOAT")
    with pytest.raises(ValidationError, match="NaN or infinite"):
        waveform(tmp_path / "voice.wav", limit=1000)


def sample_in(folder, **fields):
    return RawSample(
        **{"id": "a", "target_video": folder / "target.mov", "caption": "A lamp.", "references": (), **fields}
    )


@pytest.mark.parametrize(("format", "samples"), [(Format.PACKED, 165_333), (Format.SFT, 165_600)])
def test_target_sound_is_aligned_and_cut_before_encoding(tmp_path, format, samples):  # B13, B14
    sound = tone(170_000)
    target(tmp_path / "target.mov", 124, sound=sound, start=Fraction(1, 4), size=(64, 32))
    facts = MediaFacts()
    options = DatasetOptions(format=format, width=64, height=64)
    sample = sample_in(tmp_path, references=())
    plan, _, findings = plan_row(sample, facts, options)
    assert plan is None and {v.code for v in findings} >= {Code.TARGET_AUDIO_SHORT}

    target(tmp_path / "longer.mov", 124, sound=tone(180_000), start=Fraction(1, 4), size=(64, 32))
    sample = sample_in(tmp_path, target_video=tmp_path / "longer.mov")
    plan, _, findings = plan_row(sample, facts, options)
    row = row_input(plan, sample, facts, options)
    made = row.target_waveform()
    assert made.shape == (2, samples)
    np.testing.assert_allclose(made, tone(180_000)[:, 8000 : 8000 + samples], atol=1e-4)


def test_a_planned_row_prepares_everything_it_declares(tmp_path):
    target(tmp_path / "target.mov", 24)
    write_video(tmp_path / "motion.mp4", frames=30, fps=25, size=(96, 48), sound=tone(40_000), sound_codec="aac")
    Image.fromarray(numbered(5, 80, 40)).save(tmp_path / "picture.png")
    soundfile.write(tmp_path / "voice.wav", tone(30_000, rate=16_000, channels=1).T, 16_000)
    clip, voice = tmp_path / "motion.mp4", tmp_path / "voice.wav"
    sample = sample_in(
        tmp_path,
        geometry=Geometry(64, 32, 22),
        references=(
            Reference(kind=ReferenceKind.IMAGE, image=tmp_path / "picture.png"),
            Reference(kind=ReferenceKind.VIDEO, video=clip),
            Reference(kind=ReferenceKind.AUDIO, audio=voice),
            Reference(kind=ReferenceKind.VIDEO_AUDIO, video=clip, audio=clip, fps=Fraction(24)),
        ),
    )
    facts = MediaFacts()
    options = DatasetOptions()
    plan, _, _ = plan_row(sample, facts, options)
    row = pickle.loads(pickle.dumps(row_input(plan, sample, facts, options)))
    frames = np.concatenate(list(row.target_frames()))
    assert frames.shape == (22, 32, 64, 3)
    assert row.media_version == media_version()
    for reference in row.references:
        if reference.frames is not None:
            made = np.concatenate(list(reference.frames()))
            assert made.shape == (reference.num_frames, reference.size.height, reference.size.width, 3)
        if reference.waveform is not None:
            assert reference.waveform().shape == (2, reference.audio_samples)
    image, silent, sound, sounding = row.references
    assert image.size == (4096, 2048)
    assert (silent.num_frames, silent.audio_samples) == (22, 0)
    assert silent.waveform is None  # B16: silent even where its file has sound
    assert sound.audio_samples == 22 * 16_000 // 24 * 2
    assert sounding.audio_samples > 0
    assert silent.visual_digest != sounding.visual_digest  # the overriding rate is part of what it is made of
    assert [reference.geometry for reference in row.references] == [item.geometry for item in plan.references]


def test_a_file_that_changed_since_it_was_counted_is_named(tmp_path):
    target(tmp_path / "target.mov", 24)
    sample, facts, options = sample_in(tmp_path, geometry=Geometry(64, 64, 22)), MediaFacts(), DatasetOptions()
    plan, _, _ = plan_row(sample, facts, options)
    row = row_input(plan, sample, facts, options)
    target(tmp_path / "target.mov", 10)
    with pytest.raises(ValidationError, match="The file changed since"):
        list(row.target_frames())
    with pytest.raises(ValidationError, match="The file changed since"):
        row.target_waveform()


# ---- which audio stream

TRACKS = [
    ("eng", "Audio description", "visual_impaired", 1000),
    ("eng", "Main", "default", 2000),
    ("deu", "", "", 3000),
]


def with_stream(folder, stream):
    if not (folder / "target.mkv").exists():  # matroska numbers its files at random
        write_tracks(folder / "target.mkv", TRACKS)
    Image.new("RGB", (64, 64)).save(folder / "picture.png")
    reference = Reference(kind=ReferenceKind.AUDIO, audio=folder / "target.mkv", audio_stream=stream)
    picture = Reference(kind=ReferenceKind.IMAGE, image=folder / "picture.png")
    target = folder / "target.mkv"
    return RawSample(id="a", target_video=target, caption="A.", references=(picture, reference), audio_stream=stream)


@pytest.mark.parametrize(("stream", "level"), [(None, 2000), ("0", 1000), ("deu", 3000)])
def test_the_chosen_stream_is_what_target_and_reference_are_made_of(tmp_path, stream, level):
    options = DatasetOptions(width=64, height=64, num_frames=22)
    facts = MediaFacts(tmp_path / "cache")
    sample = with_stream(tmp_path, stream)
    plan, _, findings = plan_row(sample, facts, options)
    warned = [(v.code, v.field) for v in findings if v.code is Code.AUDIO_STREAM]
    expected = [] if stream else ["target.video", "references[1].audio"]
    assert warned == [(Code.AUDIO_STREAM, field) for field in expected]
    row = row_input(plan, sample, facts, options)
    middle = slice(5000, 20_000)  # the edges ring where the sound begins and ends
    for sound in (row.target_waveform(), row.references[1].waveform()):
        np.testing.assert_allclose(sound[:, middle], level / 32768, atol=1e-5)
    again, _, remembered = plan_row(sample, MediaFacts(tmp_path / "cache"), options)
    assert (again, remembered) == (plan, findings)


def test_another_stream_is_other_content(tmp_path):
    options, facts = DatasetOptions(width=64, height=64, num_frames=22), MediaFacts()
    rows = []
    for stream in (None, "0", "1"):
        sample = with_stream(tmp_path, stream)
        rows.append(row_input(plan_row(sample, facts, options)[0], sample, facts, options))
    assert len({row.target_sound for row in rows}) == len({row.references[1].audio_digest for row in rows}) == 3
    fingerprint = FakeEncoder().fingerprint
    keys = {
        stage: {part_key(stage, row, fingerprint) for row in rows} for stage in (Stage.TARGET_VIDEO, Stage.TARGET_AUDIO)
    }
    assert [len(each) for each in keys.values()] == [1, 3]  # another stream does not encode the picture again
    assert rows[0].target_digest == facts.digest(tmp_path / "target.mkv")


def test_a_stream_that_is_not_there_is_refused_with_those_that_are(tmp_path):
    _, _, findings = plan_row(
        with_stream(tmp_path, "5"), MediaFacts(), DatasetOptions(width=64, height=64, num_frames=22)
    )
    (target, reference) = [v for v in findings if v.code is Code.AUDIO_STREAM]
    assert (target.field, reference.field) == ("target.video", "references[1].audio")
    assert target.found.endswith("2 (deu); '5' is chosen")
