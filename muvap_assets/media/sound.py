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

from collections.abc import Iterator
from pathlib import Path

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.closing import Closing
from muvap_assets.media.sound_arrays import NumpySound
from muvap_assets.media.sound_files import (
    MAX_RATE_HZ,
    MIN_RATE_HZ,
    Chunk,
    NativeSound,
    OpenedFile,
    SoundChoice,
    no_such_stream,
    refuse_lossy,
    unsupported_audio,
)
from muvap_assets.media.sound_streams import FfmpegSound
from muvap_assets.media.wav import WavError, read_wav_header, wav_blocks
from muvap_assets.threads import delivered

_BLOCK_VALUES = 1 << 18


class SoundFile(Closing):
    """The open sound of a file. Use as a context manager; :meth:`chunks` may be called once.

    Attributes:
        encoding: kind and sample type, such as ``WAV/PCM_24``, ``FLAC/PCM_16`` or ``NPY/int16``.
        rate_hz, channels: the stream's own, whichever channel is chosen.
        speakers: names of the channels that chunks have, as ffmpeg names them.
        track: what the choice adds to the file's identity: ``-s1`` for a stream that is not the default one, ``-c0`` for a
            channel of several; empty where the file is meant as it is.

    Raises:
        ValidationError: it cannot be opened, has no sound, a rate out of range, not the stream or channel that is chosen, a
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
        delivered(path)
        self.path, self._choice = path, choice or SoundChoice()
        opened = OpenedFile(path)
        self.kind, self._closers = opened.kind, [opened.close]
        try:
            if lossless_only:
                refuse_lossy(path, self.kind)
            self._source = self._decoder(opened, npy_rate_hz, lossless_only)
            self._closers.append(self._source.close)
            self._describe(npy_rate_hz)
        except BaseException:
            self.close()
            raise

    def _decoder(self, opened: OpenedFile, npy_rate_hz: int | None, lossless_only: bool) -> NativeSound:
        if self.kind == "NumPy":
            return NumpySound(self.path, npy_rate_hz)
        if self.kind == "WAV":
            wav = _WavSound(self.path, opened)
            if wav.header.is_plain:
                return wav
            if lossless_only:
                unsupported_audio(self.path, f"WAV holding {wav.header.subtype}")
        return FfmpegSound(self.path, self.kind, self._choice, lossless_only=lossless_only)

    def _describe(self, declared_hz: int | None) -> None:
        source = self._source
        self.track = source.track
        if not isinstance(source, FfmpegSound):
            _only_stream(self.path, self._choice.stream)
        self.encoding, self.rate_hz = source.encoding, _checked_rate(self.path, source.rate_hz, declared_hz)
        self.channels, self.speakers = len(source.speakers), source.speakers
        channel = self._choice.channel
        if channel is not None:
            if channel >= self.channels:
                found = f"{self.channels} channel{'s' * (self.channels != 1)}, and channel {channel} chosen"
                raise ValidationError(
                    Finding(Code.AUDIO_CHANNELS, self.path, found, case="chosen", last=self.channels - 1)
                )
            self.speakers = (self.speakers[channel],)
            self.track += f"-c{channel}" if self.channels > 1 else ""

    def close(self) -> None:
        """Close the file."""
        while self._closers:
            self._closers.pop()()

    @property
    def notes(self) -> list[Finding]:
        """What is odd about the file; complete when every chunk was taken."""
        return self._source.notes

    @property
    def stopped(self) -> str:
        """Why decoding ended early; empty where it did not."""
        return self._source.stopped

    def chunks(self, frames: int | None = None) -> Iterator[Chunk]:
        """The sound as it is, in blocks of bounded size, of about ``frames`` if given; full scale is one.

        Ends where decoding fails: see ``stopped``.
        """
        channel = self._choice.channel
        for seconds, block in self._source.chunks(frames or max(_BLOCK_VALUES // self.channels, 1)):
            delivered(self.path)
            yield seconds, block if channel is None else block[:, channel : channel + 1]


def _only_stream(path: Path, stream: str | None) -> None:
    if stream not in (None, "0"):
        raise no_such_stream(path, str(stream), "one audio stream, number 0, of no stated language")


def _checked_rate(path: Path, rate_hz: int | None, declared_hz: int | None) -> int:
    if rate_hz is None:
        found, case = "a NumPy waveform without a rate", ""
    elif not MIN_RATE_HZ <= rate_hz <= MAX_RATE_HZ:
        found, case = f"a rate of {rate_hz} Hz", "range"
    elif declared_hz not in (None, rate_hz):
        found, case = f"a rate of {rate_hz} Hz in the file, {declared_hz} Hz declared", "declared"
    else:
        return rate_hz
    raise ValidationError(
        Finding(Code.AUDIO_RATE_INVALID, path, found, case=case, least=MIN_RATE_HZ, largest=MAX_RATE_HZ)
    )


class _WavSound(NativeSound):
    """Samples of a WAV, read from its bytes."""

    def __init__(self, path: Path, opened: OpenedFile) -> None:
        super().__init__(path)
        self._descriptor = opened.descriptor
        try:
            self.header = header = read_wav_header(opened.read, opened.size, opened.start)
        except WavError as error:
            raise ValidationError(Finding(Code.AUDIO_UNREADABLE, path, str(error), case="header")) from None
        if header.promised_frames is not None:
            found = f"the header promises {header.promised_frames:,} frames, the file holds {header.frames:,}"
            self.note(Code.AUDIO_STOPPED, found)
        self.encoding, self.rate_hz = f"{header.container}/{header.subtype}", header.rate_hz
        self.speakers = header.speakers

    def chunks(self, frames: int) -> Iterator[Chunk]:
        return ((None, block) for block in wav_blocks(self._descriptor, self.header, frames))
