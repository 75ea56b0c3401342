"""Small plain WAV files read in one go: the same verdict as from the decoder, and everything else is left to it."""

import os
import struct

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from muvap_assets.media import audio
from muvap_assets.media.audio import probe_audio
from muvap_assets.media.plain_wav import SMALL_BYTES, read_plain_wav


def write(path, samples, rate=16_000, subtype="PCM_16"):
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


def by_the_decoder(path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(audio, "read_plain_wav", lambda path: None)
        return probe_audio(path)


@settings(max_examples=40, deadline=None)
@given(
    samples=st.lists(st.integers(-32768, 32767), min_size=1, max_size=50), rate=st.sampled_from([8000, 16_000, 44_100])
)
def test_its_samples_are_the_decoders(tmp_path_factory, samples, rate):
    path = write(tmp_path_factory.mktemp("wav") / "a.wav", np.array(samples, np.int16), rate)
    wav = read_plain_wav(path)
    assert wav is not None
    assert (wav.rate_hz, wav.samples.tolist(), wav.data) == (rate, samples, path.read_bytes())


@pytest.mark.parametrize("samples", [[0] * 400, [5] * 400, [5, 6] * 200, [5, 7] * 200, [-32768, 32767] * 9])
def test_the_verdict_is_the_decoders(tmp_path, monkeypatch, samples):
    path = write(tmp_path / "a.wav", np.array(samples, np.int16), 22_050)
    assert probe_audio(path) == by_the_decoder(path, monkeypatch)


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1],
        lambda data: data[:-2],
        lambda data: data + b"\0\0",
        lambda data: data[:43],
        lambda data: data[:4] + struct.pack("<I", 0) + data[8:],
        lambda data: data[:22] + struct.pack("<H", 2) + data[24:],
        lambda data: data[:28] + struct.pack("<I", 1) + data[32:],
        lambda data: data[:40] + struct.pack("<I", 0xFFFFFFFF) + data[44:],
        lambda data: data[:36] + b"LIST" + data[40:],
        lambda data: b"RIFX" + data[4:],
        lambda data: b"",
    ],
)
def test_any_deviation_is_left_to_the_decoder(tmp_path, change):
    path = write(tmp_path / "a.wav", np.arange(100, dtype=np.int16))
    assert read_plain_wav(path) is not None
    path.write_bytes(change(path.read_bytes()))
    assert read_plain_wav(path) is None


@pytest.mark.parametrize(("shape", "subtype"), [((100, 2), "PCM_16"), ((100,), "PCM_24"), ((100,), "FLOAT")])
def test_other_channels_and_sample_types_are_left_to_the_decoder(tmp_path, shape, subtype):
    assert read_plain_wav(write(tmp_path / "a.wav", np.zeros(shape), subtype=subtype)) is None


def test_large_files_pipes_folders_and_other_names_are_left_to_the_decoder(tmp_path):
    assert read_plain_wav(write(tmp_path / "large.wav", np.zeros(SMALL_BYTES // 2, np.int16))) is None
    os.mkfifo(tmp_path / "pipe.wav")
    (tmp_path / "folder.wav").mkdir()
    os.link(write(tmp_path / "a.wav", np.zeros(9)), tmp_path / "a.flac")
    for name in ("pipe.wav", "folder.wav", "none.wav", "a.flac"):
        assert read_plain_wav(tmp_path / name) is None
