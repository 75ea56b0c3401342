"""Content-keyed parts and finished rows: what makes a rebuild incremental and a kill harmless.

    <root>/parts/<stage>/<2 digits>/<key>.part    the tensors one stage made of one row
    <root>/rows/<2 digits>/<key>.row              one finished row, a Parquet file under a name no sweep for shards takes

A key is a digest of exactly what the content depends on, so nothing is ever updated: what was made under a key stays
valid, and a changed input has another key. A file appears under its key in one step, synced. Several processes may share a
store. It lies outside every published tree.

A part is a JSON line naming its arrays and the device they were made on, the arrays in NumPy's own format without pickle, and a
SHA-256 over all of it. The device is no part of the key: a part is taken up by whatever device needs it next.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from muvap_assets.findings import Finding
from muvap_assets.readback import STUMBLES, reading
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.encoder import EncoderFingerprint, RowInput, Stage, Tensors, json_digest
from muvap_assets.ref2va.geometry import target_audio_samples
from muvap_assets.storage.files import replacing

PART_VERSION = 1  # of the part file and of what a stage's tensors are called
RECORD_VERSION = 2  # of how a row is assembled from its parts
UNKNOWN_DEVICE = "not recorded"  # of parts that are gone, or were stored before devices were recorded
_MAGIC = b"muvap-ref2va-part "
_DIGEST_BYTES = 32
_BLOCK_BYTES = 1 << 20


def part_key(stage: Stage, row: RowInput, fingerprint: EncoderFingerprint) -> str:
    """The key of what ``stage`` makes of ``row``: nothing the stage does not read goes in, and nothing it reads is left out.

    Frame counts of references are those after the cut to the target's length, so a target's length counts where it cuts.
    """
    return json_digest(
        {
            "stage": str(stage),
            "version": PART_VERSION,
            "encoder": fingerprint.digest(stage),
            "media_version": row.media_version,
            "reads": _reads(stage, row),
        }
    )


def _reads(stage: Stage, row: RowInput) -> Any:
    if stage is Stage.TARGET_VIDEO:
        return {"media": row.target_digest, "canvas": list(row.geometry.size), "frames": row.geometry.num_frames}
    if stage is Stage.TARGET_AUDIO:
        frames = row.geometry.num_frames
        media = row.target_digest + row.target_sound
        return {"media": media, "frames": frames, "cut": target_audio_samples(frames, row.format)}
    if stage is Stage.REFERENCE_AUDIO:
        return [
            {"media": reference.audio_digest, "samples": reference.audio_samples}
            for reference in row.references
            if reference.kind.has_audio
        ]
    if stage is Stage.REFERENCE_VISUAL:
        return [
            {"media": reference.visual_digest, "size": list(reference.size or ()), "frames": reference.encoded_frames}
            for reference in row.references
            if reference.kind.has_visual
        ]
    presented = [
        {
            "kind": str(reference.kind),
            "media": reference.visual_digest,
            "size": list(reference.size or ()),
            "frames": reference.num_frames,
        }
        for reference in row.references
    ]
    return {"caption": row.caption, "references": presented}


def row_key(row: RowInput, parts: Mapping[Stage, str]) -> str:
    """The key of the finished row: its parts, and every value beside the tensors."""
    return json_digest(
        {
            "version": RECORD_VERSION,
            "schema": row.format.schema_id,
            "id": row.sample_id,
            "file_name": row.file_name,
            "caption": row.caption,
            "geometry": [*row.geometry.size, row.geometry.num_frames],
            "reference_noise_seed": row.reference_noise_seed if row.format is Format.PACKED else None,
            "references": [str(reference.kind) for reference in row.references],
            "parts": {str(stage): parts[stage] for stage in Stage},
        }
    )


def row_file(store: Path, key: str) -> Path:
    """Where the row of a key stands in the store, if it does."""
    return store / "rows" / key[:2] / f"{key}.row"


class RowStore:
    """A folder of parts and rows. ``corrupt`` counts parts found damaged and removed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.corrupt = 0

    def has_part(self, stage: Stage, key: str) -> bool:
        """Whether the part stands and is whole; a damaged one is removed, so that it is made again."""
        path = self._part_path(stage, key)
        try:
            with path.open("rb") as stream:
                if _is_whole(stream):
                    return True
        except FileNotFoundError:
            return False
        self.corrupt += 1
        path.unlink(missing_ok=True)
        return False

    def names_part(self, stage: Stage, key: str) -> bool:
        """Whether there is a file of the part. Whether it is whole is not looked at."""
        return self._part_path(stage, key).is_file()

    def read_part(self, stage: Stage, key: str) -> dict[str, npt.NDArray[Any]] | None:
        """The arrays of a part, or ``None`` where it does not stand or was damaged."""
        if not self.has_part(stage, key):
            return None
        path = self._part_path(stage, key)
        with reading(path, "part"), path.open("rb") as stream:
            names, _ = _header(stream)
            return {name: np.lib.format.read_array(stream, allow_pickle=False) for name in names}

    def part_device(self, stage: Stage, key: str) -> str:
        """The device a part was made on, :data:`UNKNOWN_DEVICE`, or nothing where no model made it. Only its header is read."""
        try:
            with self._part_path(stage, key).open("rb") as stream:
                return _header(stream)[1]
        except STUMBLES:  # it is gone, or damaged: then it is made again where it is needed
            return UNKNOWN_DEVICE

    def write_part(self, stage: Stage, key: str, tensors: Tensors, device: str) -> None:
        """Store the arrays of a part; it stands whole once this returns, and not at all before.

        ``device`` is where they were computed; empty where no model was needed.
        """
        with replacing(self._part_path(stage, key)) as partial, partial.open("wb") as stream:
            hashing = _HashingStream(stream)
            header = {"arrays": sorted(tensors), "device": device}
            hashing.write(_MAGIC + json.dumps(header).encode() + b"\n")
            for name in sorted(tensors):
                np.lib.format.write_array(hashing, np.ascontiguousarray(tensors[name]), allow_pickle=False)
            stream.write(hashing.digest.digest())

    def row_path(self, key: str) -> Path:
        """Where the row of this key stands, if it does."""
        return row_file(self.root, key)

    def write_row(
        self, key: str, write: Callable[[Path], Any], verify: Callable[[Path], list[Finding]]
    ) -> list[Finding]:
        """Write a row, read it back, and let it stand only if nothing is wrong with it; returns what is.

        Args:
            key: its key.
            write: writes the file it is given.
            verify: reads that file and returns what is wrong with it.
        """
        try:
            with replacing(self.row_path(key)) as partial:
                write(partial)
                if found := verify(partial):
                    raise _Rejected(found)
        except _Rejected as rejected:
            return rejected.found
        return []

    def remove_row(self, key: str) -> None:
        """Remove a row found damaged, so that it is assembled again."""
        self.row_path(key).unlink(missing_ok=True)

    def _part_path(self, stage: Stage, key: str) -> Path:
        return self.root / "parts" / str(stage) / key[:2] / f"{key}.part"


class _Rejected(Exception):
    """A row was read back, and this is wrong with it."""

    def __init__(self, found: list[Finding]) -> None:
        super().__init__()
        self.found = found


class _HashingStream:
    """Passes bytes on and hashes them."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write ``data``; what NumPy calls."""
        self.digest.update(data)
        return self._stream.write(data)


def _header(stream: BinaryIO) -> tuple[list[str], str]:
    """Names of a part's arrays and its device; the first parts ever stored name their arrays alone."""
    header = json.loads(stream.readline().removeprefix(_MAGIC))
    if isinstance(header, list):
        return header, UNKNOWN_DEVICE
    return list(header["arrays"]), str(header["device"])


def _is_whole(stream: BinaryIO) -> bool:
    remaining = os.fstat(stream.fileno()).st_size - _DIGEST_BYTES
    if stream.read(len(_MAGIC)) != _MAGIC or remaining < len(_MAGIC):
        return False
    stream.seek(0)
    digest = hashlib.sha256()
    while remaining:
        block = stream.read(min(_BLOCK_BYTES, remaining))
        if not block:
            return False
        digest.update(block)
        remaining -= len(block)
    return stream.read() == digest.digest()
