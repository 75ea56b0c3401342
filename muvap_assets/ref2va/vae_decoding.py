"""Latents back to pixels and sound, by the decoders of the two VAEs.

Belongs here: the inverse of the target recipes of ``h3``, for checking what was encoded; nothing that is published is
made here. Imports torch; the VAEs are handed in.

The video decoder works on windows of 7 latents that begin 5 apart. Each makes 22 frames, and the last 5 of one fade into
the first 5 of the next (``vae.decode``, "consecutive decoded chunks overlap"):

    latents   0 1 2 3 4 | 5 6                      window 0: frames  0..16 | 17..21
                        | 5 6 7 8 9 | 10 11        window 1:               | 17..33 | 34..38

So a video decodes a window at a time, with one window and five frames in memory, to the bytes ``vae.decode`` makes of it
whole. The audio decoder is one convolutional stack over the whole sound: it is not cut, since a cut would show at its
edges; at 362 frames that is 603 latents in and 2 x 482,400 samples out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    AUDIO_ROW_WIDTH,
    CLIP_FRAMES,
    CLIP_LATENTS,
    DROPPED_LATENTS,
    FRAME_REMAINDER,
    PIXEL_MEAN,
    PIXEL_STD,
    VIDEO_CHANNELS,
)
from muvap_assets.ref2va.encoder import Decoded

OVERLAP_LATENTS = CLIP_LATENTS - DROPPED_LATENTS  # vae.token_overlap, 2 latents, which stand for FRAME_REMAINDER frames
WINDOW_LATENTS = CLIP_LATENTS + OVERLAP_LATENTS


def decoded_frames(vae: Any, latents: npt.NDArray[np.float32], device: str, where: str) -> Iterator[Decoded]:
    """Frames float32 [n, H, W, 3] between 0 and 1 of normalized latents float32 [24, 5 * n + 2, H/16, W/16].

    Blocks are of 17 frames, and a last one of 5.

    Raises:
        ValidationError: the latents are of another shape. Two latents (5 frames) make no window: the decoder refuses them.
    """
    if (
        latents.ndim != 4
        or latents.shape[0] != VIDEO_CHANNELS
        or latents.shape[1] < WINDOW_LATENTS
        or latents.shape[1] % CLIP_LATENTS != OVERLAP_LATENTS
    ):
        raise _undecodable(where, latents, f"[{VIDEO_CHANNELS}, {CLIP_LATENTS} * n + {OVERLAP_LATENTS}, H, W], n >= 1")
    fading: torch.Tensor | None = None
    for start in range(0, latents.shape[1] - OVERLAP_LATENTS, CLIP_LATENTS):
        window = _window(vae, latents[:, start : start + WINDOW_LATENTS], device)
        if fading is not None:
            window[:, :, :FRAME_REMAINDER] = _cross_faded(fading, window[:, :, :FRAME_REMAINDER])
        fading = window[:, :, CLIP_FRAMES:].clone()
        yield _pixels(window[:, :, :CLIP_FRAMES])
        del window
    if fading is not None:
        yield _pixels(fading)


@torch.no_grad()
def decoded_waveform(vae: Any, latents: npt.NDArray[np.float32], device: str, where: str) -> Decoded:
    """The waveform float32 [2, 800 * T] of normalized latents float32 [2, 32, T], the channels as two items of a batch.

    Raises:
        ValidationError: the latents are of another shape.
    """
    if latents.ndim != 3 or latents.shape[:2] != (AUDIO_CHANNELS, AUDIO_ROW_WIDTH) or not latents.shape[2]:
        raise _undecodable(where, latents, f"[{AUDIO_CHANNELS}, {AUDIO_ROW_WIDTH}, T]")
    decoded = vae.decode(_denormalized(vae, latents).to(device), return_dict=False)[0]
    waveform: Decoded = decoded[:, 0].float().cpu().numpy()
    return waveform


@torch.no_grad()
def _window(vae: Any, latents: npt.NDArray[np.float32], device: str) -> torch.Tensor:
    """What the decoder makes of one window, [1, 3, 22, H, W] as the model normalizes pixels."""
    denormalized = _denormalized(vae, latents[None]).to(device)
    return torch.as_tensor(vae.decode(denormalized, return_dict=False)[0]).float()


def _denormalized(vae: Any, latents: npt.NDArray[np.float32]) -> torch.Tensor:
    """Latents [items, channels, ...] as the VAE's own encoder makes them."""
    shape = (1, -1, *(1 for _ in latents.shape[2:]))
    mean, std = (torch.tensor(each).view(shape) for each in (vae.config.latents_mean, vae.config.latents_std))
    return torch.tensor(latents) * std + mean


def _cross_faded(before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    weight = (torch.arange(FRAME_REMAINDER, device=after.device, dtype=after.dtype) / FRAME_REMAINDER).view(-1, 1, 1)
    return before * (1 - weight) + after * weight


def _pixels(normalized: torch.Tensor) -> Decoded:
    mean, std = (torch.tensor(each, device=normalized.device).view(-1, 1, 1, 1) for each in (PIXEL_MEAN, PIXEL_STD))
    frames: Decoded = (normalized[0] * std + mean).clamp(0, 1).permute(1, 2, 3, 0).cpu().numpy()
    return frames


def _undecodable(where: str, latents: npt.NDArray[np.float32], required: str) -> ValidationError:
    place, found = Place(field=where), f"latents {list(latents.shape)}"
    return ValidationError(Finding(Code.DECODE_FAILED, place, found, case="shape", required=required))
