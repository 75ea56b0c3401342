"""Rebuilds by a real daemon: acceptance 1 of the operations step."""

import datetime
import json
import time

import dagster as dg
import pytest
from dagster_processes import process, until, versions, write_instance

from muvap_assets.defs import asd, ref2va
from muvap_assets.demo.ref2va import packed_rows, write_demo_datasets
from muvap_assets.layout import Layout
from muvap_assets.ref2va.cache import read_index

pytestmark = pytest.mark.slow
LINE = (asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS)
LOCATION = """
from pathlib import Path
from muvap_assets.defs import asd
asd.LOUDNESS_CODE_VERSION = Path(__file__).with_name("code_version.txt").read_text()
from muvap_assets.definitions import build_defs
defs = build_defs()
"""


class Site:
    """A machine's instance, data and code location."""

    def __init__(self, corpus, tmp_path):
        self.corpus, self.path, self.home = corpus, tmp_path, write_instance(tmp_path / "home")
        self.log = tmp_path / "daemon.log"
        rec = corpus.wav("rec.wav", 80_000)
        for name in ("a", "b"):
            corpus.row(name, audio_path=rec, start_sec="0.5")
        corpus.write("one.tsv")
        corpus.write("two.tsv")
        (tmp_path / "location.py").write_text(LOCATION)
        self.set_code_version("1")
        self.write_datasets()

    def set_code_version(self, version):
        (self.path / "code_version.txt").write_text(version)

    def write_datasets(self, **options):
        entries = {name: {"kind": "tsv", "manifest": str(self.corpus.root / f"{name}.tsv")} for name in ("one", "two")}
        self.datasets = self.path / "datasets.yaml"
        self.datasets.write_text(json.dumps({"corpora": entries, "source_poll_sec": 5, **options}))

    @property
    def environment(self):
        return {
            "DAGSTER_HOME": str(self.home),
            "MUVAP_DATASETS": str(self.path / "datasets.yaml"),
            "MUVAP_DATA_ROOT": str(self.path / "data"),
        }

    def daemon(self):
        return process(["dagster._daemon", "run", "-f", str(self.path / "location.py")], self.log, **self.environment)

    def counts(self, instance):
        return {name: tuple(versions(instance, key, name) for key in LINE) for name in ("one", "two")}

    def settled(self, instance, seconds=35):
        """Wait until no run is in progress and none came for a while: more than one tick of every sensor."""

        def quiet():
            running = instance.get_runs(
                filters=dg.RunsFilter(
                    statuses=[
                        s for s in dg.DagsterRunStatus if s.name in ("QUEUED", "NOT_STARTED", "STARTING", "STARTED")
                    ]
                )
            )
            return not running

        until(quiet, 60, "runs end")
        before = self.counts(instance)
        time.sleep(seconds)
        until(quiet, 60, "runs end")
        return before == self.counts(instance)


@pytest.fixture
def site(corpus, tmp_path):
    return Site(corpus, tmp_path)


def materialized(site):
    """Both corpora are made by the command before any daemon runs."""
    select = " or ".join(f'key:"{key.to_user_string()}"' for key in LINE)
    for name in ("one", "two"):
        command = ["dagster", "asset", "materialize", "--select", select, "--partition", name]
        with process([*command, "-f", str(site.path / "location.py")], site.log, **site.environment) as made:
            assert made.wait(120) == 0


def added(before, manifest, loudness, packs):
    return (before[0] + manifest, before[1] + loudness, before[2] + packs)


def test_a_daemon_rebuilds_what_changed_and_nothing_else(site, monkeypatch):
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    materialized(site)
    with dg.DagsterInstance.from_config(str(site.home)) as instance:
        with site.daemon():
            start = {"one": (2, 2, 2), "two": (2, 2, 2)}  # nobody knows what changed before: all is confirmed once
            until(lambda: site.counts(instance) == start, 120, "the first start confirms what stands")
            assert site.settled(instance)
            assert site.counts(instance) == start

            site.corpus.rows.pop()
            site.corpus.write("one.tsv")
            edited = added(start["one"], 1, 1, 1)
            until(lambda: site.counts(instance)["one"] == edited, 60, "rebuild of the edited corpus")
            assert site.counts(instance)["two"] == start["two"]

            (site.corpus.root / "one.tsv").touch()
            (site.corpus.root / "two.tsv").touch()
            assert site.settled(instance)
            assert site.counts(instance) == {"one": edited, "two": start["two"]}

        site.set_code_version("next")
        with site.daemon():
            recoded = {"one": added(edited, 0, 1, 1), "two": added(start["two"], 0, 1, 1)}
            until(lambda: site.counts(instance) == recoded, 120, "rebuild by new code")
            assert site.settled(instance)
            assert site.counts(instance) == recoded

        tick = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=2)
        site.write_datasets(nightly_cron=f"{tick.minute} {tick.hour} * * *")
        with site.daemon():
            nightly = {name: added(counts, 1, 1, 1) for name, counts in recoded.items()}
            until(lambda: site.counts(instance) == nightly, 240, "nightly rebuild")
            assert site.settled(instance)
            assert site.counts(instance) == nightly


# --- ref2va: the chain crosses from datasets to their parts and back ---

PARTS = ("clips|000", "clips|001", "other|000")


class Ref2vaSite:
    """A machine's instance with two datasets, one of them in two parts."""

    def __init__(self, tmp_path):
        from muvap_assets.ref2va.tiny import write_tiny_checkpoint

        self.path, self.home = tmp_path, write_instance(tmp_path / "home")
        self.log, self.sources = tmp_path / "daemon.log", tmp_path / "sources"
        write_demo_datasets(self.sources)
        self.write_rows("clips", packed_rows())
        self.write_rows("other", packed_rows()[:1])
        size = {"width": 128, "height": 64, "num_frames": 22}
        entries = {
            name: {"manifest": str(self.sources / f"{name}.jsonl"), "parts": parts, **size}
            for name, parts in (("clips", 2), ("other", 1))
        }
        (tmp_path / "datasets.yaml").write_text(json.dumps({"ref2va": entries, "source_poll_sec": 5}))
        self.environment = {
            "DAGSTER_HOME": str(self.home),
            "MUVAP_DATASETS": str(tmp_path / "datasets.yaml"),
            "MUVAP_DATA_ROOT": str(tmp_path / "data"),
            "MUVAP_H3_CHECKPOINT": str(write_tiny_checkpoint(tmp_path / "checkpoint")),
            "MUVAP_H3_DEVICE": "cpu",
        }

    def write_rows(self, name, rows):
        (self.sources / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def counts(self, instance):
        places = [(key, name) for key in (ref2va.MANIFEST, ref2va.CACHE_INDEX) for name in ("clips", "other")]
        places += [(ref2va.ENCODED_LATENTS, part) for part in PARTS]
        return {place: versions(instance, *place) for place in places}

    def row_ids(self):
        """What the published dataset says, read as a trainer does."""
        return {
            row.id for row in read_index(Layout(self.path / "data").ref2va_parquet_cache_index("clips").current).rows
        }


def test_a_daemon_takes_an_edited_ref2va_manifest_through_its_parts_to_the_published_index(tmp_path, monkeypatch):
    site = Ref2vaSite(tmp_path)
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.from_config(str(site.home)) as instance:
        daemon = ["dagster._daemon", "run", "-m", "muvap_assets.definitions"]
        with process(daemon, site.log, **site.environment):
            until(
                lambda: min(site.counts(instance).values()) >= 1,
                300,
                lambda: f"all of it is made: {site.counts(instance)}",
            )
            start = site.counts(instance)
            assert set(start.values()) == {1}
            assert site.row_ids() == {row["id"] for row in packed_rows()}

            site.write_rows("clips", packed_rows()[:-1])
            expected = {(key, name): count + name.startswith("clips") for (key, name), count in start.items()}
            until(
                lambda: site.counts(instance) == expected, 300, lambda: f"the edited dataset: {site.counts(instance)}"
            )
            time.sleep(35)
            assert site.counts(instance) == expected
            assert site.row_ids() == {row["id"] for row in packed_rows()[:-1]}
