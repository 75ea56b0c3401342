"""The Dagster face of the one publishing protocol: nothing is materialized before it is checked.

The domain stages, checks and publishes (:mod:`muvap_assets.publish`); here its outcome becomes events. A failed blocking
check or an error of ours yields every check result and then fails the run without a retry, so that no materialization is
recorded; passing results travel inside the ``MaterializeResult``, which ties them to it. What was built from an input that
was made again meanwhile is built again by a retry of the step, so that a long run does not end with what is out of date.

See https://docs.dagster.io/guides/test/asset-checks.
"""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg

from muvap_assets.codes import Code, Severity
from muvap_assets.defs import metadata, pools
from muvap_assets.defs.pages import Page, page_metadata
from muvap_assets.errors import FormatError, MuvapError, StaleInputError, ValidationError
from muvap_assets.findings import Finding
from muvap_assets.layout import Artifact
from muvap_assets.progress import Progress, ProgressLog, format_seconds
from muvap_assets.publish import CheckOutcome, Outcome, current_version, not_run
from muvap_assets.text_lines import cut

MAX_OVERTAKEN = 3
"""How often a step is tried again because an input was made again meanwhile; then its result stands as it is."""

GateEvent = dg.AssetCheckResult | dg.MaterializeResult[None]


def check_specs(
    asset: dg.AssetKey, descriptions: Mapping[str, str], partitions: dg.PartitionsDefinition
) -> list[dg.AssetCheckSpec]:
    """Blocking check specs of an asset, one a partition as the asset itself."""
    with warnings.catch_warnings():
        # A preview argument; without it all partitions would share one status. The pinned version is tested.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(name, asset=asset, description=text, blocking=True, partitions_def=partitions)
            for name, text in descriptions.items()
        ]


def gate(
    context: dg.AssetExecutionContext,
    artifact: Artifact,
    declared: Sequence[str],
    run: Callable[[Progress], Outcome[Any]],
    describe: Callable[[Artifact, Path, Any], Page],
    inputs: Sequence[Artifact] = (),
) -> Iterator[GateEvent]:
    """Run one checked build and report what became of it.

    Args:
        artifact: where it publishes, and leaves what it found.
        declared: the names of the asset's checks.
        run: stages, checks and publishes; it is given a progress callback that writes to the run's log.
        describe: the page of a published version, from its artifact, its folder and the value its build returned.
        inputs: what it is built from by its current version, as far as it could be built again if only that moved.

    Raises:
        dagster.RetryRequested: an input was made again while it was built. What was built is published and consistent in
            itself; the retry takes up what is unchanged.
        dagster.Failure: a blocking check failed, the build raised an error of ours, or the disk has no space for the run's records.
            Never retried.
    """
    asset, started = context.asset_key, time.monotonic()
    before = [current_version(artifact) for artifact in inputs]
    try:
        pools.require_record_space(context.instance)
        with closing(ProgressLog(context.log.info, asset.to_user_string())) as progress:
            outcome = run(progress)
    except MuvapError as error:
        yield from _not_run(asset, declared, error, artifact)
        raise _build_failure(error, artifact) from error
    if outcome.published is None:
        yield from (_result(asset, check, artifact.findings) for check in outcome.checks)
        raise _failure(asset, context.partition_key, outcome.blocking, artifact.findings)
    published, seconds = outcome.published, time.monotonic() - started
    context.log.info(
        f"{asset.to_user_string()} [{context.partition_key}]: version {published.version} "
        f"{'published' if published.created else 'exists already, nothing changed'}, {len(outcome.checks)} checks, "
        f"{format_seconds(seconds)}"
    )
    _require_not_overtaken(context, inputs, before)
    yield dg.MaterializeResult(
        asset_key=asset,
        data_version=dg.DataVersion(published.version),
        check_results=[_result(asset, check, artifact.findings) for check in outcome.checks],
        metadata=page_metadata(
            describe(artifact, published.path, outcome.value), artifact, published, seconds, context.log
        ),
    )


def _require_not_overtaken(
    context: dg.AssetExecutionContext, inputs: Sequence[Artifact], before: Sequence[str | None]
) -> None:
    now = [current_version(artifact) for artifact in inputs]
    moved = [
        f"{artifact.label} ({old or 'none'} to {new or 'none'})"
        for artifact, old, new in zip(inputs, before, now, strict=True)
        if old != new
    ]
    if not moved:
        return
    text = f"{', '.join(moved)}: made again while {context.asset_key.to_user_string()} was built from it"
    if context.retry_number >= MAX_OVERTAKEN:
        context.log.warning(f"{text}, more than {MAX_OVERTAKEN} times in this run. What was built stands.")
        return
    text += ". It is built once more; what is unchanged is taken up."
    context.log.info(text)
    raise dg.RetryRequested(max_retries=MAX_OVERTAKEN) from StaleInputError(text)


def _result(asset: dg.AssetKey, outcome: CheckOutcome, file: Path | None = None) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.ERROR if outcome.severity is Severity.ERROR else dg.AssetCheckSeverity.WARN
    found = cut(outcome.findings[0].message()) if outcome.findings else None
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=outcome.name,
        passed=outcome.passed,
        severity=severity,
        description=found,
        metadata=metadata.of_check(outcome, file),
    )


def _not_run(
    asset: dg.AssetKey, declared: Sequence[str], error: MuvapError, artifact: Artifact
) -> Iterator[dg.AssetCheckResult]:
    """Every check failed, and its page shows what the build found: there is no other page to show it on."""
    found, file = _carried(error, artifact)
    for name in declared:
        outcome = not_run(name, cut(str(error).splitlines()[0]))
        yield _result(asset, replace(outcome, findings=(*outcome.findings, *found)), file)


def _build_failure(error: MuvapError, artifact: Artifact) -> dg.Failure:
    found, file = _carried(error, artifact)
    table = metadata.findings_table(found or [Finding(Code.BUILD_FAILED, None, str(error))], file)
    lines = [cut(line) for line in str(error).splitlines()]
    return dg.Failure("\n".join(lines), metadata=table, allow_retries=False)


def _carried(error: MuvapError, artifact: Artifact) -> tuple[Sequence[Finding], Path | None]:
    """The findings an error carries, and the file that lists them; none does where an input was damaged before the build."""
    if not isinstance(error, ValidationError):
        return (), None
    return error.findings, None if isinstance(error, FormatError) else artifact.findings


def _failure(asset: dg.AssetKey, partition: str, blocking: Sequence[CheckOutcome], file: Path) -> dg.Failure:
    names = ", ".join(check.name for check in blocking)
    unique = list(dict.fromkeys(finding for check in blocking for finding in check.findings))
    lines = [f"{asset.to_user_string()} [{partition}]: failed {names}; nothing was published."]
    lines.extend(f"  {cut(finding.message())}" for finding in unique[: metadata.TABLE_ROWS])
    if len(unique) > metadata.TABLE_ROWS:
        lines.append(f"  ... and {len(unique) - metadata.TABLE_ROWS} more in {file}")
    return dg.Failure("\n".join(lines), metadata=metadata.findings_table(unique, file), allow_retries=False)
