"""How valid files become hostile ones: blind damage to bytes, and lies told in the fields of each kind of file.

Everything is drawn from one ``random.Random``, so that a case is known by its target, seed and number.
"""

from __future__ import annotations

import copy
import json
import random
import re
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Any

LIES = (
    *(0, 1, 2, 3, 7, 16, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, 1 << 20, 1 << 24),
    *((1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 32) - 8, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, (1 << 64) - 1),
)
"""Lengths and counts that files like to claim."""

NASTY_TEXTS = (
    *("", " ", "\0", "..", ".", "/", "../../etc/passwd", "/dev/zero", "/etc", "~", "a\0b", "\\\\host\\share", "C:\\x"),
    *("a" * 300, "b/" * 3000, "\u202e", "\u0663", "1/\u0660", "\uff11", "\u00b2", "1e999", "-1", "-0", "+1", "1_0"),
    *("0x10", "nan", "inf", "-inf", "1/0", "0/1", "00", "1e-99", "1" * 400, "1" * 5000, "0." + "3" * 400, "9" * 9),
    *("999999999", "2147483648", "1000", "1001", "0.0000001", "[" * 3000, "{}", "[]", "[[]]", "[true]", "[1e999]"),
    *('{"a":' * 500, "[NaN]", "[0,1,", "[0,1]", "[2]", "[-1]", "[256]", "true", "false", "null", "None", "%n", "$HOME"),
    *("${", "*", "?", "[a]", "\u2028", "\x1b[31m", "\ufeff", "\U0001f600", "'", '"', '""', "\t", "\n", "\r", ",", ";"),
    *("SPEAKER", "npy", "video_boxes", "jpeg_directory", "video.mp4", "faces.npy", "sound.wav", "-00012"),
)

NASTY_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, -(10**30), 0.5, 1e308, float("inf"), float("nan")),
    *("", "\0", "\ud800", "..", "../../etc/passwd", "/etc/passwd", "x" * 300, "x" * 5000, "image", "video", "29.97"),
    *("loop", "loop/x", ".", "target.mov/x"),
    *([], {}, [[]], [None], {"": None}, [0] * 50, "1/0", "1/\u0660", "9" * 5000),
)


def damaged(rng: random.Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """One to four blind damages: bits, bytes, integers, cuts, insertions, repeats, and pieces of another file."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
        rng.choice(_BLIND)(rng, content)
        if others and rng.random() < 0.05:
            other = rng.choice(others)
            if other:
                at = rng.randrange(len(other))
                place = rng.randint(0, len(content))
                content[place:place] = other[at : at + rng.randint(1, 200)]
    return bytes(content)


def _flip(rng: random.Random, content: bytearray) -> None:
    if content:
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def _set(rng: random.Random, content: bytearray) -> None:
    if content:
        content[rng.randrange(len(content))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))


def _lie(rng: random.Random, content: bytearray) -> None:
    size = rng.choice((1, 2, 4, 4, 8))
    if len(content) > size:
        place = rng.randrange(len(content) - size)
        content[place : place + size] = lie(rng, size)


def _cut(rng: random.Random, content: bytearray) -> None:
    if content:
        del content[rng.choice((rng.randrange(len(content)), len(content) - rng.randint(1, min(20, len(content))))) :]


def _insert(rng: random.Random, content: bytearray) -> None:
    place = rng.randint(0, len(content))
    content[place:place] = rng.choice((rng.randbytes(rng.randint(1, 20)), bytes(rng.randint(1, 300))))


def _delete(rng: random.Random, content: bytearray) -> None:
    if content:
        place = rng.randrange(len(content))
        del content[place : place + rng.randint(1, 30)]


def _repeat(rng: random.Random, content: bytearray) -> None:
    if content:
        place = rng.randrange(len(content))
        piece = content[place : place + rng.randint(1, 100)]
        content[place:place] = piece * rng.randint(1, 5)


_BLIND: tuple[Callable[[random.Random, bytearray], None], ...] = (
    *(_flip, _flip, _set, _set, _lie, _lie, _cut, _insert, _delete, _repeat),
)


def lie(rng: random.Random, size: int) -> bytes:
    """A claim of ``size`` bytes, in either byte order."""
    return (rng.choice(LIES) & ((1 << 8 * size) - 1)).to_bytes(size, rng.choice(("little", "big")))


# --- text -----------------------------------------------------------------------------------------------------------


def table(rng: random.Random, text: str, delimiter: str) -> bytes:
    """A table with one to three fields, rows or columns gone wrong."""
    rows = [line.split(delimiter) for line in text.splitlines()]
    for _ in range(rng.choice((1, 1, 2, 3))):
        row = rng.choice(rows)
        if rng.random() < 0.2:
            _wrong_rows(rng, rows, row)
        else:
            _wrong_field(rng, row)
    ending = rng.choice(("\n", "\n", "\n", "\r\n", "\r"))
    content = ending.join(delimiter.join(row) for row in rows).encode("utf-8", "surrogatepass")
    return damaged(rng, content) if rng.random() < 0.2 else content


def _wrong_rows(rng: random.Random, rows: list[list[str]], row: list[str]) -> None:
    if rng.random() < 0.5 or len(rows) == 1:
        rows.insert(rng.randrange(len(rows)), list(rng.choice(rows)))
    else:
        rows.remove(row)


def _wrong_field(rng: random.Random, row: list[str]) -> None:
    if not row:
        row.append(rng.choice(NASTY_TEXTS))
    place = rng.randrange(len(row))
    match rng.randrange(8):
        case 0 | 1 | 2 | 3:
            row[place] = rng.choice(NASTY_TEXTS)
        case 4:
            row[place] = row[place].replace(rng.choice("0123456789.,[]_:/"), rng.choice(NASTY_TEXTS), 1)
        case 5:
            row[place] = f'"{row[place]}' + rng.choice(('"', "", '""'))
        case 6:
            row.insert(place, rng.choice(NASTY_TEXTS))
        case 7:
            del row[place]


def document(rng: random.Random, value: Any) -> Any:
    """A JSON value with one to three of its nodes replaced, renamed, dropped or repeated; the value given is not changed."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(rng.choice(NASTY_VALUES))
        holder, key = rng.choice(places)
        match rng.randrange(6):
            case 0 | 1 | 2:
                holder[key] = copy.deepcopy(rng.choice(NASTY_VALUES))
            case 3:
                del holder[key]
            case 4:
                if isinstance(holder, dict):
                    holder[rng.choice(NASTY_TEXTS)] = holder.pop(key)
                else:
                    holder.insert(key, _copied(holder[key]))
            case 5:
                nested: Any = holder[key]
                for _ in range(rng.choice((1, 5, 300, 900, 960, 980))):
                    nested = [nested] if rng.random() < 0.9 else {"a": nested}
                holder[key] = nested
    return value


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except RecursionError:
        return None


def json_bytes(rng: random.Random, value: Any, indent: int | None = None) -> bytes:
    """The text of a value; deep ones are written without Python's own recursion limit in the way."""
    return _dumped(value, indent if rng.random() < 0.8 else 1).encode("utf-8", "surrogatepass")


def _dumped(value: Any, indent: int | None) -> str:
    try:
        return json.dumps(value, indent=indent)
    except RecursionError:
        depth, inner = 0, value
        while isinstance(inner, list | dict) and len(inner) == 1:
            inner = inner[0] if isinstance(inner, list) else next(iter(inner.values()))
            depth += 1
        return "[" * depth + "0" + "]" * depth


def _places(value: Any) -> Any:
    stack = [value]
    while stack:
        holder = stack.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                stack.append(holder[key])


# --- containers of chunks ---------------------------------------------------------------------------------------------


def riff(rng: random.Random, data: bytes) -> bytes:
    """A WAV whose chunks lie about their size, whose format is another, or whose chunks come twice, never or swapped."""
    chunks, at = [], 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        chunks.append([name, size, bytearray(data[at + 8 : at + 8 + size])])
        at += 8 + size + size % 2
    form = bytearray(data[:12])
    for _ in range(rng.choice((1, 1, 2))):
        if rng.random() < 0.15:
            form[:4], form[4:8] = rng.choice((b"RIFF", b"RF64", b"RIFX")), lie(rng, 4)
        elif rng.random() < 0.4:
            _wrong_order(rng, chunks)
        else:
            _wrong_chunk(rng, rng.choice(chunks))
    return bytes(form) + b"".join(
        name + struct.pack("<I", size) + bytes(content) + bytes(len(content) % 2) for name, size, content in chunks
    )


def _wrong_chunk(rng: random.Random, chunk: list[Any]) -> None:
    match rng.randrange(3):
        case 0:
            chunk[1] = rng.choice(LIES) & 0xFFFFFFFF
        case 1:
            size = rng.choice((2, 4))
            if len(chunk[2]) >= size:
                place = rng.randrange(0, len(chunk[2]) - size + 1, 2)
                chunk[2][place : place + size] = lie(rng, size)
        case 2:
            chunk[0] = rng.choice((b"fmt ", b"data", b"fact", b"LIST", b"ds64", b"cue ", b"smpl", rng.randbytes(4)))


def _wrong_order(rng: random.Random, chunks: list[list[Any]]) -> None:
    match rng.randrange(3):
        case 0:
            chunks.insert(rng.randrange(len(chunks)), copy.deepcopy(rng.choice(chunks)))
        case 1:
            rng.shuffle(chunks)
        case 2:
            if len(chunks) > 1:
                chunks.remove(rng.choice(chunks))


_PNG_NAMES = (b"tRNS", b"PLTE", b"iCCP", b"eXIf", b"acTL", b"fcTL", b"zTXt", b"iTXt", b"IDAT", b"IHDR")


def png(rng: random.Random, data: bytes) -> bytes:
    """A PNG with chunks changed and their checksums made right again, so that a reader has to look further."""
    chunks, at = [], 8
    while at + 8 <= len(data):
        size = struct.unpack_from(">I", data, at)[0]
        chunks.append([data[at + 4 : at + 8], size, bytearray(data[at + 8 : at + 8 + size])])
        at += 12 + size
    for _ in range(rng.choice((1, 1, 2))):
        chunk, head = rng.choice(chunks), chunks[0][2]
        match rng.randrange(6):
            case 0:  # width or height
                place = rng.choice((0, 4))
                head[place : place + 4] = struct.pack(">I", rng.choice(LIES) & 0xFFFFFFFF)
            case 1:  # depth, colour, compression, filter, interlace
                place = rng.randrange(8, 13)
                head[place : place + 1] = bytes([rng.randrange(20)])
            case 2:
                _flip(rng, chunk[2])
            case 3:
                _lie(rng, chunk[2])
            case 4:
                chunk[0] = rng.choice(_PNG_NAMES)
            case 5:
                _wrong_order(rng, chunks)
    return data[:8] + b"".join(
        struct.pack(">I", len(body)) + name + bytes(body) + struct.pack(">I", zlib.crc32(name + bytes(body)))
        for name, _, body in chunks
    )


def jpeg(rng: random.Random, data: bytes) -> bytes:
    """A JPEG whose segments lie about their length, size, components or tables."""
    content = bytearray(data)
    places, at = [], 2
    while at + 4 <= len(content) and content[at] == 0xFF:
        places.append(at)
        if content[at + 1] == 0xDA:
            break
        at += 2 + int.from_bytes(content[at + 2 : at + 4])
    at = rng.choice(places)
    match rng.randrange(5):
        case 0:
            content[at + 2 : at + 4] = lie(rng, 2)
        case 1:
            content[at + 1] = rng.choice((0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC9, 0xD8, 0xD9, 0xDA, 0xDB, 0xDD, 0xE1, 0xFF))
        case 2:
            frame = next((p for p in places if 0xC0 <= content[p + 1] <= 0xC2), at)
            place = frame + rng.choice((5, 7))
            content[place : place + 2] = lie(rng, 2)
        case 3:
            content[at + 4 + rng.randrange(12) : at + 6 + rng.randrange(12)] = lie(rng, 2)
        case 4:
            length = 2 + int.from_bytes(content[at + 2 : at + 4])
            content[at:at] = content[at : at + length] * rng.randint(1, 3)
    return bytes(content)


_BOXES = frozenset({b"moov", b"trak", b"mdia", b"minf", b"stbl", b"edts", b"udta", b"mvex", b"dinf"})


def mp4(rng: random.Random, data: bytes) -> bytes:
    """An MP4 whose boxes lie about their size or their fields: counts, times, offsets and sizes of samples, dimensions."""
    content = bytearray(data)
    boxes = list(_walk(data, 0, len(data)))
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, size, _ = rng.choice(boxes)
        match rng.randrange(6):
            case 0:
                content[at : at + 4] = lie(rng, 4)
            case 1:
                content[at + 4 : at + 8] = rng.choice(boxes)[2]
            case _:
                leaves = [box for box in boxes if box[2] not in _BOXES and box[2] != b"mdat" and box[1] >= 12] or boxes
                at, size, _ = rng.choice(leaves)
                width = rng.choice((2, 4, 4, 4, 8))
                place = at + 8 + rng.randrange(0, max(size - 8, 2), 2)
                content[place : place + width] = lie(rng, width)
    return bytes(content)


def _walk(data: bytes, at: int, stop: int) -> Any:
    while at + 8 <= stop:
        size, name = struct.unpack_from(">I4s", data, at)
        if size < 8:
            return
        yield at, size, name
        if name in _BOXES:
            yield from _walk(data, at + 8, min(at + size, stop))
        at += size


_NPY_TOKENS = (
    *(
        "'|u1'",
        "'<i2'",
        "'>f8'",
        "'|O'",
        "'<U9999999'",
        "'V0'",
        "'S2147483647'",
        "'M8[s]'",
        "'i4,i4'",
        "'(2,3)i4'",
        "'f2'",
    ),
    *(
        "'('",
        "'<f16'",
        "'?'",
        "'c16'",
        "'a5'",
        "'|b1'",
        "'m8'",
        "''",
        "'u9'",
        "'8i1'",
        "'(99999999,)u1'",
        "'O8'",
        "'B'",
    ),
    *("'u1' 'i2'", "[('a', '<i2')]", "True", "False", "None", "(0,)", "()", "(1,)", "(3)", "(2, 3, 4)", "(-1, 2, 2)"),
    *(
        "(99999999999999999,)",
        "(1, 999999999999, 999999999999)",
        "(1L, 2L)",
        "(1e9,)",
        "(2, 0, 4)",
        "(" + "1," * 70 + ")",
    ),
    *("__import__('os')", "{" * 100, "'descr'", "'shape'", "lambda: 0"),
)


def npy(rng: random.Random, data: bytes) -> bytes:
    """A ``.npy`` whose header names another type, shape or order, or lies about its own length."""
    start, length = (
        (10, struct.unpack_from("<H", data, 8)[0]) if data[6] == 1 else (12, struct.unpack_from("<I", data, 8)[0])
    )
    text = data[start : start + length].decode("latin-1")
    for _ in range(rng.choice((1, 1, 2))):
        tokens = list(re.finditer(r"'[^']*'|True|False|\([^)]*\)|\d+", text))
        token = rng.choice(tokens) if tokens else None
        if token is not None:
            text = text[: token.start()] + rng.choice(_NPY_TOKENS) + text[token.end() :]
    header = text.encode("latin-1", "replace")
    match rng.randrange(5):
        case 0:
            prefix = data[:8] + lie(rng, start - 8)
        case 1:
            prefix = (
                b"\x93NUMPY" + bytes([rng.randrange(5), rng.randrange(3)]) + struct.pack("<H", len(header) & 0xFFFF)
            )
        case _:
            prefix = data[:8] + (len(header) & ((1 << 8 * (start - 8)) - 1)).to_bytes(start - 8, "little")
    return prefix + header + data[start + length :]


def flac(rng: random.Random, data: bytes) -> bytes:
    """A FLAC whose metadata blocks lie: sizes, rates, channels, totals."""
    content = bytearray(data)
    match rng.randrange(4):
        case 0:
            content[4:8] = lie(rng, 4)
        case 1:
            place = 8 + rng.randrange(34)
            content[place : place + 4] = lie(rng, 4)
        case 2:
            content[8:8] = content[4:42] * rng.randint(1, 3)
        case 3:
            content[21:26] = lie(rng, 8)[:5]
    return bytes(content)


_OPCODES = (
    *(
        b"c" + b"os\nsystem\n",
        b"\x93",
        b"\x8c\x02os\x8c\x06system\x93",
        b"R",
        b"o",
        b"i" + b"os\nsystem\n",
        b"b",
        b"\x81",
    ),
    *(
        b"\x92",
        b"Q",
        b"Ppid\n",
        b"\x82\x01",
        b"\x84\xff\xff\xff\x7f",
        b"\x85",
        b"\x86",
        b"\x87",
        b"t",
        b"l",
        b"d",
        b"}",
    ),
    *(
        b"]",
        b"(",
        b")",
        b"0",
        b"1",
        b"2",
        b"a",
        b"e",
        b"s",
        b"u",
        b"\x8f",
        b"\x90",
        b"\x91",
        b"N",
        b"\x88",
        b"\x89",
        b".",
    ),
    *(
        b"r\xff\xff\xff\x7f",
        b"q\xff",
        b"p2147483647\n",
        b"p99999999999\n",
        b"j\xff\xff\xff\x7f",
        b"h\x05",
        b"g7\n",
        b"\x94",
    ),
    *(
        b"\x8d" + b"\xff" * 7 + b"\x7f",
        b"\x8e" + b"\xff" * 7 + b"\x0f",
        b"\x96" + b"\xff\xff\xff\xff\x0f\0\0\0",
        b"\x97",
    ),
    *(b"X\xff\xff\xff\x7f", b"T\xff\xff\xff\x7f", b"B\xff\xff\xff\x7f", b"\x95" + b"\xff" * 8, b"\x8b\xff\xff\xff\x7f"),
    *(
        b"I" + b"9" * 5000 + b"\n",
        b"L" + b"9" * 5000 + b"L\n",
        b"F1e999\n",
        b"V\\ud800\n",
        b"S'a'\n",
        b"J\xff\xff\xff\xff",
    ),
    *(b"K\x01", b"M\x01\x00", b"G\x7f\xf0\0\0\0\0\0\0", b"\x80\x05", b"\x80\xff", b"C\x01a", b"U\x01a", b"\x98"),
)


def pickled(rng: random.Random, data: bytes) -> bytes:
    """A pickle with operations of every kind in it: calls, globals, outside objects, and claims of size."""
    content = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        place = rng.choice((2, 11, max(len(content) - 1, 0), rng.randint(0, len(content))))
        content[place:place] = rng.choice(_OPCODES)
    return bytes(content)
