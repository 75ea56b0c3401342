"""Noise of visual references, against the scheduler and the stock block that draws it."""

import subprocess
import sys

import pytest
import torch

from muvap_assets.errors import FormatError
from muvap_assets.ref2va.contract import ReferenceGeometry
from muvap_assets.ref2va.noise import noised_rows, patchified, reference_noise

REFERENCES = (
    ReferenceGeometry(media_type="audio", has_audio=True, num_audio_latents=5),
    ReferenceGeometry(media_type="image", has_audio=False, num_latent_frames=1, latent_height=4, latent_width=6),
    ReferenceGeometry(
        media_type="video", has_audio=True, num_latent_frames=7, latent_height=6, latent_width=4, num_audio_latents=3
    ),
)


def test_noised_rows_equal_the_scheduler_and_the_stock_draws_byte_for_byte():
    from diffusers import MiniMaxH3Scheduler
    from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents
    from diffusers.utils.torch_utils import randn_tensor

    latents = [torch.randn(1, 24, 1, 4, 6), torch.randn(1, 24, 7, 6, 4)]
    scheduler, generator = MiniMaxH3Scheduler(shift=12.0), torch.Generator().manual_seed(42)
    stock = [
        patchify_video_latents(
            scheduler.scale_noise(each, 0.999, randn_tensor(each.shape, generator=generator, dtype=torch.float32)),
            (1, 2, 2),
        )
        for each in latents
    ]
    clean = torch.cat([patchify_video_latents(each, (1, 2, 2)) for each in latents])
    found = noised_rows(clean, REFERENCES)
    assert found.numpy().tobytes() == torch.cat(stock).numpy().tobytes()
    by_rows = scheduler.scale_noise(clean, 0.999, reference_noise(REFERENCES, 42))
    assert torch.equal(found, by_rows)


def test_the_patch_order_equals_the_stock_function():
    from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents

    latents = torch.arange(24 * 3 * 4 * 6, dtype=torch.float32).reshape(1, 24, 3, 4, 6)
    assert torch.equal(patchified(latents), patchify_video_latents(latents, (1, 2, 2)))


def test_another_seed_gives_other_noise_and_no_visual_reference_none():
    assert not torch.equal(reference_noise(REFERENCES, 42), reference_noise(REFERENCES, 43))
    assert reference_noise(REFERENCES[:1], 42).shape == (0, 96)


def test_rows_that_do_not_fit_the_geometry_are_refused():
    with pytest.raises(FormatError, match=r"\[3, 96\]; required: the \[48, 96\]"):
        noised_rows(torch.zeros(3, 96), REFERENCES)


def test_the_training_side_needs_no_diffusers():
    script = "import sys, muvap_assets.ref2va.noise; assert {'diffusers', 'transformers'}.isdisjoint(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
