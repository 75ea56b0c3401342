"""The page of one row of a published ref2va dataset: what it says, how long its sequence is, what its latents look like.

A latent picture shows three of the 24 channels, those that vary most over the row, as red, green and blue; each is spread
from its 1st to its 99th percentile over the whole row, so that frames can be compared. Audio latents are one column a
latent and one line a channel, spread in the same way. The text embedding is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, FormatError
from muvap_assets.findings import Finding
from muvap_assets.pages.document import (
    MAX_MEDIA_BYTES,
    Markup,
    definitions,
    document,
    element,
    foreign,
    table,
    unknown_name,
)
from muvap_assets.pages.lanes import share_lane
from muvap_assets.pages.media import png_uri
from muvap_assets.readback import reading
from muvap_assets.ref2va.cache import open_index
from muvap_assets.ref2va.contract import AUDIO_CHANNELS, AUDIO_LATENTS_PER_SEC, FPS, Format, ReferenceGeometry
from muvap_assets.ref2va.geometry import padded_length, target_audio_latents, target_rows
from muvap_assets.ref2va.index_rows import IndexedRow
from muvap_assets.ref2va.record_columns import tensor_columns
from muvap_assets.ref2va.records import open_shard, tensor_of

_LATENTS = ("vae_latent", "audio_latent")
_TEXTS = ("id", "caption", "file_name", "text_token_tags")
_SEQUENCE = ("text", "references", "target sound", "target video")
_KINDS = ("a", "b", "c", "d")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """What is read of a row's shard."""

    caption: str
    file_name: str
    tags: npt.NDArray[np.int64]
    video: npt.NDArray[np.float32]
    audio: npt.NDArray[np.float32]
    seed: int | None


def row_page(root: Path, row_id: str) -> str:
    """The page of a row.

    Raises:
        ConfigError: the dataset has no such row, or its pictures are more than a page may hold.
        ValidationError: the dataset's index does not fit what lies there.
        FormatError: the row's shard is damaged.
    """
    index = open_index(root, require_existing=True)
    rows = {row.id: row for row in index.rows}
    if row_id not in rows:
        raise unknown_name(root, "row", row_id, list(rows))
    indexed = rows[row_id]
    row = _read(root / indexed.path, indexed, index.format)
    body = element(
        "main",
        element("header", element("p", "Row of a ref2va dataset", class_="kind"), element("h1", foreign(row_id))),
        element("h2", "Caption"),
        element("p", row.caption, class_="caption", dir="auto"),
        element("h2", "References, in order"),
        _references(indexed.references),
        element("h2", "Sequence"),
        *_sequence(indexed),
        element("h2", "Presentation"),
        *_tags(row.tags),
        element("h2", "Target video latents"),
        *_video(row.video),
        element("h2", "Target audio latents"),
        *_audio(row.audio),
        element("h2", "What it is"),
        definitions(_facts(indexed, index.format, row)),
    )
    return document(title=f"{row_id} · row", body=body)


def _read(path: Path, indexed: IndexedRow, format: Format) -> _Row:
    names = [*_TEXTS, *(column.name for name in _LATENTS for column in tensor_columns(name))]
    if format is Format.PACKED:
        names.append("reference_noise_seed")
    with open_shard(path) as shard, reading(path):
        values: dict[str, Any] = shard.read_row_group(0, columns=names).to_pylist()[0]
    video, audio = (tensor_of(values, name) for name in _LATENTS)
    promised: tuple[tuple[str, object, object], ...] = (
        ("id", values["id"], indexed.id),
        ("latent frames", video.shape[1:2], (indexed.latent_frames,)),
        ("audio latents", audio.shape[2:], (indexed.audio_latents,)),
        ("token tags", len(values["text_token_tags"]), indexed.text_tokens),
    )
    for what, found, required in promised:
        if found != required:
            said = f"{required}, as the index says"
            raise FormatError(Finding(Code.ARTIFACT_INVALID, path, f"{what} {found}", case="shard", required=said))
    if 3 * video[0].size + audio.size > MAX_MEDIA_BYTES:
        raise ConfigError(
            f"{indexed.id}: its pictures are {3 * video[0].size + audio.size:,} bytes; required: at most "
            f"{MAX_MEDIA_BYTES:,} a page. Choose another row."
        )
    return _Row(
        caption=values["caption"],
        file_name=values["file_name"],
        tags=np.array(values["text_token_tags"], np.int64),
        video=video,
        audio=audio,
        seed=values.get("reference_noise_seed"),
    )


def _references(references: Sequence[ReferenceGeometry]) -> Markup:
    header = ("", "kind", "latent frames", "latent size", "visual rows", "audio latents", "sound", "audio rows")
    rows = []
    for number, reference in enumerate(references, start=1):
        with_sound = reference.media_type == "video" and reference.has_audio
        seen = reference.num_latent_frames > 0
        rows.append(
            (
                str(number),
                f"{reference.media_type} with sound" if with_sound else reference.media_type,
                str(reference.num_latent_frames) if seen else "none",
                f"{reference.latent_width} x {reference.latent_height}" if seen else "none",
                str(reference.visual_rows),
                str(reference.num_audio_latents) if reference.has_audio else "none",
                _seconds(reference.num_audio_latents) if reference.has_audio else "none",
                str(reference.audio_rows),
            )
        )
    return table(header, rows)


def _seconds(audio_latents: int) -> str:
    return f"{audio_latents / AUDIO_LATENTS_PER_SEC:.3f} s"


def _sequence(indexed: IndexedRow) -> list[Markup]:
    conditions = sum(reference.visual_rows + reference.audio_rows for reference in indexed.references)
    sound = AUDIO_CHANNELS * target_audio_latents(indexed.num_frames)
    counts = (indexed.text_tokens, conditions, sound, target_rows(indexed.geometry) - sound)
    parts = list(zip(_SEQUENCE, counts, _KINDS, strict=True))
    total, padded = indexed.joint_length, padded_length(indexed.joint_length)
    said = f"{total:,} rows of the joint sequence; {padded:,} in the tightest capacity, {padded - total:,} of them padding."
    return [share_lane(parts, label=said), _legend(parts), element("p", said)]


def _legend(parts: Sequence[tuple[str, int, str]]) -> Markup:
    items = []
    for name, count, kind in parts:
        swatch = element("svg", element("rect", width="100%", height="100%", class_=kind), aria_hidden="true")
        items.append(element("li", swatch, f"{name} {count:,}"))
    return element("ul", *items, class_="legend")


def _tags(tags: npt.NDArray[np.int64]) -> list[Markup]:
    runs = [(int(tag), sum(1 for _ in run)) for tag, run in groupby(tags.tolist())]
    names = {0: ("vision", "c"), 1: ("text", "a")}
    parts = [(names[tag][0], count, names[tag][1]) for tag, count in runs if tag in names]
    totals = [(name, int(np.count_nonzero(tags == tag)), kind) for tag, (name, kind) in names.items()]
    shown = ", ".join(f"{name} {count}" for name, count, _ in parts[:_RUNS])
    more = f", ... and {len(parts) - _RUNS} more runs" if len(parts) > _RUNS else ""
    return [
        share_lane(parts, label="token tags, in order"),
        _legend(totals),
        element("p", f"Token tags, in order: {shown}{more}."),
    ]


_RUNS = 24


def _video(latents: npt.NDArray[np.float32]) -> list[Markup]:
    """Of float32 [24, T, h, w]."""
    variances = latents.reshape(len(latents), -1).astype(np.float64).var(axis=1)
    channels = sorted(np.argsort(-variances, kind="stable")[:3].tolist())
    pictures = np.stack([spread(latents[channel]) for channel in channels], axis=-1)
    names = ", ".join(map(str, channels))
    said = (
        f"Channels {names} of {len(latents)}, those that vary most, as red, green and blue, each from its 1st to its 99th "
        "percentile."
    )
    images = [
        element("img", src=png_uri(picture), alt=f"latent frame {number}", title=f"latent frame {number}")
        for number, picture in enumerate(pictures)
    ]
    return [element("p", said), element("div", *images, class_="pictures")]


def _audio(latents: npt.NDArray[np.float32]) -> list[Markup]:
    """Of float32 [2, 32, T]."""
    figures = []
    for name, picture in zip(("left", "right"), spread(latents), strict=True):
        image = element("img", src=png_uri(picture), alt=f"audio latents, {name}", class_="audio-latent")
        words = f"{name}: {len(picture)} channels a latent, time to the right"
        figures.append(element("figure", image, element("figcaption", words)))
    said = f"{latents.shape[2]} latents a channel, {_seconds(latents.shape[2])}."
    return [element("p", said), *figures]


def spread(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Values as grey levels: their 1st percentile is 0, their 99th 255, what lies outside is cut. Equal values are 128."""
    low, high = np.percentile(values.astype(np.float64), (1, 99))
    if not low < high:
        return np.full(values.shape, 128, np.uint8)
    levels: npt.NDArray[np.float64] = np.rint((values - low) / (high - low) * 255)
    return np.clip(levels, 0, 255).astype(np.uint8)


def _facts(indexed: IndexedRow, format: Format, row: _Row) -> list[tuple[str, str]]:
    geometry = indexed.geometry
    facts = [
        ("target video", foreign(row.file_name)),
        ("schema", format.schema_id),
        ("bucket", indexed.bucket),
        ("canvas", f"{geometry.width} x {geometry.height} pixels"),
        ("frames", f"{geometry.num_frames} at {FPS} a second, {geometry.num_frames / FPS:.3f} s"),
        ("video latents", f"{list(row.video.shape)}"),
        ("audio latents", f"{list(row.audio.shape)}"),
        ("presentation", f"{indexed.text_tokens:,} tokens"),
        ("shard", f"{indexed.path}, {indexed.bytes:,} bytes"),
        ("SHA-256 of the shard", indexed.sha256),
    ]
    if row.seed is not None:
        facts.append(("reference noise seed", str(row.seed)))
    return facts
