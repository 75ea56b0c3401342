"""One audio stream of a file, decoded by ffmpeg: FLAC and Ogg-FLAC without times, everything else with its container's.

A FLAC is read to its end whatever its header promises. A damaged frame, which ffmpeg leaves out without an error, ends it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.sound_files import (
    UNKNOWN_FORMAT,
    Chunk,
    Float32,
    NativeSound,
    SoundChoice,
    no_such_stream,
    unsupported_audio,
)
from muvap_assets.media.video import open_container

_STREAMINFO_BYTES = 34
_STREAMS_SHOWN, _WORD_CHARACTERS = 16, 40  # of names that a file gives its streams


class FfmpegSound(NativeSound):
    """One audio stream of a file that ffmpeg decodes."""

    def __init__(self, path: Path, kind: str, choice: SoundChoice, *, lossless_only: bool) -> None:
        super().__init__(path)
        self._kind = kind
        self._container = open_container(path, Code.AUDIO_UNREADABLE)
        try:
            self._open(choice.stream, lossless_only)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._container.close()

    def _open(self, stream: str | None, lossless_only: bool) -> None:
        self._stream = self._chosen(self._container.streams.audio, stream)
        context = self._stream.codec_context
        if context is None:
            raise ValidationError(Finding(Code.AUDIO_EMPTY, self.path, "sound of a kind that ffmpeg does not decode"))
        is_flac = self._kind in ("FLAC", "Ogg-FLAC") and context.name == "flac"
        if lossless_only and not is_flac:
            unsupported_audio(self.path, f"{self._kind} holding {context.name.upper()}")
        self._info = bytes(context.extradata or b"")[:_STREAMINFO_BYTES] if is_flac else b""
        if is_flac:
            context.options = {**context.options, "err_detect": "crccheck+explode"}
        self.encoding = f"{self._kind}/PCM_{self._bits}" if is_flac else context.name.upper()
        self._frames = self._decoded()
        self._first = self._first_frame()
        # By the frame, not by the header: the header of AAC with spectral band replication has half the rate.
        self.rate_hz = self._first.sample_rate
        self.speakers = tuple(channel.name for channel in self._first.layout.channels)

    def _first_frame(self) -> Any:
        first = next(self._frames, None)
        if first is not None:
            return first
        reason = self.stopped
        damaged = self._promised or self._kind.startswith(UNKNOWN_FORMAT)  # ffmpeg also goes by a name's suffix
        code = Code.AUDIO_UNREADABLE if damaged else Code.AUDIO_EMPTY
        raise ValidationError(Finding(code, self.path, f"no sample decodes{f' ({reason})' if reason else ''}"))

    @property
    def _promised(self) -> int:
        """How many samples a FLAC's header says there are, 0 where it does not: STREAMINFO's 36 bits after those of a sample."""
        return int.from_bytes(self._info[13:18], "big") & ((1 << 36) - 1)

    @property
    def _bits(self) -> int:
        """Of a sample: STREAMINFO's five bits after the rate's twenty and the channels' three."""
        return (int.from_bytes(self._info[12:14], "big") >> 4 & 31) + 1

    def _chosen(self, streams: Sequence[Any], wanted: str | None) -> Any:
        """The stream that is meant; noted where the file leaves it open."""
        from av.stream import Disposition

        if not streams:
            raise ValidationError(Finding(Code.AUDIO_MISSING, self.path, "it has no audio stream", case="stream"))
        flagged = [stream for stream in streams if stream.disposition & Disposition.default]
        usual = (flagged or streams)[0]
        if wanted is None:
            candidates = list(streams)
        elif wanted.isdecimal():
            candidates = [stream for number, stream in enumerate(streams) if number == int(wanted)]
        else:
            candidates = [stream for stream in streams if str(stream.language or "").lower() == wanted.lower()]
        if not candidates:
            raise no_such_stream(self.path, str(wanted), f"the audio streams are {_listed(streams)}")
        chosen = usual if usual in candidates else next((s for s in flagged if s in candidates), candidates[0])
        number = list(streams).index(chosen)
        if len(candidates) > 1:
            of_language = f" of language {wanted}" if wanted else ""
            found = f"{len(candidates)} audio streams{of_language}: {_listed(streams)}"
            self.note(Code.AUDIO_STREAM, found, case="several", number=number)
        self.track = f"-s{number}" if chosen is not usual else ""
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

        kept = None
        try:
            for packet in self._container.demux(self._stream):
                for frame in packet.decode():
                    kept = kept or (frame.sample_rate, frame.layout.nb_channels)
                    if (frame.sample_rate, frame.layout.nb_channels) != kept:
                        self.stopped = (
                            f"the stream changes to {frame.sample_rate} Hz, {frame.layout.nb_channels} channels"
                        )
                        return
                    yield frame
        except FFmpegError as error:
            self.stopped = error.strerror or type(error).__name__

    def _contiguous(self) -> Iterator[npt.NDArray[Any]]:
        """The samples of a FLAC, none of them missing, compared with what its header promises and digests."""
        decoded, first = 0, None
        digest = hashlib.md5(usedforsecurity=False)
        for frame in chain([self._first], self._frames):
            if frame.pts is not None and frame.time_base:
                position = round(frame.pts * frame.time_base * self.rate_hz)
                first = position if first is None else first
                if position - first > decoded:  # a damaged frame is left out without an error
                    self.stopped = f"{position - first - decoded} damaged samples"
                    return
            samples = _interleaved(frame)
            digest.update(_stored(samples, self._bits))
            decoded += len(samples)
            yield samples
        if not self.stopped and decoded < self._promised:
            self.stopped = f"the file ends, of {self._promised} promised"
        if not self.stopped and any(self._info[18:]) and digest.digest() != self._info[18:]:
            promised = self._info[18:].hex()
            self.note(Code.AUDIO_MD5, f"decoded samples of MD5 {digest.hexdigest()}", digest=promised)


def _listed(streams: Sequence[Any]) -> str:
    """Every stream with what tells it from the others."""
    from av.stream import Disposition

    shown = []
    for number, stream in enumerate(streams[:_STREAMS_SHOWN]):
        flags = [flag.name.replace("_", " ") for flag in Disposition if stream.disposition & flag and flag.name]
        words = [stream.language or "no language", stream.metadata.get("title", ""), *flags]
        printable = ("".join(filter(str.isprintable, word))[:_WORD_CHARACTERS] for word in words)
        shown.append(f"{number} ({', '.join(word for word in printable if word)})")
    more = f", and {len(streams) - len(shown)} more" if len(streams) > len(shown) else ""
    return ", ".join(shown) + more


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
