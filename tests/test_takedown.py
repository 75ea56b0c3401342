"""Takedown: a recording, a face file or a sample leaves everything that stands, and nothing before it may."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from version_roots import names, purge_killed_at_every_removal

from muvap_assets.asd import line
from muvap_assets.asd.contract import Corpus
from muvap_assets.asd.corpora.tsv import TsvCorpus
from muvap_assets.cli.main import main
from muvap_assets.errors import ConfigError, PublishError, StaleInputError
from muvap_assets.layout import Layout
from muvap_assets.publish import current_version, staged
from muvap_assets.ref2va.row_retention import in_use
from muvap_assets.sources import OutOfTime, corpus_source, fingerprint
from muvap_assets.storage.digests import file_sha256
from muvap_assets.storage.locks import tried
from muvap_assets.takedown import Takedown, purge

KEPT, GONE = "clip_kept", "clip_to_go"
MAKERS = (line.make_manifest, line.make_loudness_index, line.make_packed_shards)


class Platform:
    def __init__(self, corpus, root):
        self.corpus, self.layout = corpus, Layout(root)
        pair = np.random.default_rng(1).normal(0, 0.05, (16_001, 2))
        for name, samples, channel in (
            (KEPT, 16_000, ""),
            (GONE, pair, 1),
        ):  # the id of GONE's recording names a channel
            audio = corpus.wav(f"{name}.wav", samples)
            corpus.row(name, audio_path=audio, visual_path=corpus.faces(f"{name}.npy"), audio_channel=channel)
        faces = corpus.root / f"{GONE}.npy"
        faces.write_bytes(faces.read_bytes()[:-1] + b"\x99")
        self.recording = file_sha256(corpus.root / f"{GONE}.wav")
        self.faces = file_sha256(faces)
        self.run()

    @property
    def settings(self):
        source = TsvCorpus(kind="tsv", manifest=self.corpus.root / "train.tsv")
        return Corpus(name="talks", source=source, dataset="talks")

    def run(self):
        self.corpus.write()
        for make in MAKERS:
            assert make(self.layout, self.settings).published

    def leave_the_manifest(self):
        self.corpus.rows = [row for row in self.corpus.rows if row["sample_id"] != GONE]
        self.run()

    def artifacts(self):
        return [
            getattr(self.layout, f"asd_{name}")("talks") for name in ("manifest", "loudness_index", "packed_shards")
        ]

    def traces(self):
        """Files below the data root that hold any of it, the way a stranger would look: by searching all bytes."""
        needles = [GONE.encode(), self.recording[:16].encode(), self.faces.encode()]
        files = [path for path in self.layout.root.rglob("*") if path.is_file()]
        return [path for path in files if any(needle in path.read_bytes() for needle in needles)]


@pytest.fixture
def platform(corpus, tmp_path):
    return Platform(corpus, tmp_path / "root")


def named_by(platform, kind):
    return {
        "recording": Takedown(recordings=frozenset({platform.recording[:16]})),
        "audio": Takedown(media=frozenset({platform.recording})),
        "faces": Takedown(media=frozenset({platform.faces})),
        "sample": Takedown(samples=frozenset({GONE})),
    }[kind]


@pytest.mark.parametrize("kind", ["recording", "audio", "faces", "sample"])
def test_what_was_taken_out_of_the_manifest_is_purged_from_everything_that_stands(platform, kind):
    platform.leave_the_manifest()
    assert platform.traces()
    report = purge(platform.layout, named_by(platform, kind))
    assert GONE in report.samples
    if kind in ("faces", "sample"):
        # The recording is somebody else's as well, as far as a face file can tell; its levels name no sample.
        purge(platform.layout, named_by(platform, "recording"))
    assert platform.traces() == []
    for artifact in platform.artifacts():
        assert names(artifact.folder) == {current_version(artifact), "current"}
    platform.run()
    assert platform.traces() == []


@pytest.mark.parametrize("kind", ["recording", "audio", "faces", "sample"])
def test_the_same_command_removes_the_rest_wherever_it_was_killed(platform, kind, monkeypatch):
    platform.leave_the_manifest()
    assert purge_killed_at_every_removal(monkeypatch, platform.layout, named_by(platform, kind)) > 1
    purge(platform.layout, named_by(platform, "recording"))
    assert platform.traces() == []
    for artifact in platform.artifacts():
        assert names(artifact.folder) == {current_version(artifact), "current"}


def test_parts_of_an_encode_that_is_not_over_stay_where_ref2va_holds_nothing_of_it(platform):
    part = platform.layout.row_store / "parts/text/ab/abcd.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"hours of work")
    platform.leave_the_manifest()
    purge(platform.layout, named_by(platform, "sample"))
    assert part.is_file()


def test_before_everything_current_is_made_without_it_nothing_is_removed(platform):
    before = platform.traces()
    with pytest.raises(StaleInputError) as found:
        purge(platform.layout, named_by(platform, "recording"))
    lines = str(found.value).splitlines()
    assert "Take the rows out of the source manifest" in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:4]] == [
        "asd/manifest [talks]",
        "asd/loudness_index [talks]",
        "asd/packed_shards [talks]",
    ]
    assert GONE in lines[1]
    assert platform.traces() == before


def test_a_partition_that_is_no_longer_configured_is_retired_as_the_refusal_says(platform):
    with pytest.raises(StaleInputError, match=r"no longer in datasets\.yaml .* removing its `current` links") as found:
        purge(platform.layout, named_by(platform, "recording"))
    links = [Path(line.strip()) for line in str(found.value).splitlines() if line.endswith("/current")]
    assert links == [artifact.current for artifact in platform.artifacts()]
    for link in links:
        link.unlink()
    purge(platform.layout, named_by(platform, "recording"))
    assert platform.traces() == []


def test_while_a_run_is_in_progress_nothing_is_removed(platform):
    platform.leave_the_manifest()
    before = platform.traces()
    for running in (staged(platform.artifacts()[0]), in_use(platform.layout.row_store)):
        with running, pytest.raises(PublishError, match=r"a run is in progress .* Nothing was removed"):
            purge(platform.layout, named_by(platform, "recording"))
        assert platform.traces() == before


def test_a_dry_run_names_it_and_leaves_it(platform):
    platform.leave_the_manifest()
    before = platform.traces()
    dry = purge(platform.layout, named_by(platform, "recording"), dry_run=True)
    assert platform.traces() == before
    assert {removal.name for removal in dry.removed} == {
        removal.name for removal in purge(platform.layout, named_by(platform, "recording")).removed
    }


def test_nothing_named_is_refused(platform):
    with pytest.raises(ConfigError, match="purge: nothing named"):
        purge(platform.layout, Takedown())


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"media": [""]}, "media '': 0 characters; required: the 64 hexadecimal"),
        ({"media": ["a"]}, "media 'a': 1 characters"),
        ({"media": ["sha256:" + "0" * 64]}, "media 'sha256:0+': 71 characters"),
        ({"media": ["0" * 32]}, "media '0+': 32 characters"),
        ({"media": ["g" * 64]}, "media 'g+': 64 characters"),
        ({"recordings": [""]}, "recordings '': 0 characters; required: the first 16 hexadecimal"),
        ({"recordings": ["0" * 64]}, "recordings '0+': 64 characters"),
        ({"samples": [GONE, " "]}, "samples: an empty name"),
    ],
)
def test_what_cannot_be_a_digest_or_a_name_is_refused(named, message):
    with pytest.raises(ConfigError, match=f"purge: {message}"):
        Takedown(**{name: frozenset(values) for name, values in named.items()})


def test_digests_are_taken_with_blanks_around_and_in_capitals():
    assert Takedown(media=frozenset({f" {'AB' * 32}\n"})) == Takedown(media=frozenset({"ab" * 32}))
    assert Takedown(recordings=frozenset({" 00AA11BB22CC33DD"})).recording_ids == {"00aa11bb22cc33dd"}


def test_license_and_consent_are_in_the_manifest_that_a_takedown_is_decided_by(platform):
    for row in platform.corpus.rows:
        row.update(license="CC-BY-4.0", consent="withdrawn" if row["sample_id"] == GONE else "given")
    platform.run()
    arguments = ["diff", "asd/manifest/talks", "asd/manifest/talks", "--json", "--data-root", str(platform.layout.root)]
    assert json.loads(CliRunner().invoke(main, arguments).output)["unchanged"] == 2
    text = (platform.artifacts()[0].current / "manifest.tsv").read_text()
    assert "\tlicense\tconsent\n" in text
    assert "\tCC-BY-4.0\twithdrawn\n" in text


def test_the_command_says_what_it_removed_or_what_is_missing(platform):
    def muvap(*arguments):
        return CliRunner().invoke(main, ["purge", *arguments, "--data-root", str(platform.layout.root)])

    refused = muvap("--recording", platform.recording[:16])
    assert refused.exit_code == 1
    assert "what is current still holds it" in refused.output
    mistyped = muvap("--media", "")
    assert (mistyped.exit_code, "error: purge: media ''" in mistyped.output) == (1, True)
    unknown = muvap("--sample", f"{GONE}x", "--dry-run")
    assert unknown.exit_code == 0
    assert f"nothing that was named was found below {platform.layout.root}" in unknown.output
    platform.leave_the_manifest()
    done = muvap("--recording", platform.recording[:16], "--sample", GONE)
    assert done.exit_code == 0, done.output
    assert "version: asd/packed_shards [talks] " in done.output
    assert "nothing that was named" not in done.output
    assert platform.traces() == []


@pytest.mark.parametrize("trials", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_purge_that_comes_through_leaves_nothing_current_that_holds_the_sample_whoever_publishes_meanwhile(
    corpus, trials
):
    for number, name in enumerate((KEPT, GONE)):
        corpus.row(name, visual_path=corpus.faces(f"{name}.npy", first=number))
    corpus.write("with.tsv")
    corpus.rows.pop()
    corpus.write("without.tsv")
    driver = Path(__file__).with_name("purge_races.py")
    command = [sys.executable, str(driver), str(corpus.root), GONE, str(trials), "14"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    counts = json.loads(ended.stdout)
    assert counts.pop("wrong") == []
    assert sum(counts.values()) == counts["came through"] + counts.get("refused", 0) == trials


def test_what_begins_while_a_purge_is_under_way_waits_for_it_and_says_so(platform, caplog):
    with ThreadPoolExecutor(1) as pool, tried(platform.layout.in_use) as alone:
        assert alone
        run = pool.submit(platform.run)
        while not caplog.messages:
            assert not wait([run], timeout=0.01).done
        assert caplog.messages == [f"{platform.layout.root}: waits for a purge of this data root to end"]
        with pytest.raises(OutOfTime):
            fingerprint(corpus_source(platform.settings, {}), platform.layout)
    run.result()
