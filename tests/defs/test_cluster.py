"""Two machines' worth of processes on one: PostgreSQL, Redis, a daemon, two workers for GPUs and one for the rest.

Acceptance 2 and 3 of the operations step, with the cluster's instance file as it is shipped.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest
from cluster_services import services
from dagster_processes import ROOT, process, stop, until

from muvap_assets.defs import ref2va
from muvap_assets.demo.ref2va import write_demo_datasets
from muvap_assets.layout import Layout
from muvap_assets.ref2va.publication import LOCATION_DEPENDENT

pytestmark = pytest.mark.slow
TASK = "dagster-celery/task_id"
GPU_TAG = {"dagster-celery/queue": "gpu"}
PARTS = [f"clips|{part:03d}" for part in range(4)]
BACKFILL = """mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) { __typename ... on PythonError { message } }
}"""
LAUNCH = """mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) { __typename ... on PythonError { message } }
}"""
LOCATION = """
import time
from pathlib import Path
import dagster as dg
from muvap_assets.definitions import build_defs


@dg.asset(pool="gpu")
def hangs_once():
    first = Path(__file__).with_name("hung")
    if not first.exists():
        first.touch()
        time.sleep(3600)


def without_sensors(whole):
    # what runs is what the test launches
    return dg.Definitions(
        assets=[*whole.assets, hangs_once],
        asset_checks=whole.asset_checks,
        resources=whole.resources,
        executor=dg.in_process_executor,
    )


defs = without_sensors(build_defs())
"""


class Cluster:
    """Services, daemon and workers."""

    def __init__(self, path, environment, stack):
        self.path, self.environment, self.stack, self.workers = path, environment, stack, {}
        self.start_daemon()
        for name, queue in (("gpu1", "gpu"), ("gpu2", "gpu"), ("cpu1", "cpu")):
            self.start_worker(name, queue)

    def start_daemon(self):
        command = ["dagster._daemon", "run", "-f", str(self.path / "location.py")]
        self.daemon = self.stack.enter_context(process(command, self.path / "daemon.log", **self.environment))

    def start_worker(self, name, queue):
        log = self.path / f"{name}.log"
        before = log.stat().st_size if log.exists() else 0
        command = ["celery", "-A", "muvap_assets.defs.cluster", "worker", "--queues", queue, "--concurrency", "1"]
        command += ["--hostname", f"{name}@test", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
        self.workers[name] = self.stack.enter_context(process(command, log, **self.environment))
        until(lambda: "ready." in log.read_text()[before:], 120, f"worker {name}")

    def backfill(self, key, partitions, tags):
        """What the UI sends when someone launches a backfill."""
        parameters = {
            "assetSelection": [{"path": key.path}],
            "partitionNames": partitions,
            "tags": [{"key": name, "value": value} for name, value in tags.items()],
        }
        self._graphql(BACKFILL, {"params": parameters}, "LaunchBackfillSuccess")

    def launch(self, key):
        """A run without partitions, as the UI launches it."""
        location, repository = "location.py", "__repository__"
        selector = {"repositoryLocationName": location, "repositoryName": repository, "jobName": "__ASSET_JOB"}
        parameters = {"selector": {**selector, "assetSelection": [{"path": key.path}]}, "mode": "default"}
        self._graphql(LAUNCH, {"params": parameters}, "LaunchRunSuccess")

    def _graphql(self, mutation, variables, expected):
        command = [
            str(Path(sys.executable).with_name("dagster-graphql")),
            "-f",
            str(self.path / "location.py"),
            "-t",
            mutation,
        ]
        done = subprocess.run(
            [*command, "-v", json.dumps(variables)],
            env={**os.environ, **self.environment, "PYTHONPATH": str(ROOT)},
            cwd=self.path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout, done.stdout

    def runs_of(self, instance, key):
        return [run for run in instance.get_runs() if key in (run.asset_selection or ())]

    def ended(self, instance, key, count, within):
        """Wait until ``count`` runs of an asset ended; all of them."""

        def all_ended():
            runs = self.runs_of(instance, key)
            return runs if len(runs) >= count and all(run.is_finished for run in runs) else None

        return until(all_ended, within, f"{count} runs of {key.to_user_string()}")

    def worker_of(self, run):
        """The worker that took a run."""
        (name,) = [
            name for name in self.workers if f"[{run.tags[TASK]}] received" in (self.path / f"{name}.log").read_text()
        ]
        return name


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    path = tmp_path_factory.mktemp("cluster")
    write_demo_datasets(path / "sources")
    checkpoint = write_tiny_checkpoint(path / "checkpoint")
    entry = {"manifest": str(path / "sources" / "clips.jsonl"), "width": 128, "height": 64, "num_frames": 22}
    (path / "datasets.yaml").write_text(json.dumps({"ref2va": {"clips": {**entry, "parts": len(PARTS)}}}))
    (path / "location.py").write_text(LOCATION)
    (path / "home").mkdir()
    shutil.copy(ROOT / "deploy" / "cluster" / "dagster.yaml", path / "home" / "dagster.yaml")
    with services() as addresses, ExitStack() as stack:
        environment = {
            **addresses,
            "DAGSTER_HOME": str(path / "home"),
            "MUVAP_DATASETS": str(path / "datasets.yaml"),
            "MUVAP_DATA_ROOT": str(path / "data"),
            "MUVAP_H3_CHECKPOINT": str(checkpoint),
            "MUVAP_H3_DEVICE": "cpu",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            yield Cluster(path, environment, stack)


@pytest.fixture
def instance(cluster):
    with dg.DagsterInstance.get() as opened:
        yield opened


def spans(instance, runs):
    """When each run started and ended."""
    records = [instance.get_run_record_by_id(run.run_id) for run in runs]
    return [(record.start_time, record.end_time) for record in records]


def most_at_once(times):
    return max(sum(start <= moment < end for start, end in times) for moment, _ in times)


def published(root):
    """The version and its files, those apart that hold absolute paths."""
    folder = Layout(root).ref2va_parquet_cache_index("clips").current.resolve()
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    return folder.name, {name: path.read_bytes() for name, path in files.items() if name not in LOCATION_DEPENDENT}


def test_a_backfill_runs_on_both_gpu_workers_and_publishes_what_one_process_does(cluster, instance):
    cluster.backfill(ref2va.MANIFEST, ["clips"], {})
    (manifest,) = cluster.ended(instance, ref2va.MANIFEST, 1, 180)
    assert manifest.status is dg.DagsterRunStatus.SUCCESS
    assert cluster.worker_of(manifest) == "cpu1"

    cluster.backfill(ref2va.ENCODED_LATENTS, PARTS, GPU_TAG)
    encoded = cluster.ended(instance, ref2va.ENCODED_LATENTS, len(PARTS), 300)
    assert {run.status for run in encoded} == {dg.DagsterRunStatus.SUCCESS}
    assert {cluster.worker_of(run) for run in encoded} == {"gpu1", "gpu2"}
    assert most_at_once(spans(instance, encoded)) == 2

    cluster.backfill(ref2va.CACHE_INDEX, ["clips"], {})
    (index,) = cluster.ended(instance, ref2va.CACHE_INDEX, 1, 180)
    assert index.status is dg.DagsterRunStatus.SUCCESS
    assert cluster.worker_of(index) == "cpu1"

    # launched by someone who did not think of the tag, it goes to a GPU all the same
    cluster.backfill(ref2va.ENCODED_LATENTS, PARTS[:1], {})
    latest, *_ = cluster.ended(instance, ref2va.ENCODED_LATENTS, len(PARTS) + 1, 180)
    assert cluster.worker_of(latest).startswith("gpu")

    alone = cluster.path / "alone"
    command = [sys.executable, str(ROOT / "deploy" / "ci" / "materialize.py"), "--dataset", "clips"]
    subprocess.run([*command, "--data-root", str(alone)], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert published(cluster.path / "data") == published(alone)


@pytest.fixture
def hanging(cluster, instance):
    """A run that will not end by itself, and the process it is in."""
    (cluster.path / "hung").unlink(missing_ok=True)
    key = dg.AssetKey(["hangs_once"])
    known = {run.run_id for run in cluster.runs_of(instance, key)}
    cluster.launch(key)
    until((cluster.path / "hung").exists, 120, "the run hangs")
    (run,) = [run for run in cluster.runs_of(instance, key) if run.run_id not in known]
    pid = re.search(r"pid: (\d+)", " ".join(entry.message for entry in instance.all_logs(run.run_id)))
    return run, int(pid[1]), known


def retried(cluster, instance, hanging):
    """The run that was made because the hanging one was found dead."""
    run, _, known = hanging
    runs = [other for other in cluster.runs_of(instance, dg.AssetKey(["hangs_once"])) if other.run_id not in known]
    others = [other for other in runs if other.run_id != run.run_id]
    return others[0] if others and others[0].is_finished else None


def test_a_killed_process_is_noticed_within_30_s_and_its_run_tried_again(cluster, instance, hanging):
    run, pid, _ = hanging
    os.kill(pid, signal.SIGKILL)
    until(lambda: instance.get_run_by_id(run.run_id).is_finished, 30, "the dead process is noticed")
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    again = until(lambda: retried(cluster, instance, hanging), 180, "the run is tried again")
    assert again.status is dg.DagsterRunStatus.SUCCESS


def test_a_dead_worker_is_noticed_after_three_polls_and_its_run_goes_elsewhere(cluster, instance, hanging):
    run, _, _ = hanging
    name = cluster.worker_of(instance.get_run_by_id(run.run_id))
    os.killpg(cluster.workers[name].pid, signal.SIGKILL)
    until(lambda: instance.get_run_by_id(run.run_id).is_finished, 60, "the dead worker is noticed")
    reasons = [entry.message for entry in instance.all_logs(run.run_id)]
    assert any("No live worker had the run in 3 looks" in reason for reason in reasons)
    cluster.start_worker(name, "cpu" if name.startswith("cpu") else "gpu")
    again = until(lambda: retried(cluster, instance, hanging), 180, "the run goes elsewhere")
    assert again.status is dg.DagsterRunStatus.SUCCESS


def test_after_everything_died_the_next_daemon_finds_the_lost_run(cluster, instance, hanging):
    run, _, _ = hanging
    for group in (*cluster.workers.values(), cluster.daemon):
        stop(group, wait_sec=0.1)
    assert not instance.get_run_by_id(run.run_id).is_finished
    cluster.start_daemon()
    for name in cluster.workers:
        cluster.start_worker(name, "cpu" if name.startswith("cpu") else "gpu")
    again = until(lambda: retried(cluster, instance, hanging), 240, "the lost run is found and tried again")
    assert again.status is dg.DagsterRunStatus.SUCCESS
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
