"""Rebuilds by a real daemon: acceptance 1 of the operations step."""

import datetime
import json
import time

import dagster as dg
import pytest
from dagster_processes import process, until, versions, write_instance

from muvap_assets.defs import asd

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

    def evaluated(self):
        """Whether the automation sensor has had its first tick."""
        return "Finished auto-materialization tick for automation in" in self.log.read_text()

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
    """Both corpora, made by the command before any daemon runs."""
    select = " or ".join(f'key:"{key.to_user_string()}"' for key in LINE)
    for name in ("one", "two"):
        command = ["dagster", "asset", "materialize", "--select", select, "--partition", name]
        with process([*command, "-f", str(site.path / "location.py")], site.log, **site.environment) as made:
            assert made.wait(120) == 0


def observed(instance):
    """Sources seen, so that a first start does not take them for changed."""
    from muvap_assets.definitions import build_defs

    job = build_defs().resolve_implicit_global_asset_job_def()
    for name in ("one", "two"):
        assert job.execute_in_process(asset_selection=[asd.SOURCE], partition_key=name, instance=instance).success


def added(before, manifest, loudness, packs):
    return (before[0] + manifest, before[1] + loudness, before[2] + packs)


def test_a_daemon_rebuilds_what_changed_and_nothing_else(site, monkeypatch):
    for name, value in site.environment.items():
        monkeypatch.setenv(name, value)
    materialized(site)
    with dg.DagsterInstance.from_config(str(site.home)) as instance:
        observed(instance)
        with site.daemon():
            until(site.evaluated, 120, "the first evaluation")
            start = site.counts(instance)
            assert start == {"one": (1, 1, 1), "two": (1, 1, 1)}

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
