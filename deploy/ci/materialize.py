#!/usr/bin/env python3
"""Materializes chosen corpora and datasets from nothing, in one process, and says which checks passed.

    python deploy/ci/materialize.py --corpus talks_train --dataset clips --junit checks.xml --json checks.json

Which there are is said by the datasets file (MUVAP_DATASETS); what is made lies below MUVAP_DATA_ROOT afterwards. Dagster's
own records live in memory for as long as this runs: neither a DAGSTER_HOME nor a daemon is needed, and none is touched.

Each asset's partition is made in order, and what follows a failed one is skipped. Exit code 0: everything was made, every
blocking check passed. 1: something was not, it is named on standard error. 2: the command was used wrongly.
The JUnit file holds one suite a partition of an asset and one case a check, which is what CI systems show.
"""

from __future__ import annotations

import json
import os
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import dagster as dg

from muvap_assets.cli.paths import NEW_FILE, NEW_FOLDER
from muvap_assets.datasets import Datasets, load_datasets
from muvap_assets.defs.demo import Step, corpus_chain, dataset_chain
from muvap_assets.errors import MuvapError
from muvap_assets.layout import Layout
from muvap_assets.storage.paths import DATA_ROOT_VARIABLE, written

QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What one check found."""

    name: str
    passed: bool
    severity: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What became of one partition of an asset: ``made``, ``failed`` with its reason, or ``skipped``."""

    asset: str
    partition: str
    outcome: str
    seconds: float
    reason: str
    checks: tuple[Check, ...]


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, help=__doc__)
@click.option(
    "--corpus", "corpora", multiple=True, metavar="NAME", help="A corpus to make; may be given several times."
)
@click.option("--dataset", "ref2va", multiple=True, metavar="NAME", help="A ref2va dataset to make; likewise.")
@click.option("--all", "everything", is_flag=True, help="All of the datasets file.")
@click.option("--data-root", type=NEW_FOLDER, envvar=DATA_ROOT_VARIABLE, required=True)
@click.option("--junit", type=NEW_FILE, help="Write the checks there as JUnit XML.")
@click.option("--json", "as_json", type=NEW_FILE, help="Write the checks there as JSON.")
def main(
    corpora: Sequence[str],
    ref2va: Sequence[str],
    everything: bool,
    data_root: Path,
    junit: Path | None,
    as_json: Path | None,
) -> None:
    """Make them, write the summaries, exit with the verdict."""
    os.environ[DATA_ROOT_VARIABLE] = written(data_root.resolve())
    from muvap_assets.definitions import build_defs, default_datasets_file

    datasets = load_datasets(default_datasets_file())
    if everything:
        corpora, ref2va = list(datasets.corpora), list(datasets.ref2va)
    if not corpora and not ref2va:
        raise click.UsageError("nothing to make. Give --corpus NAME, --dataset NAME or --all.")
    for file in filter(None, (junit, as_json)):
        _require_folder_of(file)
    chains = list(_chains(Layout(data_root.resolve()), datasets, corpora, ref2va))
    results = make(build_defs(), chains)
    if junit:
        junit.write_bytes(junit_xml(results))
    if as_json:
        as_json.write_text(json.dumps(summary(results), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(_print(results))


def _require_folder_of(file: Path) -> None:
    """Make the folder of a summary now: after hours of work would be the wrong time to miss it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(
            f"{file}: its folder cannot be made ({error.strerror}); required: a place for the summary. Name another one."
        ) from error
    if not os.access(file.parent, os.W_OK):
        raise click.UsageError(f"{file}: its folder cannot be written to; required: one that can. Name another one.")


def _chains(layout: Layout, datasets: Datasets, corpora: Sequence[str], ref2va: Sequence[str]) -> Iterator[list[Step]]:
    for name in corpora:
        datasets.corpus(name)
        yield corpus_chain(layout, name)
    for name in ref2va:
        datasets.ref2va_dataset(name)
        yield dataset_chain(layout, datasets, name)


def make(defs: dg.Definitions, chains: Sequence[Sequence[Step]]) -> list[Made]:
    """Make each chain in order; what follows a failure in a chain is skipped, the other chains are not."""
    job = defs.resolve_implicit_global_asset_job_def()
    results = []
    with dg.DagsterInstance.ephemeral() as instance:
        for chain in chains:
            failed = False
            for step in chain:
                made = _skipped(step) if failed else _make(job, step, instance)
                failed = failed or made.outcome == "failed"
                results.append(made)
    return results


def _skipped(step: Step) -> Made:
    reason = "what it is made from failed"
    return Made(
        asset=step.key.to_user_string(),
        partition=step.partition,
        outcome="skipped",
        seconds=0,
        reason=reason,
        checks=(),
    )


def _make(job: dg.JobDefinition, step: Step, instance: dg.DagsterInstance) -> Made:
    start = time.monotonic()
    result = job.execute_in_process(
        asset_selection=[step.key],
        partition_key=step.partition,
        instance=instance,
        raise_on_error=False,
        run_config=QUIET,
    )
    checks = tuple(
        Check(name=c.check_name, passed=c.passed, severity=c.severity.value, description=c.description or "")
        for c in result.get_asset_check_evaluations()
    )
    failures = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    reasons = [f.user_failure_data.description if f.user_failure_data else f.error_display_string for f in failures]
    return Made(
        asset=step.key.to_user_string(),
        partition=str(step.partition),
        outcome="made" if result.success else "failed",
        seconds=round(time.monotonic() - start, 3),
        reason="" if result.success else (reasons[0] or "it did not say why") if reasons else "its run failed",
        checks=checks,
    )


def summary(results: Sequence[Made]) -> dict[str, object]:
    """All of it in plain JSON values."""
    return {"ok": all(made.outcome == "made" for made in results), "assets": [asdict(made) for made in results]}


def junit_xml(results: Sequence[Made]) -> bytes:
    """One suite a partition of an asset, one case a check, one more for making it."""
    root = ET.Element("testsuites")
    for made in results:
        name = f"{made.asset} [{made.partition}]"
        suite = ET.SubElement(root, "testsuite", name=name, time=str(made.seconds))
        case = ET.SubElement(suite, "testcase", classname=name, name="materialized", time=str(made.seconds))
        if made.outcome != "made":
            kind = "failure" if made.outcome == "failed" else "skipped"
            ET.SubElement(case, kind, message=_xml_text(made.reason.splitlines()[0])).text = _xml_text(made.reason)
        for check in made.checks:
            case = ET.SubElement(suite, "testcase", classname=name, name=check.name, time="0")
            if not check.passed and check.severity == "ERROR":
                ET.SubElement(case, "failure", message=_xml_text(check.description))
            elif not check.passed:
                ET.SubElement(case, "system-out").text = f"warning: {_xml_text(check.description)}"
        cases = suite.findall("testcase")
        suite.set("tests", str(len(cases)))
        for kind in ("failure", "skipped"):
            count = sum(case.find(kind) is not None for case in cases)
            suite.set(f"{kind}s" if kind == "failure" else kind, str(count))
    ET.indent(root)
    return ET.tostring(root, encoding="utf-8", xml_declaration=True)


def _xml_text(text: str) -> str:
    """``text`` without what XML cannot hold."""
    return "".join(character if character.isprintable() or character in "\n\t" else "?" for character in text)


def _print(results: Sequence[Made]) -> int:
    for made in results:
        passed = sum(check.passed for check in made.checks)
        line = (
            f"{made.asset} [{made.partition}]: {made.outcome}, {passed}/{len(made.checks)} checks, {made.seconds:.1f} s"
        )
        click.echo(line)
        if made.outcome == "failed":
            click.echo(f"error: {made.reason}", err=True)
    return 0 if all(made.outcome == "made" for made in results) else 1


if __name__ == "__main__":
    try:
        main()
    except MuvapError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(2)
