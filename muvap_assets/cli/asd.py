"""Verbs of the asd line. The domain is imported when a verb runs, so that ``muvap --help`` is quick."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muvap_assets.asd.policy import SHARD_BYTES, AudioSampleRate, Policy, ShardBytes
from muvap_assets.cli.ops import layout_of
from muvap_assets.cli.options import option, record_options
from muvap_assets.cli.output import (
    print_checks,
    print_findings,
    print_json,
    print_outcome,
    print_table,
    progress,
    say,
    to_json,
)
from muvap_assets.cli.paths import FILE, NEW_FOLDER
from muvap_assets.findings import count_by_code
from muvap_assets.options import made_of

if TYPE_CHECKING:
    from muvap_assets.asd.contract import Corpus


AFTER_VALIDATION = ("max_silent_share",)
"""Options of the policy that no row is validated by."""


def corpus_of(
    manifest: Path, options: Mapping[str, Any], name: str | None = None, shard_bytes: int = SHARD_BYTES
) -> Corpus:
    """The corpus a command is about; ``options`` as the command line gives them."""
    from muvap_assets.asd.contract import Corpus
    from muvap_assets.asd.corpora.tsv import TsvCorpus

    name = name or manifest.stem
    source = TsvCorpus(kind="tsv", manifest=manifest.resolve(), audio_sample_rate=options["audio_sample_rate"])
    return Corpus(name=name, source=source, dataset=name, policy=made_of(Policy, options), shard_bytes=shard_bytes)


def validate_tsv(file: Path, *, as_json: bool, deep: bool, **options: Any) -> int:
    """Print the verdict on a canonical TSV; the exit code."""
    from muvap_assets.asd.line import validate_corpus

    report = validate_corpus(corpus_of(file, options), progress("validate"), deep)
    if as_json:
        verdict = {
            "source": report.source,
            "ok": report.accepted_as_a_whole,
            "rows": report.row_count,
            "accepted": len(report.clips),
            "rejected": report.rejected,
            "finding_counts": count_by_code(report.findings),
            "findings": to_json(report.findings),
        }
        print_json(verdict)
    else:
        print_findings(report.findings, f"muvap validate --json {file}, with the same options, prints all of them")
        state = "valid" if report.accepted_as_a_whole else "NOT VALID"
        say(f"{file}: {state}; {report.row_count} rows, {len(report.clips)} accepted, {report.rejected} rejected")
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
@option("shard_bytes", ShardBytes, SHARD_BYTES)
@option("audio_sample_rate", AudioSampleRate, None)
@record_options(Policy)
def pack(manifest: Path, output_dir: Path, name: str | None, shard_bytes: int, **options: Any) -> None:
    """Validate, measure loudness, pack, verify and publish, in one process without Dagster.

    MANIFEST is a canonical TSV. The result lies in OUTPUT_DIR/asd/packed_shards/NAME/current.
    """
    from muvap_assets.asd import line

    corpus, layout = corpus_of(manifest, options, name, shard_bytes), layout_of(output_dir)
    for label, make, artifact in (
        ("manifest", line.make_manifest, layout.asd_manifest),
        ("loudness_index", line.make_loudness_index, layout.asd_loudness_index),
        ("packed_shards", line.make_packed_shards, layout.asd_packed_shards),
    ):
        outcome = make(layout, corpus, progress(label))
        if not print_outcome(f"asd/{label} [{corpus.name}]", outcome, artifact(corpus.name).findings):
            sys.exit(1)
    say(str(layout.asd_packed_shards(corpus.name).current))


def inspect_pack(folder: Path, *, as_json: bool) -> None:
    """Print what is in a pack."""
    from muvap_assets.asd.packs.summary import summarize_pack

    summary = asdict(summarize_pack(folder))
    if as_json:
        print_json(summary)
        return
    width = max(map(len, summary))
    for name, value in summary.items():
        text = f"{value:.4f}" if isinstance(value, float) else json.dumps(value) if isinstance(value, dict) else value
        say(f"{name.ljust(width)}  {text}")


def verify_pack_folder(folder: Path) -> int:
    """Print every check of a pack, its figures and what is unusual about them; the exit code, whatever the figures are."""
    from muvap_assets.asd.packs.report import report_pack, unusual_figures
    from muvap_assets.asd.packs.verify import verify_pack

    checks = verify_pack(folder, None)
    print_checks(str(folder), checks)
    print_findings(finding for check in checks for finding in check.findings)
    if any(check.blocks for check in checks):
        return 1
    for report in report_pack(folder):
        _print_report(report)
        print_findings(unusual_figures(report))
    return 0


def _print_report(report: Any) -> None:
    from muvap_assets.asd.packs.report import FIGURES, QUANTILE_NAMES

    share = "not known" if report.speaking_share is None else f"{report.speaking_share:.1%}"
    rates = ", ".join(f"{rate} ({count})" for rate, count in report.frame_rates.items())
    say("")
    say(
        f"{report.dataset}: {report.samples} samples of {report.recordings} recordings, {report.silent_recordings} silent, "
        f"{report.off_target:.1%} under the target level; speaking share {share}; fps {rates}"
    )
    table: list[tuple[str, ...]] = [("", *QUANTILE_NAMES)]
    for figure in FIGURES:
        spread = getattr(report, figure)
        table.append((figure, *(f"{getattr(spread, name):.3f}" if spread else "-" for name in QUANTILE_NAMES)))
    print_table(table)
