"""The arithmetic against exact fractions and known values. What the library says is in test_geometry_library.py."""

from fractions import Fraction
from math import ceil, floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muvap_assets.errors import ConfigError
from muvap_assets.media import video
from muvap_assets.ref2va.contract import (
    CAPACITY_MULTIPLE,
    MAX_CANVAS_PIXELS,
    DatasetOptions,
    Format,
    Geometry,
    ModelSizes,
    ReferenceKind,
    Size,
    is_frame_count,
)
from muvap_assets.ref2va.geometry import (
    audio_latents_of,
    bucket_name,
    encoded_reference_frames,
    frames_at_24,
    joint_sequence_length,
    largest_frame_count,
    padded_length,
    parse_bucket_name,
    reference_audio_limit,
    reference_geometry,
    reference_image_size,
    reference_video_frames,
    required_audio_samples,
    resampled_count,
    resolve_canvas,
    slot_of,
    target_audio_latents,
    target_audio_samples,
    target_rows,
    video_latent_frames,
)

lattice = st.integers(0, 200).map(lambda n: 17 * n + 5)
rates = st.sampled_from([8000, 11_025, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000, 96_000])


@pytest.mark.parametrize(
    ("frames", "latents", "packed", "sft"),
    [
        (124, 207, 165_333, 165_600),
        (158, 263, 210_400, 210_400),
        (209, 348, 278_400, 278_400),
        (260, 433, 346_400, 346_400),
        (311, 518, 414_400, 414_400),
        (362, 603, 482_400, 482_400),
    ],
)
def test_audio_is_cut_to_the_latents_of_the_clip(frames, latents, packed, sft):  # acceptance 4, B13
    assert target_audio_latents(frames) == latents
    assert target_audio_samples(frames, Format.PACKED) == packed
    assert target_audio_samples(frames, Format.SFT) == sft


@given(frames=lattice, format=st.sampled_from(Format))
def test_cut_audio_gives_exactly_the_latents_of_the_target(frames, format):
    latents = round(Fraction(frames, 24) * 40)
    assert target_audio_latents(frames) == latents
    limit = target_audio_samples(frames, format)
    assert limit <= latents * 800
    for samples in (limit, required_audio_samples(frames)):
        assert audio_latents_of(samples) == ceil(Fraction(samples, 800)) == latents
    if format is Format.PACKED:
        assert limit <= Fraction(frames * 32_000, 24)


@given(frames=lattice)
def test_audio_exactly_as_long_as_the_clip_is_never_short(frames):  # B13
    assert floor(Fraction(frames, 24) * 32_000) >= required_audio_samples(frames)


def test_130_frames_are_refused_and_the_neighbours_are_named():  # acceptance 4: never snapped
    with pytest.raises(ConfigError, match=r"130.*17 \* n \+ 5.*124 or 141"):
        Geometry(64, 64, 130)


@pytest.mark.parametrize("frames", [5, 22, 124, 345, 362, 379])
def test_every_count_on_the_lattice_is_a_geometry(frames):  # acceptance 4: over 345 too
    assert Geometry(832, 480, frames).num_frames == frames
    assert video_latent_frames(frames) == (frames - 5) // 17 * 5 + 2


def test_a_canvas_is_no_larger_than_a_frame_of_a_video_may_be():
    assert video.MAX_PIXELS == MAX_CANVAS_PIXELS
    assert Geometry(6400, 5600, 22).width * 5600 <= 36_000_000
    for width, height in ((6400, 5632), (1_344_000, 768), (32 * 10**9, 32 * 10**9), (2**63, 32)):
        with pytest.raises(ConfigError, match="at most 36,000,000 pixels"):
            Geometry(width, height, 22)


def test_a_target_is_no_longer_than_ten_minutes():
    assert 14_387 <= 10 * 60 * 24 < 14_387 + 17
    assert Geometry(64, 64, 14_387).num_frames == 14_387
    with pytest.raises(ConfigError, match=r"num_frames is 14404, required is .* at most 14387"):
        Geometry(64, 64, 14_404)


@given(available=st.integers(0, 2000))
def test_the_largest_frame_count_is_on_the_lattice_and_the_next_does_not_fit(available):
    count = largest_frame_count(available)
    if count is None:
        assert available < 5
    else:
        assert is_frame_count(count)
        assert count <= available < count + 17


@pytest.mark.parametrize(("width", "height"), [(0, 64), (64, -32), (48, 64), (64, 33)])
def test_a_canvas_off_the_lattice_is_refused(width, height):
    with pytest.raises(ConfigError, match="positive multiple of 32"):
        Geometry(width, height, 22)


@pytest.mark.parametrize(
    ("fps", "needed"),
    [
        (Fraction(24), 124),
        (Fraction(25), 129),
        (Fraction(30_000, 1001), 155),
        (Fraction(30), 155),
        (Fraction(50), 258),
        (Fraction(60), 309),
    ],
)
def test_source_frames_that_124_need(fps, needed):
    assert frames_at_24(needed, fps) >= 124
    assert frames_at_24(needed - 1, fps) < 124


@pytest.mark.parametrize(("fps", "made"), [(Fraction(24_000, 1001), 101), (Fraction(30), 81), (Fraction(16), 152)])
def test_101_frames_retimed_to_24(fps, made):  # B02
    assert frames_at_24(101, fps) == made


@given(seconds=st.fractions(min_value=0, max_value=10_000))
def test_a_slot_is_the_rounded_time(seconds):
    assert slot_of(seconds) == floor(24 * seconds + Fraction(1, 2))


@given(samples=st.integers(0, 10**7), rate=rates)
def test_resampled_counts_round_halves_up(samples, rate):
    assert resampled_count(samples, rate) == floor(Fraction(samples * 32_000, rate) + Fraction(1, 2))


@given(frames=lattice, rate=rates)
def test_reference_sound_is_cut_to_the_targets_duration(frames, rate):
    assert reference_audio_limit(frames, rate) == floor(Fraction(frames, 24) * rate)


@pytest.mark.parametrize(
    ("source", "canvas"),
    [((1920, 1080), (1344, 768)), ((1080, 1920), (768, 1344)), ((640, 640), (768, 768)), ((4096, 1024), (2016, 512))],
)
def test_canvases_of_known_clips(source, canvas):
    assert resolve_canvas(Size(*source), ModelSizes()) == canvas


def test_reference_images_keep_their_own_short_edge():
    assert reference_image_size(Size(1920, 1080), ModelSizes()) == (3648, 2048)
    assert reference_image_size(Size(192, 108), ModelSizes()) == (3648, 2048)


@pytest.mark.parametrize("size", [Size(401, 100), Size(100, 401)])
def test_aspects_beyond_four_to_one_are_refused(size):
    for rule in (resolve_canvas, reference_image_size):
        with pytest.raises(ConfigError, match="1:4 and 4:1"):
            rule(size, ModelSizes())


@pytest.mark.parametrize(
    ("available", "read", "encoded", "latents"),
    [(300, 124, 124, 37), (123, 123, 107, 32), (22, 22, 22, 7), (21, 21, 21, 7), (18, 18, 18, 7), (17, 17, 17, 2)],
)
def test_reference_videos_are_cut_to_the_target_then_to_the_lattice(available, read, encoded, latents):
    frames = reference_video_frames(available, 124)
    assert (frames, encoded_reference_frames(frames)) == (read, encoded)
    assert video_latent_frames(encoded_reference_frames(frames)) == latents


def test_condition_rows_of_the_released_sizes():
    image = reference_geometry(ReferenceKind.IMAGE, size=Size(3648, 2048))
    video = reference_geometry(ReferenceKind.VIDEO, size=Size(1344, 768), frames=124)
    audio = reference_geometry(ReferenceKind.AUDIO, audio_samples=165_333)
    assert (image.visual_rows, image.audio_rows) == (7296, 0)
    assert (video.visual_rows, video.has_audio, video.audio_rows) == (37_296, False, 0)
    assert (audio.visual_rows, audio.audio_rows) == (0, 414)
    assert (audio.num_latent_frames, audio.latent_height, audio.latent_width) == (0, 0, 0)


def test_a_silent_video_has_no_audio_rows_whatever_its_file_holds():  # B16
    silent = reference_geometry(ReferenceKind.VIDEO, size=Size(64, 64), frames=22, audio_samples=10_000)
    sounding = reference_geometry(ReferenceKind.VIDEO_AUDIO, size=Size(64, 64), frames=22, audio_samples=10_000)
    assert silent.audio_rows == 0
    assert sounding.audio_rows == 26
    assert (silent.media_type, sounding.media_type) == ("video", "video")


def test_image_references_are_counted_as_images():  # B15
    rows = sum(reference_geometry(ReferenceKind.IMAGE, size=Size(64, 64)).visual_rows for _ in range(2))
    assert rows == 2 * 4


def test_the_joint_sequence_of_a_released_row():
    image = reference_geometry(ReferenceKind.IMAGE, size=Size(3648, 2048))
    geometry = Geometry(1344, 768, 124)
    assert target_rows(geometry) == 37_296 + 414
    length = joint_sequence_length(7711, [image], geometry)
    assert length == 52_717
    assert padded_length(length) == 52_736


@given(length=st.integers(0, 10**6))
def test_capacities_are_the_next_multiple(length):
    capacity = padded_length(length)
    assert capacity % CAPACITY_MULTIPLE == 0
    assert max(length, 1) <= capacity < max(length, 1) + CAPACITY_MULTIPLE


@given(width=st.integers(1, 100), height=st.integers(1, 100), frames=lattice)
def test_bucket_names_round_trip(width, height, frames):  # B08
    geometry = Geometry(32 * width, 32 * height, frames)
    assert parse_bucket_name(bucket_name(geometry)) == geometry


@pytest.mark.parametrize("name", ["bucket=64x64-22", "bucket=064x64-22f", "bucket=64x64-23f", "64x64-22f"])
def test_other_folder_names_are_no_buckets(name):
    with pytest.raises(ConfigError):
        parse_bucket_name(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"width": 100},
        {"num_frames": 130},
        {"max_presentation_tokens": 0},
        {"max_presentation_tokens": 104_858},
        {"reference_noise_seed": -1},
        {"reference_noise_seed": 2**63},
    ],
)
def test_wrong_options_are_named(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        DatasetOptions(**wrong)


def test_every_seed_that_a_row_can_store_is_accepted():
    greatest = int(np.iinfo(np.int64).max)
    assert DatasetOptions(reference_noise_seed=greatest).reference_noise_seed == greatest


def test_no_limit_admits_a_text_that_fits_no_arrow_cell():
    """32-bit offsets, 5120 values of 4 bytes a token."""
    assert 104_857 * 5120 * 4 < 2**31 <= 104_858 * 5120 * 4
    assert DatasetOptions(max_presentation_tokens=104_857).max_presentation_tokens == 104_857
    with pytest.raises(ConfigError, match=r"max_presentation_tokens: found 104858, .* at most 104857.*Arrow cell"):
        DatasetOptions(max_presentation_tokens=104_858)


def test_the_defaults_are_the_contracts():
    options = DatasetOptions()
    assert options.geometry == Geometry(1344, 768, 124)
    assert (options.max_presentation_tokens, options.reference_noise_seed, options.format) == (
        65_536,
        42,
        Format.PACKED,
    )


def test_a_checkpoint_may_name_its_own_sizes():
    assert ModelSizes.of_index({"canvas_short_edge": 64, "vae": []}).canvas_short_edge == 64
    with pytest.raises(ConfigError, match="canvas_max_pixels"):
        ModelSizes.of_index({"canvas_max_pixels": "8192"})
