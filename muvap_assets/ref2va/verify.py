"""Reading rows back before anyone trusts them: every check of an encoded row, on what is on disk.

Belongs here: findings about finished rows. Pure: reads a file, returns what is wrong with it, all of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, FormatError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    AUDIO_ROW_WIDTH,
    VIDEO_CHANNELS,
    VISUAL_ROW_WIDTH,
    Format,
    ReferenceGeometry,
)
from muvap_assets.ref2va.geometry import target_audio_latents, target_video_shape
from muvap_assets.ref2va.record_columns import AUDIO_ROWS, VISUAL_ROWS
from muvap_assets.ref2va.records import (
    DIGESTS_KEY,
    SUMMARIES_KEY,
    Record,
    from_row,
    open_shard,
    read_row,
    record_digests,
    row_summary,
)


def verify_row_file(path: Path, *, declared: Sequence[ReferenceGeometry] | None = None) -> list[Finding]:
    """Everything wrong with a file of encoded rows, read back in full; empty where it may be published.

    Checked are: readable as Parquet, one of the two schemas with its id in metadata and column, one row group a row, shapes
    (vae_latent [24, T, H/16, W/16], audio_latent [2, 32, T_audio], visual rows [N, 96], audio rows [M, 32], text [L, D]),
    float32, row counts against each reference's geometry, tags aligned and binary, every value finite, and every tensor
    equal to what was encoded, by the digests of the arrays in memory that the writer put into the file's metadata.

    Args:
        path: the file.
        declared: the references' geometry as the manifest gives it, in order, where it is known (one-row files).
    """
    try:
        shard = open_shard(path)
    except FormatError as error:
        return [error.finding.placed(source=path.name)]
    found: list[Finding] = []
    with shard:
        if shard.metadata.num_rows != shard.num_row_groups or not shard.num_row_groups:
            shape = f"{shard.metadata.num_rows} rows in {shard.num_row_groups} row groups"
            return [Finding(Code.COUNT_MISMATCH, path.name, shape, case="groups")]
        metadata = shard.metadata.metadata or {}
        stored = _stored_list(metadata, DIGESTS_KEY, shard.num_row_groups)
        summaries = _stored_list(metadata, SUMMARIES_KEY, shard.num_row_groups)
        if stored is None:
            found.append(Finding(Code.DIGEST_MISMATCH, path.name, "no digests of its rows", case="none"))
        for index in range(shard.num_row_groups):
            try:
                record = from_row(read_row(shard, index, path))
            except FormatError as error:
                found.append(error.finding.placed(source=path.name))
                continue
            except (ConfigError, ValueError, TypeError, KeyError) as error:
                found.append(Finding(Code.SCHEMA_MISMATCH, path.name, f"a row that does not read ({error})"))
                continue
            place = Place(path.name, sample_id=record.id)
            found += _verify_record(place, record, declared)
            if summaries is not None and summaries[index] != row_summary(record):
                found.append(Finding(Code.SCHEMA_MISMATCH, place, "another row's summary", case="summary"))
            if stored is not None:
                found += _verify_digests(place, record, stored[index])
    return found


def non_finite(values: npt.NDArray[Any]) -> str | None:
    """How many values are not finite, in words; ``None`` where all are."""
    bad = values.size - int(np.count_nonzero(np.isfinite(values)))
    return f"{bad:,} of {values.size:,} values are not finite ({bad / values.size:.2%})" if bad else None


def _verify_record(place: Place, record: Record, declared: Sequence[ReferenceGeometry] | None) -> Iterable[Finding]:
    visual, sound = VISUAL_ROWS[record.format], AUDIO_ROWS[record.format]
    rows = (
        sum(reference.visual_rows for reference in record.references),
        sum(reference.audio_rows for reference in record.references),
    )
    shapes = {
        "vae_latent": (VIDEO_CHANNELS, *target_video_shape(record.geometry)),
        "audio_latent": (AUDIO_CHANNELS, AUDIO_ROW_WIDTH, target_audio_latents(record.geometry.num_frames)),
        visual: (rows[0], VISUAL_ROW_WIDTH),
        sound: (rows[1], AUDIO_ROW_WIDTH),
    }
    for name, shape in shapes.items():
        found = record.tensors[name].shape
        if found != shape:
            code = Code.REFERENCE_ROWS_MISMATCH if name in (visual, sound) else Code.TENSOR_SHAPE
            required = f"{list(shape)} by its geometry"
            yield Finding(code, replace(place, field=name), f"shape {list(found)}", required=required)
    for name, values in record.tensors.items():
        if (wrong := non_finite(values)) is not None:
            yield Finding(Code.TENSOR_NON_FINITE, replace(place, field=name), wrong)
    yield from _verify_text(place, record)
    yield from _verify_references(place, record, declared)
    if (record.reference_noise_seed is None) is (record.format is Format.PACKED):
        at = replace(place, field="reference_noise_seed")
        yield Finding(Code.SCHEMA_MISMATCH, at, f"{record.reference_noise_seed}", case="seed")


def _verify_text(place: Place, record: Record) -> Iterable[Finding]:
    text, tags = record.text_embedding, record.text_token_tags
    at = replace(place, field="text_token_tags")
    if text.ndim != 2 or not text.size:
        at_text, required = replace(place, field="text_embedding"), "[L, D], L at least 1"
        yield Finding(Code.TENSOR_SHAPE, at_text, f"shape {list(text.shape)}", required=required)
    elif tags.shape != text.shape[:1]:
        yield Finding(Code.TAGS_INVALID, at, f"{tags.size} tags for {text.shape[0]} tokens")
    if not np.isin(tags, (0, 1)).all():
        yield Finding(Code.TAGS_INVALID, at, f"tags {sorted(set(tags.tolist()) - {0, 1})[:5]}")


def _verify_references(place: Place, record: Record, declared: Sequence[ReferenceGeometry] | None) -> Iterable[Finding]:
    for index, reference in enumerate(record.references):
        if (wrong := _wrong_kind(reference)) is not None:
            yield Finding(
                Code.REFERENCE_ROWS_MISMATCH, replace(place, field=f"references[{index}]"), wrong, case="kind"
            )
    if declared is not None and tuple(declared) != record.references:
        differing = [i for i, pair in enumerate(zip(declared, record.references, strict=False)) if pair[0] != pair[1]]
        yield Finding(
            Code.REFERENCE_ROWS_MISMATCH,
            replace(place, field="references"),
            f"{len(record.references)} references, differing at {differing or 'their number'}",
            required=f"the {len(declared)} declared, in order and geometry",
        )


def _wrong_kind(reference: ReferenceGeometry) -> str | None:
    sides = (reference.num_latent_frames, reference.latent_height, reference.latent_width)
    kind, sound = reference.media_type, reference.has_audio
    if kind not in ("image", "video", "audio"):
        return f"media_type {kind!r}"
    if (sides != (0, 0, 0)) if kind == "audio" else any(side <= 0 for side in sides):
        return f"{kind} of latent geometry {list(sides)}"
    if (kind == "image" and sound) or (kind == "audio" and not sound):
        return f"{kind} with has_audio {sound}"
    if (reference.num_audio_latents > 0) is not sound:
        return f"has_audio {sound} with {reference.num_audio_latents} audio latents"
    return None


def _stored_list(metadata: dict[bytes, bytes], key: bytes, rows: int) -> list[dict[str, Any]] | None:
    try:
        stored = json.loads(metadata[key])
    except (KeyError, ValueError, RecursionError):
        return None
    whole = isinstance(stored, list) and len(stored) == rows and all(isinstance(each, dict) for each in stored)
    return stored if whole else None


def _verify_digests(place: Place, record: Record, known: dict[str, str]) -> Iterable[Finding]:
    for name, digest in record_digests(record).items():
        stored = known.get(name)
        if stored != digest:
            required = stored[:12] if isinstance(stored, str) and stored.isascii() else "one as it was written"
            yield Finding(Code.DIGEST_MISMATCH, replace(place, field=name), f"digest {digest[:12]}", required=required)
