"""Tracks whose pictures do not decode: set aside under quarantine, named together without it, found before by a deep look."""

import json

import cv2
import numpy as np
import pytest
from click.testing import CliRunner
from version_roots import names

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.loader import PackedASDDataset
from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.asd.packs.set_aside import read_set_aside
from muvap_assets.asd.packs.verify import verify_pack
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.asd.policy import OnViolation, Policy
from muvap_assets.cli.main import main
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version, read_findings
from muvap_assets.takedown import Takedown, purge

STEPS = (line.make_manifest, line.make_loudness_index, line.make_packed_shards)


class Tracks:
    """A corpus of JPEG tracks of 25 frames, an array among them, any of which a test may damage."""

    def __init__(self, builder, count=4):
        self.builder, self.root = builder, builder.root
        for i in range(count):
            self.add(f"t{i}")
        self.builder.row("array", visual_path=self.builder.faces("array.npy", shape=(112, 112)))
        self.layout = Layout(self.root / "data")

    def add(self, name):
        folder = self.root / name
        folder.mkdir()
        pixels = np.random.default_rng(len(self.builder.rows)).integers(0, 255, (25, 112, 112), dtype=np.uint8)
        for number, face in enumerate(pixels):
            (folder / f"{number:03d}.jpg").write_bytes(cv2.imencode(".jpg", face)[1].tobytes())
        self.builder.row(name, visual_path=name, visual_kind="jpeg_directory")

    def damage(self, name, frame=7):
        """Cut a picture short: nothing of its name, its size class or its first bytes tells. Returns how to undo it."""
        path = self.root / name / f"{frame:03d}.jpg"
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        return lambda: path.write_bytes(whole)

    def corpus(self, share=0.5, on_violation=OnViolation.QUARANTINE, shard_bytes=1_000_000_000):
        policy = Policy(on_violation=on_violation, max_rejected_share=share)
        source = TsvCorpus(kind="tsv", manifest=self.builder.write())
        return Corpus(name="c", source=source, dataset="c", policy=policy, shard_bytes=shard_bytes)

    def publish(self, layout=None, **options):
        """Run the line; the outcome of the pack."""
        corpus = self.corpus(**options)
        return [make(layout or self.layout, corpus) for make in STEPS][-1]

    def clips(self):
        return list(line.validate_corpus(self.corpus()).clips)


class Levels:
    mean, rms, peak = 0.0, 0.1, 0.5


@pytest.fixture
def tracks(corpus):
    return Tracks(corpus)


def pack(tracks, clips, folder, **options):
    folder.mkdir()
    levels = dict.fromkeys({clip.recording_id for clip in clips}, Levels())
    write_pack(folder, clips, tracks.root, levels, inputs={}, **options)
    return folder


def content(folder):
    """Bytes of every file but the header, by its name within the pack."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "dataset.json")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_track_with_one_bad_picture_is_set_aside_and_the_pack_is_that_of_the_others(tracks, tmp_path):
    tracks.damage("t1")
    outcome = tracks.publish()
    published = outcome.published.path
    assert [clip.sample_id for clip in outcome.value] == ["t0", "t2", "t3", "array"]
    (finding,) = read_set_aside(published)
    assert (finding.code, finding.sample_id, finding.row) == (Code.FACES_UNREADABLE, "t1", 3)
    assert "007.jpg: a JPEG without end marker, cut short at" in finding.found
    (check,) = [check for check in outcome.checks if not check.passed]
    assert (check.name, check.blocks, check.numbers["rejected"]) == ("rejected_tracks", False, 1)
    assert finding in read_findings(tracks.layout.asd_packed_shards("c").findings)

    tracks.builder.rows = [row for row in tracks.builder.rows if row["sample_id"] != "t1"]
    others = tracks.publish(Layout(tmp_path / "others")).published.path
    assert content(others) == {name: data for name, data in content(published).items() if name != "violations.jsonl"}


@pytest.mark.parametrize(
    "bad", [["t0"], ["t2"], ["t5"], ["t0", "t1"], ["t1", "t2"], ["t0", "t2", "t3"], ["t1", "t2", "t3", "t4", "t5"]]
)
def test_shards_are_closed_up_wherever_the_bad_tracks_lie(corpus, tmp_path, bad):
    tracks = Tracks(corpus, count=6)  # of 0.3 MB each, two or three a shard
    clips = tracks.clips()
    undo = [tracks.damage(name) for name in bad]
    good = [clip for clip in clips if clip.sample_id not in bad]
    made = pack(tracks, clips, tmp_path / "made", quarantine=True, shard_bytes=1_000_000, workers=2)
    assert [check.name for check in verify_pack(made, clips) if not check.passed] == ["rejected_tracks"]
    for restore in undo:
        restore()
    expected = PackReader(pack(tracks, good, tmp_path / "expected"))
    found = PackReader(made)
    assert [sample.entry.sample_id for sample in found] == [clip.sample_id for clip in good]
    for sample in found:
        other = expected[expected.position_of(sample.entry.sample_id)]
        for name in ("faces", "labels", "audio"):
            np.testing.assert_array_equal(getattr(sample, name), getattr(other, name))
    assert len(list(made.glob("shard-*"))) == found.header.shards
    assert found.header.provenance["rejected"] == len(bad)


def test_without_quarantine_every_bad_track_is_named_and_nothing_is_published(tracks):
    tracks.damage("t0", 3)
    tracks.damage("t0", 4)
    tracks.damage("t2")
    with pytest.raises(ValidationError) as failure:
        tracks.publish(on_violation=OnViolation.FAIL)
    assert [finding.sample_id for finding in failure.value.findings] == ["t0", "t2"]
    assert "003.jpg: a JPEG without end marker" in failure.value.findings[0].found
    assert "(and 1 more frames)" in failure.value.findings[0].found
    assert current_version(tracks.layout.asd_packed_shards("c")) is None


@pytest.mark.parametrize(("share", "passes"), [(0.39, False), (0.4, True)])
def test_rows_that_the_manifest_and_the_pack_set_aside_count_together(tracks, share, passes):
    tracks.builder.rows[0]["labels"] = "[0, 1]"
    tracks.damage("t2")
    if passes:
        assert tracks.publish(share=share).published
        return
    with pytest.raises(ValidationError) as failure:
        tracks.publish(share=share)
    assert [finding.code for finding in failure.value.findings] == ["rejected_share", "faces_unreadable"]
    assert failure.value.findings[0].found == "2 of 5 rows rejected, 40.0%"
    assert read_findings(tracks.layout.asd_packed_shards("c").findings) == list(failure.value.findings)


def test_a_pack_of_bad_tracks_alone_is_refused_with_all_of_them(corpus):
    tracks = Tracks(corpus, count=2)
    tracks.builder.rows.pop()
    tracks.damage("t0")
    tracks.damage("t1")
    with pytest.raises(ValidationError, match="t0") as failure:
        tracks.publish(share=1)
    assert len(failure.value.findings) == 2


def test_media_that_changed_since_the_manifest_fail_the_pack_also_under_quarantine(tracks):
    corpus = tracks.corpus()
    for make in STEPS[:2]:
        make(tracks.layout, corpus)
    tracks.damage("t1")
    (tracks.root / "t2" / "024.jpg").unlink()
    with pytest.raises(ValidationError) as failure:
        line.make_packed_shards(tracks.layout, corpus)
    found = [(finding.sample_id, finding.code) for finding in failure.value.findings]
    assert found == [("t1", "faces_unreadable"), ("t2", "label_count_mismatch")]


@pytest.mark.parametrize("shard_bytes", [1_000_000_000, 1_000_000])
def test_packing_again_gives_the_same_version_and_takes_a_mended_track_in(tracks, tmp_path, shard_bytes):
    mend = tracks.damage("t1")
    first = tracks.publish(shard_bytes=shard_bytes).published
    again = tracks.publish(shard_bytes=shard_bytes).published
    assert (again.version, again.created) == (first.version, False)
    reuse = json.loads((tracks.layout.asd_packed_shards("c").reports / line.REUSE_FILE).read_text())
    assert (reuse["tracks"], reuse["faces_copied"]) == (5, 4)
    mend()
    mended = tracks.publish(shard_bytes=shard_bytes)
    assert all(check.passed for check in mended.checks)
    afresh = tracks.publish(Layout(tmp_path / "afresh"), shard_bytes=shard_bytes)
    assert content(mended.published.path) == content(afresh.published.path)
    tracks.damage("t1")  # and out again, from a pack that holds it
    assert content(tracks.publish(shard_bytes=shard_bytes).published.path) == content(first.path)


def test_what_is_set_aside_is_told_by_inspect_and_verify_and_is_no_sample(tracks):
    tracks.damage("t1")
    folder = tracks.publish().published.path
    told = CliRunner().invoke(main, ["inspect", str(folder), "--json"])
    assert {key: json.loads(told.stdout)[key] for key in ("samples", "rejected")} == {"samples": 4, "rejected": 1}
    verified = CliRunner().invoke(main, ["verify", str(folder)])
    assert verified.exit_code == 0
    assert "rejected_tracks warning (rejected 1)" in verified.stdout
    assert "faces_unreadable: row 3 (t1)" in verified.stdout
    shown = CliRunner().invoke(main, ["show", str(folder), "t1", "-o", str(tracks.root / "t1.html")])
    assert shown.exit_code == 1
    assert "the track was set aside when it was packed: row 3 (t1): visual_path: t1: 007.jpg: a JPEG" in shown.output
    dataset = PackedASDDataset(folder, window=25)
    assert sorted(dataset[i].sample_ids[0] for i in range(len(dataset))) == ["array", "t0", "t2", "t3"]


@pytest.mark.parametrize("damage", ["gone", "emptied", "garbage", "one more", "another", "a folder", "not promised"])
def test_a_list_that_is_not_what_the_pack_was_published_with_fails_its_checks(tracks, tmp_path, damage):
    clips = tracks.clips()
    if damage != "not promised":
        tracks.damage("t1")
    folder = pack(tracks, clips, tmp_path / "pack", quarantine=True)
    path = folder / "violations.jsonl"
    told = path.read_text() if path.exists() else ""
    path.unlink(missing_ok=True)
    another = told.replace('"t1"', '"t0"')
    if damage == "a folder":
        path.mkdir()
    elif damage != "gone":
        path.write_text({"emptied": "", "garbage": "{", "one more": told * 2, "another": another}.get(damage, "{}\n"))
    failed = [check for check in verify_pack(folder) if check.blocks]
    assert "shapes" in {check.name for check in failed}
    assert any("violations.jsonl" in (finding.source or "") for check in failed for finding in check.findings)


def test_a_track_set_aside_leaves_everything_when_it_is_purged(tracks):
    tracks.damage("t1")
    tracks.publish()
    tracks.builder.rows = [row for row in tracks.builder.rows if row["sample_id"] != "t1"]
    tracks.publish()
    purge(tracks.layout, Takedown(samples=frozenset({"t1"})))
    files = [path for path in tracks.layout.root.rglob("*") if path.is_file()]
    assert [path for path in files if b'"t1"' in path.read_bytes()] == []
    pack_folder = tracks.layout.asd_packed_shards("c").folder
    assert names(pack_folder) == {current_version(tracks.layout.asd_packed_shards("c")), "current"}


def test_a_row_that_the_manifest_set_aside_is_purged_from_its_list(tracks):
    tracks.builder.rows[0]["labels"] = "[0, 1]"
    tracks.publish()
    tracks.builder.rows.pop(0)
    tracks.publish()
    report = purge(tracks.layout, Takedown(samples=frozenset({"t0"})))
    assert any("asd/manifest" in removal.name for removal in report.removed)
    assert len(names(tracks.layout.asd_manifest("c").folder)) == 2


# --- before packing -------------------------------------------------------------------------------------------------------


def test_a_deep_look_finds_just_what_packing_would_find(tracks):
    tracks.damage("t0")
    tracks.damage("t3", 24)
    folder = tracks.publish().published.path
    plain, deep = (line.validate_corpus(tracks.corpus(), deep=deep) for deep in (False, True))
    assert len(plain.clips) == 5
    assert [clip.sample_id for clip in deep.clips] == ["t1", "t2", "array"]
    set_aside = [finding.placed(source="train.tsv") for finding in read_set_aside(folder)]
    assert [finding for finding in deep.findings if finding.sample_id in ("t0", "t3")] == set_aside
    assert not line.validate_corpus(tracks.corpus(on_violation=OnViolation.FAIL), deep=True).accepted_as_a_whole


def test_the_command_looks_deep_where_it_is_told_to(tracks, tmp_path):
    tracks.damage("t0")
    manifest = str(tracks.builder.write())
    assert CliRunner().invoke(main, ["validate", manifest]).exit_code == 0
    deep = CliRunner().invoke(main, ["validate", "--deep", manifest])
    assert deep.exit_code == 1
    assert "train.tsv row 2 (t0): visual_path: t0: 007.jpg: a JPEG without end marker" in deep.stdout
    raw = tmp_path / "raw.jsonl"
    raw.write_text("{}\n")
    refused = CliRunner().invoke(main, ["validate", "--deep", str(raw)])
    assert refused.exit_code == 2
    assert "--deep: given for" in refused.output


@pytest.mark.parametrize(
    ("suffix", "kind"), [(".png", " as a PNG does"), (".bmp", " as a BMP does"), (".webp", " as a WebP does"), ("", "")]
)
def test_a_picture_of_another_kind_is_told_by_its_first_bytes_when_the_manifest_is_made(tracks, suffix, kind):
    picture = cv2.imencode(suffix, np.zeros((8, 8), np.uint8))[1].tobytes() if suffix else b"<!DOCTYPE html>"
    for frame in (3, 4):
        (tracks.root / "t2" / f"{frame:03d}.jpg").write_bytes(picture)
    report = line.validate_corpus(tracks.corpus())
    (finding,) = report.findings
    assert (finding.code, finding.sample_id) == (Code.FACES_UNREADABLE, "t2")
    assert f"t2: 003.jpg: no JPEG, it begins with {picture[:8]!r},{kind}".rstrip(",") in finding.found
    assert finding.found.endswith("(and 1 more files)")
    assert [clip.sample_id for clip in report.clips] == ["t0", "t1", "t3", "array"]
