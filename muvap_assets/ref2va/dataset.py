"""What a trainer reads batches from: one document at a time, decoded as it is stored, with its references' noise applied.

    dataset = PackedRef2VADataset(root, DatasetSettings(capacities=Capacities((32_768, 65_536))))
    sampler = BucketBatchSampler(dataset, rank=rank, world_size=8)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)

Belongs here: reading published shards on torch. No encoder is loaded and no media decoded. One class a format; each refuses
the other's shards, for their references look alike and one of them is noised already. Only the index is held; a shard is
opened for the moment it is read, so that a dataset may be pickled or forked into any number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch.utils.data import Dataset

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError, FormatError, ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.readback import published_folder
from muvap_assets.ref2va.cache import open_index
from muvap_assets.ref2va.capacities import Capacities, overlong, oversized
from muvap_assets.ref2va.contract import (
    DEFAULT_PRESENTATION_TOKENS,
    Format,
    ReferenceGeometry,
    frame_count_rule,
    is_frame_count,
)
from muvap_assets.ref2va.geometry import frames_of_latents, target_audio_latents, video_latent_frames
from muvap_assets.ref2va.index_rows import DatasetIndex, IndexedRow, written_geometry
from muvap_assets.ref2va.noise import noised_rows
from muvap_assets.ref2va.records import Record, read_shard


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSettings:
    """How a dataset is read.

    ``num_latent_t`` and ``num_frames`` are the trainer's names for one length (contract): either crops every target to it, in
    latent frames or in frames at 24 fps; with both unset every row keeps its native length.

    Attributes:
        require_existing: a valid index or a failure; otherwise a missing one is built on first use.
        num_latent_t: 5 * n + 2.
        num_frames: 17 * n + 5.
        max_presentation_tokens: a row above is refused; no token is ever cut off.
        capacities: padded lengths; a row longer than all of them is refused.

    Raises:
        ConfigError: a length or the token limit is off its rule, or the two lengths differ.
    """

    require_existing: bool = False
    num_latent_t: int | None = None
    num_frames: int | None = None
    max_presentation_tokens: int = DEFAULT_PRESENTATION_TOKENS
    capacities: Capacities | None = None

    def __post_init__(self) -> None:
        if self.num_frames is not None and not is_frame_count(self.num_frames):
            raise ConfigError(
                f"num_frames: found {self.num_frames}, required is {frame_count_rule(self.num_frames)}. Change or unset it."
            )
        if self.num_latent_t is not None:
            self._require_latents(self.num_latent_t)
        if self.max_presentation_tokens < 1:
            raise ConfigError(
                f"max_presentation_tokens: found {self.max_presentation_tokens}, required is at least 1. Change it."
            )

    def _require_latents(self, latents: int) -> None:
        frames = frames_of_latents(latents)
        if frames is None:
            near = [str(count) for count in range(latents - 4, latents + 5) if frames_of_latents(count)]
            raise ConfigError(
                f"num_latent_t: found {latents}, required is 5 * n + 2 for a nonnegative n (nearest: {' or '.join(near) or 2}). "
                "Change or unset it."
            )
        if self.num_frames not in (None, frames):
            raise ConfigError(
                f"num_latent_t, num_frames: found {latents} and {self.num_frames}, required is one length: {latents} latent frames "
                f"are {frames} frames. Change or unset one."
            )

    @property
    def crop_frames(self) -> int | None:
        """Frames that every target is cropped to; ``None`` keeps native lengths."""
        return self.num_frames if self.num_latent_t is None else frames_of_latents(self.num_latent_t)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One row, ready for the packed sequence. Every tensor is on the CPU and its own.

    Attributes:
        id, caption: of the row.
        vae_latent: float32 [24, T, H/16, W/16].
        audio_latent: float32 [2, 32, T_audio].
        text_embedding: float32 [L, D].
        text_token_tags: int64 [L], 0 a vision row, 1 a text row.
        ref_visual_anchor: float32 [N, 96], noised to time 0.999, whichever format it comes from.
        ref_audio_anchor: float32 [M, 32], clean, channel-major.
        references: geometry of each reference, in declared order.
        num_frames: target frames at 24 fps, after the crop.
        joint_length: rows of the joint sequence.
        capacity: the length it is to be padded to, ``None`` where none was asked for. Padding is the trainer's.
    """

    id: str
    caption: str
    vae_latent: torch.Tensor
    audio_latent: torch.Tensor
    text_embedding: torch.Tensor
    text_token_tags: torch.Tensor
    ref_visual_anchor: torch.Tensor
    ref_audio_anchor: torch.Tensor
    references: tuple[ReferenceGeometry, ...]
    num_frames: int
    joint_length: int
    capacity: int | None

    def pin_memory(self) -> Document:
        """The same with tensors in page-locked memory; torch's ``DataLoader`` calls it."""
        names = [name for name in self.__slots__ if isinstance(getattr(self, name), torch.Tensor)]
        return replace(self, **{name: getattr(self, name).pin_memory() for name in names})


def collate(documents: Sequence[Document]) -> Document:
    """The one document of a batch.

    Raises:
        ConfigError: there is more or less than one; several in a sequence are not supported (contract).
    """
    if len(documents) != 1:
        raise ConfigError(
            f"batch: found {len(documents)} documents, required is one: documents are not packed into one sequence. Set "
            "train_batch_size to 1."
        )
    return documents[0]


class _Ref2VADataset(Dataset[Document]):
    """A map-style dataset over a published folder; rows are numbered as in its index."""

    format: ClassVar[Format]

    def __init__(self, root: str | Path, settings: DatasetSettings | None = None) -> None:
        """Open a dataset and admit its rows by the index alone.

        Args:
            root: the published folder.
            settings: how it is read.

        Raises:
            ValidationError: the index does not fit the folder, or rows are over the token limit, shorter than the crop or
                longer than every capacity; each is named with its length.
            FormatError: there is no dataset, or one of the other format.
        """
        self.root, self.settings = published_folder(Path(root)), settings or DatasetSettings()
        self._index: DatasetIndex | None = self._opened()

    @property
    def index(self) -> DatasetIndex:
        """The index; read again in a process this object was pickled into."""
        if self._index is None:
            self._index = self._opened()
        return self._index

    @property
    def buckets(self) -> tuple[tuple[str, int], ...]:
        """Name and rows of each bucket, in the order rows are numbered."""
        return self.index.buckets

    @property
    def version(self) -> str:
        """A digest of the shards' names and bytes: the same wherever the dataset lies."""
        return self.index.version

    def __len__(self) -> int:
        return len(self.index.rows)

    def __getitem__(self, number: int) -> Document:
        """Read one document.

        Raises:
            FormatError: the shard is damaged, or no longer what the index says.
        """
        row = self.index.rows[number]
        records = read_shard(self.root / row.path)
        self._check(row, records)
        (record,) = records
        frames = self.settings.crop_frames or row.num_frames
        length = row.cropped_length(self.settings.crop_frames)
        return Document(
            id=record.id,
            caption=record.caption,
            vae_latent=_tensor(record.vae_latent[:, : video_latent_frames(frames)]),
            audio_latent=_tensor(record.audio_latent[:, :, : target_audio_latents(frames)]),
            text_embedding=_tensor(record.text_embedding),
            text_token_tags=_tensor(record.text_token_tags),
            ref_visual_anchor=self._anchor(record),
            ref_audio_anchor=_tensor(record.audio_rows),
            references=record.references,
            num_frames=frames,
            joint_length=length,
            capacity=self.settings.capacities.smallest(length) if self.settings.capacities else None,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_index": None}

    def _opened(self) -> DatasetIndex:
        index = open_index(self.root, require_existing=self.settings.require_existing)
        if index.format is not self.format:
            found, reader = f"it holds {index.format.schema_id}", _CLASS_NAMES[index.format]
            schema = self.format.schema_id
            raise FormatError(
                Finding(Code.SCHEMAS_MIXED, self.root, found, case="reader", schema=schema, reader=reader)
            )
        if refused := _refused(index.rows, self.settings):
            raise ValidationError(refused, f"dataset {self.root}")
        return index

    def _check(self, row: IndexedRow, records: Sequence[Record]) -> None:
        for record in records:
            written = written_geometry(record.vae_latent.shape)
            for what, found, required in (
                ("schema", record.format.schema_id, self.format.schema_id),
                ("id", record.id, row.id),
                ("shape", written, row.geometry),
                ("presentation tokens", len(record.text_embedding), row.text_tokens),
                ("references", record.references, row.references),
            ):
                if found != required:
                    path = self.root / row.path
                    raise FormatError(Finding(Code.SHARD_CHANGED, path, f"{what} {found}", required=required))
        if len(records) != 1:
            raise FormatError(Finding(Code.SHARD_UNREADABLE, self.root / row.path, f"{len(records)} rows"))

    def _anchor(self, record: Record) -> torch.Tensor:
        raise NotImplementedError


class PackedRef2VADataset(_Ref2VADataset):
    """Documents of ``pyarrow_schema_ref2va``: clean references, noised here under each row's ``reference_noise_seed``."""

    format = Format.PACKED

    def _anchor(self, record: Record) -> torch.Tensor:
        if record.reference_noise_seed is None:
            place = Place(sample_id=record.id, field="reference_noise_seed")
            raise FormatError(Finding(Code.SCHEMA_MISMATCH, place, "None", case="seed"))
        return noised_rows(_tensor(record.visual_rows), record.references, record.reference_noise_seed)


class SFTRef2VADataset(_Ref2VADataset):
    """Documents of ``minimax_h3_ref2va_precomputed_v1``, whose references are noised already."""

    format = Format.SFT

    def _anchor(self, record: Record) -> torch.Tensor:
        return _tensor(record.visual_rows)


_CLASS_NAMES = {each.format: each.__name__ for each in (PackedRef2VADataset, SFTRef2VADataset)}


def _refused(rows: Sequence[IndexedRow], settings: DatasetSettings) -> list[Finding]:
    found = [] if settings.capacities is None else oversized(rows, settings.capacities, settings.crop_frames)
    found += overlong(rows, settings.max_presentation_tokens)
    frames = settings.crop_frames
    for row in rows:
        if frames is not None and row.num_frames < frames:
            short = f"{row.num_frames} frames"
            found.append(Finding(Code.TARGET_SHORT, row.place, short, case="cropped", frames=frames))
    return found


def _tensor(values: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor with memory of its own: what comes from a shard may be read-only, and a crop is not contiguous."""
    return torch.from_numpy(np.array(values, order="C"))
