"""Decodes the sound of one file to float32 blocks: the one decoder of both lines, and of the sound of videos.

| kind           | told by                                        | decoded by | times                   |
|----------------|------------------------------------------------|------------|-------------------------|
| WAV            | ``RIFF``, ``RIFX``, ``RF64`` or ``BW64``       | its bytes  | none                    |
| FLAC, Ogg-FLAC | ``fLaC``; ``OggS`` with a first packet of FLAC | ffmpeg     | none                    |
| NumPy          | ``\\x93NUMPY``                                  | its bytes  | none                    |
| anything else  |                                                | ffmpeg     | those of the container  |

An ID3v2 tag before it is passed over. Without times samples follow each other. Nothing that only a header says is trusted:
a length is what decoding gave. Mixing, placing and resampling are each line's own business.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import MediaError, ViolationCode
from muvap_assets.media.npy import NpyError, NpyHeader, read_npy_header
from muvap_assets.media.video import open_container
from muvap_assets.media.wav import REWRITE_HINT, WavError, read_wav_header, wav_blocks

Float32: TypeAlias = npt.NDArray[np.float32]
Chunk: TypeAlias = tuple[Fraction | None, Float32]
"""Seconds on the file's clock, where it has one, and samples [n, channels]."""

MAX_NPY_CHANNELS = 8
"""A two-dimensional array's shorter side is its channels only up to here."""

MIN_RATE_HZ, MAX_RATE_HZ = 1_000, 768_000
LOSSLESS = ("WAV", "FLAC", "Ogg-FLAC", "NumPy")

_BLOCK_VALUES = 1 << 17
_STREAMINFO_BYTES = 34

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
_HEAD_BYTES = 4096  # most headers of WAV lie in here: one system call
_UNKNOWN = "an unknown format"

_REQUIRED = "WAV (8 to 32-bit PCM or floating point), FLAC or a NumPy waveform"
_CONVERT = "Convert it once, for instance with `ffmpeg -i INPUT OUTPUT.wav`."
_REPLACE = "Copy or export the recording again."


@dataclass(frozen=True, slots=True)
class SoundChoice:
    """Which sound of a file is meant.

    ``stream`` is an audio stream, by its number among them from 0 or by its language; ``None`` for the one that is flagged
    default, else the first. ``channel`` is one of its channels, from 0; ``None`` for all of them.
    """

    stream: str | None = None
    channel: int | None = None


_STREAM = re.compile(r"\d{1,4}|[a-z]{2,3}(-[a-z0-9]{1,8}){0,3}", re.ASCII)
STREAM_RULE = "the number of an audio stream, from 0, or a language such as eng"


def stream_name(text: str) -> str | None:
    """A stream's number or language in the one form :class:`SoundChoice` has it; ``None`` where it is neither."""
    text = text.strip().lower()
    if not _STREAM.fullmatch(text):
        return None
    return str(int(text)) if text.isdecimal() else text


class SoundNote(NamedTuple):
    """What is odd about a file's sound without keeping it from being used; ``code`` is a ``ViolationCode``."""

    code: str
    found: str
    required: str
    hint: str


def audio_error(code: ViolationCode, path: Path, *, found: str, required: str = _REQUIRED, hint: str) -> MediaError:
    """An error about one recording."""
    return MediaError(code, str(path), found=found, required=required, hint=hint)


class _Opened:
    """A regular file, its first bytes, and what it is by them: one of :data:`LOSSLESS`, or words that say what else."""

    def __init__(self, path: Path) -> None:
        try:
            self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe would wait for ever
        except FileNotFoundError:
            raise audio_error(
                ViolationCode.AUDIO_MISSING,
                path,
                found="no such file",
                hint="Correct audio_path, or put the file there.",
            ) from None
        except OSError as error:
            _unreadable(path, f"it cannot be opened ({error.strerror})")
        try:
            self._look_at(path)
        except BaseException:
            self.close()
            raise

    def _look_at(self, path: Path) -> None:
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            _unreadable(path, "a folder" if stat.S_ISDIR(status.st_mode) else "not a regular file")
        self.size, self.start = status.st_size, 0
        try:
            self._head = head = os.pread(self.descriptor, _HEAD_BYTES, 0)
        except OSError as error:
            _unreadable(path, f"it cannot be read ({error.strerror})")
        if not head:
            raise audio_error(ViolationCode.AUDIO_EMPTY, path, found="a file of 0 bytes", hint=_REPLACE)
        after = head
        while after.startswith(b"ID3") and len(after) > 10:
            self.start += _id3v2_bytes(after)
            after = self.read(self.start, 64)
        kind = _named(after)
        if self.start and kind not in ("WAV", "FLAC"):
            kind, self.start = _named(head), 0
        is_mpeg = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0
        self.kind = kind or ("MP3 or AAC" if is_mpeg else f"{_UNKNOWN}, beginning with bytes {head[:8].hex(' ')}")

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
        MediaError: AUDIO_MISSING, AUDIO_EMPTY, or AUDIO_UNREADABLE where it is no regular file.
    """
    _Opened(path).close()


def _named(head: bytes) -> str | None:
    return next((name for at, magic, name in _MAGIC if head[at : at + len(magic)] == magic), None)


def _id3v2_bytes(head: bytes) -> int:
    """The length of a tag by its header: four times seven bits, without header and footer."""
    size = sum((byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True))
    return 10 + size + (10 if head[5] & 0x10 else 0)


class SoundFile:
    """The open sound of a file. Use as a context manager; :meth:`chunks` may be called once.

    Attributes:
        encoding: kind and sample type, such as ``WAV/PCM_24``, ``FLAC/PCM_16`` or ``NPY/int16``.
        rate_hz, channels: the stream's own, whichever channel is chosen.
        speakers: names of the channels that chunks have, as ffmpeg names them.
        track: what the choice adds to the file's identity: ``-s1`` for a stream that is not the default one, ``-c0`` for a
            channel of several; empty where the file is meant as it is.
        notes: what is odd; complete when every chunk was taken.
        stopped: why decoding ended early; empty where it did not.

    Raises:
        MediaError: it cannot be opened, has no sound, a rate out of range, not the stream or channel that is chosen, a
            declared length that its bytes contradict, or ``npy_rate_hz`` contradicts its own rate.
    """

    def __init__(
        self,
        path: Path,
        choice: SoundChoice | None = None,
        *,
        npy_rate_hz: int | None = None,
        lossless_only: bool = False,
    ) -> None:
        self.path, self.stopped = path, ""
        self.notes: list[SoundNote] = []
        self._closers: list[Any] = []
        self._choice = choice or SoundChoice()
        self.track = ""
        opened = _Opened(path)
        self.on_close(opened)
        self.kind = opened.kind
        try:
            if lossless_only:
                _refuse_lossy(path, self.kind)
            self._source = self._opened(opened, npy_rate_hz, lossless_only)
            self._describe(npy_rate_hz)
        except BaseException:
            self.close()
            raise

    def _opened(self, opened: _Opened, npy_rate_hz: int | None, lossless_only: bool) -> _Wav | _Npy | _Av:
        if self.kind == "NumPy":
            return _Npy(self.path, npy_rate_hz)
        if self.kind == "WAV":
            wav = _Wav(self, opened)
            if wav.header.is_plain:
                return wav
            if lossless_only:
                _unsupported(self.path, f"WAV holding {wav.header.subtype}")
        return _Av(self, lossless_only)

    def _describe(self, declared_hz: int | None) -> None:
        source = self._source
        if not isinstance(source, _Av):
            _only_stream(self.path, self._choice.stream)
        self.encoding, self.rate_hz = source.encoding, _checked_rate(self.path, source.rate_hz, declared_hz)
        self.channels, self.speakers = len(source.speakers), source.speakers
        channel = self._choice.channel
        if channel is not None:
            if channel >= self.channels:
                raise audio_error(
                    ViolationCode.AUDIO_CHANNELS,
                    self.path,
                    found=f"{self.channels} channel{'s' * (self.channels != 1)}, and channel {channel} chosen",
                    required=f"a channel from 0 to {self.channels - 1}",
                    hint="Correct audio_channel; it counts from 0.",
                )
            self.speakers = (self.speakers[channel],)
            self.track += f"-c{channel}" if self.channels > 1 else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        while self._closers:
            self._closers.pop().close()

    def on_close(self, opened: Any) -> None:
        """Have something closed with this."""
        self._closers.append(opened)

    def note(self, code: ViolationCode, *, found: str, required: str, hint: str) -> None:
        """Add to :attr:`notes`."""
        self.notes.append(SoundNote(str(code), found, required, hint))

    def chunks(self) -> Iterator[Chunk]:
        """The sound as it is, in blocks of bounded size; full scale is one. Ends where decoding fails: see ``stopped``."""
        channel = self._choice.channel
        for seconds, block in self._source.chunks(max(_BLOCK_VALUES // self.channels, 1)):
            yield seconds, block if channel is None else block[:, channel : channel + 1]

    @property
    def stream(self) -> str | None:
        """The chosen stream, as it was given."""
        return self._choice.stream


def _refuse_lossy(path: Path, kind: str) -> None:
    claimed = _SUFFIXES.get(path.suffix.lower())
    found = f"{kind} in a {path.suffix} file" if claimed else kind
    if kind not in LOSSLESS:
        _unsupported(path, found)
    if claimed is not None and kind not in claimed:
        _unsupported(path, found, "Rename it to what it is.")


def _only_stream(path: Path, stream: str | None) -> None:
    if stream not in (None, "0"):
        raise _no_stream(path, str(stream), "one audio stream, number 0, of no stated language")


def _no_stream(path: Path, chosen: str, found: str) -> MediaError:
    return audio_error(
        ViolationCode.AUDIO_STREAM,
        path,
        found=f"{found}; {chosen!r} is chosen",
        required=STREAM_RULE,
        hint="Correct audio_stream.",
    )


def _checked_rate(path: Path, rate_hz: int | None, declared_hz: int | None) -> int:
    if rate_hz is None:
        found, hint = "a NumPy waveform without a rate", "Give audio_sample_rate, or write it as WAV."
    elif not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        found, hint = f"a rate of {rate_hz} Hz", "Correct the file or audio_sample_rate."
    elif declared_hz not in (None, rate_hz):
        found = f"a rate of {rate_hz} Hz in the file, {declared_hz} Hz declared"
        hint = "Leave audio_sample_rate empty: only NumPy waveforms need it."
    else:
        return rate_hz
    required = f"one rate between {MIN_RATE_HZ} and {MAX_RATE_HZ} Hz"
    raise audio_error(ViolationCode.AUDIO_RATE_INVALID, path, found=found, required=required, hint=hint)


class _Wav:
    """Samples of a WAV, read from its bytes."""

    def __init__(self, file: SoundFile, opened: _Opened) -> None:
        self._descriptor = opened.descriptor
        try:
            self.header = header = read_wav_header(opened.read, opened.size, opened.start)
        except WavError as error:
            raise audio_error(
                ViolationCode.AUDIO_UNREADABLE,
                file.path,
                found=str(error),
                required="a WAV whose header agrees with its bytes",
                hint=REWRITE_HINT,
            ) from None
        if header.promised_frames is not None:
            file.note(
                ViolationCode.AUDIO_STOPPED,
                found=f"the header promises {header.promised_frames:,} frames, the file holds {header.frames:,}",
                required="a file as long as its header says",
                hint="All frames that are there are used; copy it again if it was cut short.",
            )
        self.encoding, self.rate_hz = f"{header.container}/{header.subtype}", header.rate_hz
        self.speakers = header.speakers

    def chunks(self, frames: int) -> Iterator[Chunk]:
        return ((None, block) for block in wav_blocks(self._descriptor, self.header, frames))


class _Av:
    """One audio stream of a file that ffmpeg decodes."""

    def __init__(self, file: SoundFile, lossless_only: bool) -> None:
        self._file = file
        self._container = open_container(file.path, ViolationCode.AUDIO_UNREADABLE)
        file.on_close(self._container)
        self._stream = self._chosen(self._container.streams.audio)
        context = self._stream.codec_context
        if context is None:
            _unreadable(file.path, "sound of a kind that ffmpeg does not decode")
        is_flac = file.kind in ("FLAC", "Ogg-FLAC") and context.name == "flac"
        if lossless_only and not is_flac:
            _unsupported(file.path, f"{file.kind} holding {context.name.upper()}")
        self._info = bytes(context.extradata or b"")[:_STREAMINFO_BYTES] if is_flac else b""
        if is_flac:
            context.options = {**context.options, "err_detect": "crccheck+explode"}
        self.encoding = f"{file.kind}/PCM_{self._bits}" if is_flac else context.name.upper()
        self._frames = self._decoded()
        self._first = self._first_frame()
        # By the frame, not by the header: the header of AAC with spectral band replication has half the rate.
        self.rate_hz = self._first.sample_rate
        self.speakers = tuple(channel.name for channel in self._first.layout.channels)

    def _first_frame(self) -> Any:
        first = next(self._frames, None)
        if first is not None:
            return first
        reason = self._file.stopped
        damaged = self._promised or self._file.kind.startswith(_UNKNOWN)  # ffmpeg also goes by a name's suffix
        raise audio_error(
            ViolationCode.AUDIO_UNREADABLE if damaged else ViolationCode.AUDIO_EMPTY,
            self._file.path,
            found=f"no sample decodes{f' ({reason})' if reason else ''}",
            required="at least one sample",
            hint="Replace the file, or drop its row.",
        )

    @property
    def _promised(self) -> int:
        """How many samples a FLAC's header says there are, 0 where it does not: STREAMINFO's 36 bits after those of a sample."""
        return int.from_bytes(self._info[13:18], "big") & ((1 << 36) - 1)

    @property
    def _bits(self) -> int:
        """Of a sample: STREAMINFO's five bits after the rate's twenty and the channels' three."""
        return (int.from_bytes(self._info[12:14], "big") >> 4 & 31) + 1

    def _chosen(self, streams: Sequence[Any]) -> Any:
        """The stream that is meant; noted where the file leaves it open."""
        from av.stream import Disposition

        file, wanted = self._file, self._file.stream
        if not streams:
            raise audio_error(
                ViolationCode.AUDIO_MISSING,
                file.path,
                found="it has no audio stream",
                required="an audio stream",
                hint="Replace the file, or drop its row.",
            )
        flagged = [stream for stream in streams if stream.disposition & Disposition.default]
        usual = (flagged or streams)[0]
        if wanted is None:
            candidates = list(streams)
        elif wanted.isdecimal():
            candidates = [stream for number, stream in enumerate(streams) if number == int(wanted)]
        else:
            candidates = [stream for stream in streams if str(stream.language or "").lower() == wanted.lower()]
        if not candidates:
            raise _no_stream(file.path, str(wanted), f"the audio streams are {_listed(streams)}")
        chosen = usual if usual in candidates else next((s for s in flagged if s in candidates), candidates[0])
        number = list(streams).index(chosen)
        if len(candidates) > 1:
            file.note(
                ViolationCode.AUDIO_STREAM,
                found=f"{len(candidates)} audio streams{f' of language {wanted}' if wanted else ''}: {_listed(streams)}",
                required="one, or a choice",
                hint=f"Stream {number} was used; choose by audio_stream, a number or a language, to say so.",
            )
        file.track += f"-s{number}" if chosen is not usual else ""
        return chosen

    def chunks(self, frames: int) -> Iterator[Chunk]:
        if not self._info:
            for frame in chain([self._first], self._frames):
                seconds = None if frame.pts is None or not frame.time_base else frame.pts * frame.time_base
                yield seconds, _scaled(_interleaved(frame))
            return
        held, count = list[npt.NDArray[Any]](), 0
        for samples in self._contiguous():
            held.append(samples)
            count += len(samples)
            if count >= frames:
                yield None, _scaled(np.concatenate(held))
                held, count = [], 0
        if held:
            yield None, _scaled(np.concatenate(held))

    def _decoded(self) -> Iterator[Any]:
        """Decoded frames of one rate and one number of channels, up to the first damage."""
        from av.error import FFmpegError

        file, kept = self._file, None
        try:
            for packet in self._container.demux(self._stream):
                for frame in packet.decode():
                    kept = kept or (frame.sample_rate, frame.layout.nb_channels)
                    if (frame.sample_rate, frame.layout.nb_channels) != kept:
                        file.stopped = (
                            f"the stream changes to {frame.sample_rate} Hz, {frame.layout.nb_channels} channels"
                        )
                        return
                    yield frame
        except FFmpegError as error:
            file.stopped = error.strerror or type(error).__name__

    def _contiguous(self) -> Iterator[npt.NDArray[Any]]:
        """The samples of a FLAC, none of them missing, compared with what its header promises and digests."""
        file, decoded, first = self._file, 0, None
        digest = hashlib.md5(usedforsecurity=False)
        for frame in chain([self._first], self._frames):
            if frame.pts is not None and frame.time_base:
                position = round(frame.pts * frame.time_base * self.rate_hz)
                first = position if first is None else first
                if position - first > decoded:  # a damaged frame is left out without an error
                    file.stopped = f"{position - first - decoded} damaged samples"
                    return
            samples = _interleaved(frame)
            digest.update(_stored(samples, self._bits))
            decoded += len(samples)
            yield samples
        if not file.stopped and decoded < self._promised:
            file.stopped = f"the file ends, of {self._promised} promised"
        if not file.stopped and any(self._info[18:]) and digest.digest() != self._info[18:]:
            file.note(
                ViolationCode.AUDIO_MD5,
                found=f"decoded samples of MD5 {digest.hexdigest()}",
                required=f"{self._info[18:].hex()}, as the header says",
                hint="Copy it again if it should be whole; an encoder may also have written the wrong digest.",
            )


def _listed(streams: Sequence[Any]) -> str:
    """Every stream with what tells it from the others."""
    from av.stream import Disposition

    shown = []
    for number, stream in enumerate(streams):
        flags = [flag.name.replace("_", " ") for flag in Disposition if stream.disposition & flag and flag.name]
        words = [stream.language or "no language", stream.metadata.get("title", ""), *flags]
        shown.append(f"{number} ({', '.join(word for word in words if word)})")
    return ", ".join(shown)


def _interleaved(frame: Any) -> npt.NDArray[Any]:
    values: npt.NDArray[Any] = frame.to_ndarray()
    return values.T if frame.format.is_planar else values.reshape(-1, frame.layout.nb_channels)


def _stored(samples: npt.NDArray[Any], bits: int) -> bytes | memoryview:
    """Samples as FLAC digests them: interleaved, little-endian, in as few bytes as ``bits`` need."""
    size, width = samples.dtype.itemsize, (bits + 7) // 8
    values = np.ascontiguousarray(samples >> (8 * size - bits), f"<i{size}")
    return values.data if width == size else values.view(np.uint8).reshape(-1, size)[:, :width].tobytes()


def _scaled(values: npt.NDArray[Any]) -> Float32:
    """float32 of samples in any format, integers scaled to [-1, 1)."""
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is counted as such
        samples: Float32 = values.astype(np.float32)
    if values.dtype == np.uint8:
        samples -= np.float32(128)
    if values.dtype.kind != "f":
        samples *= np.float32(2.0 ** (1 - 8 * values.dtype.itemsize))  # a power of two: exact
    return samples


class _Npy:
    """Samples of a NumPy waveform."""

    def __init__(self, path: Path, rate_hz: int | None) -> None:
        self._path, self.rate_hz = path, rate_hz
        self._header, channels = _npy_header(path)
        self.encoding, self.speakers = f"NPY/{self._header.dtype.name}", ("NONE",) * channels

    def chunks(self, frames: int) -> Iterator[Chunk]:
        header, channels = self._header, len(self.speakers)
        offset, divisor = _NPY_SCALES[header.dtype.str[1:]]
        order: Any = "F" if header.fortran_order else "C"
        for start in range(0, max(header.shape), frames):
            # Mapped anew for each block: the pages of an older map would count as this process' memory while it lives.
            array = np.memmap(
                self._path, dtype=header.dtype, mode="r", offset=header.data_offset, shape=header.shape, order=order
            )
            block = array.reshape(-1, 1) if array.ndim == 1 else array if array.shape[1] == channels else array.T
            with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is counted as such
                samples: Float32 = np.array(block[start : start + frames], dtype=np.float32, order="C")
            yield None, (samples - np.float32(offset)) / np.float32(divisor)


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


def _unreadable(path: Path, found: str) -> NoReturn:
    raise audio_error(ViolationCode.AUDIO_UNREADABLE, path, found=found, hint=_REPLACE) from None


def _unsupported(path: Path, found: str, hint: str = _CONVERT) -> NoReturn:
    raise audio_error(ViolationCode.AUDIO_UNSUPPORTED, path, found=found, hint=hint) from None
