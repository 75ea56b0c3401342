"""What every verb prints, and how: results to standard output, progress to standard error."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from muvap_assets.codes import Severity
from muvap_assets.findings import Finding, errors_of
from muvap_assets.progress import ProgressLog
from muvap_assets.publish import CheckOutcome, Outcome
from muvap_assets.text_lines import UNPRINTABLE, VALUE_CHARACTERS, line

SHOWN = 50
SHOWN_OF_A_WARNING = 10
RUN_AGAIN = "mend these and run it again"


def say(text: str, *, err: bool = False) -> None:
    """Print one line, whatever the names in it hold; to standard error where ``err`` says so."""
    click.echo(line(text), err=err)


def print_json(value: Any) -> None:
    """Print a JSON value in which only escapes stand for what is unprintable."""
    text = json.dumps(value, indent=1, ensure_ascii=False, default=str)
    click.echo("\n".join(UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", each) for each in text.split("\n")))


def progress(what: str) -> ProgressLog:
    """Progress lines on standard error."""
    return ProgressLog(lambda text: say(text, err=True), what)


def print_checks(subject: str, checks: Sequence[CheckOutcome]) -> None:
    """One line a check, with its numbers."""
    for check in checks:
        state = "passed" if check.passed else "FAILED" if check.blocks else "warning"
        numbers = ", ".join(f"{name} {_short(value)}" for name, value in check.numbers.items())
        say(f"{subject}: {check.name} {state}{f' ({numbers})' if numbers else ''}")


def print_findings(findings: Iterable[Finding], rest: str = RUN_AGAIN) -> None:
    """Findings, each once, errors before warnings; ``rest`` says how to see those that are not shown.

    Of the warnings of one code the first are shown and the others counted, for a thousand silent clips are one thing to know.
    """
    listed = list(dict.fromkeys(findings))
    errors = errors_of(listed)
    warnings: dict[str, list[Finding]] = {}
    for finding in listed:
        if finding.severity is not Severity.ERROR:
            warnings.setdefault(finding.code, []).append(finding)
    few = [finding for alike in warnings.values() for finding in alike[:SHOWN_OF_A_WARNING]]
    shown = [*errors, *few][:SHOWN]
    for finding in shown:
        say(f"{finding.severity}: {finding.code}: {finding.message()}")
    for code, alike in warnings.items():
        if len(alike) > SHOWN_OF_A_WARNING:
            say(f"warning: {code}: {len(alike)} in all")
    if hidden := len(listed) - len(shown):
        say(f"... and {hidden} more; {rest}")


def to_json(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Findings as ``--json`` prints them: with the file that was looked at, which is not in what is published."""
    return [{**finding.to_dict(), "path": finding.path} for finding in findings]


def in_file(report: Path) -> str:
    """Where a run left all of its findings, for ``rest`` of :func:`print_findings`."""
    return f"{report} has all of them"


def print_outcome(subject: str, outcome: Outcome[Any], report: Path) -> bool:
    """What a checked build did; false where it was not published. ``report`` is the file its findings are in."""
    print_checks(subject, outcome.checks)
    if outcome.published is None:
        print_findings((found for check in outcome.blocking for found in check.findings), in_file(report))
        say(f"error: {subject} was not published", err=True)
        return False
    state = "published" if outcome.published.created else "unchanged"
    say(f"{subject}: version {outcome.published.version} {state}")
    return True


def print_table(rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they need to be; the first row is the header."""
    cells = [["" if cell is None else line(str(cell), VALUE_CHARACTERS) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
