"""The media that ``docs/ref2va.md`` says are read, written and read back with the installed decoders."""

import re

import av
import pytest
from media_makers import number_of, raw_row, tone, write_rows, write_sound, write_video
from pages import code, read_page, tables

from muvap_assets.findings import errors_of
from muvap_assets.media import images
from muvap_assets.media.soundtrack import count_sound
from muvap_assets.media.video import VideoSource
from muvap_assets.ref2va.contract import DatasetOptions
from muvap_assets.ref2va.manifest import validate_manifest
from muvap_assets.ref2va.media_facts import MediaFacts

PAGE, HEADING = "docs/ref2va.md", "Files that are read"
FILES, REFUSED = tables(PAGE, HEADING)
ENCODERS = {"h264": "libx264", "hevc": "libx265", "av1": "libsvtav1", "vp9": "libvpx-vp9", "vp8": "libvpx"}
ENCODERS |= {"opus": "libopus", "mp3": "libmp3lame"}
VIDEOS, SOUNDS = (
    [(code(row[0]), codec) for row in FILES[1:] for codec in re.findall(r"`(\w+)`", row[column])] for column in (1, 2)
)


def codec_of(path, kind):
    with av.open(str(path)) as container:
        return getattr(container.streams, kind)[0].codec.canonical_name


@pytest.mark.parametrize(("suffix", "codec"), VIDEOS)
def test_every_frame_of_a_listed_video_is_read(tmp_path, suffix, codec):
    path = write_video(tmp_path / f"clip{suffix}", frames=12, codec=ENCODERS.get(codec, codec))
    assert codec_of(path, "video") == codec
    with VideoSource(path) as source:
        assert [number_of(frame.pixels()) for frame in source.frames()] == list(range(12))


@pytest.mark.parametrize(("suffix", "codec"), SOUNDS)
def test_every_sample_of_a_listed_sound_is_read(tmp_path, suffix, codec):
    path = write_sound(tmp_path / f"voice{suffix}", tone(24_000, rate=48_000), 48_000, ENCODERS.get(codec, codec))
    assert codec_of(path, "audio") == codec
    padded = 0 if codec.startswith("pcm") or codec in ("flac", "alac") else 2048  # lossy codecs fill their last frame
    assert 24_000 <= count_sound(path).samples <= 24_000 + padded


def test_the_kinds_of_pictures_are_those_of_the_code():
    (listed,) = re.findall(r"Pictures are ([\w, ]+), of one frame", read_page(PAGE))
    assert tuple(re.split(", | OR ", listed.upper())) == images.FORMATS


IMAGE = {"type": "image", "image": "picture.ppm"}
TARGETS = {"text.mp4": "video_unreadable", "voice.mov": "video_unreadable", "coded.mp4": "video_unreadable"}
TARGETS |= {"mute.mp4": "target_audio_missing"}
AUDIOS = {"text.mp4": "audio_unreadable", "text.wav": "audio_unreadable", "mute.mp4": "audio_missing"}
AUDIOS |= {"coded.mov": "audio_empty"}


def test_what_cannot_be_decoded_refuses_its_row_with_the_code_of_the_table(tmp_path):
    write_video(tmp_path / "target.mov", frames=22, sound=tone(30_000))
    write_video(tmp_path / "mute.mp4", frames=22)
    write_sound(tmp_path / "voice.mov", tone(30_000), codec="pcm_s16le")
    for source, name, tag in (("mute.mp4", "coded.mp4", b"avc1"), ("voice.mov", "coded.mov", b"sowt")):
        (tmp_path / name).write_bytes((tmp_path / source).read_bytes().replace(tag, b"zzzz"))
    for name in ("text.mp4", "text.wav", "picture.eps"):
        (tmp_path / name).write_text("%!PS")
    (tmp_path / "picture.ppm").write_bytes(b"P6 64 64 255\n" + bytes(64 * 64 * 3))
    target = {"video": "target.mov"}
    rows = [raw_row(f"target {name}", target={"video": name}, references=[IMAGE]) for name in TARGETS]
    rows += [
        raw_row(f"audio {name}", target=target, references=[IMAGE, {"type": "audio", "audio": name}]) for name in AUDIOS
    ]
    rows += [raw_row("picture", target=target, references=[{"type": "image", "image": "picture.eps"}])]
    manifest = write_rows(tmp_path / "rows.jsonl", rows)
    options = DatasetOptions(width=128, height=64, num_frames=22)
    report = validate_manifest(manifest, options, facts=MediaFacts(), planner=None)
    found = {finding.sample_id: str(finding.code) for finding in errors_of(report.findings)}
    assert found == {
        **{f"target {name}": name_of for name, name_of in TARGETS.items()},
        **{f"audio {name}": name_of for name, name_of in AUDIOS.items()},
        "picture": "image_unreadable",
    }
    assert set(found.values()) == {code(row[1]) for row in REFUSED[1:]}
    assert not report.admitted
