"""The samples of one or more packs as columns, and their mapped arrays: what the loader reads from, and nothing of how.

A process holds one open file a pack, however many shards there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from muvap_assets.asd.levels import FULL_SCALE, LoudnessTarget
from muvap_assets.asd.packs.layout import ARROW_FILE, damaged
from muvap_assets.asd.packs.reader import PackReader, ShardArrays
from muvap_assets.asd.targets import unknown_labels
from muvap_assets.asd.timeline import FrameRate, source_indices
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.findings import Place
from muvap_assets.layout import VERSION_LENGTH
from muvap_assets.storage.digests import file_sha256

_INT64_MAX = 2**63 - 1


class Tracks:
    """All samples of ``roots`` in order, numbered from 0, on the timeline of ``model_fps``."""

    def __init__(self, roots: Sequence[Path], model_fps: FrameRate) -> None:
        """Open the packs.

        Raises:
            ConfigError: no pack is given, or the packs' faces differ in shape.
            FormatError: one cannot be opened, or its levels or frame rates are not usable.
        """
        if not roots:
            raise ConfigError("roots: no pack; required: at least one folder of packed shards. Name it.")
        self.readers = [PackReader(root) for root in roots]
        self.face_shape = _one_face_shape(self.readers)
        self.model_fps = model_fps
        self._first = np.cumsum([0, *(len(reader) for reader in self.readers)])
        self._ids = [reader.text_column("sample_id") for reader in self.readers]
        shards = np.cumsum([0, *(reader.header.shards for reader in self.readers)])
        self._shards = [(reader, shard) for reader in self.readers for shard in range(reader.header.shards)]
        self.shard = _join(
            [reader.column("shard") + first for reader, first in zip(self.readers, shards, strict=False)]
        )
        self.source_frames = self._column("source_frames")
        if len(self) and int(self.source_frames.min()) < 1:
            empty = self.sample_id(int(self.source_frames.argmin()))
            raise damaged(self.readers[0].path / ARROW_FILE, f"{empty}: no frame", "at least one")
        self.face_offset, self.label_offset = self._column("face_offset"), self._column("label_offset")
        self.audio_offset = self._column("audio_offset")
        # What lies past the recording's end is silence and must stay so when the mean is removed.
        self.sounding_samples = self._column("audio_samples") - self._column("padded_samples")
        self.labels_known = self._column("labels_known").astype(bool)
        self.rates, self.rate = _rates(self.readers)
        self.frames = self._model_frames()
        self._indices: dict[int, npt.NDArray[np.int64]] = {}

    def __len__(self) -> int:
        return int(self._first[-1])

    def sample_id(self, track: int) -> str:
        """The id of a sample."""
        pack = int(np.searchsorted(self._first, track, side="right")) - 1
        return str(self._ids[pack][track - int(self._first[pack])])

    def indices(self, track: int) -> npt.NDArray[np.int64]:
        """The native frame each model frame of a track shows: int64 [model_frames].

        Faces, labels and targets are all made with this one array. It is the beginning of that of the longest track of
        the same rate, since an index depends on the model frame alone.
        """
        rate = int(self.rate[track])
        if rate not in self._indices:
            longest = int(self.source_frames[self.rate == rate].max())
            self._indices[rate] = source_indices(longest, self.rates[rate], self.model_fps)
        shown = self._indices[rate][: int(self.frames[track])]
        last = int(self.source_frames[track]) - 1
        # Only a track shorter than one model interval has its centre past the end.
        return shown if len(shown) > 1 or shown[0] <= last else np.minimum(shown, last)

    @cached_property
    def versions(self) -> list[str]:
        """A digest of each pack's index, which holds the checksums of all its samples: the same wherever the pack lies."""
        return [file_sha256(reader.path / ARROW_FILE)[:VERSION_LENGTH] for reader in self.readers]

    def arrays(self, shard: int) -> ShardArrays:
        """The arrays of a shard, mapped when first used."""
        reader, number = self._shards[shard]
        return reader.arrays(number)

    def gains(self, target: LoudnessTarget | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """Per sample the factor and the addend that make stored int16 audio the model's: float32 [samples] each.

        ``y = x * factor + addend``, rounded to float32 after each of the two.
        """
        if target is None:
            return np.full(len(self), 1 / FULL_SCALE, np.float32), np.zeros(len(self), np.float32)
        gain = target.gains(self._level("audio_rms"), self._level("audio_peak"))
        return (gain / FULL_SCALE).astype(np.float32), (-self._level("audio_mean") * gain).astype(np.float32)

    def require_known_labels(self, purpose: str) -> None:
        """Refuse samples whose labels are filler.

        Raises:
            ValidationError: there are some; all are named.
        """
        unknown = [
            unknown_labels(Place(sample_id=self.sample_id(int(track)), field="labels"), purpose)
            for track in np.flatnonzero(~self.labels_known)
        ]
        if unknown:
            raise ValidationError(unknown, purpose)

    def _column(self, name: str) -> npt.NDArray[np.int64]:
        return _join([reader.column(name) for reader in self.readers])

    def _level(self, name: str) -> npt.NDArray[np.float64]:
        for reader in self.readers:
            values = reader.column(name)
            if not np.isfinite(values).all():
                wrong = int(np.argmin(np.isfinite(values)))
                found = f"{reader.entry(wrong).sample_id}: {name} {values[wrong]}"
                raise damaged(reader.path / ARROW_FILE, found, "a finite level")
        return _join([reader.column(name) for reader in self.readers])

    def _model_frames(self) -> npt.NDArray[np.int64]:
        frames = np.empty(len(self), np.int64)
        order = np.argsort(self.rate, kind="stable")
        groups = np.split(order, np.searchsorted(self.rate[order], np.arange(1, len(self.rates))))
        for rate, group in zip(self.rates, groups, strict=True):
            frames[group] = _complete_intervals(self.source_frames[group], self.model_fps.value / rate.value)
        return frames


def _complete_intervals(source_frames: npt.NDArray[np.int64], ratio: Fraction) -> npt.NDArray[np.int64]:
    """:func:`~muvap_assets.asd.timeline.model_frame_count` of many tracks of one rate."""
    if int(source_frames.max(initial=0)) * ratio.numerator > _INT64_MAX or ratio.denominator > _INT64_MAX:
        exact = [int(frames) * ratio.numerator // ratio.denominator for frames in source_frames]
        return np.maximum(np.array(exact, np.int64), 1)
    return np.maximum(source_frames * ratio.numerator // ratio.denominator, 1)


def _one_face_shape(readers: Sequence[PackReader]) -> tuple[int, int]:
    shape = readers[0].header.face_shape
    for reader in readers[1:]:
        if reader.header.face_shape != shape:
            found = "x".join(map(str, reader.header.face_shape))
            raise ConfigError(
                f"{reader.path}: faces of {found}; required: {shape[0]}x{shape[1]}, as in {readers[0].path}. "
                "Pack both corpora with one face shape, or read them apart."
            )
    return shape


def _rates(readers: Sequence[PackReader]) -> tuple[list[FrameRate], npt.NDArray[np.int64]]:
    """The distinct frame rates, and which of them each sample has."""
    numbers: dict[str, int] = {}
    columns = []
    for reader in readers:
        encoded = pc.dictionary_encode(reader.text_column("source_fps_exact"))
        texts = encoded.dictionary.to_pylist()
        own = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
        columns.append(own[encoded.indices.to_numpy(zero_copy_only=False)])
        for text in texts:
            try:
                FrameRate.parse(text)
            except ConfigError as error:
                raise damaged(reader.path / ARROW_FILE, f"frame rate {text!r}", "a positive rate") from error
    return [FrameRate.parse(text) for text in numbers], _join(columns)


def _join(columns: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One array; that of a single pack stays mapped."""
    return columns[0] if len(columns) == 1 else np.concatenate(columns)
