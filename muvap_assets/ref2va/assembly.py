"""A row put together from its parts: one sample of all its tensors, and the record of it in its format.

Belongs here: pure functions of what the stages made. No store, no run, no file.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from muvap_assets.ref2va.contract import Format, ReferenceGeometry
from muvap_assets.ref2va.encoder import EncodedSample, RowInput, Stage, Tensors
from muvap_assets.ref2va.records import Record


def assembled(row: RowInput, parts: Mapping[Stage, Tensors]) -> EncodedSample:
    """The sample of a row from its parts; the references' geometry is the one measured on the encoded latents."""
    visual = parts[Stage.REFERENCE_VISUAL]
    audio = parts[Stage.REFERENCE_AUDIO]
    shapes, counts = iter(visual["ref_visual_geometry"].tolist()), iter(audio["ref_audio_latents"].tolist())
    references = []
    for reference in row.references:
        frames, height, width = next(shapes, (0, 0, 0)) if reference.kind.has_visual else (0, 0, 0)
        references.append(
            ReferenceGeometry(
                media_type=reference.kind.media_type,
                has_audio=reference.kind.has_audio,
                num_latent_frames=frames,
                latent_height=height,
                latent_width=width,
                num_audio_latents=next(counts, 0) if reference.kind.has_audio else 0,
            )
        )
    return EncodedSample(
        vae_latent=parts[Stage.TARGET_VIDEO]["vae_latent"],
        audio_latent=parts[Stage.TARGET_AUDIO]["audio_latent"],
        text_embedding=parts[Stage.TEXT]["text_embedding"],
        text_token_tags=parts[Stage.TEXT]["text_token_tags"],
        ref_visual_rows=visual["ref_visual_rows"],
        ref_audio_rows=audio["ref_audio_rows"],
        references=tuple(references),
    )


def record_of(row: RowInput, sample: EncodedSample) -> Record:
    """The record of a row in its format: clean reference rows for ``packed``, noised ones for ``sft``."""
    visual = sample.ref_visual_rows
    if row.format is Format.SFT:
        # Kept out of the module's imports: torch takes seconds, and a packed row needs none of it here.
        import torch

        from muvap_assets.ref2va.noise import noised_rows

        visual = noised_rows(torch.from_numpy(np.ascontiguousarray(visual)), sample.references).numpy()
    return Record(
        id=row.sample_id,
        format=row.format,
        vae_latent=sample.vae_latent,
        audio_latent=sample.audio_latent,
        text_embedding=sample.text_embedding,
        text_token_tags=sample.text_token_tags,
        visual_rows=visual,
        audio_rows=sample.ref_audio_rows,
        references=sample.references,
        reference_noise_seed=row.reference_noise_seed if row.format is Format.PACKED else None,
        file_name=row.file_name,
        caption=row.caption,
        geometry=row.geometry,
    )
