"""A pack made with an earlier one at hand: the same bytes as without, and only what changed is decoded."""

import errno
import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
import soundfile

from muvap_assets.asd import line
from muvap_assets.asd.contract import Clip, Corpus, VisualKind
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.packs import face_writer
from muvap_assets.asd.packs.origins import audio_origin, read_origins
from muvap_assets.asd.packs.reuse import Reuse
from muvap_assets.asd.packs.verify import verify_pack
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.layout import Layout
from muvap_assets.storage import digests
from muvap_assets.storage.digests import file_sha256


class Levels:
    mean, rms, peak = 0.001, 0.1, 0.5


class Tracks:
    """Six tracks of two recordings, half of them JPEG folders, one running past its recording's end."""

    def __init__(self, root: Path) -> None:
        self.root, self.packs = root, 0
        (root / "media").mkdir()
        for name, seed in (("a.wav", 1), ("b.wav", 2)):
            sound = np.random.default_rng(seed).integers(-9000, 9000, 40_000, dtype=np.int16)
            soundfile.write(root / "media" / name, sound, 16_000, subtype="PCM_16")
        self.clips = [self.clip(i) for i in range(6)]

    def clip(self, i: int) -> Clip:
        jpeg = i % 2 == 1
        path = self.root / "media" / (f"faces{i}" if jpeg else f"faces{i}.npy")
        self.write_faces(path, i)
        audio = self.root / "media" / ("a.wav" if i < 3 else "b.wav")
        return Clip(
            row=i + 2,
            dataset="tiny",
            sample_id=f"track {i}",
            audio_path=audio.name,
            visual_path=path.name,
            visual_kind=VisualKind.JPEG_DIRECTORY if jpeg else VisualKind.NPY,
            source_fps=FrameRate.parse("25"),
            labels=(np.arange(20 + i) % 2).astype(np.uint8),
            start_sec=Fraction(2) if i == 5 else Fraction(i, 4),
            audio_sample_rate=None,
            recording_id=file_sha256(audio)[:16],
            recording_samples=40_000,
            face_height=112,
            face_width=112,
        )

    def write_faces(self, path: Path, seed: int, frames: int | None = None) -> None:
        pixels = np.random.default_rng(seed).integers(0, 255, (frames or 20 + seed, 112, 112), dtype=np.uint8)
        if path.suffix:
            np.save(path, pixels)
            return
        path.mkdir(exist_ok=True)
        for number, face in enumerate(pixels):
            (path / f"{number:03d}.jpg").write_bytes(cv2.imencode(".jpg", face)[1].tobytes())

    def pack(self, earlier: Path | None = None, shard_bytes: int = 1_000_000) -> tuple[Path, Reuse]:
        folder = self.root / f"pack{self.packs}"
        self.packs += 1
        folder.mkdir()
        reuse = Reuse.of(earlier, earlier and earlier.with_suffix(".json"))
        loudness = {clip.recording_id: Levels() for clip in self.clips}
        media = self.root / "media"
        write_pack(folder, self.clips, media, loudness, inputs={}, shard_bytes=shard_bytes, workers=2, reuse=reuse)
        reuse.save(folder.with_suffix(".json"))
        return folder, reuse

    def repacked(self, earlier: Path, **options) -> Reuse:
        """Pack with an earlier pack at hand, and hold the result to one without."""
        full, _ = self.pack(**options)
        again, reuse = self.pack(earlier, **options)
        assert tree(again) == tree(full)
        assert read_origins(again.with_suffix(".json")).keys() == {clip.sample_id for clip in self.clips}
        return reuse

    def settle(self) -> None:
        """Let a while pass since the media were written, as far as a clock that may not be turned allows."""
        digests.SETTLED_SEC = -1.0


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def tracks(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "SETTLED_SEC", 3600.0)
    return Tracks(tmp_path)


@pytest.fixture
def decoded(monkeypatch):
    """The clips whose faces were decoded."""
    seen = []
    real = face_writer.BlockWriter.write
    monkeypatch.setattr(
        face_writer.BlockWriter,
        "write",
        lambda self, block, *place: (seen.append(block.placed.clip.sample_id), real(self, block, *place))[1],
    )
    return seen


def counts(reuse: Reuse) -> tuple[int, int, int, int]:
    report = reuse.report
    return report.faces_copied, report.audio_copied, report.recognized_by_time, report.recognized_by_content


def test_an_unchanged_corpus_is_copied_without_reading_a_face_source(tracks, decoded, monkeypatch):
    tracks.settle()
    earlier, reuse = tracks.pack()
    assert counts(reuse) == (0, 0, 0, 0)
    full = tree(earlier)
    decoded.clear()
    monkeypatch.setattr("muvap_assets.asd.packs.reuse.read_pieces", None)
    again, reuse = tracks.pack(earlier)
    assert (counts(reuse), decoded) == ((6, 6, 6, 0), [])
    assert tree(again) == full


@pytest.mark.parametrize("shard_bytes", [1_000_000, 10_000_000, 1])
def test_a_changed_a_removed_and_an_added_row_cost_their_own_work(tracks, decoded, shard_bytes):
    tracks.settle()
    earlier, _ = tracks.pack()
    tracks.write_faces(tracks.root / "media" / "faces3", 33, frames=23)
    tracks.clips = [*tracks.clips[1:], tracks.clip(6)]
    decoded.clear()
    reuse = tracks.repacked(earlier, shard_bytes=shard_bytes)
    assert counts(reuse) == (4, 5, 4, 0)
    assert set(decoded[-2:]) == {"track 3", "track 6"}


ARRAYS = ("faces.npy", "audio.npy")


def shared(earlier, again):
    """The arrays that are one file in both packs."""
    names = sorted(str(path.relative_to(again)) for path in again.rglob("*.npy"))
    return [name for name in names if (earlier / name).is_file() and (earlier / name).samefile(again / name)]


def test_an_unchanged_pack_shares_its_arrays_with_the_earlier_one_and_labels_are_its_own(tracks):
    tracks.settle()
    earlier, _ = tracks.pack()
    again, reuse = tracks.pack(earlier)
    shards = sorted(path.name for path in again.glob("shard-*"))
    assert len(shards) == 2
    assert shared(earlier, again) == sorted(f"{shard}/{name}" for shard in shards for name in ARRAYS)
    assert counts(reuse) == (6, 6, 6, 0)
    assert all(check.passed for check in verify_pack(again, tracks.clips))


def test_only_the_shard_of_a_changed_track_is_copied_and_nothing_shared_is_written_to(tracks):
    tracks.settle()
    earlier, _ = tracks.pack()
    before = tree(earlier)
    tracks.write_faces(tracks.root / "media" / "faces3", 33, frames=23)
    again, _ = tracks.pack(earlier)
    of = {e["sample_id"]: path.parent.name for path in again.glob("*/index.json") for e in json.loads(path.read_text())}
    kept = {*of.values()} - {of["track 3"]}
    assert shared(earlier, again) == sorted(
        [*(f"{shard}/{name}" for shard in kept for name in ARRAYS), f"{of['track 3']}/audio.npy"]
    )
    assert tree(earlier) == before
    full, _ = tracks.pack()
    assert tree(again) == tree(full)


def test_a_shard_whose_tracks_moved_is_copied(tracks):
    tracks.settle()
    earlier, _ = tracks.pack()
    before = tree(earlier)
    tracks.clips = tracks.clips[1:]
    tracks.repacked(earlier)
    assert shared(earlier, tracks.root / "pack2") == []
    assert tree(earlier) == before


@pytest.mark.parametrize("spoil", ["longer", "shorter", "header", "link"])
def test_a_file_that_is_not_just_the_array_is_not_shared(tracks, spoil):
    tracks.settle()
    earlier, _ = tracks.pack()
    full = tree(earlier)
    reuse = Reuse.of(earlier, earlier.with_suffix(".json"))
    path = earlier / "shard-000000" / "faces.npy"
    content = path.read_bytes()
    if spoil == "link":
        path.rename(tracks.root / "elsewhere.npy")
        path.symlink_to(tracks.root / "elsewhere.npy")
    else:
        changed = {"longer": content + b"x", "shorter": content[:-1], "header": content.replace(b"descr", b"DESCR")}
        path.write_bytes(changed[spoil])
    folder = tracks.root / "again"
    folder.mkdir()
    loudness = {clip.recording_id: Levels() for clip in tracks.clips}
    write_pack(folder, tracks.clips, tracks.root / "media", loudness, inputs={}, shard_bytes=1_000_000, reuse=reuse)
    assert "shard-000000/faces.npy" not in shared(earlier, folder)
    assert not (folder / "shard-000000" / "faces.npy").is_symlink()
    assert tree(folder) == full


def test_where_files_have_but_one_name_the_arrays_are_copied(tracks, monkeypatch):
    def refused(*names, **options):
        raise OSError(errno.EPERM, "Operation not permitted")

    tracks.settle()
    earlier, _ = tracks.pack()
    monkeypatch.setattr("muvap_assets.asd.packs.arrays.os.link", refused)
    again, reuse = tracks.pack(earlier)
    assert shared(earlier, again) == []
    assert counts(reuse) == (6, 6, 6, 0)
    assert tree(again) == tree(earlier)


def test_labels_levels_and_names_are_never_copied(tracks):
    earlier, _ = tracks.pack()
    tracks.clips = [replace(clip, labels=1 - clip.labels, sample_id=f"new {clip.sample_id}") for clip in tracks.clips]
    assert counts(tracks.repacked(earlier)) == (6, 6, 0, 6)


def test_a_moved_start_decodes_the_audio_of_that_clip_alone(tracks):
    earlier, _ = tracks.pack()
    tracks.clips[1] = replace(tracks.clips[1], start_sec=Fraction(1, 3))
    assert counts(tracks.repacked(earlier)) == (6, 5, 0, 6)


def test_p10_touched_or_copied_media_are_recognized_by_their_content(tracks):
    tracks.settle()
    earlier, _ = tracks.pack()
    for path in (tracks.root / "media").rglob("*"):
        os.utime(path)
        if path.suffix == ".npy":
            path.write_bytes(path.read_bytes())
    assert counts(tracks.repacked(earlier)) == (6, 6, 0, 6)


def test_media_copied_with_a_time_in_the_future_are_recognized_without_being_read(tracks):
    for path in (tracks.root / "media").rglob("*"):
        os.utime(path, (4_000_000_000, 4_000_000_000))
    tracks.settle()
    earlier, _ = tracks.pack()
    assert counts(tracks.repacked(earlier)) == (6, 6, 6, 0)


@pytest.mark.parametrize("name", ["faces2.npy", "faces3/007.jpg"])
def test_p10_an_edit_of_the_same_size_and_time_is_seen(tracks, name):
    tracks.settle()
    earlier, _ = tracks.pack()
    path = tracks.root / "media" / name
    data, status = bytearray(path.read_bytes()), path.stat()
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert counts(tracks.repacked(earlier)) == (5, 6, 5, 0)


def test_media_written_a_moment_ago_are_read_again(tracks):
    earlier, _ = tracks.pack()
    assert {track.stamp for track in read_origins(earlier.with_suffix(".json")).values()} == {""}
    assert counts(tracks.repacked(earlier)) == (6, 6, 0, 6)


@pytest.mark.parametrize("name", ["faces.npy", "audio.npy"])
def test_damage_in_the_earlier_pack_fails_the_round_trip_of_a_copy_by_name(tracks, name):
    earlier, _ = tracks.pack(shard_bytes=10_000_000)
    damage(earlier / "shard-000000" / name)
    again, reuse = tracks.pack(earlier, shard_bytes=10_000_000)
    assert counts(reuse) == (6, 6, 0, 6)
    failed = {check.name: check.findings[0].sample_id for check in verify_pack(again, tracks.clips) if not check.passed}
    assert failed["round_trip"] == "track 5"


@pytest.mark.parametrize("name", ["faces.npy", "audio.npy"])
def test_damage_in_the_current_pack_is_never_published_again(corpus, tmp_path, name):
    layout, other = Layout(tmp_path / "data"), Layout(tmp_path / "other")
    settings = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.root / "train.tsv"), dataset="talks")

    def run(layout):
        corpus.write()
        for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
            outcome = make(layout, settings)
        return outcome.published

    corpus.row("one")
    damage(run(layout).path / "shard-000000" / name)
    corpus.row("two")
    healed = run(layout)
    assert healed.version == run(other).version
    artifact = layout.asd_packed_shards("talks")
    assert json.loads((artifact.reports / "reuse.json").read_text())["faces_copied"] == 0
    assert all(check.passed for check in verify_pack(healed.path))


def damage(path: Path) -> None:
    """Flip a bit of the last track: in its faces, or in its audio's end."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_shard_that_went_away_or_was_cut_short_is_decoded(tracks):
    earlier, _ = tracks.pack()
    reuse = Reuse.of(earlier, earlier.with_suffix(".json"))
    (earlier / "shard-000001" / "faces.npy").unlink()
    os.truncate(earlier / "shard-000000" / "audio.npy", 200)
    full, _ = tracks.pack()
    folder = tracks.root / "again"
    folder.mkdir()
    loudness = {clip.recording_id: Levels() for clip in tracks.clips}
    write_pack(folder, tracks.clips, tracks.root / "media", loudness, inputs={}, shard_bytes=1_000_000, reuse=reuse)
    assert tree(folder) == tree(full)
    assert 0 < reuse.report.faces_copied < 6
    # A pack that is seen to be damaged when it is opened is not copied from at all.
    assert Reuse.of(earlier, earlier.with_suffix(".json")).earlier is None


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"schema": 1, "made_by": "other decoders", "tracks": {}}'])
def test_without_a_usable_record_everything_is_decoded(tracks, text):
    earlier, _ = tracks.pack()
    record = earlier.with_suffix(".json")
    record.unlink() if text is None else record.write_text(text)
    assert counts(tracks.repacked(earlier)) == (0, 0, 0, 0)


def test_what_decides_the_bytes_of_audio_is_in_its_origin(tracks):
    clip = tracks.clips[0]
    others = [
        replace(clip, **change)
        for change in (
            {"recording_id": "0" * 16},
            {"audio_sample_rate": 8000},
            {"start_sec": Fraction(1, 16_000)},
            {"labels": clip.labels[1:]},
            {"recording_samples": 39_999},
        )
    ]
    assert len({audio_origin(other) for other in (clip, *others)}) == 6
    assert audio_origin(replace(clip, sample_id="other", row=99, license="x")) == audio_origin(clip)


def test_the_line_copies_from_the_current_pack_and_says_so(corpus, tmp_path):
    layout = Layout(tmp_path / "data")
    settings = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.root / "train.tsv"), dataset="talks")
    artifact = layout.asd_packed_shards("talks")

    def run():
        corpus.write()
        for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
            outcome = make(layout, settings)
        return outcome.published.version, json.loads((artifact.reports / "reuse.json").read_text())

    for name in ("one", "two", "three"):
        corpus.row(name)
    assert run()[1]["faces_copied"] == 0
    corpus.rows[0]["labels"] = str([0] * 25)
    version, report = run()
    assert (report["tracks"], report["faces_copied"], report["audio_copied"]) == (3, 3, 3)
    assert layout.pack_tracks("talks", version).is_file()
    other = Layout(tmp_path / "other")
    for make in (line.make_manifest, line.make_loudness_index, line.make_packed_shards):
        outcome = make(other, settings)
    assert outcome.published.version == version
