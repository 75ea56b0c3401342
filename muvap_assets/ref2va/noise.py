"""The noise of visual references: what an SFT record stores noised, and the packed adapter noises at batch time.

Belongs here: this arithmetic alone, on torch without diffusers, because the training dataset needs it. It equals
``MiniMaxH3Scheduler(shift=12.0).scale_noise`` and the draws of ``MiniMaxH3PrepareConditionLatentsStep``, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.contract import PATCH, VIDEO_CHANNELS, VISUAL_ROW_WIDTH, ReferenceGeometry

CONDITION_TIME = 0.999  # blocks: keyframe_noise_aug; 1 is clean
SFT_NOISE_SEED = 42  # facts: the seed of the SFT format's anchors


def reference_noise(references: Iterable[ReferenceGeometry], seed: int) -> torch.Tensor:
    """Standard normal rows [N, 96] for the visual references, in packed order.

    One generator on the CPU draws one block a reference in latent shape [1, 24, T, H, W], which is then patchified: drawing
    the rows themselves would give other noise.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = [
        patchified(torch.randn((1, VIDEO_CHANNELS, *shape), generator=generator, dtype=torch.float32))
        for reference in references
        if all(shape := (reference.num_latent_frames, reference.latent_height, reference.latent_width))
    ]
    return torch.cat(rows) if rows else torch.empty((0, VISUAL_ROW_WIDTH), dtype=torch.float32)


def noised_rows(
    clean: torch.Tensor, references: Iterable[ReferenceGeometry], seed: int = SFT_NOISE_SEED
) -> torch.Tensor:
    """Clean rows float32 [N, 96] moved to time 0.999: ``t * clean + (1 - t) * noise`` in float32.

    Raises:
        FormatError: the rows are not as many as the references' geometry gives.
    """
    noise = reference_noise(references, seed)
    if clean.shape != noise.shape:
        required = f"the {list(noise.shape)} of the references' geometry"
        place = Place(field="reference rows")
        raise FormatError(Finding(Code.REFERENCE_ROWS_MISMATCH, place, f"{list(clean.shape)}", required=required))
    # 1 - t is taken in float32, as the scheduler does: 0.001 written out would be another number.
    time = torch.tensor(CONDITION_TIME, dtype=clean.dtype)
    return time * clean + (1.0 - time) * noise


def patchified(latents: torch.Tensor) -> torch.Tensor:
    """Latents [1, 24, T, H, W] as rows [T * H/2 * W/2, 96]: frame-major then row-major, feature c*4 + ph*2 + pw."""
    _, channels, frames, height, width = latents.shape
    split = latents.reshape(channels, frames, height // PATCH, PATCH, width // PATCH, PATCH)
    return split.permute(1, 2, 4, 0, 3, 5).reshape(-1, channels * PATCH * PATCH).contiguous()
