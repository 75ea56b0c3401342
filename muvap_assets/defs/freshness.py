"""How old what was published may become. Belongs here: the display policy of an asset, and the age check of a partition.

A freshness policy speaks of a whole asset: where one partition of a hundred is rebuilt nightly, all look fresh. So each
partition whose entry in ``datasets.yaml`` gives ``max_age_hours`` has a check of its own age as well. A sensor reports its
result whenever that changes, without a run; a run that makes the partition reports it, too. Age counts from the last time
the partition was made or found unchanged. See https://docs.dagster.io/guides/observe/asset-freshness-policies.
"""

import datetime
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluation

from muvap_assets.alerts import Alert
from muvap_assets.datasets import Datasets
from muvap_assets.defs import asd, ref2va
from muvap_assets.defs.alerts import tell

CHECK = "fresh_enough"
TELLING_SEC = 10.0
"""After this long in one tick alerts are only logged: a sensor is given 60 s, and results count more than the webhook."""
_ARTIFACTS = {"asd": asd.PACKED_SHARDS, "ref2va": ref2va.CACHE_INDEX}


@dataclass(frozen=True, slots=True)
class Age:
    """How old a partition is, in hours; ``None`` where it was never made. ``limit_hours`` is what it may be."""

    hours: float | None
    limit_hours: float

    @property
    def passed(self) -> bool:
        """Whether it is young enough. What was never made is not old: other checks tell of it."""
        return self.hours is None or self.hours <= self.limit_hours

    def description(self) -> str:
        """The verdict in the grammar of all messages."""
        if self.hours is None:
            return "never materialized"
        found = f"last made or confirmed {self.hours:.1f} hours ago; required: at most {self.limit_hours:g}."
        return found if self.passed else f"{found} See why its runs fail or none was requested, then materialize it."


def limits(datasets: Datasets) -> dict[str, dict[str, float]]:
    """The partitions whose age is limited, by line."""
    entries: Mapping[str, Mapping[str, object]] = {"asd": datasets.corpora, "ref2va": datasets.ref2va}
    return {
        line: {name: hours for name, entry in named.items() if (hours := getattr(entry, "max_age_hours", None))}
        for line, named in entries.items()
    }


def with_policies(assets: Sequence[dg.AssetsDefinition], datasets: Datasets) -> list[dg.AssetsDefinition]:
    """``assets`` with the display policy of the most patient partition, where any has a limit."""
    hours = {_ARTIFACTS[line]: max(named.values()) for line, named in limits(datasets).items() if named}

    def apply(spec: dg.AssetSpec) -> dg.AssetSpec:
        if spec.key not in hours:
            return spec
        policy = dg.FreshnessPolicy.time_window(fail_window=datetime.timedelta(hours=hours[spec.key]))
        limited: dg.AssetSpec = dg.apply_freshness_policy(spec, policy)
        return limited

    return [asset.map_asset_specs(apply) for asset in assets]


def build_age_checks(
    datasets: Datasets, partitions: Mapping[str, dg.StaticPartitionsDefinition]
) -> list[dg.AssetChecksDefinition]:
    """One check an artifact with a limit, partitioned as the artifact."""
    return [_age_check(line, named, partitions[line]) for line, named in limits(datasets).items() if named]


def _age_check(
    line: str, hours: Mapping[str, float], partitions: dg.StaticPartitionsDefinition
) -> dg.AssetChecksDefinition:
    key = _ARTIFACTS[line]
    with warnings.catch_warnings():
        # A preview argument; without it all partitions would share one status. The pinned version is tested.
        warnings.simplefilter("ignore", dg.PreviewWarning)

        @dg.asset_check(
            asset=key,
            name=CHECK,
            partitions_def=partitions,
            description="The partition was made or confirmed within its max_age_hours.",
        )
        def fresh_enough(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            name = context.partition_key
            limit = hours.get(name)
            if limit is None:
                return dg.AssetCheckResult(passed=True, description="no max_age_hours in datasets.yaml")
            age = _age(context.instance, key, name, limit)
            return dg.AssetCheckResult(
                passed=age.passed,
                severity=dg.AssetCheckSeverity.WARN,
                description=age.description(),
                metadata=_numbers(age),
            )

    return fresh_enough


def build_age_sensors(datasets: Datasets) -> list[dg.SensorDefinition]:
    """The sensor that reports a partition as it grows too old, and as it is young again; none where nothing has a limit."""
    watched = [
        (_ARTIFACTS[line], name, hours) for line, named in limits(datasets).items() for name, hours in named.items()
    ]

    @dg.sensor(
        name="partition_ages",
        minimum_interval_seconds=300,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports partitions that grew older than their max_age_hours.",
    )
    def partition_ages(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        seen, events = json.loads(context.cursor or "{}"), []
        telling_sec = 0.0
        now: dict[str, bool] = {}
        for key, name, hours in watched:
            age = _age(context.instance, key, name, hours)
            place = f"{key.to_user_string()}|{name}"
            now[place] = age.passed
            if age.hours is not None and seen.get(place) != age.passed:
                events.append(_evaluation(key, name, age))
                if not age.passed:
                    text = f"{key.to_user_string()} [{name}]: WARN: {age.description()}"
                    alert = Alert(kind="too_old", text=text, facts={"partition": name, **_numbers(age)})
                    start = time.monotonic()
                    tell(context.log, alert, post=telling_sec < TELLING_SEC)
                    telling_sec += time.monotonic() - start
        return dg.SensorResult(asset_events=events, cursor=json.dumps(now))

    return [partition_ages] if watched else []


def _age(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str, limit_hours: float) -> Age:
    records = instance.fetch_materializations(dg.AssetRecordsFilter(key, asset_partitions=[partition]), limit=1).records
    if not records:
        return Age(None, limit_hours)
    seconds = datetime.datetime.now(datetime.UTC).timestamp() - records[0].timestamp
    return Age(seconds / 3600, limit_hours)


def _numbers(age: Age) -> dict[str, float]:
    return {} if age.hours is None else {"age_hours": age.hours, "max_age_hours": age.limit_hours}


def _evaluation(key: dg.AssetKey, partition: str, age: Age) -> AssetCheckEvaluation:
    return AssetCheckEvaluation(
        asset_key=key,
        check_name=CHECK,
        partition=partition,
        passed=age.passed,
        severity=dg.AssetCheckSeverity.WARN,
        description=age.description(),
        metadata={name: dg.MetadataValue.float(value) for name, value in _numbers(age).items()},
    )
