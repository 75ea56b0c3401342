"""The few facts an index needs of a shard, from one read of the end of its file.

A Parquet file ends with a Thrift structure, its length and ``PAR1``. Decoding that structure costs more than everything
else an index does, for it describes every chunk of every column. Its key-value list holds what is asked for here, each entry

    0x18 <length> <key> 0x18 <length> <value> 0x00        Thrift compact protocol: two strings, end of structure

and an entry is found by its encoded key: neither JSON nor base64, the only values there are, holds a byte 0x18. Where it
is not found exactly once, the whole structure is decoded instead.
"""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding
from muvap_assets.ref2va.records import SCHEMA_KEY, SUMMARIES_KEY

TAIL_BYTES = 16 * 1024  # holds the footer of nearly every one-row shard; a longer one costs a second read
_MAGIC, _ENDING_BYTES, _STRING = b"PAR1", 8, b"\x18"


@dataclass(frozen=True, slots=True)
class Footer:
    """Schema id and row summaries of a shard, as :func:`muvap_assets.ref2va.records.write_shard` wrote them."""

    schema_id: str
    summaries: tuple[dict[str, Any], ...]


def read_footer(descriptor: int, size: int, path: str) -> Footer:
    """The footer of an open shard of ``size`` bytes; ``path`` is for messages.

    Raises:
        FormatError: the file is cut short, no Parquet file, or none this package wrote.
    """
    wanted = min(size, TAIL_BYTES)
    return parse_footer(os.pread(descriptor, wanted, size - wanted), descriptor, size, path)


def parse_footer(tail: bytes, descriptor: int, size: int, path: str) -> Footer:
    """The footer of which ``tail`` are the last bytes; see :func:`read_footer`."""
    length = int.from_bytes(tail[-_ENDING_BYTES : -len(_MAGIC)], "little") + _ENDING_BYTES
    if tail[-len(_MAGIC) :] != _MAGIC or length + len(_MAGIC) > size:
        raise _unreadable(path, f"it does not end in a Parquet footer ({size:,} bytes)")
    if length > len(tail):
        tail = os.pread(descriptor, length, size - length)
    footer = tail[-length:]
    schema, summaries = _value(footer, SCHEMA_KEY), _value(footer, SUMMARIES_KEY)
    if schema is None or summaries is None:
        stored = _decoded(footer, path)
        schema, summaries = stored.get(SCHEMA_KEY), stored.get(SUMMARIES_KEY)
    try:
        rows = tuple(json.loads(summaries or b""))
        return Footer((schema or b"").decode(), rows)
    except (ValueError, TypeError, RecursionError) as error:
        raise _unreadable(path, "its metadata holds no schema id and row summaries") from error


def _value(footer: bytes, key: bytes) -> bytes | None:
    """The value of a key-value entry, or ``None`` where it cannot be told without decoding everything."""
    marker = _marker(key)
    place = footer.find(marker)
    if place < 0 or footer.find(marker, place + 1) >= 0:
        return None
    start, length, shift = place + len(marker), 0, 0
    while True:
        if start >= len(footer) or shift > 28:
            return None
        byte = footer[start]
        length |= (byte & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if byte < 0x80:
            break
    stop = start + length
    return footer[start:stop] if footer[stop : stop + 1] == b"\0" else None


@functools.cache
def _marker(key: bytes) -> bytes:
    return _STRING + _varint(len(key)) + key + _STRING


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _decoded(footer: bytes, path: str) -> dict[bytes, bytes]:
    try:
        return dict(pq.read_metadata(pa.BufferReader(_MAGIC + footer)).metadata or {})
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(path, f"its Parquet footer cannot be decoded ({error})") from error


def _unreadable(path: str, found: str) -> FormatError:
    return FormatError(Finding(Code.SHARD_UNREADABLE, Path(path), found))
