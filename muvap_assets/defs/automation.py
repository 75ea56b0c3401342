"""What makes assets by themselves: observable sources, the sensor that watches them, automation sensors, schedules.

A source is looked at every few seconds (:mod:`muvap_assets.sources`) and reported only when its content changed; the
conditions of :mod:`muvap_assets.defs.conditions` do the rest. People who prefer schedules stop the two automation sensors
and start the schedules. See https://docs.dagster.io/guides/automate.
"""

import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from dagster._utils.schedules import is_valid_cron_schedule

from muvap_assets.datasets import Datasets
from muvap_assets.defs import asd, ref2va
from muvap_assets.defs.conditions import CPU_RUN_TAGS, GPU_RUN_TAGS
from muvap_assets.defs.metadata import TABLE_ROWS
from muvap_assets.errors import ConfigError
from muvap_assets.layout import Layout
from muvap_assets.sources import Fingerprint, OutOfTime, Source, fingerprint, source_of

LOOK_SEC = 40.0
"""How long one look at the sources may take: a sensor is given 60 s. What is not finished then goes on next time."""

AUTOMATION_INTERVAL_SEC = 8
"""The daemon looks every 5 s whether a tick is due, so that this makes it every 10 s."""

_SOURCES = {"asd": asd.SOURCE, "ref2va": ref2va.SOURCE}
_TEXTS = {"asd": asd.SOURCE_TEXT, "ref2va": ref2va.SOURCE_TEXT}
_GUIDES = {"asd": asd.GUIDE, "ref2va": ref2va.GUIDE}


def build_sources(partitions: Mapping[str, dg.StaticPartitionsDefinition]) -> list[dg.AssetsDefinition]:
    """One observable source a line, partitioned as the line's manifest; gives the UI its *Observe* button."""
    return [_source(line, defined) for line, defined in partitions.items()]


def _source(line: str, partitions: dg.StaticPartitionsDefinition) -> dg.AssetsDefinition:
    spec = dg.AssetSpec(
        _SOURCES[line],
        group_name=line,
        partitions_def=partitions,
        owners=asd.OWNERS,
        kinds={"file"},
        description=_TEXTS[line],
        metadata={
            "guide": dg.MetadataValue.path(_GUIDES[line]),
            "operations": dg.MetadataValue.path("docs/operations.md"),
        },
    )

    def observe(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> dg.ObserveResult:
        source = source_of(datasets, line, context.partition_key)
        found = fingerprint(source, layout)
        return dg.ObserveResult(
            asset_key=_SOURCES[line], data_version=dg.DataVersion(found.digest), metadata=_described(source, found)
        )

    with warnings.catch_warnings():
        # A beta decorator: observations of a plain AssetSpec are ignored by automation. The pinned version is tested.
        warnings.simplefilter("ignore", dg.BetaWarning)
        source: dg.AssetsDefinition = dg.multi_observable_source_asset(name=f"{line}_source", specs=[spec])(observe)
    return source


def build_source_sensor(
    partitions: Mapping[str, dg.StaticPartitionsDefinition], *, poll_sec: int
) -> dg.SensorDefinition:
    """The sensor that looks at every source and reports those whose content changed since it last reported."""
    places = [(line, name) for line, defined in partitions.items() for name in defined.get_partition_keys()]

    @dg.sensor(
        name="source_changes",
        minimum_interval_seconds=poll_sec,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Reports sources whose content changed; a touched or copied file is none.",
    )
    def source_changes(
        context: dg.SensorEvaluationContext,
        layout: dg.ResourceParam[Layout],
        datasets: dg.ResourceParam[Datasets],
    ) -> dg.SensorResult:
        cursor = json.loads(context.cursor) if context.cursor else {}
        seen, unfinished = dict(cursor.get("digests", {})), cursor.get("unfinished")
        events, unfinished = _look(_after(places, unfinished), seen, layout, datasets)
        if unfinished:
            context.log.info(
                f"{unfinished}: not read to its end in {LOOK_SEC:.0f} s; the next look goes on after the others"
            )
        known = {f"{line}/{name}" for line, name in places}
        seen = {place: digest for place, digest in sorted(seen.items()) if place in known}
        return dg.SensorResult(asset_events=events, cursor=json.dumps({"digests": seen, "unfinished": unfinished}))

    return source_changes


def _after(places: Sequence[tuple[str, str]], unfinished: str | None) -> list[tuple[str, str]]:
    """``places`` with the one that was not finished last: what never comes to its end must not keep others waiting."""
    names = [f"{line}/{name}" for line, name in places]
    start = names.index(unfinished) + 1 if unfinished in names else 0
    return [*places[start:], *places[:start]]


def _look(
    places: Sequence[tuple[str, str]], seen: dict[str, str], layout: Layout, datasets: Datasets
) -> tuple[list[dg.AssetObservation], str | None]:
    """Observations of what changed, noted in ``seen``; and the place at which time ran out, if it did."""
    deadline = time.monotonic() + LOOK_SEC
    events: list[dg.AssetObservation] = []
    for line, name in places:
        try:
            source = source_of(datasets, line, name)
            found = fingerprint(source, layout, deadline=deadline)
        except OutOfTime:
            return events, f"{line}/{name}"
        except ConfigError:
            continue  # taken out of datasets.yaml since the code location was loaded
        if seen.get(f"{line}/{name}") != found.digest:
            seen[f"{line}/{name}"] = found.digest
            events.append(_observation(source, found))
    return events, None


def _observation(source: Source, found: Fingerprint) -> dg.AssetObservation:
    return dg.AssetObservation(
        _SOURCES[source.line],
        partition=source.name,
        tags={DATA_VERSION_TAG: found.digest},
        metadata=_described(source, found),
    )


def _described(source: Source, found: Fingerprint) -> dict[str, Any]:
    return {
        "dagster/uri": source.root.resolve().as_uri(),
        "texts": dg.MetadataValue.json({name: str(path) for name, path in islice(source.texts.items(), TABLE_ROWS)}),
        "files": found.files,
        "missing": found.missing,
        "read_for_their_digest": found.hashed,
        "recognized_by_size_and_time": found.trusted,
    }


def build_automation_sensors() -> list[dg.AutomationConditionSensorDefinition]:
    """Evaluate the conditions; assets that need a GPU have a sensor of their own, whose runs carry their queue's tag.

    One partition, one run: a backfill would hide from a condition which of its partitions are in progress.
    """
    others = [asd.SOURCE, asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS]
    others += [ref2va.SOURCE, ref2va.MANIFEST, ref2va.CACHE_INDEX]
    return [
        _automation("automation", dg.AssetSelection.assets(*others), CPU_RUN_TAGS),
        _automation("automation_gpu", dg.AssetSelection.assets(ref2va.ENCODED_LATENTS), GPU_RUN_TAGS),
    ]


def _automation(
    name: str, target: dg.AssetSelection, run_tags: Mapping[str, str]
) -> dg.AutomationConditionSensorDefinition:
    return dg.AutomationConditionSensorDefinition(
        name,
        target=target,
        run_tags=run_tags,
        default_status=dg.DefaultSensorStatus.RUNNING,
        minimum_interval_seconds=AUTOMATION_INTERVAL_SEC,
        emit_backfills=False,
    )


def build_schedules(
    partitions: Mapping[str, dg.StaticPartitionsDefinition], nightly_cron: str
) -> list[dg.ScheduleDefinition]:
    """A plain schedule a line, stopped until someone starts it.

    ``ref2va_nightly`` requests manifests only: the assets after it have other partitions, so that no one run can hold
    them, and follow by their conditions.
    """
    lines = {"asd": [asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS], "ref2va": [ref2va.MANIFEST]}
    return [_schedule(line, partitions[line], keys, nightly_cron) for line, keys in lines.items()]


def _schedule(
    line: str, partitions: dg.StaticPartitionsDefinition, keys: Sequence[dg.AssetKey], cron: str
) -> dg.ScheduleDefinition:
    job = dg.define_asset_job(f"{line}_line", dg.AssetSelection.assets(*keys), description=f"The {line} line.")

    @dg.schedule(job=job, cron_schedule=cron, name=f"{line}_nightly", default_status=dg.DefaultScheduleStatus.STOPPED)
    def nightly(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
        for name in partitions.get_partition_keys():
            yield dg.RunRequest(run_key=f"{name}|{context.scheduled_execution_time.isoformat()}", partition_key=name)

    return nightly


def check_cron(cron: str) -> str:
    """``cron`` if it is one.

    Raises:
        ConfigError: it is not.
    """
    if not is_valid_cron_schedule(cron):
        raise ConfigError(
            f"datasets.yaml: nightly_cron is {cron!r}; required: a cron expression of five fields. Write, for instance, "
            '"0 3 * * *" for 03:00 UTC.'
        )
    return cron
