"""Sensors that tell of failures: one of a run, one of a check. Each logs one line and posts it (:mod:`muvap_assets.alerts`).

Each failure is told once: a gate that fails by the run it fails, whose reason names the checks; a check that only warns by
itself, when its run has ended. Partitions that grew too old are told by :mod:`muvap_assets.defs.freshness`.
See https://docs.dagster.io/guides/automate/run-status-sensors.
"""

import logging
from collections.abc import Iterable, Iterator
from itertools import groupby

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluation

from muvap_assets.alerts import Alert, send
from muvap_assets.defs.pools import subject
from muvap_assets.text_lines import line


def build_alert_sensors() -> list[dg.SensorDefinition]:
    """Both sensors, running from the start."""
    return [_failed_runs(), _failed_checks()]


def _failed_runs() -> dg.SensorDefinition:
    @dg.run_failure_sensor(name="alert_failed_runs", default_status=dg.DefaultSensorStatus.RUNNING)
    def alert_failed_runs(context: dg.RunFailureSensorContext) -> None:
        run, error = context.dagster_run, context.failure_event.message or "no reason given"
        steps = [event.step_failure_data for event in context.get_step_failure_events()]
        reasons = [step.user_failure_data.description for step in steps if step.user_failure_data]
        reason = (reasons[0] if reasons else error) or error
        assets = sorted(key.to_user_string() for key in run.asset_selection or ())
        alert = Alert(
            kind="run_failure",
            text=f"{subject(run)}: run {run.run_id} failed: {reason.splitlines()[0]}",
            facts={
                "run_id": run.run_id,
                "job": run.job_name,
                "assets": assets,
                "partition": run.tags.get("dagster/partition"),
            },
        )
        tell(context.log, alert)

    return alert_failed_runs


def _failed_checks() -> dg.SensorDefinition:
    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name="alert_failed_checks",
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells of checks that failed in a run that did not, one line an asset's partition.",
    )
    def alert_failed_checks(context: dg.RunStatusSensorContext) -> None:
        run_id = context.dagster_run.run_id
        entries = context.instance.all_logs(run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        for alert in alerts_of(entries):
            tell(context.log, alert)

    return alert_failed_checks


def alerts_of(entries: Iterable[dg.EventLogEntry]) -> Iterator[Alert]:
    """One alert for the failed checks of an asset's partition in a run."""
    failed = [(entry.run_id, evaluation) for entry in entries if (evaluation := _failed(entry)) is not None]
    for (run_id, asset, partition), group in groupby(failed, key=lambda pair: (pair[0], *_subject(pair[1]))):
        evaluations = [evaluation for _, evaluation in group]
        names = [evaluation.check_name for evaluation in evaluations]
        found = next(
            (evaluation.description for evaluation in evaluations if evaluation.description), "see its metadata"
        )
        worst = "ERROR" if any(e.severity is dg.AssetCheckSeverity.ERROR for e in evaluations) else "WARN"
        where = f"{asset}{f' [{partition}]' if partition else ''}"
        yield Alert(
            kind="check_failure",
            text=f"{where}: {worst}: {', '.join(names)} failed: {found}",
            facts={"run_id": run_id, "asset": asset, "partition": partition, "checks": names, "severity": worst},
        )


def _failed(entry: dg.EventLogEntry) -> AssetCheckEvaluation | None:
    evaluation = entry.get_dagster_event().asset_check_evaluation_data
    return None if evaluation.passed else evaluation


def _subject(evaluation: AssetCheckEvaluation) -> tuple[str, str | None]:
    return evaluation.asset_key.to_user_string(), evaluation.partition


def tell(log: logging.Logger, alert: Alert, *, post: bool = True) -> None:
    """Log an alert and, unless ``post`` says no, post it; what keeps it from being delivered is logged too."""
    log.error(line(alert.text))
    undelivered = send(alert) if post else "Not sent: the webhook is slow, and a sensor's tick has to end."
    if undelivered:
        log.warning(undelivered)
