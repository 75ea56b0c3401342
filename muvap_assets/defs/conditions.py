"""When an asset is made again by itself. Belongs here: automation conditions; what evaluates them is in ``automation``.

The ready-made ``eager`` knows nothing of code versions and of the nightly tick, so these are put together from its parts.
``since_last_handled`` remembers what happened while a condition was held back, for instance by a run in progress.
See https://docs.dagster.io/guides/automate/declarative-automation.
"""

from typing import Any

import dagster as dg
from dagster._core.definitions.declarative_automation.automation_condition import AutomationCondition

GPU_RUN_TAGS = {"dagster-celery/queue": "gpu"}
"""Sends a run to a machine with a GPU; the queue of a run is chosen by its tags, and by nothing else."""

Condition = AutomationCondition[dg.AssetKey | dg.AssetCheckKey]


def root(nightly_cron: str) -> Condition:
    """For an asset whose only input is a source: its content changed, its code did, a partition is new, a night passed."""
    is_due: Any = (  # a part of it is typed for assets only
        AutomationCondition.any_deps_match(AutomationCondition.data_version_changed())
        | AutomationCondition.code_version_changed()
        | AutomationCondition.newly_missing()
        | AutomationCondition.cron_tick_passed(nightly_cron)
    )
    condition: Condition = is_due.since_last_handled() & ~AutomationCondition.in_progress()
    return condition


def downstream(*, not_woken_by: dg.AssetSelection | None = None) -> Condition:
    """For an asset with inputs of ours: one was made again and all stand, none of them failed or is being made.

    Args:
        not_woken_by: inputs whose update alone is no reason, since another input is made from them first. Requested in
            one run with such an input, the asset would find the other one out of date.
    """
    updated = AutomationCondition.any_deps_updated()
    if not_woken_by is not None:
        updated = updated.ignore(not_woken_by)
    due_by_itself = AutomationCondition.code_version_changed() | AutomationCondition.newly_missing()
    is_due: Any = updated | due_by_itself  # as above
    condition: Condition = (
        is_due.since_last_handled()
        & ~AutomationCondition.any_deps_missing()
        & ~AutomationCondition.any_deps_in_progress()
        & ~AutomationCondition.any_deps_match(AutomationCondition.execution_failed())
        & ~AutomationCondition.in_progress()
    )
    return condition
