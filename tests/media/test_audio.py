"""Decoding, mixing, resampling and rounding of recordings, against references that share none of their code."""

from __future__ import annotations

import os
import struct
import tracemalloc
import wave
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.media import sound
from muvap_assets.media.audio import (
    mono_16k_blocks,
    native_blocks,
    probe_audio,
    resampled_blocks,
    samples_16k,
    to_int16,
)

REQUIRED = r"required: WAV \(8 to 32-bit PCM or floating point\), FLAC or a NumPy waveform"


def decode(path, npy_rate_hz=None, stop_sample=None):
    blocks = list(mono_16k_blocks(path, npy_rate_hz, stop_sample))
    return np.concatenate(blocks) if blocks else np.empty(0, np.float32)


def tones(frames, channels=1, rate_hz=44_100, peak=0.8):
    """float64 [frames, channels]: another chord and some noise in each channel."""
    seconds = np.arange(frames)[:, None] / rate_hz
    pitches = 180.0 * (1 + np.arange(channels))
    noise = np.random.default_rng(frames).normal(0, 0.05, (frames, channels))
    return (peak * (0.7 * np.sin(2 * np.pi * pitches * seconds) + noise)).clip(-0.999, 0.999)


def write(path, signal, rate_hz=44_100, subtype=None, container=None, **options):
    soundfile.write(path, signal, rate_hz, subtype=subtype, format=container, **options)
    return path


def refusal(path, npy_rate_hz=None):
    with pytest.raises(ValidationError) as caught:
        probe_audio(path, npy_rate_hz)
    return caught.value


def open_files(path):
    folder = Path("/proc/self/fd")
    return sum(link.resolve() == path.resolve() for link in folder.iterdir() if link.exists())


# ---- what comes out, against independent references


def test_16_bit_mono_at_16_khz_passes_bit_exactly(tmp_path):
    values = np.random.default_rng(1).integers(-32768, 32768, 40_000).astype("<i2")
    values[:2] = -32768, 32767
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(values.tobytes())
    packed, clipped = to_int16(decode(tmp_path / "a.wav"))
    assert packed.tobytes() == values.tobytes()
    assert clipped == 0


def pcm_reference(path):
    """float64 [frames, channels] of a plain PCM WAV, by the standard library alone."""
    with wave.open(str(path), "rb") as file:
        width, channels, data = file.getsampwidth(), file.getnchannels(), file.readframes(file.getnframes())
    raw = np.frombuffer(data, np.uint8).reshape(-1, width)
    if width == 1:
        return ((raw.astype(np.float64) - 128) / 128).reshape(-1, channels)
    padded = np.zeros((len(raw), 4), np.uint8)
    padded[:, 4 - width :] = raw
    return (padded.view("<i4").astype(np.float64) / 2**31).reshape(-1, channels)


@pytest.mark.parametrize("subtype", ["PCM_U8", "PCM_16", "PCM_24", "PCM_32"])
@pytest.mark.parametrize(("rate_hz", "channels"), [(44_100, 2), (48_000, 1), (8_000, 1), (16_000, 2)])
def test_integer_wav_is_within_one_unit_of_an_independent_decode(tmp_path, subtype, rate_hz, channels):
    path = write(tmp_path / "a.wav", tones(30_011, channels, rate_hz), rate_hz, subtype)
    mono = pcm_reference(path).mean(axis=1)
    expected = np.rint(soxr.resample(mono, rate_hz, 16_000) * 32768)[: samples_16k(30_011, rate_hz)]
    packed, _ = to_int16(decode(path))
    assert len(packed) == len(expected)
    assert np.abs(packed - expected).max() <= 1


def exact_signal(subtype):
    """What to hand to the writer so that it scales nothing, and the signal float64 [20000, 2] that it means."""
    signal = tones(20_000, 2)
    if subtype == "PCM_16":
        written = np.rint(signal * 2**15).astype(np.int16)
        return written, written / 2**15
    if subtype == "PCM_24":
        written = np.rint(signal * 2**23).astype(np.int32) << 8
        return written, written / 2**31
    written = signal.astype(np.float32 if subtype == "FLOAT" else np.float64)
    return written, written.astype(np.float64)


ENCODINGS = [(c, s) for c in ("WAV", "WAVEX", "RF64") for s in ("PCM_16", "PCM_24", "FLOAT", "DOUBLE")]


@pytest.mark.parametrize(("container", "subtype"), [*ENCODINGS, ("FLAC", "PCM_16"), ("FLAC", "PCM_24")])
def test_every_container_decodes_to_what_was_written(tmp_path, container, subtype):
    written, stored = exact_signal(subtype)
    suffix = "flac" if container == "FLAC" else "wav"
    path = write(tmp_path / f"a.{suffix}", written, 44_100, subtype, container)
    native = np.concatenate(list(native_blocks(path)))
    assert native.dtype == np.float32
    assert native.shape == (20_000, 2)
    assert np.array_equal(native, stored.astype(np.float32))
    packed, _ = to_int16(decode(path))
    expected = np.rint(soxr.resample(stored.mean(axis=1), 44_100, 16_000) * 32768)
    assert np.abs(packed - expected).max() <= 1
    probe = probe_audio(path)
    assert (probe.rate_hz, probe.channels, probe.frames) == (44_100, 2, 20_000)
    assert probe.encoding == f"{container}/{subtype}"


def test_an_extensible_file_the_standard_library_refuses_is_read(tmp_path):
    path = write(tmp_path / "a.wav", tones(4_410, 2), 44_100, "PCM_24", "WAVEX")
    assert path.read_bytes()[20:22] == struct.pack("<H", 65534)
    assert probe_audio(path).samples_16k == 1_600


def test_big_endian_wav_is_read(tmp_path):
    path = write(tmp_path / "a.wav", tones(1_000), 16_000, "PCM_16", "WAV", endian="BIG")
    assert path.read_bytes()[:4] == b"RIFX"
    assert probe_audio(path).frames == 1_000


def test_a_float_source_beyond_full_scale_is_clipped_and_counted_never_wrapped(tmp_path):
    signal = 1.5 * np.sin(2 * np.pi * 100 * np.arange(16_000) / 16_000)
    path = write(tmp_path / "a.wav", signal, 16_000, "FLOAT")
    packed, clipped = to_int16(decode(path))
    beyond = np.rint(np.float32(signal) * 32768.0)
    assert clipped == np.count_nonzero((beyond > 32767) | (beyond < -32768)) > 0
    assert np.all(np.sign(packed) == np.sign(np.rint(np.float32(signal) * 32768.0)))


def test_full_scale_in_phase_stereo_mixes_to_full_scale(tmp_path):
    signal = np.repeat(np.array([32767, -32768], np.int16), 500)[:, None].repeat(2, axis=1)
    packed, clipped = to_int16(decode(write(tmp_path / "a.wav", signal, 16_000, "PCM_16")))
    assert np.array_equal(packed, signal[:, 0])
    assert clipped == 0


def test_the_same_level_comes_out_of_every_sample_type(tmp_path):
    signal = 0.5 * np.sin(2 * np.pi * 250 * np.arange(16_000) / 16_000)
    for subtype in ("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE"):
        packed, _ = to_int16(decode(write(tmp_path / f"{subtype}.wav", signal, 16_000, subtype)))
        assert abs(packed.max() - 16_384) <= 1, subtype


def test_rounding_is_half_to_even_and_clips_only_what_is_beyond():
    steps = np.array(
        [0.5, 1.5, 2.5, -0.5, -1.5, 32766.5, 32767.0, 32767.5, 32768, -32768, -32768.5, -32769], np.float32
    )
    packed, clipped = to_int16(steps / np.float32(32768))
    assert packed.tolist() == [0, 2, 2, 0, -2, 32766, 32767, 32767, 32767, -32768, -32768, -32768]
    assert packed.dtype == np.int16
    assert clipped == 3  # 32767.5 rounds to 32768; -32768.5 rounds to -32768 and is not clipped
    assert to_int16(np.array([3e38], np.float32))[1] == 1


def test_samples_that_are_no_number_are_never_cast():
    with pytest.raises(
        ValidationError, match="samples: 2 of 3 values are NaN, infinite or beyond float32; required: finite"
    ):
        to_int16(np.array([0, np.nan, np.inf], np.float32))


# ---- lengths


@settings(max_examples=150, deadline=None)
@given(
    rate_hz=st.sampled_from(
        [1_000, 8_000, 11_025, 15_999, 16_000, 22_050, 32_000, 44_056, 44_100, 48_000, 96_000, 192_000]
    ),
    frames=st.integers(1, 20_000),
    block=st.sampled_from([7, 100, 1_000, 8_192, 1 << 18]),
)
def test_resampling_in_blocks_gives_the_exact_length_and_the_values_of_one_call(rate_hz, frames, block):
    signal = np.random.default_rng(frames).uniform(-1, 1, frames).astype(np.float32)
    blocks = list(resampled_blocks((signal[at : at + block] for at in range(0, frames, block)), rate_hz))
    resampled = np.concatenate(blocks) if blocks else np.empty(0, np.float32)
    assert len(resampled) == round(Fraction(frames * 16_000, rate_hz))
    assert np.array_equal(resampled, soxr.resample(signal, rate_hz, 16_000)[: len(resampled)])


@pytest.mark.parametrize(("frames", "expected"), [(441, 220), (443, 222), (3, 2), (2, 1)])
def test_a_length_ending_in_one_half_goes_to_the_even_one(tmp_path, frames, expected):
    path = write(tmp_path / "a.wav", tones(frames, rate_hz=32_000), 32_000)
    assert probe_audio(path).samples_16k == len(decode(path)) == expected


def test_the_tail_of_a_recording_is_not_lost(tmp_path):
    signal = np.zeros(48_000)
    signal[-40:] = 0.5
    path = write(tmp_path / "a.wav", signal, 44_100)
    resampled = decode(path)
    assert len(resampled) == 17_415
    assert np.abs(resampled[-10:]).max() > 0.3


def test_what_comes_out_does_not_depend_on_block_sizes(tmp_path, monkeypatch):
    path = write(tmp_path / "a.flac", tones(50_000, 2), 44_100)
    np.save(tmp_path / "a.npy", tones(50_000, 2))
    whole = decode(path), decode(tmp_path / "a.npy", 44_100)
    for values in (1, 999, 4_096):
        monkeypatch.setattr(sound, "_BLOCK_VALUES", max(values, 64))
        assert np.array_equal(decode(path), whole[0])
        assert np.array_equal(decode(tmp_path / "a.npy", 44_100), whole[1])


@pytest.mark.parametrize("rate_hz", [16_000, 44_100])
@pytest.mark.parametrize("stop_sample", [0, 1, 1_000, 17_000, 10**9])
def test_stopping_early_yields_the_beginning_of_the_same_signal(tmp_path, monkeypatch, rate_hz, stop_sample):
    monkeypatch.setattr(sound, "_BLOCK_VALUES", 5_000)
    path = write(tmp_path / "a.wav", tones(60_000, rate_hz=rate_hz), rate_hz)
    assert np.array_equal(decode(path, stop_sample=stop_sample), decode(path)[:stop_sample])
    assert open_files(path) == 0


def flac_declaring(path, frames):
    data = bytearray(path.read_bytes())
    word = int.from_bytes(data[18:26], "big") >> 36 << 36 | frames
    data[18:26] = word.to_bytes(8, "big")
    path.write_bytes(data)


def test_the_probe_counts_what_decoding_yields(tmp_path):
    path = write(tmp_path / "a.wav", tones(44_101, 2), 44_100)
    probe = probe_audio(path)
    assert probe.frames == sum(len(block) for block in native_blocks(path)) == 44_101
    assert probe.samples_16k == len(decode(path)) == 16_000
    assert probe.non_finite == 0
    assert not probe.constant


# ---- NumPy waveforms


NPY_TYPES = ["int8", "uint8", "<i2", ">i2", "int32", ">i4", "float16", "float32", ">f4", "float64"]


@pytest.mark.parametrize("kind", NPY_TYPES)
def test_npy_integers_are_scaled_by_their_range_and_floats_are_not(tmp_path, kind):
    kind = np.dtype(kind)
    if kind.kind == "f":
        stored = tones(1_000)[:, 0].astype(kind)
        expected = stored.astype(np.float64)
    else:
        info = np.iinfo(kind)
        stored = np.random.default_rng(2).integers(info.min, info.max, 1_000, endpoint=True).astype(kind)
        stored[:2] = info.min, info.max
        expected = (stored.astype(np.float64) - (128 if kind == np.uint8 else 0)) / 2.0 ** (8 * kind.itemsize - 1)
    np.save(tmp_path / "a.npy", stored)
    assert np.array_equal(decode(tmp_path / "a.npy", 16_000), expected.astype(np.float32))
    assert probe_audio(tmp_path / "a.npy", 16_000).encoding == f"NPY/{kind.newbyteorder('=').name}"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("channels", [1, 2, 8])
@pytest.mark.parametrize("channels_first", [False, True])
def test_npy_layouts_mean_the_same_signal(tmp_path, monkeypatch, order, channels, channels_first):
    monkeypatch.setattr(sound, "_BLOCK_VALUES", 1_000)
    signal = tones(3_001, channels).astype(np.float32)
    np.save(tmp_path / "a.npy", np.array(signal.T if channels_first else signal, order=order))
    probe = probe_audio(tmp_path / "a.npy", 44_100)
    assert (probe.frames, probe.channels) == (3_001, channels)
    assert np.array_equal(np.concatenate(list(native_blocks(tmp_path / "a.npy", 44_100))), signal)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((9, 9), np.float32), r"a NumPy array of shape \(9, 9\); .*at most 8 and N above that"),
        (np.zeros((2, 3), np.float32), r"a NumPy array of shape \(2, 3\)"),
        (np.zeros((2, 100, 1), np.float32), r"a NumPy array of shape \(2, 100, 1\)"),
        (np.float32(1), r"a NumPy array of shape \(\)"),
        (np.zeros(10, bool), "a NumPy array of bool; .*Save it as one of int8"),
        (np.zeros(10, complex), "a NumPy array of complex128"),
        (np.zeros(10, np.uint16), "a NumPy array of uint16"),
        (np.zeros(10, np.int64), "a NumPy array of int64"),
        (np.zeros(10, [("left", "f4")]), "a NumPy array of"),
        (np.array([None]), "a NumPy array of object"),
        (np.array(["a"]), "a NumPy array of <U1"),
    ],
)
def test_npy_arrays_that_are_no_waveform_are_refused(tmp_path, array, message):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(ValidationError, match=message) as caught:
        probe_audio(tmp_path / "a.npy", 16_000)
    assert caught.value.finding.code is Code.AUDIO_UNSUPPORTED


@pytest.mark.parametrize("shape", [(0,), (0, 2), (2, 0)])
def test_empty_npy_arrays_are_refused_as_empty(tmp_path, shape):
    np.save(tmp_path / "a.npy", np.zeros(shape, np.float32))
    error = refusal(tmp_path / "a.npy", 16_000)
    assert error.finding.code is Code.AUDIO_EMPTY
    assert f"a NumPy array of shape {shape}" in str(error)


def test_damaged_npy_files_are_refused(tmp_path):
    np.save(tmp_path / "whole.npy", np.zeros(1_000, np.float32))
    whole = (tmp_path / "whole.npy").read_bytes()
    for data in (whole[:-1], whole[:40], whole[:8], whole[:128], whole.replace(b"descr", b"dscr ")):
        (tmp_path / "a.npy").write_bytes(data)
        assert refusal(tmp_path / "a.npy", 16_000).finding.code is Code.AUDIO_UNREADABLE


def test_a_npy_waveform_needs_a_rate(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(1_000, np.float32))
    with pytest.raises(
        ValidationError,
        match=r"a NumPy waveform without a rate; required: whole samples a second, 1000 to 768000.*give it in the column",
    ):
        probe_audio(tmp_path / "a.npy")
    for rate_hz in (0, -1, 999, 10**9):
        assert refusal(tmp_path / "a.npy", rate_hz).finding.code is Code.AUDIO_RATE_INVALID


def test_a_declared_rate_may_not_contradict_the_file(tmp_path):
    path = write(tmp_path / "a.wav", tones(1_000), 44_100)
    assert probe_audio(path, 44_100).rate_hz == 44_100
    with pytest.raises(ValidationError, match="a rate of 44100 Hz in the file, 16000 Hz declared") as caught:
        probe_audio(path, 16_000)
    assert caught.value.finding.code is Code.AUDIO_RATE_INVALID


# ---- what is refused


def test_a_missing_file_is_an_error_and_not_silence(tmp_path):
    with pytest.raises(ValidationError, match="no such file; required: a file with sound") as caught:
        list(mono_16k_blocks(tmp_path / "none.wav"))
    assert caught.value.finding.code is Code.AUDIO_MISSING
    (tmp_path / "link.wav").symlink_to("nowhere.wav")
    assert refusal(tmp_path / "link.wav").finding.code is Code.AUDIO_MISSING


def test_a_folder_and_a_pipe_are_refused_without_waiting(tmp_path):
    (tmp_path / "folder.wav").mkdir()
    os.mkfifo(tmp_path / "pipe.wav")
    for name, found in (("folder", "a folder"), ("pipe", "not a regular file")):
        error = refusal(tmp_path / f"{name}.wav")
        assert error.finding.code is Code.AUDIO_UNREADABLE
        assert error.finding.found == found


@pytest.mark.parametrize(
    ("container", "subtype", "suffix", "found"),
    [
        ("MP3", "MPEG_LAYER_III", "mp3", "MP3 or AAC"),
        ("OGG", "VORBIS", "ogg", r"Ogg \(Vorbis or Opus\)"),
        ("OGG", "OPUS", "opus", r"Ogg \(Vorbis or Opus\)"),
        ("OGG", "OPUS", "wav", r"Ogg \(Vorbis or Opus\) in a \.wav file"),
        ("MP3", "MPEG_LAYER_III", "wav", r"MP3 or AAC in a \.wav file"),
        ("WAV", "IMA_ADPCM", "wav", "WAV holding IMA_ADPCM"),
        ("WAV", "ULAW", "wav", "WAV holding ULAW"),
        ("WAV", "ALAW", "wav", "WAV holding ALAW"),
        ("AIFF", "PCM_16", "aiff", "AIFF"),
        ("W64", "PCM_16", "w64", "Wave64"),
        ("CAF", "PCM_16", "caf", "CAF"),
        ("AU", "PCM_16", "au", "Sun AU"),
    ],
)
def test_other_formats_are_refused_by_name_with_the_way_out(tmp_path, container, subtype, suffix, found):
    path = write(tmp_path / f"a.{suffix}", tones(20_000, rate_hz=16_000), 16_000, subtype, container)
    with pytest.raises(ValidationError, match=rf"{found}; {REQUIRED}\. Convert it once, .*ffmpeg") as caught:
        probe_audio(path)
    assert caught.value.finding.code is Code.AUDIO_UNSUPPORTED
    assert open_files(path) == 0


@pytest.mark.parametrize(
    ("beginning", "name", "found"),
    [
        (b"ID3\x04" + bytes(60), "a.mp3", "MP3"),
        (b"\0\0\0\x20ftypM4A " + bytes(60), "a.m4a", "MP4"),
        (b"\x1a\x45\xdf\xa3" + bytes(60), "a.webm", "Matroska or WebM"),
        (b"RIFF\0\0\0\0AVI " + bytes(60), "a.wav", r"AVI in a \.wav file"),
        (b"PK\x03\x04" + bytes(60), "a.npz", "a zip archive"),
        (b"not audio", "a.wav", r"an unknown format, beginning with bytes 6e 6f 74 20 61 75 64 69 in a \.wav file"),
    ],
)
def test_files_that_only_begin_like_another_format_are_named_too(tmp_path, beginning, name, found):
    (tmp_path / name).write_bytes(beginning)
    with pytest.raises(ValidationError, match=f"{found}.*; {REQUIRED}") as caught:
        probe_audio(tmp_path / name)
    assert caught.value.finding.code is Code.AUDIO_UNSUPPORTED


def test_a_name_may_not_claim_another_format_than_the_file_has(tmp_path):
    write(tmp_path / "a.flac", tones(1_000)).rename(tmp_path / "a.wav")
    with pytest.raises(ValidationError, match=r"FLAC in a \.wav file; .*Rename it to what it is"):
        probe_audio(tmp_path / "a.wav")
    write(tmp_path / "b.flac", tones(1_000)).rename(tmp_path / "b.audio")
    assert probe_audio(tmp_path / "b.audio").encoding == "FLAC/PCM_16"


@pytest.mark.parametrize("suffix", ["wav", "flac", "npy"])
def test_empty_files_and_files_without_samples_are_refused_as_empty(tmp_path, suffix):
    (tmp_path / f"a.{suffix}").write_bytes(b"")
    assert "a file of 0 bytes" in str(refusal(tmp_path / f"a.{suffix}", 16_000))
    if suffix == "wav":
        path = write(tmp_path / "none.wav", np.empty(0), 16_000)
        with pytest.raises(
            ValidationError, match=r"0 frames at 16000 Hz; required: at least one sample\. Copy or export"
        ) as caught:
            probe_audio(path)
        assert caught.value.finding.code is Code.AUDIO_EMPTY


def test_a_recording_shorter_than_one_sample_is_refused_as_empty(tmp_path):
    error = refusal(write(tmp_path / "a.wav", tones(2), 96_000))
    assert error.finding.code is Code.AUDIO_EMPTY


@pytest.mark.parametrize("kept", [20, 36])
def test_a_wav_cut_in_its_header_is_refused(tmp_path, kept):
    path = write(tmp_path / "a.wav", tones(1_000), 16_000)
    path.write_bytes(path.read_bytes()[:kept])
    error = refusal(path)
    assert error.finding.code in (Code.AUDIO_UNREADABLE, Code.AUDIO_EMPTY)
    assert open_files(path) == 0


@pytest.mark.parametrize("kept", [20, 60, 0.5, 0.99])
def test_a_truncated_flac_is_refused(tmp_path, kept):
    path = write(tmp_path / "a.flac", tones(60_000), 16_000)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept < 1 else kept])
    error = refusal(path)
    assert error.finding.code is Code.AUDIO_UNREADABLE
    assert open_files(path) == 0


def test_a_flac_that_ends_between_two_frames_is_refused_with_both_counts(tmp_path):
    path = write(tmp_path / "a.flac", tones(10_000), 16_000)
    flac_declaring(path, 12_000)
    with pytest.raises(
        ValidationError, match=r"decoding failed after 10000 frames \(the file ends, of 12000 promised\)"
    ):
        decode(path)


def test_a_damaged_flac_is_refused_where_it_is_damaged(tmp_path):
    path = write(tmp_path / "a.flac", tones(60_000), 16_000)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 100] = bytes(100)
    path.write_bytes(data)
    with pytest.raises(ValidationError, match=r"decoding failed after \d+ frames \(\d+ damaged samples\)"):
        decode(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_anywhere_gives_a_media_error_or_samples_and_nothing_else(tmp_path, data):
    path = tmp_path / f"a.{data.draw(st.sampled_from(['wav', 'flac', 'npy']))}"
    if path.suffix == ".npy":
        np.save(path, tones(600, 2))
    else:
        write(path, tones(600, 2), 16_000)
    whole = path.read_bytes()
    damaged = bytearray(whole[: data.draw(st.integers(1, len(whole)))])
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(damaged)
    try:
        assert probe_audio(path, 16_000).frames > 0
    except ValidationError as error:
        assert error.finding.code.startswith("audio_")
    assert open_files(path) == 0


def test_non_finite_samples_are_counted_over_the_whole_recording(tmp_path, monkeypatch):
    monkeypatch.setattr(sound, "_BLOCK_VALUES", 1_000)
    signal = tones(10_000, 2)
    signal[[17, 5_000, 9_999], [0, 1, 1]] = np.nan, np.inf, -np.inf
    path = write(tmp_path / "a.wav", signal, 44_100, "DOUBLE")
    assert probe_audio(path).non_finite == 3
    with pytest.raises(ValidationError, match="3 of 20000 values are NaN, infinite or beyond float32") as caught:
        decode(path)
    assert caught.value.finding.code is Code.AUDIO_NON_FINITE
    np.save(tmp_path / "a.npy", np.array([0.0, 1e300, 1.0]))
    assert probe_audio(tmp_path / "a.npy", 16_000).non_finite == 1


@pytest.mark.parametrize(
    ("signal", "constant"),
    [
        (np.zeros(1_000), True),
        (np.full(1_000, 0.25), True),
        (np.eye(1, 1_000, 500)[0] * 2 / 32768, False),
        (np.eye(1, 1_000, 500)[0] / 32768, True),
        (np.stack([np.ones(1_000) / 2, -np.ones(1_000) / 2], 1), True),
    ],
)
def test_silence_and_a_mere_offset_are_constant(tmp_path, signal, constant):
    assert probe_audio(write(tmp_path / "a.wav", signal, 16_000, "FLOAT")).constant is constant


# ---- resources


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.npy"])
def test_files_are_closed_when_a_reader_gives_up_halfway(tmp_path, monkeypatch, name):
    monkeypatch.setattr(sound, "_BLOCK_VALUES", 1_000)
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, tones(10_000)[:, 0])
    else:
        write(path, tones(10_000), 44_100)
    for reader in (native_blocks, mono_16k_blocks):
        blocks = reader(path, 44_100)
        next(blocks)
        blocks.close()
        assert open_files(path) == 0


@pytest.mark.parametrize("name", ["a.wav", "a.npy"])
def test_memory_holds_blocks_and_not_the_recording(tmp_path, name):
    path, frames = tmp_path / name, 48_000 * 300
    if name == "a.npy":
        array = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(2, frames))
        array[:, ::1000] = 0.1
        del array
    else:
        with soundfile.SoundFile(path, "w", 48_000, 2, "PCM_16") as file:
            for _ in range(300):
                file.write(np.full((48_000, 2), 1_000, np.int16))
    tracemalloc.start()
    longest = total = 0
    for block in mono_16k_blocks(path, 48_000):
        longest, total = max(longest, len(block)), total + len(block)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert total == 4_800_000
    assert longest < 100_000
    assert peak_bytes < 16 << 20  # the recording is 58 or 115 MB
