"""Finished rows and published datasets of the smallest shapes, drawn from seeds, for tests of what comes after encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from muvap_assets.layout import Artifact
from muvap_assets.ref2va.contract import Format, Geometry, ReferenceGeometry
from muvap_assets.ref2va.encode import EncodeReport
from muvap_assets.ref2va.encoder import RowInput
from muvap_assets.ref2va.publication import FinishedRow, PublicationOptions, publish_dataset
from muvap_assets.ref2va.records import Record, write_shard

SMALL, WIDE, LONG = Geometry(32, 32, 5), Geometry(64, 32, 5), Geometry(32, 32, 22)
LATENTS = {SMALL: (24, 2, 2, 2), WIDE: (24, 2, 2, 4), LONG: (24, 7, 2, 2)}
AUDIO_LATENTS = {5: 8, 22: 37}
REFERENCES = (
    ReferenceGeometry(media_type="image", has_audio=False, num_latent_frames=1, latent_height=4, latent_width=2),
    ReferenceGeometry(media_type="audio", has_audio=True, num_audio_latents=3),
    ReferenceGeometry(
        media_type="video", has_audio=True, num_latent_frames=2, latent_height=2, latent_width=2, num_audio_latents=1
    ),
)
VISUAL_ROWS, AUDIO_ROWS = 2 + 2, 6 + 2


def clean_record(sample_id: str, geometry: Geometry = SMALL, *, tokens: int = 11, seed: int | None = None) -> Record:
    """A packed record whose every value follows from ``seed``, by default from its id."""
    rng = np.random.default_rng(sum(sample_id.encode()) if seed is None else seed)

    def drawn(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    return Record(
        id=sample_id,
        format=Format.PACKED,
        vae_latent=drawn(*LATENTS[geometry]),
        audio_latent=drawn(2, 32, AUDIO_LATENTS[geometry.num_frames]),
        text_embedding=drawn(tokens, 8),
        text_token_tags=np.arange(tokens) % 2,
        visual_rows=drawn(VISUAL_ROWS, 96),
        audio_rows=drawn(AUDIO_ROWS, 32),
        references=REFERENCES,
        reference_noise_seed=42,
        file_name=f"media/{sample_id}.mp4",
        caption=f"caption of {sample_id}",
        geometry=geometry,
    )


def sft_record(clean: Record) -> Record:
    """The same row as the SFT format has it."""
    import torch  # only this needs it, and it takes seconds

    from muvap_assets.ref2va.noise import noised_rows

    anchors = noised_rows(torch.from_numpy(clean.visual_rows.copy()), clean.references).numpy()
    return replace(clean, format=Format.SFT, visual_rows=anchors, reference_noise_seed=None)


def finished(folder: Path, *records: Record) -> list[FinishedRow]:
    """Write each record as a row store would, and list them as a manifest's rows."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, record in enumerate(records, start=1):
        path = folder / f"{record.id}.row"
        if not path.exists():
            write_shard(path, [record], {"encoder": "test"})
        rows.append(FinishedRow(sample_id=record.id, path=path, row=number))
    return rows


def dataset_artifact(root: Path, name: str = "demo") -> Artifact:
    return Artifact(root, "ref2va", "parquet_cache_index", name)


def published(root: Path, *records: Record, name: str = "demo", **options) -> Path:
    """Publish ``records`` below ``root`` and return the published folder."""
    rows = finished(root / "store", *records)
    settings = PublicationOptions(format=records[0].format, **options)
    outcome = publish_dataset(dataset_artifact(root, name), rows, settings, workers=1)
    assert outcome.published is not None, [check for check in outcome.checks if not check.passed]
    return outcome.published.path


def rows_of_report(inputs: Sequence[RowInput], report: EncodeReport) -> list[FinishedRow]:
    """Every row a run was given, in its order, with the file it became or the reasons it has none."""
    paths = {row.sample_id: row.path for row in report.rows}
    reasons: dict[str | None, list[str]] = {}
    for finding in report.findings:
        reasons.setdefault(finding.sample_id, []).append(f"{finding.found}, {finding.required}")
    return [
        FinishedRow(
            sample_id=row.sample_id,
            path=paths.get(row.sample_id),
            row=row.row,
            reason="; ".join(reasons.get(row.sample_id, [])) or None,
        )
        for row in inputs
    ]
