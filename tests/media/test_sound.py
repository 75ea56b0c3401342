"""One decoder for sound: both lines get the same samples of a file, and the same verdict on one that contradicts itself."""

import hashlib
import os
import struct
from collections.abc import Callable
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
from media_makers import tone, write_sound, write_tracks, write_video

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.media.audio import Recording, native_blocks, probe_audio
from muvap_assets.media.sound_files import SoundChoice
from muvap_assets.media.soundtrack import SoundSource, count_sound
from muvap_assets.media.wav import read_wav_header

FRAMES, RATE = 5_003, 44_100
Reference = Callable[[Path], np.ndarray]

# ---- references that share no code with the decoder


def signal(channels: int) -> np.ndarray:
    """float64 [FRAMES, channels] within full scale."""
    return np.random.default_rng(channels).uniform(-0.99, 0.99, (FRAMES, channels))


def by_soundfile(path: Path) -> np.ndarray:
    return soundfile.read(path, dtype="float32", always_2d=True)[0]


def by_ffmpeg(path: Path) -> np.ndarray:
    """Every sample of the first audio stream as ffmpeg decodes it, float32 [n, channels]."""
    blocks = []
    with av.open(str(path)) as container:
        for frame in container.decode(audio=0):
            values, channels = frame.to_ndarray(), frame.layout.nb_channels
            values = values if frame.format.is_planar else values.reshape(-1, channels).T
            scale = 1 if values.dtype.kind == "f" else 2.0 ** (8 * values.dtype.itemsize - 1)
            blocks.append((values / np.float64(scale)).astype(np.float32))
    return np.concatenate(blocks, axis=1).T


# ---- the table: name, how it is made, what it holds


def chunk(name: bytes, body: bytes) -> bytes:
    return name + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)


LIST = chunk(b"LIST", b"INFOISFT" + struct.pack("<I", 6) + b"Lavf60")
ID3V1 = b"TAG" + bytes(125)
ID3V2 = b"ID3\x04\0\0" + bytes((0, 0, 1, 72)) + bytes(200)  # 200 = 1 * 128 + 72
PCM = np.random.default_rng(7).integers(-32768, 32768, 2 * FRAMES).astype("<i2")


def wav(declared: int | None = None, *, before: bytes = b"", after: bytes = b"", data: bytes = PCM.tobytes()) -> bytes:
    """A stereo 16-bit WAV whose data chunk declares ``declared`` bytes."""
    size = len(data) if declared is None else declared
    format_chunk = chunk(b"fmt ", struct.pack("<HHIIHH", 1, 2, RATE, 4 * RATE, 4, 16))
    body = b"WAVE" + format_chunk + before + b"data" + struct.pack("<I", size) + data + after
    return b"RIFF" + struct.pack("<I", len(body) & 0xFFFFFFFF) + body


def rf64(declared: int, after: bytes = b"") -> bytes:
    """The same as RF64, its length in ``ds64``."""
    whole = wav(0xFFFFFFFF, after=after)
    return b"RF64\xff\xff\xff\xffWAVE" + chunk(b"ds64", struct.pack("<QQQI", 0, declared, 0, 0)) + whole[12:]


def by_numpy(path: Path) -> np.ndarray:
    return (PCM.astype(np.float64) / 32768).astype(np.float32).reshape(-1, 2)


UNKNOWN = 0xFFFFFFFF
BYTES: dict[str, bytes] = {
    "size 0": wav(0),
    "size unknown": wav(UNKNOWN),
    "size 0, then chunks": wav(0, after=LIST + chunk(b"bext", bytes(601))),
    "size unknown, then chunks": wav(UNKNOWN, after=LIST),
    "size unknown, then ID3v1": wav(UNKNOWN, after=ID3V1),
    "size 0, then chunks and ID3v1": wav(0, after=LIST + ID3V1),
    "size 0, then half a million empty chunks": wav(0, after=500_000 * chunk(b"JUNK", b"")),
    "size too large": wav(10**6),
    "then chunks": wav(after=LIST + chunk(b"id3 ", bytes(99))),
    "then a private chunk": wav(after=chunk(b"zzz1", bytes(7))),
    "then ID3v1": wav(after=ID3V1),
    "then a pad byte": wav(after=b"\0"),
    "then a chunk cut short": wav(after=LIST[:-4]),
    "chunks before": wav(before=LIST + chunk(b"JUNK", bytes(5000))),
    "a PEAK chunk of the wrong size": wav(before=chunk(b"PEAK", bytes(13))),
    "a PEAK chunk that claims 2 GB": wav(before=b"PEAK" + struct.pack("<I", 2**31) + bytes(24)),
    "a PEAK chunk that claims too little": wav(before=b"PEAK" + struct.pack("<I", 3) + bytes(24)),
    "an ID3v2 tag before it": ID3V2 + wav(),
    "two ID3v2 tags before it": ID3V2 + ID3V2 + wav(0, after=LIST),
    "RF64": rf64(PCM.nbytes, LIST),
    "RF64 of size unknown": rf64(0, LIST),
}


def flac(path: Path, change: Callable[[bytes], bytes] = bytes, subtype: str = "PCM_16", channels: int = 2) -> Path:
    soundfile.write(path, signal(channels), RATE, subtype=subtype, format="FLAC")
    path.write_bytes(change(path.read_bytes()))
    return path


def promising(frames: int) -> Callable[[bytes], bytes]:
    """Set a FLAC's total samples, the last 36 bits of bytes 18 to 25."""

    def change(data: bytes) -> bytes:
        word = int.from_bytes(data[18:26], "big") >> 36 << 36 | frames
        return data[:18] + word.to_bytes(8, "big") + data[26:]

    return change


def without_md5(data: bytes) -> bytes:
    return data[:26] + bytes(16) + data[42:]


FLACS: dict[str, Callable[[bytes], bytes]] = {
    "from a pipe": lambda data: promising(0)(without_md5(data)),
    "total 0": promising(0),
    "total halved": promising(FRAMES // 2),
    "total 1": promising(1),
    "an ID3v2 tag before it": lambda data: ID3V2 + data,
    "an ID3v2 tag before a pipe's": lambda data: ID3V2 + promising(0)(data),
    "an ID3v1 tag behind it": lambda data: data + ID3V1,
    "another MD5": lambda data: data[:26] + bytes(range(16)) + data[42:],
}


def table() -> dict[str, tuple[Callable[[Path], Path], Reference]]:
    rows: dict[str, tuple[Callable[[Path], Path], Reference]] = {}

    def written(name: str, suffix: str, channels: int, subtype: str, **options: str) -> None:
        def make(folder: Path) -> Path:
            soundfile.write(folder / f"a.{suffix}", signal(channels), RATE, subtype=subtype, **options)
            return folder / f"a.{suffix}"

        rows[f"{name} {subtype} {channels}"] = make, by_soundfile

    for channels in (1, 2):
        for container in ("WAV", "WAVEX", "RF64"):
            for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
                written(container, "wav", channels, subtype, format=container)
        for subtype in ("PCM_16", "PCM_24", "PCM_32", "FLOAT"):
            written("RIFX", "wav", channels, subtype, format="WAV", endian="BIG")
        for subtype in ("PCM_S8", "PCM_16", "PCM_24"):
            make_flac = lambda d, s=subtype, c=channels: flac(d / "a.flac", subtype=s, channels=c)  # noqa: E731
            rows[f"FLAC {subtype} {channels}"] = make_flac, by_ffmpeg
        ogg = lambda d, c=channels: write_sound(d / "a.ogg", signal(c).T.astype(np.float32), RATE, "flac")  # noqa: E731
        rows[f"Ogg-FLAC {channels}"] = ogg, by_ffmpeg
    for name, data in BYTES.items():
        rows[f"WAV, {name}"] = (lambda d, b=data: _put(d / "a.wav", b)), by_numpy
    for name, change in FLACS.items():
        rows[f"FLAC, {name}"] = (lambda d, c=change: flac(d / "a.flac", c)), by_ffmpeg
    return rows


def _put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


TABLE = table()
CONTAINERS = [
    *(("mov", "pcm_s16le"), ("mov", "pcm_s24le"), ("mov", "pcm_f32le"), ("mkv", "pcm_s16le"), ("mkv", "flac")),
    *(("mp4", "flac"), ("mp4", "alac"), ("mkv", "ac3")),
]


def both_lines(path: Path, *, from_video: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """float32 [n, channels] of the asd line, and [n, 2] of the ref2va line."""
    with Recording(path, from_video=from_video) as recording:
        asd = np.concatenate(list(recording.blocks()))
    with SoundSource(path) as source:
        return asd, np.concatenate(list(source.blocks()), axis=1).T


def test_the_table_is_as_long_as_is_asked():
    assert len(TABLE) + len(CONTAINERS) >= 60


@pytest.mark.parametrize("name", TABLE)
def test_both_lines_read_a_file_as_an_independent_decoder_does(tmp_path, name):
    make, reference = TABLE[name]
    path = make(tmp_path)
    expected = reference(path)
    asd, ref2va = both_lines(path)
    assert asd.dtype == np.float32
    assert asd.tobytes() == np.ascontiguousarray(expected).tobytes()
    assert len(expected) == FRAMES
    assert np.array_equal(ref2va, np.repeat(expected, 2, axis=1) if expected.shape[1] == 1 else expected)


@pytest.mark.parametrize(("suffix", "codec"), CONTAINERS)
def test_both_lines_read_the_sound_of_a_video_as_ffmpeg_does(tmp_path, suffix, codec):
    path = write_video(
        tmp_path / f"a.{suffix}", frames=6, sound=tone(48_000, rate=48_000), rate=48_000, sound_codec=codec
    )
    asd, ref2va = both_lines(path, from_video=True)
    expected = by_ffmpeg(path)
    assert np.array_equal(ref2va, expected)
    lead = len(expected) - len(asd)  # what lies before the first frame is cut off
    assert lead in (0, 256)
    assert np.array_equal(asd, expected[lead:])


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_samples_do_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch, block):
    for name in ("WAVEX PCM_24 2", "FLAC PCM_24 2", "Ogg-FLAC 1", "RIFX PCM_24 1"):
        path = TABLE[name][0](tmp_path)
        whole = both_lines(path)
        with monkeypatch.context() as patch:
            patch.setattr("muvap_assets.media.sound._BLOCK_VALUES", block * 2)
            patch.setattr("muvap_assets.media.soundtrack.BLOCK_SAMPLES", block)
            assert all(np.array_equal(one, other) for one, other in zip(both_lines(path), whole, strict=True))


# ---- what contradicts itself


def refused_by_both(path: Path) -> str:
    """The finding, once it is the same in both lines."""
    errors = []
    for read in (probe_audio, count_sound):
        with pytest.raises(ValidationError) as caught:
            read(path)
        errors.append(caught.value)
    assert [error.finding.code for error in errors] == [Code.AUDIO_UNREADABLE] * 2
    assert str(errors[0]) == str(errors[1])
    return str(errors[0])


def test_a_minute_whose_header_says_twenty_seconds_is_refused_in_both_lines(tmp_path):
    minute = np.random.default_rng(1).integers(-9000, 9000, 60 * 16_000).astype("<i2").tobytes()
    message = refused_by_both(_put(tmp_path / "a.wav", wav(len(minute) // 3, data=minute)))
    assert "declares 640,000 bytes of samples where 1,920,000 bytes follow" in message
    assert "ffmpeg -ignore_length 1 -i INPUT -c:a copy OUTPUT.wav" in message
    with av.open(str(tmp_path / "a.wav"), options={"ignore_length": "1"}) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) == len(minute) // 4  # so the advice is right


def test_a_size_that_wrapped_over_4_gib_is_refused_and_an_unknown_one_is_not(tmp_path):
    path = _put(tmp_path / "a.wav", wav(1000, data=PCM.tobytes()[:1000]))
    os.truncate(path, (1 << 32) + 1044)
    assert "declares 1,000 bytes of samples where 4,294,968,296 bytes follow" in refused_by_both(path)
    with path.open("r+b") as stream:
        stream.seek(40)
        stream.write(struct.pack("<I", UNKNOWN))
        stream.flush()
        size = (1 << 32) + 1044
        header = read_wav_header(lambda at, count: os.pread(stream.fileno(), count, at), size)
    assert header.frames == (size - 44) // 4


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (wav(after=b"\0\0\0\0" * 8), "neither chunks nor a tag"),
        (wav(after=chunk(b"data", bytes(400))), "neither chunks nor a tag"),
        (wav(after=LIST + b"rest"), "neither chunks nor a tag"),
        (wav(after=500_000 * chunk(b"LIST", b"")), "neither chunks nor a tag"),
        (wav()[:36] + 500_000 * chunk(b"JUNK", b""), "more than 4096 chunks before its samples"),
        (wav()[:36] + b"PEAK\xff\xff\xff\xff" + 500_000 * (b"data" + struct.pack("<I", 8)), "a chunk b'PEAK'"),
        (wav()[:32] + struct.pack("<H", 3) + wav()[34:], "frames have 3 bytes, and 2 channels of 16 bits"),
        (wav()[:12] + wav()[36:], "no format before its samples"),
        (wav()[:36] + LIST, "it ends before its samples"),
        (wav()[:36], "it ends before its samples"),
        (wav()[:22] + b"\0\0" + wav()[24:], "a WAV of 0 channels"),
    ],
)
def test_wav_files_that_contradict_themselves_are_refused_in_both_lines(tmp_path, data, found):
    assert found in refused_by_both(_put(tmp_path / "a.wav", data))


def test_a_wav_longer_by_its_header_than_its_file_is_a_warning_with_both_counts(tmp_path):
    path = _put(tmp_path / "a.wav", wav(10**6))
    (note,) = probe_audio(path).notes
    assert count_sound(path).notes == (note,)
    assert note.code == Code.AUDIO_STOPPED
    assert note.found == f"the header promises 250,000 frames, the file holds {FRAMES:,}"


@pytest.mark.parametrize("kept", range(36, 48))
def test_a_wav_cut_about_the_begin_of_its_samples_is_refused(tmp_path, kept):
    """36 begins the data chunk's header, 44 its samples, of four bytes a frame."""
    path = _put(tmp_path / "a.wav", wav(10**6)[:kept])
    for read in (probe_audio, count_sound):
        with pytest.raises(ValidationError) as caught:
            read(path)
        assert caught.value.finding.code in (Code.AUDIO_UNREADABLE, Code.AUDIO_EMPTY)


def test_the_end_of_whole_frames_is_the_end(tmp_path):
    path = _put(tmp_path / "a.wav", wav(10**6)[:-3])
    assert probe_audio(path).frames == count_sound(path).samples == FRAMES - 1


# ---- FLAC against its own digest


def test_a_flac_of_another_md5_is_a_warning_and_a_right_one_is_none(tmp_path):
    path = flac(tmp_path / "a.flac", FLACS["another MD5"])
    stored = np.ascontiguousarray((by_ffmpeg(path) * 32768).astype("<i2"))
    (note,) = probe_audio(path).notes
    assert count_sound(path).notes == (note,)
    assert note.code == Code.AUDIO_MD5
    assert hashlib.md5(stored.tobytes()).hexdigest() in note.found
    assert bytes(range(16)).hex() in note.required
    for subtype in ("PCM_S8", "PCM_16", "PCM_24"):
        assert probe_audio(flac(tmp_path / "b.flac", subtype=subtype)).notes == ()


# ---- which track, which channel

TRACKS = [
    ("eng", "Audio description", "visual_impaired", 1000),
    ("eng", "Main", "default", 2000),
    ("deu", "", "", 3000),
]


def level(path: Path, stream: str | None = None) -> int:
    with SoundSource(path, SoundChoice(stream)) as source:
        values = {round(float(value) * 32768) for block in source.blocks() for value in np.unique(block)}
    (only,) = values
    return only


def test_of_several_tracks_the_default_is_used_and_all_are_named(tmp_path):
    path = write_tracks(tmp_path / "a.mkv", TRACKS)
    assert level(path) == 2000
    (note,) = count_sound(path).notes
    assert note.code == Code.AUDIO_STREAM
    assert note.found == (
        "3 audio streams: 0 (eng, Audio description, visual impaired), 1 (eng, Main, default), 2 (deu)"
    )
    assert "Stream 1 was used" in note.hint


def test_without_a_default_the_first_track_is_used(tmp_path):
    path = write_tracks(tmp_path / "a.mkv", [(language, title, "", level) for language, title, _, level in TRACKS])
    assert level(path) == 1000


def test_a_track_is_chosen_by_number_or_language(tmp_path):
    path = write_tracks(tmp_path / "a.mkv", TRACKS)
    assert [level(path, stream) for stream in ("0", "1", "2", "deu")] == [1000, 2000, 3000, 3000]
    assert count_sound(path, SoundChoice("2")).notes == ()
    assert level(path, "eng") == 2000  # of two the default one, with a warning
    assert [note.code for note in count_sound(path, SoundChoice("eng")).notes] == ["audio_stream"]


def test_what_a_file_calls_its_tracks_is_printable_and_short_in_messages(tmp_path):
    path = write_tracks(tmp_path / "a.mkv", [("eng", "\x1b[31m" + "x" * 500, "", 1)] * 20, frames=2)
    (note,) = count_sound(path).notes
    assert note.found.startswith("20 audio streams: 0 (eng, [31m" + "x" * 36 + "), 1 (")
    assert note.found.endswith(", and 4 more")
    assert note.found.isprintable()


@pytest.mark.parametrize("stream", ["3", "fra"])
def test_a_track_that_is_not_there_is_refused_with_those_that_are(tmp_path, stream):
    path = write_tracks(tmp_path / "a.mkv", TRACKS)
    with pytest.raises(ValidationError, match=rf"2 \(deu\); '{stream}' is chosen") as caught:
        count_sound(path, SoundChoice(stream))
    assert caught.value.finding.code is Code.AUDIO_STREAM


def test_a_videos_stream_and_channel_are_chosen_alike_and_name_the_recording(tmp_path):
    path = write_tracks(tmp_path / "a.mkv", TRACKS)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    identities = {}
    for choice in (SoundChoice(), SoundChoice("1"), SoundChoice("deu"), SoundChoice("2", 1)):
        probe = probe_audio(path, from_video=True, choice=choice)
        identities[choice] = (probe.recording_id, round(probe.peak * 32768))
    assert list(identities.values()) == [
        (digest, 2000),
        (digest, 2000),
        (f"{digest}-s2", 3000),
        (f"{digest}-s2-c1", 3000),
    ]


def test_a_channel_is_heard_alone_and_has_an_identity_of_its_own(tmp_path):
    path = _put(tmp_path / "a.wav", wav())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    for channel in (0, 1):
        with Recording(path, choice=SoundChoice(channel=channel)) as recording:
            heard = np.concatenate(list(recording.blocks()))
        assert np.array_equal(heard[:, 0], by_numpy(path)[:, channel])
        assert probe_audio(path, choice=SoundChoice(channel=channel)).recording_id == f"{digest}-c{channel}"
    assert probe_audio(path).recording_id == probe_audio(path, choice=SoundChoice("0")).recording_id == digest
    with pytest.raises(ValidationError, match="2 channels, and channel 2 chosen") as caught:
        probe_audio(path, choice=SoundChoice(channel=2))
    assert caught.value.finding.code is Code.AUDIO_CHANNELS
    with pytest.raises(ValidationError, match="one audio stream, number 0") as caught:
        probe_audio(path, choice=SoundChoice("eng"))
    assert caught.value.finding.code is Code.AUDIO_STREAM


# ---- channels that cancel each other


@pytest.mark.parametrize(
    ("mix", "below_db"),
    [
        ([[1, -0.97]], 20 * np.log10(np.sqrt((1 + 0.97**2) / 2) / 0.015)),
        ([[1, 1]], 0.0),
        ([[1, 0]], 10 * np.log10(2)),
        ([[1, 0], [0, 1]], 10 * np.log10(2)),
    ],
)
def test_how_far_a_mono_mix_lies_below_its_channels(tmp_path, mix, below_db):
    sources = np.random.default_rng(4).normal(0, 0.1, (50_000, len(mix)))
    soundfile.write(tmp_path / "a.wav", sources @ np.array(mix) + 0.25, 16_000, subtype="FLOAT")
    assert probe_audio(tmp_path / "a.wav").cancelled_db == pytest.approx(below_db, abs=0.1)


def test_channels_that_cancel_wholly_are_infinitely_far_below_and_silent_ones_are_not(tmp_path):
    loud = np.random.default_rng(4).normal(0, 0.1, 1000)
    soundfile.write(tmp_path / "a.wav", np.stack([loud, -loud], 1), 16_000, subtype="FLOAT")
    assert probe_audio(tmp_path / "a.wav").cancelled_db == np.inf
    soundfile.write(tmp_path / "b.wav", np.zeros((1000, 2)), 16_000)
    assert probe_audio(tmp_path / "b.wav").cancelled_db == 0
    assert sum(len(block) for block in native_blocks(tmp_path / "b.wav")) == 1000
