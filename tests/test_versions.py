"""Versions: listed in the order they became current, compared row by row, and gone back to."""

import json
import os
import re
import shutil

import pytest
from click.testing import CliRunner
from version_roots import publish_text

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.asd.manifest_files import read_manifest, read_notes
from muvap_assets.cli.main import main
from muvap_assets.errors import ConfigError, FormatError, PublishError
from muvap_assets.journal import events
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version
from muvap_assets.version_diff import diff_versions
from muvap_assets.versions import artifacts, previous_version, roll_back, standing_versions


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "root")


@pytest.fixture
def artifact(layout):
    return layout.artifact("asd", "thing", "part")


def listed(artifact):
    return [version.version for version in standing_versions(artifact)]


def test_versions_are_listed_in_the_order_they_became_current(artifact):
    first, second, third = (publish_text(artifact, content) for content in "abc")
    assert listed(artifact) == [third, second, first]
    assert publish_text(artifact, "a") == first
    assert listed(artifact) == [first, third, second]
    assert [version.is_current for version in standing_versions(artifact)] == [True, False, False]
    assert [event.version for event in events(artifact)] == [first, second, third, first]


def test_the_version_before_is_the_one_that_was_current_last_and_still_stands(artifact):
    first, second = publish_text(artifact, "a"), publish_text(artifact, "b")
    assert previous_version(artifact) == first
    publish_text(artifact, "b")
    assert previous_version(artifact) == first
    roll_back(artifact, first)
    assert previous_version(artifact) == second
    shutil.rmtree(artifact.version(second))
    assert previous_version(artifact) is None


@pytest.mark.parametrize("at_sec", ["1e300", "-1e300", "1e17", "Infinity", "NaN"])
def test_a_time_that_no_calendar_has_is_listed_as_unknown(artifact, layout, at_sec):
    version = publish_text(artifact, "a")
    artifact.journal.write_text(f'{{"version": "{version}", "at_sec": {at_sec}}}\n')
    arguments = ["versions", "asd/thing", "part", "--data-root", str(layout.root)]
    assert re.search(rf"^{version}  current  unknown +1$", CliRunner().invoke(main, arguments).output, re.MULTILINE)


def test_publishing_what_is_current_writes_nothing_down(artifact):
    publish_text(artifact, "a")
    publish_text(artifact, "a")
    assert len(events(artifact)) == 1


@pytest.mark.parametrize("how", ["publish", "roll back"])
def test_a_move_that_was_not_written_down_is_told_and_written_when_it_is_repeated(artifact, monkeypatch, how):
    first, second = publish_text(artifact, "a"), publish_text(artifact, "b")
    roll_back(artifact, first)

    def move():
        return publish_text(artifact, "b") if how == "publish" else roll_back(artifact, second)

    with monkeypatch.context() as patch:
        patch.setattr("muvap_assets.journal.os.write", lambda descriptor, line: 0)
        with pytest.raises(PublishError, match=f"version {second} is current, but .*No space left on device"):
            move()
    assert current_version(artifact) == second
    move()
    assert [event.version for event in events(artifact)] == [first, second, first, second]
    assert previous_version(artifact) == first


def test_a_line_that_a_full_disk_cut_short_is_an_error(artifact, monkeypatch):
    write = os.write
    monkeypatch.setattr("muvap_assets.journal.os.write", lambda descriptor, line: write(descriptor, line[:9]))
    with pytest.raises(PublishError, match="No space left on device"):
        publish_text(artifact, "a")
    monkeypatch.undo()
    version = publish_text(artifact, "a")
    assert [event.version for event in events(artifact)] == [version]


def test_a_lost_or_torn_journal_leaves_the_folders_times(artifact):
    versions = [publish_text(artifact, content) for content in "abc"]
    artifact.journal.write_text('{"version": "' + versions[0])
    for age, version in enumerate(versions):
        os.utime(artifact.version(version), (1000 + age, 1000 + age))
    assert listed(artifact) == versions[::-1]
    newest = publish_text(artifact, "d")
    assert [event.version for event in events(artifact)] == [newest]
    assert all(v.left_sec is not None for v in standing_versions(artifact) if not v.is_current)


def test_rolling_back_moves_current_and_publishing_again_moves_it_forward(artifact):
    first, second = publish_text(artifact, "a"), publish_text(artifact, "b")
    assert roll_back(artifact, first[:6]) == second
    assert current_version(artifact) == first
    assert listed(artifact) == [first, second]
    assert publish_text(artifact, "b") == current_version(artifact) == second
    assert list(artifact.staging.iterdir()) == []


def test_a_version_that_is_not_whole_is_refused_and_current_stays(artifact):
    first, second = publish_text(artifact, "a"), publish_text(artifact, "b")
    (artifact.version(first) / "file.txt").write_text("damaged")
    with pytest.raises(
        FormatError, match=f"version {first}: its files are those of version .*; required: what was published, whole"
    ):
        roll_back(artifact, first)
    (artifact.version(first) / "file.txt").unlink()
    with pytest.raises(FormatError, match="its files are those of version nothing"):
        roll_back(artifact, first)
    assert current_version(artifact) == second


def test_a_version_that_does_not_stand_is_refused_with_those_that_do(artifact):
    first = publish_text(artifact, "a")
    with pytest.raises(ConfigError, match=f"0 versions begin with 'ffff'; required: one of .*{first}"):
        roll_back(artifact, "ffff")


@pytest.fixture
def two_versions(corpus, layout):
    """A corpus published twice: one row gone, one added, one relabelled, two as they were."""

    def row(name):  # all recordings hold the same noise
        corpus.row(name, audio_path=corpus.wav(f"{name}.wav", corpus.noise("all")))

    for name in ("gone", "kept", "relabelled", "same"):
        row(name)
    settings = Corpus(name="talks", source=TsvCorpus(kind="tsv", manifest=corpus.write()), dataset="talks")
    makers = (line.make_manifest, line.make_loudness_index, line.make_packed_shards)
    before = [make(layout, settings).published.path for make in makers]
    corpus.rows = [row for row in corpus.rows if row["sample_id"] != "gone"]
    corpus.rows[1]["labels"] = str([1] * 25)
    row("new")
    corpus.write()
    after = [make(layout, settings).published.path for make in makers]
    return list(zip(before, after, strict=True))


def test_a_diff_says_which_rows_came_went_and_changed(two_versions):
    manifest, loudness, pack = two_versions
    found = diff_versions(*manifest)
    assert (found.added, found.removed, found.unchanged) == (("new",), ("gone",), 2)
    assert [change.text() for change in found.changed["relabelled"]] == ["labels: 15 of 25 differ"]
    found = diff_versions(*pack)
    assert (found.added, found.removed, found.unchanged) == (("new",), ("gone",), 2)
    assert {change.field for change in found.changed["relabelled"]} == {"speaking_ratio", "labels_crc32"}
    # There is one recording, named by the first file that has it.
    [[change]] = diff_versions(*loudness).changed.values()
    assert change.text() == "audio_path: gone.wav -> kept.wav"


def test_p11_a_version_that_lost_a_shard_is_listed_refused_and_named_by_verify(two_versions, layout):
    before, after = two_versions[2]
    (before / "shard-000000" / "faces.npy").unlink()
    artifact = layout.asd_packed_shards("talks")
    assert listed(artifact) == [after.name, before.name]
    with pytest.raises(FormatError, match=f"version {before.name}: .*required: what was published, whole"):
        roll_back(artifact, before.name)
    verified = CliRunner().invoke(main, ["verify", str(before)])
    assert verified.exit_code == 1
    assert "shard-000000/faces.npy: missing" in verified.output


def test_two_kinds_or_no_version_at_all_cannot_be_compared(two_versions, tmp_path):
    with pytest.raises(
        ConfigError, match=r"is asd/manifest and .* is asd/packed_shards; required: two versions of one"
    ):
        diff_versions(two_versions[0][0], two_versions[2][0])
    with pytest.raises(ConfigError, match="no version of an artifact"):
        diff_versions(tmp_path, tmp_path)


def test_the_commands_list_compare_and_go_back(two_versions, layout):
    def muvap(*arguments, code=0):
        result = CliRunner().invoke(main, [*arguments, "--data-root", str(layout.root)])
        assert result.exit_code == code, result.output
        return result.output

    (before, after), *_ = two_versions
    listing = json.loads(muvap("versions", "asd/manifest", "talks", "--json"))
    assert [version["version"] for version in listing] == [after.name, before.name]
    assert f"{after.name}  current" in muvap("versions", "asd/manifest", "talks")
    output = muvap("diff", str(before), "asd/manifest/talks")
    assert "+ new\n- gone\n~ relabelled: labels: 15 of 25 differ\n1 added, 1 removed, 1 changed, 2 unchanged" in output
    assert (
        json.loads(muvap("diff", f"asd/manifest/talks@{after.name[:8]}", "asd/manifest/talks", "--json"))["unchanged"]
        == 4
    )
    assert f"current is version {before.name}, was {after.name}" in muvap(
        "rollback", "asd/manifest", "talks", before.name
    )
    assert "required: one of" in muvap("versions", "asd/manifest", "walks", code=1)
    assert "no version of an artifact" not in muvap("rollback", "asd/manifest", "talks", "zz", code=1)


def test_every_artifact_is_found_and_a_copied_root_keeps_its_order(layout, tmp_path):
    clips = layout.ref2va_encoded_latents("clips", 3)
    versions = [publish_text(clips, content) for content in "ab"]
    shutil.copytree(layout.root, tmp_path / "copy", symlinks=True)
    copied = list(artifacts(Layout(tmp_path / "copy")))
    assert [artifact.label for artifact in copied] == ["ref2va/encoded_latents [003.clips]"]
    assert listed(copied[0]) == versions[::-1]


@pytest.mark.parametrize("line_of", ['{{"version": "{0}", "at_sec": 1{1}}}', '{{"version": "{0}", "at_sec": {2}1{3}}}'])
def test_a_journal_whose_numbers_are_no_times_is_passed_over(artifact, line_of):
    version = publish_text(artifact, "a")
    artifact.journal.write_text(line_of.format(version, "0" * 400, "[" * 100_000, "]" * 100_000) + "\n")
    assert events(artifact) == []
    assert listed(artifact) == [version]


@pytest.mark.parametrize("name", ["manifest.parquet", "provenance.json"])
@pytest.mark.parametrize("content", [b"", b"PAR1", b"{", b"[]", b"\xff\xfe"])
def test_a_damaged_manifest_is_one_error_that_names_it(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=rf"{name}: unreadable .* Materialize or pack it again"):
        read_manifest(tmp_path) if name == "manifest.parquet" else read_notes(tmp_path)
    if name == "manifest.parquet":
        with pytest.raises(FormatError, match="choose another version; a damaged one may be removed"):
            diff_versions(tmp_path, tmp_path)
