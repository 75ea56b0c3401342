"""When an asset is made again by itself. Belongs here: automation conditions; what evaluates them is in ``automation``.

The ready-made ``eager`` knows nothing of code versions and of the nightly tick, so these are put together from its parts.
It also forgets what came before its first evaluation, and takes whatever is made as the answer to all that came before,
even to what changed after the run had read it. A source may change at any time, so there only a request is an answer, to
what was there before it; what runs from an input of ours looks for itself whether it was overtaken (``gate``).
See https://docs.dagster.io/guides/automate/declarative-automation.
"""

from typing import Any

import dagster as dg
from dagster._core.definitions.declarative_automation.automation_condition import AutomationCondition

GPU_RUN_TAGS = {"dagster-celery/queue": "gpu"}
"""Sends a run to a machine with a GPU; the queue of a run is chosen by its tags, and by nothing else."""

CPU_RUN_TAGS = {"dagster-celery/queue": "cpu"}
"""The queue a run goes to anyway, named so that a limit on its runs sees it."""

Condition = AutomationCondition[dg.AssetKey | dg.AssetCheckKey]


def root(nightly_cron: str) -> Condition:
    """For an asset whose only input is a source: its content changed, its code did, a partition is new, a night passed.

    A change is one against an earlier tick, so there is none in the first: what is ``known`` by then is asked for as it
    is, what is observed later as changed. Either way a fresh instance asks for each partition once, missing or not.

    It is asked for in the first tick without a new reason: an observation that arrives while a tick is evaluated counts in
    that one and in the next, and in the tick after a request ``since`` would take a new reason as answered by it.
    """
    known: Condition = AutomationCondition.any_deps_match(~AutomationCondition.missing())
    reason: Any = (  # a part of it is typed for assets only
        AutomationCondition.any_deps_match(AutomationCondition.data_version_changed())
        | AutomationCondition.code_version_changed()
        | AutomationCondition.cron_tick_passed(nightly_cron)
        | (known & (AutomationCondition.initial_evaluation() | AutomationCondition.newly_missing()))
    )
    # In the first evaluation whatever is true is newly so.
    quiet: Condition = (~reason).newly_true() & ~AutomationCondition.initial_evaluation()
    due: Condition = quiet.since(AutomationCondition.newly_requested())
    return due & ~AutomationCondition.in_progress()


def downstream(*, not_woken_by: dg.AssetSelection | None = None) -> Condition:
    """For an asset with inputs of ours: one was made again and all stand, none of them failed or is being made.

    Args:
        not_woken_by: inputs whose update alone is no reason, since another input is made from them first. Requested in
            one run with such an input, the asset would find the other one out of date.
    """
    updated = AutomationCondition.any_deps_updated()
    if not_woken_by is not None:
        updated = updated.ignore(not_woken_by)
    reason: Any = updated | AutomationCondition.code_version_changed()  # as above
    handled: Condition = AutomationCondition.newly_requested() | AutomationCondition.newly_updated()
    due: Condition = reason.since(handled)
    # Not asked for since it became missing: what could not be made is not tried again and again.
    newly_missing: Condition = AutomationCondition.newly_missing()
    missing = AutomationCondition.missing() & newly_missing.since(AutomationCondition.newly_requested())
    return (
        (due | missing)
        & ~AutomationCondition.any_deps_missing()
        & ~AutomationCondition.any_deps_in_progress()
        & ~AutomationCondition.any_deps_match(AutomationCondition.execution_failed())
        & ~AutomationCondition.in_progress()
    )
