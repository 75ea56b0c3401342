"""The maintenance job: one asset without partitions whose every materialization says what was removed and freed.

An asset and not a bare op, so that the UI plots the freed bytes over time. Nothing depends on it and nothing starts it but
its job. Its work is ``retention``, and ``pruning`` for Dagster's own records. See https://docs.dagster.io/guides/build/jobs/asset-jobs.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from muvap_assets.defs.metadata import TABLE_ROWS, of_numbers
from muvap_assets.defs.pruning import DEFAULT_DAYS, PruneReport, prune
from muvap_assets.layout import Layout
from muvap_assets.retention import DAY_SEC, MaintenanceReport, RemovalKind, Retention, maintain
from muvap_assets.text_lines import line

MAINTENANCE = dg.AssetKey(["ops", "maintenance"])
OWNERS = ["team:data-platform"]


class MaintenanceConfig(dg.Config):
    """How much is kept, for one run of the job; ``dry_run`` only says what would be removed.

    ``run_days`` is about Dagster's own runs and ticks.
    """

    dry_run: bool = False
    grace_hours: float = 24.0
    row_grace_days: float = 14.0
    run_days: float = DEFAULT_DAYS


def build_assets(keep_versions: int) -> list[dg.AssetsDefinition]:
    """The maintenance asset, keeping ``keep_versions`` versions of each artifact beside the current one."""

    @dg.asset(
        key=MAINTENANCE,
        group_name="ops",
        kinds={"python"},
        owners=OWNERS,
        description="Removes old versions, what killed runs left, rows no version lists, and old runs; never what is in use.",
    )
    def maintenance(
        context: dg.AssetExecutionContext, config: MaintenanceConfig, layout: dg.ResourceParam[Layout]
    ) -> dg.MaterializeResult[None]:
        retention = Retention(
            keep_versions=keep_versions,
            grace_sec=config.grace_hours * 3600,
            row_grace_sec=config.row_grace_days * DAY_SEC,
        )
        report = maintain(layout, retention, dry_run=config.dry_run)
        records = prune(context.instance, config.run_days, dry_run=config.dry_run)
        for text in (*report.left, *records.left):
            context.log.warning(line(text))
        return dg.MaterializeResult(metadata=_describe(report, records))

    return [maintenance]


def build_job() -> Any:
    """The job that runs it: ``dagster job execute -j maintenance``."""
    return dg.define_asset_job("maintenance", dg.AssetSelection.assets(MAINTENANCE))


def _describe(report: MaintenanceReport, records: PruneReport) -> Mapping[str, Any]:
    rows = [
        dg.TableRecord({"kind": str(removal.kind), "name": removal.name, "freed_bytes": removal.freed_bytes})
        for removal in report.removed[:TABLE_ROWS]
    ]
    numbers = {f"{kind}_removed": report.count(kind) for kind in RemovalKind}
    numbers |= {
        "runs_removed": len(records.runs),
        "ticks_removed": records.ticks,
        "dagster_home_bytes_before": records.before_bytes,
        "dagster_home_bytes": records.after_bytes,
    }
    left = [*report.left, *records.left]
    return {
        **of_numbers({"dry_run": str(report.dry_run), "freed_bytes": report.freed_bytes, **numbers}),
        **({"removed": dg.MetadataValue.table(rows)} if rows else {}),
        **({"left": dg.MetadataValue.md("\n".join(f"- {line}" for line in left))} if left else {}),
    }
