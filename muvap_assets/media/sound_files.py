"""What a file with sound is, by its bytes, and the words and types in which the readers of its kinds speak of it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding

Float32: TypeAlias = npt.NDArray[np.float32]
Chunk: TypeAlias = tuple[Fraction | None, Float32]
"""Seconds on the file's clock, where it has one, and samples [n, channels]."""

MIN_RATE_HZ, MAX_RATE_HZ = 1_000, 768_000
"""Rates of recordings; what is outside is no sound that anybody records."""

LOSSLESS = ("WAV", "FLAC", "Ogg-FLAC", "NumPy")
UNKNOWN_FORMAT = "an unknown format"
_SUFFIXES = {".wav": ("WAV",), ".wave": ("WAV",), ".flac": ("FLAC", "Ogg-FLAC"), ".npy": ("NumPy",)}

# how files begin: (offset, bytes, what it is); what a line refuses stands here too, so that it can say what was found
_MAGIC = (
    (8, b"WAVE", "WAV"),
    (0, b"fLaC", "FLAC"),
    (0, b"\x93NUMPY", "NumPy"),
    (28, b"\x7fFLAC", "Ogg-FLAC"),
    (0, b"OggS", "Ogg (Vorbis or Opus)"),
    (0, b"ID3", "MP3 (it begins with an ID3 tag)"),
    (4, b"ftyp", "MP4 (AAC, M4A or video)"),
    (0, b"PK\x03\x04", "a zip archive (npz?)"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (0, b"FORM", "AIFF"),
    (0, b"riff", "Wave64"),
    (0, b"caff", "CAF"),
    (0, b".snd", "Sun AU"),
    (8, b"AVI ", "AVI"),
)
_RIFF = (b"RIFF", b"RIFX", b"RF64", b"BW64")
_HEAD_BYTES = 4096  # most headers of WAV lie in here: one system call
_MAX_TAGS = 16  # a file of nothing but empty ID3v2 tags is not walked to its end


@dataclass(frozen=True, slots=True)
class SoundChoice:
    """Which sound of a file is meant.

    ``stream`` is an audio stream, by its number among them from 0 or by its language; ``None`` for the one that is flagged
    default, else the first. ``channel`` is one of its channels, from 0; ``None`` for all of them.
    """

    stream: str | None = None
    channel: int | None = None


_STREAM = re.compile(r"\d{1,4}|[a-z]{2,3}(-[a-z0-9]{1,8}){0,3}", re.ASCII)


def stream_name(text: str) -> str | None:
    """A stream's number or language in the one form :class:`SoundChoice` has it; ``None`` where it is neither."""
    text = text.strip().lower()
    if not _STREAM.fullmatch(text):
        return None
    return str(int(text)) if text.isdecimal() else text


class NativeSound:
    """What decodes one stream of an open file; subclasses say how.

    Attributes:
        encoding: container and sample type.
        rate_hz: native, ``None`` where the file does not say it.
        speakers: names of the channels, as ffmpeg names them.
        notes: what is odd; complete when every chunk was taken.
        stopped: why decoding ended early; empty where it did not.
        track: what the choice of a stream adds to the file's identity.
    """

    encoding: str
    rate_hz: int | None
    speakers: tuple[str, ...]

    def __init__(self, path: Path) -> None:
        self.path, self.stopped, self.track = path, "", ""
        self.notes: list[Finding] = []

    def note(self, code: Code, found: str, *, case: str = "", **facts: object) -> None:
        """Add a warning to ``notes``."""
        self.notes.append(Finding(code, None, found, case=case, severity=Severity.WARNING, **facts))

    def chunks(self, frames: int) -> Iterator[Chunk]:
        """All samples, in chunks of about ``frames``."""
        raise NotImplementedError

    def close(self) -> None:
        """Close what was opened."""


class OpenedFile:
    """A regular file, its first bytes, and what it is by them: one of :data:`LOSSLESS`, or words that say what else."""

    def __init__(self, path: Path) -> None:
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for ever
        except FileNotFoundError:
            raise ValidationError(Finding(Code.AUDIO_MISSING, path, "no such file")) from None
        except OSError as error:
            unreadable_audio(path, f"it cannot be opened ({error.strerror})")
        try:
            self._look_at(path)
        except BaseException:
            self.close()
            raise

    def _look_at(self, path: Path) -> None:
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            unreadable_audio(path, "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file")
        self.size, self.start = status.st_size, 0
        try:
            self._head = head = os.pread(self.descriptor, _HEAD_BYTES, 0)
        except OSError as error:
            unreadable_audio(path, f"it cannot be read ({error.strerror})")
        if not head:
            raise ValidationError(Finding(Code.AUDIO_EMPTY, path, "a file of 0 bytes"))
        after = head
        for _ in range(_MAX_TAGS):
            if not after.startswith(b"ID3") or len(after) <= 10:
                break
            self.start += _id3v2_bytes(after)
            after = self.read(self.start, 64)
        kind = _named(after)
        if self.start and kind not in ("WAV", "FLAC"):
            kind, self.start = _named(head), 0
        is_mpeg = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
        self.kind = kind or ("MP3 or AAC" if is_mpeg else f"{UNKNOWN_FORMAT}, beginning with bytes {head[:8].hex(' ')}")

    def read(self, at: int, count: int) -> bytes:
        """Bytes of the file, fewer at its end."""
        head = self._head
        return head[at : at + count] if at + count <= len(head) else os.pread(self.descriptor, count, at)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def refuse_missing(path: Path) -> None:
    """Look whether a file can be opened at all.

    Raises:
        ValidationError: AUDIO_MISSING, AUDIO_EMPTY, or AUDIO_UNREADABLE where it is no regular file.
    """
    OpenedFile(path).close()


def _named(head: bytes) -> str | None:
    kind = next((name for at, magic, name in _MAGIC if head[at : at + len(magic)] == magic), None)
    return None if kind == "WAV" and head[:4] not in _RIFF else kind


def _id3v2_bytes(head: bytes) -> int:
    """The length of a tag by its header: four times seven bits, without header and footer."""
    size = sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
    return 10 + size + (10 if head[5] & 0x10 else 0)


def refuse_lossy(path: Path, kind: str) -> None:
    """Refuse what is not one of :data:`LOSSLESS`, or has the name of another kind.

    Raises:
        ValidationError: AUDIO_UNSUPPORTED.
    """
    claimed = _SUFFIXES.get(path.suffix.lower())
    found = f"{kind} in a {path.suffix} file" if claimed else kind
    if kind not in LOSSLESS:
        unsupported_audio(path, found)
    if claimed is not None and kind not in claimed:
        unsupported_audio(path, found, "name")


def no_such_stream(path: Path, chosen: str, found: str) -> ValidationError:
    """The error about a chosen stream that is not among ``found``."""
    return ValidationError(Finding(Code.AUDIO_STREAM, path, f"{found}; {chosen!r} is chosen"))


def unreadable_audio(path: Path, found: str) -> NoReturn:
    """Raise AUDIO_UNREADABLE."""
    raise ValidationError(Finding(Code.AUDIO_UNREADABLE, path, found)) from None


def unsupported_audio(path: Path, found: str, case: str = "", channels: int = 0) -> NoReturn:
    """Raise AUDIO_UNSUPPORTED."""
    raise ValidationError(Finding(Code.AUDIO_UNSUPPORTED, path, found, case=case, channels=channels)) from None
