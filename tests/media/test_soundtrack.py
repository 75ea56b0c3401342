"""Sound: formats, downmix, placement by timestamps, counts."""

from fractions import Fraction

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from media_makers import tone, write_sound, write_video

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.media.soundtrack import SoundSource, count_sound, placed


def samples_of(path, origin=None):
    with SoundSource(path) as source:
        return np.concatenate(list(source.blocks(origin)), axis=1)


@pytest.mark.parametrize(
    ("subtype", "tolerance"), [("PCM_16", 4e-5), ("PCM_24", 2e-7), ("PCM_32", 1e-7), ("FLOAT", 0), ("PCM_U8", 8e-3)]
)
def test_every_wav_sample_format_reads_to_the_same_signal(tmp_path, subtype, tolerance):
    sound = tone(4000)
    soundfile.write(tmp_path / "voice.wav", sound.T, 32_000, subtype=subtype)
    np.testing.assert_allclose(samples_of(tmp_path / "voice.wav"), sound, atol=tolerance)


def test_extensible_wav_and_flac_read(tmp_path):
    sound = tone(4000)
    soundfile.write(tmp_path / "a.wav", sound.T, 44_100, subtype="PCM_24", format="WAVEX")
    soundfile.write(tmp_path / "a.flac", sound.T, 44_100)
    for name in ("a.wav", "a.flac"):
        facts = count_sound(tmp_path / name)
        assert (facts.rate_hz, facts.channels, facts.samples, facts.first_sec) == (44_100, 2, 4000, 0)


def test_mono_is_doubled(tmp_path):  # B12
    soundfile.write(tmp_path / "mono.wav", tone(1000, channels=1).T, 16_000, subtype="FLOAT")
    sound = samples_of(tmp_path / "mono.wav")
    assert sound.shape == (2, 1000)
    assert (sound[0] == sound[1]).all()
    assert count_sound(tmp_path / "mono.wav").channels == 1


def test_surround_is_mixed_down_by_the_stated_rule(tmp_path):  # B12
    channels = np.random.default_rng(3).uniform(-0.9, 0.9, (6, 2000)).astype(np.float32)
    path = write_video(tmp_path / "film.mov", frames=2, sound=channels, layout="5.1")
    left, right, centre, _, back_left, back_right = np.round(channels * 32_767) / 32_768
    half = np.sqrt(0.5)
    whole = 1 + 2 * half
    expected = [
        (left + half * centre + half * back_left) / whole,
        (right + half * centre + half * back_right) / whole,
    ]
    mixed = samples_of(path)
    np.testing.assert_allclose(mixed, expected, atol=1e-4)
    assert np.abs(mixed).max() <= 1


def test_full_scale_in_every_channel_stays_in_full_scale(tmp_path):
    path = write_video(tmp_path / "loud.mov", frames=2, sound=np.ones((6, 500), np.float32), layout="5.1")
    assert np.abs(samples_of(path)).max() <= 1


def test_channels_without_a_stated_place_are_refused(tmp_path):
    soundfile.write(tmp_path / "array.wav", np.zeros((100, 12), np.float32), 48_000)
    with pytest.raises(ValidationError, match="Mix it down to stereo") as caught:
        count_sound(tmp_path / "array.wav")
    assert caught.value.finding.code is Code.AUDIO_CHANNELS


@pytest.mark.parametrize(
    ("name", "codec", "rate", "channels"),
    [
        ("a.m4a", "aac", 44_100, 2),
        ("a.webm", "libopus", 48_000, 2),
        ("a.mkv", "ac3", 48_000, 6),
        ("a.mp3", "libmp3lame", 44_100, 1),
    ],
)
def test_compressed_sound_is_taken_from_its_container(tmp_path, name, codec, rate, channels):  # B11
    facts = count_sound(write_sound(tmp_path / name, tone(rate, channels, rate), rate, codec))
    assert (facts.rate_hz, facts.channels) == (rate, channels)
    assert abs(facts.samples - rate) < 4096
    assert facts.peak > 0.1


def test_a_container_without_sound_says_so(tmp_path):  # B12
    with pytest.raises(ValidationError, match="no audio stream") as caught:
        count_sound(write_video(tmp_path / "mute.mp4", frames=3))
    assert caught.value.finding.code is Code.AUDIO_MISSING


@pytest.mark.parametrize("name", ["a.wav", "a.flac", "a.ogg"])
def test_what_is_no_sound_is_refused_without_naming_the_machine(tmp_path, name):
    (tmp_path / name).write_bytes(b"<html>404</html>")
    with pytest.raises(ValidationError) as caught:
        count_sound(tmp_path / name)
    assert caught.value.finding.code is Code.AUDIO_UNREADABLE
    assert str(tmp_path) not in caught.value.finding.found


def test_non_finite_samples_are_counted(tmp_path):
    sound = tone(1000)
    sound[0, 5], sound[1, 7] = np.nan, np.inf
    soundfile.write(tmp_path / "broken.wav", sound.T, 32_000, subtype="FLOAT")
    facts = count_sound(tmp_path / "broken.wav")
    assert facts.non_finite == 2
    assert facts.peak == pytest.approx(0.3, abs=0.01)


def test_silence_has_no_peak(tmp_path):
    soundfile.write(tmp_path / "silent.wav", np.zeros((1000, 2)), 32_000)
    assert count_sound(tmp_path / "silent.wav").peak == 0


@pytest.mark.parametrize("offset", [Fraction(1, 2), Fraction(-1, 2), Fraction(0)])
def test_sound_is_placed_by_timestamps_against_an_origin(tmp_path, offset):  # B14
    sound = tone(24_000)
    starts = {"start": max(0, -offset), "sound_start": max(0, offset)}
    path = write_video(tmp_path / "clip.mov", frames=12, sound=sound, **starts)
    facts = count_sound(path)
    origin = Fraction(starts["start"])
    aligned = samples_of(path, origin)
    lead = round(offset * 32_000)
    expected = np.pad(sound, ((0, 0), (lead, 0))) if lead >= 0 else sound[:, -lead:]
    assert aligned.shape == expected.shape
    assert facts.samples_from(origin) == expected.shape[1]
    np.testing.assert_allclose(aligned, expected, atol=1e-4)


def test_aac_priming_does_not_delay_the_sound(tmp_path):  # B14
    click = np.zeros((2, 48_000), np.float32)
    click[:, 24_000] = 0.9
    path = write_video(tmp_path / "clip.mp4", frames=24, sound=click, rate=48_000, sound_codec="aac")
    assert np.abs(samples_of(path, Fraction(0))[0]).argmax() == pytest.approx(24_000, abs=2)


def test_a_hole_in_the_timestamps_becomes_silence(tmp_path):
    import av

    path = tmp_path / "hole.mkv"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=32_000)
        stream.layout = "stereo"
        for start in (0, 16_000):
            frame = av.AudioFrame.from_ndarray(np.full((1, 16_000), 8000, np.int16), format="s16", layout="stereo")
            frame.sample_rate, frame.time_base, frame.pts = 32_000, Fraction(1, 32_000), start
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    sound = samples_of(path)
    assert sound.shape == (2, 24_000)
    assert (sound[:, 8000:16_000] == 0).all()
    assert (sound[:, :8000] > 0.2).all() and (sound[:, 16_000:] > 0.2).all()
    facts = count_sound(path)
    assert (facts.samples, facts.gaps) == (24_000, ((8000, 8000),))
    early, late = Fraction(-1, 2), Fraction(3, 8)  # 16,000 samples of silence before the sound, 12,000 of it cut off
    assert facts.gaps_within(None, 24_000) == [(8000, 8000)]
    assert facts.gaps_within(None, 9000) == [(8000, 1000)]
    assert facts.gaps_within(None, 8000) == []
    assert facts.gaps_within(early, 40_000) == [(24_000, 8000)]
    assert facts.gaps_within(late, 24_000) == [(0, 4000)]


@given(
    chunks=st.lists(st.tuples(st.integers(-30, 120), st.integers(1, 20)), min_size=1, max_size=6),
    values=hnp.arrays(np.float32, 200, elements=st.floats(-1, 1, width=32)),
)
def test_placing_equals_a_plain_drawing_on_the_time_line(chunks, values):
    pieces = [(position, values[None, 10 * i : 10 * i + size]) for i, (position, size) in enumerate(chunks)]
    line: list[float] = []
    holes, gaps = set(), []
    for index, (position, piece) in enumerate(pieces):
        holes |= set(range(len(line), position)) if index else set()
        line += [0.0] * (position - len(line))
        line += piece[0, max(0, len(line) - position) :].tolist()
    out = list(placed(pieces, 0, gaps))
    found = np.concatenate(out, axis=1)[0].tolist() if out else []
    assert found == line
    assert [sample for first, count in gaps for sample in range(first, first + count)] == sorted(holes)


@given(sizes=st.lists(st.integers(1, 50), min_size=2, max_size=8), jitter=st.integers(-3, 3))
def test_rounded_timestamps_leave_no_seams(sizes, jitter):
    chunks, cursor = [], 0
    for size in sizes:
        chunks.append((cursor + (jitter if chunks else 0), np.ones((2, size), np.float32)))
        cursor += size
    found = np.concatenate(list(placed(chunks, slack=3)), axis=1)
    assert found.shape == (2, sum(sizes))
    assert found.all()


def test_counting_holds_a_block_whatever_the_length(tmp_path):
    import tracemalloc

    with soundfile.SoundFile(tmp_path / "long.wav", "w", 16_000, 1, "PCM_16") as file:
        for _ in range(60):
            file.write(np.ones(160_000, np.float32) * 0.1)
    tracemalloc.start()
    facts = count_sound(tmp_path / "long.wav")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert facts.samples == 9_600_000
    assert peak < 5e6  # the whole is 77 MB as stereo float32


def test_a_timestamp_of_millennia_ends_the_sound_and_makes_no_silence_of_it(tmp_path):
    write_video(tmp_path / "a.mov", frames=24, sound=tone(32_000), sound_start=20_000)
    facts = count_sound(tmp_path / "a.mov")
    assert (facts.samples, facts.first_sec, facts.stopped) == (32_000, 20_000, "")
    with SoundSource(tmp_path / "a.mov") as source:
        assert list(source.blocks(Fraction(0))) == []
        assert source.stopped == "timestamps that leave over 8388 s without sound"


def test_a_rate_no_recording_has_is_refused(tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(10), 2_000_000_000)
    with pytest.raises(
        ValidationError, match="a rate of 2000000000 Hz; required: whole samples a second, 1000 to 768000"
    ):
        count_sound(tmp_path / "a.wav")
