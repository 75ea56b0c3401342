"""How many bytes the tensors of a row take before they are compressed, from its shapes alone."""

from __future__ import annotations

import math
from collections.abc import Iterable

from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    AUDIO_ROW_WIDTH,
    FLOAT_BYTES,
    VIDEO_CHANNELS,
    VISUAL_ROW_WIDTH,
    Geometry,
    ReferenceGeometry,
)
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.geometry import target_audio_latents, target_video_shape

_TAG_BYTES = 8


def stage_bytes(
    geometry: Geometry, references: Iterable[ReferenceGeometry], tokens: int, text_width: int
) -> dict[Stage, int]:
    """Bytes of what each stage makes of a row.

    Args:
        geometry: of the target.
        references: of what is shown beside it.
        tokens: of its presentation.
        text_width: values of a token's embedding.
    """
    shown = list(references)
    return {
        Stage.TARGET_VIDEO: FLOAT_BYTES * VIDEO_CHANNELS * math.prod(target_video_shape(geometry)),
        Stage.TARGET_AUDIO: FLOAT_BYTES * AUDIO_CHANNELS * AUDIO_ROW_WIDTH * target_audio_latents(geometry.num_frames),
        Stage.REFERENCE_VISUAL: FLOAT_BYTES * VISUAL_ROW_WIDTH * sum(reference.visual_rows for reference in shown),
        Stage.REFERENCE_AUDIO: FLOAT_BYTES * AUDIO_ROW_WIDTH * sum(reference.audio_rows for reference in shown),
        Stage.TEXT: tokens * (FLOAT_BYTES * text_width + _TAG_BYTES),
    }
