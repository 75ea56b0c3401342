"""Frames, timestamps, rotation and counts of video files."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from media_makers import number_of, tone, write_sound, write_video

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.media.video import Orientation, VideoSource, count_video, snapped


def shown(path, fps=None):
    with VideoSource(path) as source:
        return [(number_of(frame.pixels()), frame.start, frame.stop) for frame in source.frames(fps)]


@pytest.mark.parametrize("frames", [123, 124, 125])
def test_frames_are_counted_by_decoding(tmp_path, frames):  # B01
    facts = count_video(write_video(tmp_path / "clip.mp4", frames=frames))
    assert (facts.frames, facts.duration_sec) == (frames, Fraction(frames, 24))


def test_a_container_without_a_frame_count_is_counted(tmp_path):  # B01: MKV, PyAV says 0 frames
    facts = count_video(write_video(tmp_path / "clip.mkv", frames=30, fps=25))
    assert (facts.frames, facts.header_frames) == (30, 0)
    assert facts.duration_sec == Fraction(30, 25)


def test_a_truncated_file_counts_what_decodes_and_says_what_was_promised(tmp_path):  # B01
    whole = write_video(tmp_path / "whole.mp4", frames=60, codec="mpeg4")
    moved = tmp_path / "front.mp4"
    with av.open(str(whole)) as source, av.open(str(moved), "w", options={"movflags": "faststart"}) as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = stream
                copy.mux(packet)
    cut = tmp_path / "cut.mp4"
    cut.write_bytes(moved.read_bytes()[: int(moved.stat().st_size * 0.7)])
    facts = count_video(cut)
    assert facts.header_frames == 60
    assert 20 < facts.frames < 60
    assert facts.stopped
    assert [number for number, _, _ in shown(cut)] == list(range(facts.frames))


def test_a_stream_copy_from_between_key_frames_counts_what_is_shown(tmp_path):  # B01: header 96, decoded 88
    whole = write_video(tmp_path / "whole.mp4", frames=120, fps=24)  # a key frame every 12
    with av.open(str(whole)) as source, av.open(str(tmp_path / "cut.mp4"), "w") as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is None or packet.pts * packet.time_base < 1:
                continue
            shift = int(Fraction(13, 10) / packet.time_base)  # as ffmpeg -ss 1.3 -c copy: an edit list hides the start
            packet.pts, packet.dts, packet.stream = packet.pts - shift, packet.dts - shift, stream
            copy.mux(packet)
    facts = count_video(tmp_path / "cut.mp4")
    assert (facts.header_frames, facts.hidden_frames, facts.frames) == (96, 8, 88)
    assert (facts.duration_sec, facts.missing_sec) == (Fraction(88, 24), 0)
    assert [number for number, _, _ in shown(tmp_path / "cut.mp4")] == list(range(32, 120))


@pytest.mark.parametrize("suffix", [".mp4", ".mov", ".mkv", ".webm", ".avi", "fragmented.mp4"])
@pytest.mark.parametrize(("fps", "start"), [(Fraction(30_000, 1001), 0), (Fraction(24), Fraction(7, 10))])
def test_nothing_is_missing_of_a_whole_file_of_any_container(tmp_path, suffix, fps, start):
    codec = "libvpx" if suffix == ".webm" else "mpeg4"
    path = tmp_path / f"clip{suffix}"
    write_video(
        path, frames=33, fps=fps, start=start, codec=codec, movflags="frag_keyframe" if "frag" in suffix else ""
    )
    facts = count_video(path)
    assert (facts.frames, facts.ends_early) == (33, False)


def test_damage_ends_the_stream_before_anything_damaged_is_shown(tmp_path):
    whole = write_video(tmp_path / "whole.mp4", frames=120)
    content = bytearray(whole.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 400] = np.random.default_rng(0).bytes(400)
    (tmp_path / "damaged.mp4").write_bytes(content)
    facts = count_video(tmp_path / "damaged.mp4")
    assert 12 < facts.frames < 120
    assert facts.stopped
    assert [number for number, _, _ in shown(tmp_path / "damaged.mp4")] == list(range(facts.frames))


def test_a_frame_whose_errors_the_decoder_concealed_ends_the_stream(tmp_path):
    """MPEG-4 reports concealment in decode_error_flags alone: no packet fails, and every frame comes out."""
    noise = np.random.default_rng(0).integers(0, 256, (24, 64, 64, 3), np.uint8)
    whole = write_video(tmp_path / "whole.mp4", frames=list(noise), codec="mpeg4")
    with av.open(str(whole)) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][10]
    content = bytearray(whole.read_bytes())
    middle = packet.pos + packet.size // 3
    content[middle : middle + packet.size // 3] = np.random.default_rng(1).bytes(packet.size // 3)
    (tmp_path / "damaged.mp4").write_bytes(content)
    with av.open(str(tmp_path / "damaged.mp4")) as container:
        flagged = [frame.is_corrupt for frame in container.decode(video=0)]
    assert (len(flagged), flagged.index(True)) == (24, 10)
    facts = count_video(tmp_path / "damaged.mp4")
    assert (facts.frames, facts.stopped) == (10, "a damaged frame")


def test_variable_rate_frames_keep_their_own_timestamps(tmp_path):  # B03
    pts = [*range(0, 48), *range(48, 96, 3)]
    path = write_video(tmp_path / "vfr.mp4", frames=len(pts), fps=24, pts=pts, time_base=Fraction(1, 24))
    frames = shown(path)
    assert [start for _, start, _ in frames] == [Fraction(tick, 24) for tick in pts]
    assert [number for number, _, _ in frames] == list(range(len(pts)))
    assert [stop for _, _, stop in frames[:-1]] == [start for _, start, _ in frames[1:]]


def test_timestamps_count_from_the_first_frame_shown(tmp_path):
    facts = count_video(write_video(tmp_path / "late.mkv", frames=10, fps=25, start=Fraction(12, 25)))
    assert (facts.first_sec, facts.duration_sec) == (Fraction(12, 25), Fraction(10, 25))


def test_millisecond_timestamps_are_put_back_on_the_rate(tmp_path):
    path = write_video(tmp_path / "fast.mkv", frames=20, fps=48)
    assert [start for _, start, _ in shown(path)] == [Fraction(index, 48) for index in range(20)]


def test_an_overriding_rate_replaces_the_timestamps(tmp_path):
    path = write_video(tmp_path / "clip.mp4", frames=6, fps=25)
    assert shown(path, Fraction(10)) == [(i, Fraction(i, 10), Fraction(i + 1, 10)) for i in range(6)]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_rotation_metadata_is_applied_to_pixels_and_size(tmp_path, degrees, mirrored):  # B04
    stored = np.zeros((32, 64, 3), np.uint8)
    stored[:16, :32] = 255  # the top left quarter is bright
    path = write_video(tmp_path / "phone.mp4", frames=[stored] * 3, rotation=(degrees, mirrored))
    expected = np.rot90(stored, degrees // 90)
    if mirrored:
        expected = expected[:, ::-1]
    with VideoSource(path) as source:
        frame = next(source.frames())
    assert frame.size == (expected.shape[1], expected.shape[0])
    assert np.abs(frame.pixels().astype(int) - expected).mean() < 12
    facts = count_video(path)
    assert (facts.width, facts.height) == frame.size


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_rotation_agrees_with_another_player(tmp_path, degrees):  # B04
    cv2 = pytest.importorskip("cv2")
    stored = np.zeros((32, 64, 3), np.uint8)
    stored[:16, :32] = 255
    path = write_video(tmp_path / "phone.mp4", frames=[stored] * 3, rotation=(degrees, False))
    _, played = cv2.VideoCapture(str(path)).read()
    with VideoSource(path) as source:
        assert np.abs(next(source.frames()).pixels().astype(int) - played).mean() < 3


def test_a_portrait_phone_clip_is_turned_clockwise():  # B04: the matrix every phone writes when held upright
    matrix = np.array([0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30], np.int32)
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[0, 0] = 255
    upright = Orientation.of_matrix(matrix).upright(pixels)
    assert upright.shape == (3, 2, 3)
    assert upright[0, 1].all()


@settings(max_examples=200)
@given(
    index=st.integers(0, 10_000),
    rate=st.fractions(min_value=1, max_value=240, max_denominator=1001),
    milliseconds=st.booleans(),
)
def test_snapping_restores_a_rounded_timestamp_and_never_moves_it_a_tick(index, rate, milliseconds):
    tick = Fraction(1, 1000 if milliseconds else 90_000)
    rounded = round(index / rate / tick) * tick
    assert abs(snapped(rounded, rate, tick) - rounded) < tick
    if 1 / rate > 2 * tick:
        assert snapped(rounded, rate, tick) == index / rate


def test_a_file_without_video_is_refused(tmp_path):
    path = write_sound(tmp_path / "sound.m4a", tone(3200))
    with pytest.raises(ValidationError, match="no video stream"):
        count_video(path)


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\0" * 5000])
def test_a_file_that_is_no_video_is_refused_by_name(tmp_path, content):
    path = tmp_path / "clip.mp4"
    path.write_bytes(content)
    with pytest.raises(ValidationError, match=r"clip\.mp4: ") as caught:
        count_video(path)
    assert caught.value.finding.code is Code.VIDEO_UNREADABLE


def test_counting_holds_a_few_frames_whatever_the_length(tmp_path):
    """Resident memory after many frames of 1.4 MB each is that after a few."""
    frames = [np.full((480, 640, 3), index, np.uint8) for index in range(0, 240, 2)]
    path = write_video(tmp_path / "clip.mp4", frames=frames)
    with VideoSource(path) as source:
        resident = [_resident_bytes() for _ in source.frames()]
    assert resident[-1] - resident[30] < 20e6  # the 90 frames between are 40 MB as decoded


def _resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("b_frames", [0, 3])
def test_frames_that_an_edit_list_cuts_off_are_not_missing(tmp_path, b_frames):
    write_video(tmp_path / "a.mp4", frames=96, options={"bf": str(b_frames)})
    content = bytearray((tmp_path / "a.mp4").read_bytes())
    at = content.index(b"elst") + 12  # version and flags, count, then the first entry's duration in milliseconds
    content[at : at + 4] = (1000).to_bytes(4, "big")
    (tmp_path / "a.mp4").write_bytes(content)
    facts = count_video(tmp_path / "a.mp4")
    assert (facts.frames, facts.missing_sec, facts.ends_early) == (24, 0, False)
