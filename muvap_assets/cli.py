"""The ``muvap`` command: thin verbs over the domain, without Dagster.

Exit codes: 0 done, 1 the data or a file is not good enough, 2 the command was used wrongly. Results go to standard output,
progress and errors to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from muvap_assets.errors import MuvapError, Violation, count_by_code
from muvap_assets.publish import CheckOutcome, Outcome

SHOWN = 50
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


class _Group(click.Group):
    """Turns errors of ours into one message and exit code 1, never a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except MuvapError as error:
            click.echo(f"error: {error}", err=True)
            context.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="muvap-assets")
def main() -> None:
    """Checked, versioned training data for audio-visual models."""


def _policy_options(command: Any) -> Any:
    for option in (
        click.option(
            "--quarantine", is_flag=True, help="Let good rows go on where others are bad, and list the bad ones."
        ),
        click.option(
            "--max-rejected-share",
            type=click.FloatRange(0, 1),
            default=0.05,
            show_default=True,
            help="Limit of --quarantine.",
        ),
        click.option(
            "--max-missing-audio-share",
            type=click.FloatRange(0, 1),
            default=0.1,
            show_default=True,
            help="A clip's audio may end this share of the clip early.",
        ),
    ):
        command = option(command)
    return command


def _corpus(manifest: Path, name: str | None, options: dict[str, Any]) -> Any:
    from muvap_assets.asd.contract import Corpus, OnViolation, Policy
    from muvap_assets.asd.corpora.tsv import TsvCorpus

    quarantine = options.pop("quarantine")
    policy = Policy(
        on_violation=OnViolation.QUARANTINE if quarantine else OnViolation.FAIL,
        max_rejected_share=options.pop("max_rejected_share"),
        max_missing_audio_share=options.pop("max_missing_audio_share"),
    )
    name = name or manifest.stem
    source = TsvCorpus(kind="tsv", manifest=manifest.resolve())
    return Corpus(name=name, source=source, dataset=name, policy=policy, **options)


@main.command()
@click.argument("file", type=_FILE)
@_policy_options
@click.option("--json", "as_json", is_flag=True, help="Print the whole verdict as one JSON object.")
def validate(file: Path, as_json: bool, **options: Any) -> None:
    """Check a canonical TSV manifest and its media; nothing is written.

    FILE is the manifest. Exits 0 where the asset asd/manifest would be published, 1 where it would not.
    """
    from muvap_assets.asd.line import validate_corpus

    report = validate_corpus(_corpus(file, None, options), _progress("validate"))
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
        _print_violations(report.violations)
        state = "valid" if report.accepted_as_a_whole else "NOT VALID"
        click.echo(
            f"{file}: {state}; {report.row_count} rows, {len(report.clips)} accepted, {report.rejected} rejected"
        )
    sys.exit(0 if report.accepted_as_a_whole else 1)


@main.command()
@click.argument("manifest", type=_FILE)
@click.option(
    "-o",
    "--output-dir",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
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
@_policy_options
def pack(manifest: Path, output_dir: Path, name: str | None, **options: Any) -> None:
    """Validate, measure loudness, pack, verify and publish, in one process without Dagster.

    MANIFEST is a canonical TSV. The result lies in OUTPUT_DIR/asd/packed_shards/NAME/current.
    """
    from muvap_assets.asd import line
    from muvap_assets.layout import Layout

    corpus, layout = _corpus(manifest, name, options), Layout(output_dir.resolve())
    for label, make in (
        ("manifest", line.make_manifest),
        ("loudness_index", line.make_loudness_index),
        ("packed_shards", line.make_packed_shards),
    ):
        outcome: Outcome[Any] = make(layout, corpus, _progress(label))
        _print_checks(f"asd/{label}", outcome.checks)
        if outcome.published is None:
            _print_violations([violation for check in outcome.blocking for violation in check.violations])
            click.echo(f"error: asd/{label} [{corpus.name}] was not published", err=True)
            sys.exit(1)
        state = "published" if outcome.published.created else "unchanged"
        click.echo(f"asd/{label}: version {outcome.published.version} {state}")
    click.echo(layout.asd_packed_shards(corpus.name).current)


@main.command()
@click.argument("folder", metavar="PACK", type=_FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(folder: Path, as_json: bool) -> None:
    """Print what is in a PACK: samples, frames, hours, rates, levels, provenance."""
    from dataclasses import asdict

    from muvap_assets.asd.packs.summary import summarize_pack

    summary = asdict(summarize_pack(folder))
    if as_json:
        click.echo(json.dumps(summary, indent=1, default=str))
        return
    width = max(map(len, summary))
    for name, value in summary.items():
        text = (
            f"{value:.4f}"
            if isinstance(value, float)
            else json.dumps(value, default=str)
            if isinstance(value, dict)
            else value
        )
        click.echo(f"{name.ljust(width)}  {text}")


@main.command()
@click.argument("folder", metavar="PACK", type=_FOLDER)
def verify(folder: Path) -> None:
    """Read a whole PACK and check everything its format promises; print its figures, and a warning for unusual ones.

    Exits 1 where something does not hold, whatever the figures are.
    """
    from muvap_assets.asd.packs.report import report_pack, unusual_figures
    from muvap_assets.asd.packs.verify import verify_pack

    checks = verify_pack(folder, None)
    _print_checks(str(folder), checks)
    _print_violations([violation for check in checks for violation in check.violations])
    if any(check.blocks for check in checks):
        sys.exit(1)
    for report in report_pack(folder):
        _print_report(report)
        _print_violations(unusual_figures(report))


@main.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def demo(folder: Path) -> None:
    """Write the demo corpus into FOLDER: train.tsv, val.tsv and their media, with known ground truth."""
    from muvap_assets.demo.corpus import write_demo_corpus

    written = write_demo_corpus(folder)
    click.echo(f"{folder}: {'written' if written else 'stands already'}")


def _progress(what: str) -> Any:
    from muvap_assets.progress import ProgressLog

    return ProgressLog(lambda line: click.echo(line, err=True), what)


def _print_checks(subject: str, checks: Sequence[CheckOutcome]) -> None:
    for check in checks:
        state = "passed" if check.passed else "FAILED" if check.blocks else "warning"
        numbers = ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in check.numbers.items()
        )
        click.echo(f"{subject}: {check.name} {state}{f' ({numbers})' if numbers else ''}")


def _print_report(report: Any) -> None:
    from muvap_assets.asd.packs.report import FIGURES, QUANTILE_NAMES

    share = "not known" if report.speaking_share is None else f"{report.speaking_share:.1%}"
    rates = ", ".join(f"{rate} ({count})" for rate, count in report.frame_rates.items())
    click.echo(
        f"\n{report.dataset}: {report.samples} samples of {report.recordings} recordings, {report.silent_recordings} silent, "
        f"{report.off_target:.1%} under the target level; speaking share {share}; fps {rates}"
    )
    click.echo(f"{'':16}{''.join(name.rjust(11) for name in QUANTILE_NAMES)}")
    for figure in FIGURES:
        spread = getattr(report, figure)
        cells = [f"{getattr(spread, name):.3f}" if spread else "-" for name in QUANTILE_NAMES]
        click.echo(f"{figure:16}{''.join(cell.rjust(11) for cell in cells)}")


def _print_violations(violations: Iterable[Violation]) -> None:
    listed = list(dict.fromkeys(violations))
    for violation in listed[:SHOWN]:
        click.echo(f"{violation.severity}: {violation.code}: {violation.message()}")
    if len(listed) > SHOWN:
        click.echo(f"... and {len(listed) - SHOWN} more; --json prints all of them")
