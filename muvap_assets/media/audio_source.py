"""Opens one recording: WAV, FLAC or a NumPy waveform, and decodes it to float32 blocks; refuses everything else by name.

The one exception is asked for by name, ``from_video``: a row whose faces come from a video may hear that video's sound.

What belongs here: containers and sample types. Channels, rates and levels are ``audio.py``'s business.
Nothing is trusted that only a header says: a length is what decoding gave.
"""

from __future__ import annotations

import io
from collections.abc import Generator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt
import soundfile

from muvap_assets.errors import MediaError, ViolationCode
from muvap_assets.media.npy import NpyError, NpyHeader, read_npy_header

Float32: TypeAlias = npt.NDArray[np.float32]

MAX_NPY_CHANNELS = 8
"""A two-dimensional array's shorter side is its channels only up to here."""

MIN_RATE_HZ, MAX_RATE_HZ = 1_000, 768_000

_BLOCK_VALUES = 1 << 18
_RIFF_BYTES_MAX = (1 << 32) + 7

# what libsndfile decodes without loss; a WAV may hold lossy encodings too
_WAV_ENCODINGS = frozenset({"PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"})

# element type: (offset, divisor) to the range [-1, 1); floating point passes as it is
_NPY_SCALES = {
    "u1": (128, 1 << 7),
    "i1": (0, 1 << 7),
    "i2": (0, 1 << 15),
    "i4": (0, 1 << 31),
    "f2": (0, 1),
    "f4": (0, 1),
    "f8": (0, 1),
}

_VIDEO = "VIDEO"
_SUFFIXES = {".wav": "WAV", ".wave": "WAV", ".flac": "FLAC", ".npy": "NumPy"}

# how files begin: (offset, bytes, what it is); what is refused stands here too, so that the message can say what was found
_MAGIC = (
    (8, b"WAVE", "WAV"),
    (0, b"fLaC", "FLAC"),
    (0, b"\x93NUMPY", "NumPy"),
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

_REQUIRED = "WAV (8 to 32-bit PCM or floating point), FLAC or a NumPy waveform"
_CONVERT = "Convert it once, for instance with `ffmpeg -i INPUT OUTPUT.wav`."
_REPLACE = "Copy or export the recording again."


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioSource:
    """A recording whose beginning was read, and that can be decoded. Holds no open file.

    ``encoding`` is container and sample type, such as ``WAV/PCM_24``, ``NPY/int16`` or, of a video, ``VIDEO``. Of a video
    too, ``origin_sec`` is the first frame's time on the container's clock, which is where the recording begins, and
    ``offset_sec`` how much later its sound starts; negative where it starts before.
    """

    path: Path
    rate_hz: int
    channels: int
    encoding: str
    origin_sec: Fraction = Fraction(0)
    offset_sec: Fraction = Fraction(0)

    @classmethod
    def open(cls, path: Path, npy_rate_hz: int | None = None, from_video: bool = False) -> AudioSource:
        """Find out what ``path`` is.

        Args:
            path: the recording.
            npy_rate_hz: the rate of a NumPy waveform, which cannot state its own.
            from_video: it is a video whose sound is meant, placed against its first frame.

        Raises:
            MediaError: AUDIO_MISSING, AUDIO_EMPTY, AUDIO_UNREADABLE, AUDIO_UNSUPPORTED, or AUDIO_RATE_INVALID where a NumPy
                waveform comes without a rate, a rate is out of range, or ``npy_rate_hz`` contradicts the file's own.
        """
        if from_video:
            return cls._open_video(path, npy_rate_hz)
        kind = _kind(path)
        rate_hz = npy_rate_hz
        if kind == "NumPy":
            header, channels = _npy_header(path)
            encoding = f"NPY/{header.dtype.name}"
        else:
            with _decoder(path, kind) as decoder:
                rate_hz, channels = int(decoder.samplerate), int(decoder.channels)
                encoding = f"{decoder.format}/{decoder.subtype}"
        return cls(path=path, rate_hz=_checked_rate(path, rate_hz, npy_rate_hz), channels=channels, encoding=encoding)

    @classmethod
    def _open_video(cls, path: Path, declared_hz: int | None) -> AudioSource:
        from muvap_assets.media.video_sound import open_video_sound

        _beginning(path)
        sound = open_video_sound(path)
        return cls(
            path=path,
            rate_hz=_checked_rate(path, sound.rate_hz, declared_hz),
            channels=sound.channels,
            encoding=_VIDEO,
            origin_sec=sound.origin_sec,
            offset_sec=sound.offset_sec,
        )

    def native_blocks(self, holes: list[tuple[int, int]] | None = None) -> Generator[Float32]:
        """The recording as it is: float32 [n, channels], in blocks of bounded size; full scale is one.

        A video's sound comes as two channels, however many it has: see :mod:`muvap_assets.media.soundtrack`. ``holes``
        gets where it has none: the first sample of each, and how many.

        Raises:
            MediaError: AUDIO_UNREADABLE where decoding fails on the way.
        """
        if self.encoding == _VIDEO:
            from muvap_assets.media.video_sound import video_sound_blocks

            return video_sound_blocks(self.path, self.origin_sec, holes)
        container, frames = self.encoding.partition("/")[0], max(_BLOCK_VALUES // self.channels, 1)
        return _npy_blocks(self.path, frames) if container == "NPY" else _decoded_blocks(self.path, container, frames)


def audio_error(code: ViolationCode, path: Path, *, found: str, required: str = _REQUIRED, hint: str) -> MediaError:
    """An error about one recording."""
    return MediaError(code, str(path), found=found, required=required, hint=hint)


def _kind(path: Path) -> str:
    """``WAV``, ``FLAC`` or ``NumPy``, by what is in the file; its name may not say otherwise."""
    head = _beginning(path)
    kind = next((name for at, magic, name in _MAGIC if head[at : at + len(magic)] == magic), None)
    if kind is None:
        is_mpeg = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
        kind = "MP3 or AAC" if is_mpeg else f"an unknown format, beginning with bytes {head[:8].hex(' ')}"
    claimed = _SUFFIXES.get(path.suffix.lower())
    found = f"{kind} in a {path.suffix} file" if claimed else kind
    if kind not in _SUFFIXES.values():
        _unsupported(path, found)
    if claimed not in (None, kind):
        _unsupported(path, found, "Rename it to what it is.")
    return kind


def _beginning(path: Path) -> bytes:
    try:
        # Asked first, because opening a pipe would wait for ever.
        if not path.is_file() and path.exists():
            _unreadable(path, "a folder" if path.is_dir() else "not a regular file")
        with path.open("rb") as stream:
            head = stream.read(16)
    except FileNotFoundError:
        raise audio_error(
            ViolationCode.AUDIO_MISSING, path, found="no such file", hint="Correct audio_path, or put the file there."
        ) from None
    except OSError as error:
        _unreadable(path, f"it cannot be opened ({error.strerror})")
    if not head:
        raise audio_error(ViolationCode.AUDIO_EMPTY, path, found="a file of 0 bytes", hint=_REPLACE)
    return head


def _checked_rate(path: Path, rate_hz: int | None, declared_hz: int | None) -> int:
    if rate_hz is None:
        found, hint = "a NumPy waveform without a rate", "Give audio_sample_rate."
    elif not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        found, hint = f"a rate of {rate_hz} Hz", "Correct the file or audio_sample_rate."
    elif declared_hz not in (None, rate_hz):
        found = f"a rate of {rate_hz} Hz in the file, {declared_hz} Hz declared"
        hint = "Leave audio_sample_rate empty: only NumPy waveforms need it."
    else:
        return rate_hz
    required = f"one rate between {MIN_RATE_HZ} and {MAX_RATE_HZ} Hz"
    raise audio_error(ViolationCode.AUDIO_RATE_INVALID, path, found=found, required=required, hint=hint)


class _Decoder(soundfile.SoundFile):  # type: ignore[misc]  # soundfile ships no types
    """libsndfile, read from front to back."""

    flac: _FlacStream | None = None

    def seekable(self) -> bool:
        # soundfile would clamp to the header's length and seek after every read, which fails on FLAC from a pipe.
        return False

    def close(self) -> None:
        super().close()
        if self.flac is not None:
            self.flac.close()


def _decoder(path: Path, kind: str) -> _Decoder:
    """``path`` opened; the caller closes it."""
    flac = _FlacStream(path) if kind == "FLAC" else None
    try:
        decoder = _Decoder(flac or str(path))
    except soundfile.LibsndfileError as error:
        if flac is not None:
            flac.close()
        _unreadable(path, f"a damaged {kind} file ({error.error_string})")
    decoder.flac = flac
    if flac is None:
        try:
            _check_wav(path, decoder)
        except MediaError:
            decoder.close()
            raise
    return decoder


def _check_wav(path: Path, decoder: _Decoder) -> None:
    if decoder.subtype not in _WAV_ENCODINGS:
        _unsupported(path, f"WAV holding {decoder.subtype}")
    size_bytes = path.stat().st_size
    # Programs that write to a pipe or do not mind write such files; libsndfile would stop hours before the end.
    if decoder.format != "RF64" and size_bytes > _RIFF_BYTES_MAX:
        hint = "Export it as RF64 or FLAC."
        _unsupported(path, f"a plain WAV of {size_bytes} bytes, more than its 32-bit lengths can say", hint)


def _decoded_blocks(path: Path, kind: str, frames: int) -> Generator[Float32]:
    decoded = 0
    with _decoder(path, kind) as decoder:
        while True:
            try:
                block: Float32 = decoder.read(out=np.empty((frames, decoder.channels), np.float32))
            except soundfile.LibsndfileError as error:
                _unreadable(path, f"decoding failed after {decoded} frames ({error.error_string})")
            if not len(block):
                break
            decoded += len(block)
            yield block
        if decoder.flac is not None and decoded < decoder.flac.declared_frames:
            _unreadable(path, f"it ends after {decoded} of {decoder.flac.declared_frames} frames")


class _FlacStream(io.RawIOBase):
    """A FLAC file made to say nothing of its length, because libsndfile believes it and stops there.

    bytes 21 to 25   the last 36 bits: STREAMINFO's number of frames, 0 where the encoder did not know it
    """

    _TOTAL = range(21, 26)
    _TOTAL_MASK = (1 << 36) - 1

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.declared_frames = int.from_bytes(self._file.read(26)[21:], "big") & self._TOTAL_MASK
        self._file.seek(0)

    def readinto(self, buffer: Any) -> int:
        at = self._file.tell()
        count = self._file.readinto(buffer)
        view = memoryview(buffer).cast("B")
        for index in range(max(at, self._TOTAL.start), min(at + count, self._TOTAL.stop)):
            view[index - at] &= 0xF0 if index == self._TOTAL.start else 0
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        self._file.close()
        super().close()


def _npy_header(path: Path) -> tuple[NpyHeader, int]:
    """The header of a NumPy waveform, and how many channels its shape means."""
    try:
        header = read_npy_header(path)
    except NpyError as error:
        _unreadable(path, str(error))
    if header.dtype.str[1:] not in _NPY_SCALES:
        hint = "Save it as one of int8, uint8, int16, int32, float16, float32 and float64."
        _unsupported(path, f"a NumPy array of {header.dtype}", hint)
    fault = header.length_fault()
    if fault:
        _unreadable(path, fault)
    shape = header.shape
    if 0 in shape:
        raise audio_error(ViolationCode.AUDIO_EMPTY, path, found=f"a NumPy array of shape {shape}", hint=_REPLACE)
    if len(shape) == 1:
        return header, 1
    if len(shape) != 2 or sum(side <= MAX_NPY_CHANNELS for side in shape) != 1:
        hint = f"Save it as [N], or as [N, C] or [C, N] with C at most {MAX_NPY_CHANNELS} and N above that."
        _unsupported(path, f"a NumPy array of shape {shape}", hint)
    return header, min(shape)


def _npy_blocks(path: Path, frames: int) -> Generator[Float32]:
    header, channels = _npy_header(path)
    offset, divisor = _NPY_SCALES[header.dtype.str[1:]]
    order: Any = "F" if header.fortran_order else "C"
    for start in range(0, max(header.shape), frames):
        # Mapped anew for each block: the pages of an older map would count as this process' memory while it lives.
        array = np.memmap(
            path, dtype=header.dtype, mode="r", offset=header.data_offset, shape=header.shape, order=order
        )
        block = array.reshape(-1, 1) if array.ndim == 1 else array if array.shape[1] == channels else array.T
        with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is counted as such
            samples: Float32 = np.array(block[start : start + frames], dtype=np.float32, order="C")
        yield (samples - np.float32(offset)) / np.float32(divisor)


def _unreadable(path: Path, found: str) -> NoReturn:
    raise audio_error(ViolationCode.AUDIO_UNREADABLE, path, found=found, hint=_REPLACE) from None


def _unsupported(path: Path, found: str, hint: str = _CONVERT) -> NoReturn:
    raise audio_error(ViolationCode.AUDIO_UNSUPPORTED, path, found=found, hint=hint) from None
