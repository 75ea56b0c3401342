"""Verbs of the asd line. The domain is imported when a verb runs, so that ``muvap --help`` is quick."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from muvap_assets.cli.output import print_checks, print_outcome, print_table, print_violations, progress
from muvap_assets.cli.paths import FILE, NEW_FOLDER
from muvap_assets.errors import count_by_code


def policy_options(command: Any) -> Any:
    """The options that say how strictly a corpus is held."""
    share = click.FloatRange(0, 1)
    for option in (
        click.option("--quarantine", is_flag=True, help="Let good rows go on where others are bad, and list the bad."),
        click.option(
            "--max-rejected-share", type=share, default=0.05, show_default=True, help="The limit of --quarantine."
        ),
        click.option(
            "--max-missing-audio-share",
            type=share,
            default=0.1,
            show_default=True,
            help="A clip's audio may end this share of the clip early.",
        ),
    ):
        command = option(command)
    return command


def corpus_of(manifest: Path, name: str | None, options: dict[str, Any]) -> Any:
    """The corpus a command is about."""
    from muvap_assets.asd.contract import Corpus, OnViolation, Policy
    from muvap_assets.asd.corpora.tsv import TsvCorpus

    shares = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
    on_violation = OnViolation.QUARANTINE if options.pop("quarantine") else OnViolation.FAIL
    policy = Policy(on_violation=on_violation, **shares)
    name = name or manifest.stem
    source = TsvCorpus(kind="tsv", manifest=manifest.resolve())
    return Corpus(name=name, source=source, dataset=name, policy=policy, **options)


def validate_tsv(file: Path, *, as_json: bool, **options: Any) -> int:
    """Print the verdict on a canonical TSV; the exit code."""
    from muvap_assets.asd.line import validate_corpus

    report = validate_corpus(corpus_of(file, None, options), progress("validate"))
    if as_json:
        verdict = {
            "source": report.source,
            "ok": report.accepted_as_a_whole,
            "rows": report.row_count,
            "accepted": len(report.clips),
            "rejected": report.rejected,
            "violation_counts": count_by_code(report.violations),
            "violations": [violation.to_dict() for violation in report.violations],
        }
        click.echo(json.dumps(verdict, indent=1, ensure_ascii=False))
    else:
        print_violations(report.violations, f"muvap validate --json {file}, with the same options, prints all of them")
        state = "valid" if report.accepted_as_a_whole else "NOT VALID"
        click.echo(
            f"{file}: {state}; {report.row_count} rows, {len(report.clips)} accepted, {report.rejected} rejected"
        )
    return 0 if report.accepted_as_a_whole else 1


@click.command()
@click.argument("manifest", type=FILE)
@click.option(
    "-o",
    "--output-dir",
    required=True,
    type=NEW_FOLDER,
    help="The data root to publish below.",
)
@click.option("--name", help="Name of the corpus; default: the manifest's file name.")
@click.option(
    "--shard-bytes",
    type=click.IntRange(min=1_000_000),
    default=1_000_000_000,
    show_default=True,
    help="About how large a shard is.",
)
@click.option(
    "--max-silent-share",
    type=click.FloatRange(0, 1),
    default=0.1,
    show_default=True,
    help="More silent recordings than this fail the loudness index.",
)
@policy_options
def pack(manifest: Path, output_dir: Path, name: str | None, **options: Any) -> None:
    """Validate, measure loudness, pack, verify and publish, in one process without Dagster.

    MANIFEST is a canonical TSV. The result lies in OUTPUT_DIR/asd/packed_shards/NAME/current.
    """
    from muvap_assets.asd import line
    from muvap_assets.layout import Layout

    corpus, layout = corpus_of(manifest, name, options), Layout(output_dir.resolve())
    for label, make, artifact in (
        ("manifest", line.make_manifest, layout.asd_manifest),
        ("loudness_index", line.make_loudness_index, layout.asd_loudness_index),
        ("packed_shards", line.make_packed_shards, layout.asd_packed_shards),
    ):
        outcome = make(layout, corpus, progress(label))
        if not print_outcome(f"asd/{label} [{corpus.name}]", outcome, artifact(corpus.name).violations):
            sys.exit(1)
    click.echo(layout.asd_packed_shards(corpus.name).current)


def inspect_pack(folder: Path, *, as_json: bool) -> None:
    """Print what is in a pack."""
    from muvap_assets.asd.packs.summary import summarize_pack

    summary = asdict(summarize_pack(folder))
    if as_json:
        click.echo(json.dumps(summary, indent=1, default=str))
        return
    width = max(map(len, summary))
    for name, value in summary.items():
        text = f"{value:.4f}" if isinstance(value, float) else json.dumps(value) if isinstance(value, dict) else value
        click.echo(f"{name.ljust(width)}  {text}")


def verify_pack_folder(folder: Path) -> int:
    """Print every check of a pack, its figures and what is unusual about them; the exit code, whatever the figures are."""
    from muvap_assets.asd.packs.report import report_pack, unusual_figures
    from muvap_assets.asd.packs.verify import verify_pack

    checks = verify_pack(folder, None)
    print_checks(str(folder), checks)
    print_violations(violation for check in checks for violation in check.violations)
    if any(check.blocks for check in checks):
        return 1
    for report in report_pack(folder):
        _print_report(report)
        print_violations(unusual_figures(report))
    return 0


def _print_report(report: Any) -> None:
    from muvap_assets.asd.packs.report import FIGURES, QUANTILE_NAMES

    share = "not known" if report.speaking_share is None else f"{report.speaking_share:.1%}"
    rates = ", ".join(f"{rate} ({count})" for rate, count in report.frame_rates.items())
    click.echo(
        f"\n{report.dataset}: {report.samples} samples of {report.recordings} recordings, {report.silent_recordings} silent, "
        f"{report.off_target:.1%} under the target level; speaking share {share}; fps {rates}"
    )
    table: list[tuple[str, ...]] = [("", *QUANTILE_NAMES)]
    for figure in FIGURES:
        spread = getattr(report, figure)
        table.append((figure, *(f"{getattr(spread, name):.3f}" if spread else "-" for name in QUANTILE_NAMES)))
    print_table(table)
