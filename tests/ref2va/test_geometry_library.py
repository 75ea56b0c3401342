"""Our arithmetic and preparation against the library's own functions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from media_makers import write_video
from PIL import Image

from muvap_assets.media.video import VideoSource
from muvap_assets.ref2va.contract import ModelSizes, Size
from muvap_assets.ref2va.geometry import (
    encoded_reference_frames,
    is_supported_aspect,
    reference_audio_limit,
    reference_image_size,
    resolve_canvas,
    target_audio_latents,
    video_latent_frames,
)
from muvap_assets.ref2va.prepare import frame_blocks, resized

library = pytest.importorskip("diffusers.modular_pipelines.minimax_h3.modular_pipeline")
setup = pytest.importorskip("diffusers.modular_pipelines.minimax_h3.before_encoder").MiniMaxH3Ref2VASetupStep

sizes_drawn = st.builds(Size, st.integers(1, 6000), st.integers(1, 6000)).filter(is_supported_aspect)
models = st.sampled_from([ModelSizes(), ModelSizes(canvas_short_edge=64, canvas_max_pixels=8192)])


@settings(max_examples=1000)
@given(size=sizes_drawn, sizes=models)
def test_canvases_equal_the_librarys(size, sizes):
    height, width = library.resolve_canvas_size(*size, 32, sizes.canvas_short_edge, sizes.canvas_max_pixels)
    assert resolve_canvas(size, sizes) == (width, height)


@given(size=st.builds(Size, st.integers(1, 400), st.integers(1, 400)))
def test_refused_aspects_equal_the_librarys(size):
    try:
        library.resolve_canvas_size(*size, 32, 768, 768 * 1344)
    except ValueError:
        assert not is_supported_aspect(size)
    else:
        assert is_supported_aspect(size)


@pytest.mark.parametrize("frames", range(5, 1000, 17))
def test_frame_and_latent_counts_equal_the_librarys(frames):
    assert library.align_num_frames(frames, 17, 5) == frames
    assert video_latent_frames(frames) == library.video_latent_num_frames(frames, 17, 5)
    assert target_audio_latents(frames) == library.audio_latent_num_frames(frames)


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000])
def test_reference_sound_is_cut_where_the_library_cuts(rate):
    import torch

    for frames in range(5, 400, 17):
        limit = reference_audio_limit(frames, rate)
        sound = torch.zeros(1, 1).expand(2, limit + 5)
        cut = setup._normalize_audio_condition(sound, rate, rate, max_duration=frames / 24)
        assert cut.shape == (2, limit)


@settings(max_examples=15, deadline=None)
@given(
    frames=st.integers(14, 60),
    fps=st.sampled_from([Fraction(24), Fraction(25), Fraction(30), Fraction(30_000, 1001), Fraction(12), Fraction(48)]),
    target=st.sampled_from([22, 39, 56]),
    size=st.sampled_from([(64, 32), (40, 64), (64, 64)]),
    suffix=st.sampled_from([".mp4", ".mkv"]),
)
def test_reference_videos_equal_the_librarys_pixels(tmp_path_factory, frames, fps, target, size, suffix):
    path = write_video(tmp_path_factory.mktemp("reference") / f"clip{suffix}", frames=frames, fps=fps, size=size)
    with VideoSource(path) as source:
        pixels = np.stack([frame.pixels() for frame in source.frames()])
    sizes = ModelSizes(canvas_short_edge=64, canvas_max_pixels=8192)
    expected = setup._normalize_video_condition(pixels, float(fps), target, 32, 64, 8192, 24.0)
    canvas = resolve_canvas(Size(*size), sizes)
    made = np.concatenate(list(frame_blocks(path, size=canvas, num_frames=len(expected))))
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize("frames", range(13, 130))
def test_encoded_reference_frames_follow_the_encoder_step(frames):
    clip = np.arange(frames)
    snapped = max(1, (frames - 5) // 17) * 17 + 5  # MiniMaxH3Ref2VAReferenceEncoderStep.__call__
    assert encoded_reference_frames(frames) == len(clip[:snapped])


@pytest.mark.parametrize("size", [(200, 100), (100, 333), (31, 57), (64, 64), (1920, 1080)])
def test_reference_images_equal_the_librarys_pixels(size):
    from diffusers.image_processor import VaeImageProcessor

    width, height = size
    noise = np.random.default_rng(1).integers(0, 256, (height, width, 3), np.uint8)
    sizes = ModelSizes(reference_image_short_edge=64)
    scale = 64 / min(width, height)  # MiniMaxH3Ref2VASetupStep.__call__
    expected_size = tuple(max(32, round(side * scale / 32) * 32) for side in size)
    assert reference_image_size(Size(*size), sizes) == expected_size
    resizer = VaeImageProcessor(vae_scale_factor=16)
    expected = resizer.resize(Image.fromarray(noise), height=expected_size[1], width=expected_size[0])
    np.testing.assert_array_equal(resized(Image.fromarray(noise), Size(*expected_size)), np.asarray(expected))
