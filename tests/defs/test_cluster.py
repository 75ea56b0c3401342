"""Two machines' worth of processes on one: PostgreSQL, Redis, a daemon, two workers for GPUs and one for the rest.

With the cluster's instance file as it is shipped.
"""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest
from cluster_services import services
from dagster_processes import ROOT, process, until

from muvap_assets.defs import ref2va
from muvap_assets.demo.ref2va import packed_rows, write_demo_datasets
from muvap_assets.layout import Layout
from muvap_assets.ref2va.publication import LOCATION_DEPENDENT
from muvap_assets.versions import standing_versions

pytestmark = pytest.mark.slow
TASK = "dagster-celery/task_id"
GPU_TAG, CPU_TAG = {"dagster-celery/queue": "gpu"}, {"dagster-celery/queue": "cpu"}
TAKES, MANY_TAKES = 16, 40  # so that a part takes longer than Dagster needs to see that there is room for another
PARTS = [f"clips|{part:03d}" for part in range(4)]
MANY_PARTS = [f"many|{part:03d}" for part in range(6)]
BACKFILL = """mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) { __typename ... on PythonError { message } }
}"""
LAUNCH = """mutation ($params: ExecutionParams!) {
  launchPipelineExecution(executionParams: $params) { __typename ... on PythonError { message } }
}"""
SERVICES = ("worker", "broker", "database")
LOAD_PARTS, LOAD_DATASETS = 3, 3  # more than the workers of each queue take at once
LOCATION = """
import os
import time
from pathlib import Path
import dagster as dg
from muvap_assets import publish
from muvap_assets.definitions import build_defs

here = Path(__file__).parent
publishes = publish.publish


def stops_first(*arguments, **options):
    # the point where a test stops tasks: all is made and checked, nothing is published
    while (here / "stop").exists():
        (here / "stopped" / str(os.getpid())).touch()
        time.sleep(0.05)
    return publishes(*arguments, **options)


publish.publish = stops_first


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
        executor=whole.executor,
    )


defs = without_sensors(build_defs())
"""


class Cluster:
    """Services, daemon and workers."""

    def __init__(self, path, environment, database, broker, stack):
        self.path, self.environment, self.stack, self.workers = path, environment, stack, {}
        self.database, self.broker = database, broker
        self.start_daemon()
        for name, queue in (("gpu1", "gpu"), ("gpu2", "gpu"), ("cpu1", "cpu")):
            self.start_worker(name, queue)

    def start_daemon(self):
        command = ["dagster._daemon", "run", "-f", str(self.path / "location.py")]
        unit = (ROOT / "deploy" / "cluster" / "systemd" / "muvap-daemon.service").read_text()
        environment = {**self.environment, **dict(re.findall("^Environment=(.*?)=(.*)$", unit, re.MULTILINE))}
        self.daemon = self.stack.enter_context(process(command, self.path / "daemon.log", **environment))

    def start_worker(self, name, queue):
        log = self.path / f"{name}.log"
        before = log.stat().st_size if log.exists() else 0
        command = ["celery", "-A", "muvap_assets.defs.cluster", "worker", "--queues", queue, "--concurrency", "1"]
        command += ["--hostname", f"{name}@test", "--loglevel", "INFO", "--without-gossip", "--without-mingle"]
        self.workers[name] = self.stack.enter_context(process(command, log, **self.environment))
        until(lambda: "ready." in log.read_text()[before:], 120, f"worker {name}")

    def keep_up(self):
        """Start again what ended by itself, as systemd does."""
        if self.daemon.poll() is not None:
            self.start_daemon()
        for name, worker in list(self.workers.items()):
            if worker.poll() is not None:
                self.start_worker(name, name[:3])

    def misses_the_database(self, worker):
        """Whether a worker has said so."""
        return "database does not answer" in (self.path / f"{worker}.log").read_text()

    def backfill(self, key, partitions, tags):
        """What the UI sends when someone launches a backfill."""
        parameters = {
            "assetSelection": [{"path": key.path}],
            "partitionNames": partitions,
            "tags": [{"key": name, "value": value} for name, value in tags.items()],
        }
        self._graphql(BACKFILL, {"params": parameters}, "LaunchBackfillSuccess")

    def launch(self, key, dimensions, partition, tags=None):
        """One run, as the UI launches it."""
        location, repository = "location.py", "__repository__"
        selector = {"repositoryLocationName": location, "repositoryName": repository, "jobName": "__ASSET_JOB"}
        tags = {**{f"dagster/partition/{name}": value for name, value in dimensions.items()}, **(tags or {})}
        if partition is not None:
            tags["dagster/partition"] = partition
        parameters = {
            "selector": {**selector, "assetSelection": [{"path": key.path}]},
            "mode": "default",
            "executionMetadata": {"tags": [{"key": name, "value": value} for name, value in tags.items()]},
        }
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

    def tails(self):
        """The ends of the processes' logs, for a message."""
        return "\n".join((self.path / f"{name}.log").read_text()[-3000:] for name in ("daemon", *self.workers))

    def worker_of(self, run):
        """The worker that took a run."""
        (name,) = [
            name for name in self.workers if f"[{run.tags[TASK]}] received" in (self.path / f"{name}.log").read_text()
        ]
        return name


def load_of(service):
    """Datasets whose manifests are made on the queue of the others meanwhile."""
    return [f"beside-{service}-{number}" for number in range(LOAD_DATASETS)]


def write_takes(path, takes):
    """The demo's rows many times over, each with a caption of its own: enough of them to be watched, and killed among."""
    rows = [
        {**row, "id": f"{row['id']}-{take:02d}", "caption": f"{row['caption']} Take {take}."}
        for take in range(takes)
        for row in packed_rows()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    path = tmp_path_factory.mktemp("cluster")
    write_demo_datasets(path / "sources")
    checkpoint = write_tiny_checkpoint(path / "checkpoint")
    size = {"width": 128, "height": 64, "num_frames": 22}
    datasets = {
        name: {"manifest": write_takes(path / "sources" / f"{name}.jsonl", takes), "parts": len(parts), **size}
        for name, takes, parts in (("clips", TAKES, PARTS), ("many", MANY_TAKES, MANY_PARTS))
    }
    for service in SERVICES:
        rows = write_takes(path / "sources" / f"{service}.jsonl", 1)
        datasets[service] = {"manifest": rows, "parts": LOAD_PARTS, **size}
        datasets |= {name: {"manifest": rows, **size} for name in load_of(service)}
    (path / "datasets.yaml").write_text(json.dumps({"ref2va": datasets}))
    (path / "location.py").write_text(LOCATION)
    (path / "home").mkdir()
    shutil.copy(ROOT / "deploy" / "cluster" / "dagster.yaml", path / "home" / "dagster.yaml")
    (path / "stopped").mkdir()
    with services() as (database, broker), ExitStack() as stack:
        environment = {
            "MUVAP_PG_URL": database.address,
            "MUVAP_CELERY_BROKER": f"{broker.address}/0",
            "MUVAP_CELERY_RESULTS": f"{broker.address}/1",
            "DAGSTER_HOME": str(path / "home"),
            "MUVAP_DATASETS": str(path / "datasets.yaml"),
            "MUVAP_DATA_ROOT": str(path / "data"),
            "MUVAP_H3_CHECKPOINT": str(checkpoint),
            "MUVAP_H3_DEVICE": "cpu",
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            yield Cluster(path, environment, database, broker, stack)


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


def published(root, dataset):
    """The version and its files, those apart that hold absolute paths."""
    folder = Layout(root).ref2va_parquet_cache_index(dataset).current.resolve()
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
    assert published(cluster.path / "data", "clips") == published(alone, "clips")


# --- killed while it encodes ---


def stored(cluster):
    """Every part and row of the row store, and which file it is: made again, it would be another."""
    folder = Layout(cluster.path / "data").row_store
    finished = (path for kind in ("parts", "rows") for path in (folder / kind).rglob("*") if path.suffix != ".partial")
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in finished
        if path.is_file()
    }


class RetryLost(Exception):
    """A failed run was not tried again."""


class Encoding:
    """A run that encodes a part of ``many``, caught when some of its rows' parts stand and others do not."""

    def __init__(self, cluster, instance, part):
        self.cluster, self.instance, self.partition = cluster, instance, f"many|{part:03d}"
        before = stored(cluster)
        known = {run.run_id for run in instance.get_runs()}
        cluster.launch(ref2va.ENCODED_LATENTS, {"dataset": "many", "part": f"{part:03d}"}, self.partition)
        until(lambda: len(stored(cluster)) >= len(before) + 4, 120, "the run encodes", every=0.02)
        (self.run,) = [run for run in instance.get_runs() if run.run_id not in known]
        self.known = {*known, self.run.run_id}
        self.pid = int(until(self.said_pid, 60, "the run says its process")[1])

    def said_pid(self):
        """Where the run's log names its process, once it does."""
        return re.search(r"pid: (\d+)", " ".join(entry.message for entry in self.instance.all_logs(self.run.run_id)))

    def found_dead(self, within):
        """Wait until the run is known to have failed; from then on nobody but its retry writes."""
        until(lambda: self.instance.get_run_by_id(self.run.run_id).is_finished, within, "the death is noticed")
        assert self.instance.get_run_by_id(self.run.run_id).status is dg.DagsterRunStatus.FAILURE

    def retried(self):
        """The run that was made because this one was found dead."""

        def ended():
            others = [run for run in self.instance.get_runs() if run.run_id not in self.known]
            return others[0] if others and others[0].is_finished else None

        try:
            return until(ended, 180, f"run {self.run.run_id} is tried again")
        except TimeoutError as error:
            raise RetryLost(f"{error}\n{self.cluster.tails()}") from error

    def went_on(self, stood):
        """The retry, which finished the part and made nothing again of what ``stood`` when the run died."""
        again = self.retried()
        assert again.status is dg.DagsterRunStatus.SUCCESS
        after = stored(self.cluster)
        assert {name: after.get(name) for name in stood} == stood
        record = self.instance.fetch_materializations(
            dg.AssetRecordsFilter(ref2va.ENCODED_LATENTS, asset_partitions=[self.partition]), limit=1
        ).records[0]
        made = {
            name: value.value
            for name, value in record.asset_materialization.metadata.items()
            if name.startswith("encoded_")
        }
        new = [name for name in set(after) - set(stood) if name.startswith("parts/")]
        without_a_model = [name for name in new if name.startswith("parts/reference_audio/")]
        assert len(new) - len(without_a_model) <= sum(made.values()) <= len(new)
        assert sum(made.values()) > 0
        return again


@pytest.fixture(scope="module")
def parts(cluster):
    """Parts of ``many`` that no run has encoded yet, in turn."""
    with dg.DagsterInstance.get() as instance:
        before = len(cluster.runs_of(instance, ref2va.MANIFEST))
        cluster.backfill(ref2va.MANIFEST, ["many"], {})
        cluster.ended(instance, ref2va.MANIFEST, before + 1, 180)
    return iter(range(len(MANY_PARTS)))


def survived(cluster, instance, parts, kill, within):
    """Kill a run while it encodes, see it noticed, retried and finished; the run and its retry.

    ``kill`` ends what writes, and returns what was stored then.

    Dagster decides once, in one look at a failed run, whether it is tried again; a look that fails is not repeated (the nightly
    rebuild comes for what it left). A second kill tells that from a fault of ours, which would be there again.
    """
    try:
        return killed(cluster, instance, next(parts), kill, within)
    except RetryLost as error:
        logging.getLogger(__name__).warning("%s", error)
        return killed(cluster, instance, next(parts), kill, within)


def killed(cluster, instance, part, kill, within):
    encoding = Encoding(cluster, instance, part)
    stood = kill(encoding)
    encoding.found_dead(within)
    return encoding, encoding.went_on(stood)


def test_a_killed_process_is_noticed_within_30_s_and_its_encode_goes_on_where_it_was(cluster, instance, parts):
    def kill_process(encoding):
        os.kill(encoding.pid, signal.SIGKILL)
        return stored(cluster)

    survived(cluster, instance, parts, kill_process, 30)


def test_a_dead_worker_is_noticed_after_three_polls_and_its_encode_goes_on_elsewhere(cluster, instance, parts):
    names = []

    def kill_worker(encoding):
        names.append(cluster.worker_of(instance.get_run_by_id(encoding.run.run_id)))
        os.killpg(cluster.workers[names[-1]].pid, signal.SIGKILL)
        return stored(cluster)

    encoding, again = survived(cluster, instance, parts, kill_worker, 60)
    reasons = [entry.message for entry in instance.all_logs(encoding.run.run_id)]
    assert any("No live worker had the run in 3 looks" in reason for reason in reasons)
    assert cluster.worker_of(again) != names[-1]  # the other one for GPUs: this one is still dead
    for name in names:
        cluster.start_worker(name, "gpu")


def test_after_everything_died_the_next_daemon_finds_the_lost_run(cluster, instance, parts):
    def kill_everything(encoding):
        for group in (*cluster.workers.values(), cluster.daemon):
            os.killpg(group.pid, signal.SIGKILL)
        stood = stored(cluster)
        time.sleep(2)
        assert not instance.get_run_by_id(encoding.run.run_id).is_finished  # nobody is there to notice
        cluster.start_daemon()
        for name in cluster.workers:
            cluster.start_worker(name, "cpu" if name.startswith("cpu") else "gpu")
        return stood

    survived(cluster, instance, parts, kill_everything, 90)


def test_what_was_killed_again_and_again_publishes_what_one_undisturbed_process_does(cluster, instance, parts):
    for key, names, tags in ((ref2va.ENCODED_LATENTS, MANY_PARTS, GPU_TAG), (ref2va.CACHE_INDEX, ["many"], {})):
        before = len(cluster.runs_of(instance, key))
        cluster.backfill(key, names, tags)
        runs = cluster.ended(instance, key, before + len(names), 400)
        assert {run.status for run in runs[: len(names)]} == {dg.DagsterRunStatus.SUCCESS}
    alone = cluster.path / "alone"
    command = [sys.executable, str(ROOT / "deploy" / "ci" / "materialize.py"), "--dataset", "many"]
    subprocess.run([*command, "--data-root", str(alone)], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert published(cluster.path / "data", "many") == published(alone, "many")


# --- what they work with dies, under load of both queues ---


class Load:
    """Runs of both queues, more than there are workers; those that were begun stand still before they publish."""

    def __init__(self, cluster, instance, service):
        self.cluster, self.instance = cluster, instance
        self.parts = [f"{service}|{part:03d}" for part in range(LOAD_PARTS)]
        self.datasets = load_of(service)
        self.made = [(ref2va.ENCODED_LATENTS, part) for part in self.parts]
        self.made += [(ref2va.MANIFEST, name) for name in self.datasets]
        self.stop, self.stopped = cluster.path / "stop", cluster.path / "stopped"
        before = {run.run_id for run in instance.get_runs()}
        self.stop.touch()
        cluster.backfill(ref2va.MANIFEST, self.datasets, CPU_TAG)
        cluster.backfill(ref2va.ENCODED_LATENTS, self.parts, GPU_TAG)
        until(lambda: len(self.standing_still()) == len(cluster.workers), 240, self.cluster.tails)
        # The retry of a run that failed before may come at any time.
        names = {partition for _, partition in self.made}
        new = [run for run in instance.get_runs() if run.run_id not in before]
        self.runs = [run for run in new if run.tags.get("dagster/partition") in names]
        self.begun = [run for run in self.runs if run.status is dg.DagsterRunStatus.STARTED]
        assert sorted(cluster.worker_of(run) for run in self.begun) == sorted(cluster.workers)
        assert len(self.runs) == len(self.made)
        assert not any(map(self.partition_of, self.begun))
        waiting = [run.status for run in self.runs if run not in self.begun]
        assert set(waiting) <= {dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING}

    def standing_still(self):
        """Processes of tasks that wait at the point before they publish."""
        return [int(path.name) for path in self.stopped.iterdir() if alive(int(path.name))]

    def go_on(self):
        """Let whatever stands still go on, and what begins from now on pass."""
        going = self.standing_still()
        self.stop.unlink()
        return going

    def partition_of(self, run):
        (key,) = run.asset_selection
        return self.partition(key, run.tags["dagster/partition"])

    def partition(self, key, partition):
        """Whether it is materialized."""
        records = dg.AssetRecordsFilter(key, asset_partitions=[partition])
        return self.instance.fetch_materializations(records, limit=1).records

    def ends_well(self):
        """Every partition is made; each has the one version that is current, and nothing goes on."""

        def all_made():
            self.cluster.keep_up()
            return all(self.partition(*made) for made in self.made) and not self.going_on()

        until(all_made, 240, self.told)
        layout = Layout(self.cluster.path / "data")
        for key, partition in self.made:
            dataset, _, part = partition.partition("|")
            artifact = layout.ref2va_encoded_latents(dataset, int(part)) if part else layout.ref2va_manifest(dataset)
            (standing,) = standing_versions(artifact)
            assert standing.is_current
            (record,) = self.partition(key, partition)
            assert record.asset_materialization.tags["dagster/data_version"] == standing.version

    def going_on(self):
        return [run for run in self.instance.get_runs() if not run.is_finished]

    def told(self):
        """How the runs stand, for a message."""
        runs = [
            f"{run.tags.get('dagster/partition')}: {run.status} {dict(run.tags)}" for run in self.instance.get_runs()
        ]
        return "\n".join([*runs, self.cluster.tails()])


@pytest.fixture(scope="module")
def manifests(cluster):
    """The manifests of what is encoded below."""
    with dg.DagsterInstance.get() as instance:
        before = len(cluster.runs_of(instance, ref2va.MANIFEST))
        cluster.backfill(ref2va.MANIFEST, list(SERVICES), {})
        runs = cluster.ended(instance, ref2va.MANIFEST, before + len(SERVICES), 180)
        assert {run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}


def alive(process):
    """Whether a process is there, and not only its exit status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.usefixtures("manifests")
def test_each_partition_has_one_version_after_the_broker_died_in_its_run(cluster, instance):
    load = Load(cluster, instance, "broker")
    cluster.broker.kill()
    assert len(load.standing_still()) == len(cluster.workers)  # a run does not need it
    load.go_on()
    until(lambda: any(instance.get_run_by_id(run.run_id).is_finished for run in load.begun), 120, "one ends meanwhile")
    cluster.broker.start()
    load.ends_well()
    ended = [instance.get_run_by_id(run.run_id).status for run in load.begun]
    assert {status.value for status in ended} == {"SUCCESS"}


@pytest.mark.usefixtures("manifests")
def test_each_partition_has_one_version_after_workers_of_both_queues_died_in_its_run(cluster, instance):
    load = Load(cluster, instance, "worker")
    going = load.standing_still()
    for name in ("gpu1", "cpu1"):
        os.killpg(cluster.workers[name].pid, signal.SIGKILL)
    until(lambda: sum(map(alive, going)) == 1, 30, "the tasks died with their workers")
    load.go_on()
    for name in ("gpu1", "cpu1"):
        cluster.start_worker(name, name[:3])
    load.ends_well()
    ended = [instance.get_run_by_id(run.run_id).status for run in load.begun]
    assert sorted(status.value for status in ended) == ["FAILURE", "FAILURE", "SUCCESS"]


def test_a_run_over_its_time_limit_is_ended_and_gives_its_slot_back(cluster, instance):
    key = dg.AssetKey(["hangs_once"])
    cluster.launch(key, {}, None, {"dagster/max_runtime": "10"})
    until((cluster.path / "hung").exists, 120, "the run hangs")
    (run,) = cluster.runs_of(instance, key)
    until(lambda: instance.get_run_by_id(run.run_id).is_finished, 60, "the limit is noticed")
    assert instance.get_run_by_id(run.run_id).status is dg.DagsterRunStatus.FAILURE
    assert any("maximum runtime of 10 seconds" in entry.message for entry in instance.all_logs(run.run_id))
    slots = instance.event_log_storage.get_concurrency_info
    until(lambda: run.run_id not in slots("gpu").active_run_ids, 120, "its slot is free")


@pytest.mark.usefixtures("manifests")
def test_each_partition_has_one_version_after_the_database_died_in_its_run(cluster, instance):
    load = Load(cluster, instance, "database")
    cluster.database.kill()
    assert len(load.go_on()) == len(cluster.workers)
    until(lambda: all(map(cluster.misses_the_database, cluster.workers)), 120, "the runs cannot write, and die")
    cluster.database.start()
    load.ends_well()
    ended = [instance.get_run_by_id(run.run_id).status for run in load.begun]
    assert {status.value for status in ended} == {"FAILURE"}
