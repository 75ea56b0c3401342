"""What every verb prints, and how: results to standard output, progress to standard error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from muvap_assets.errors import Violation
from muvap_assets.progress import ProgressLog
from muvap_assets.publish import CheckOutcome, Outcome

SHOWN = 50


def progress(what: str) -> ProgressLog:
    """Progress lines on standard error."""
    return ProgressLog(lambda line: click.echo(line, err=True), what)


def print_checks(subject: str, checks: Sequence[CheckOutcome]) -> None:
    """One line a check, with its numbers."""
    for check in checks:
        state = "passed" if check.passed else "FAILED" if check.blocks else "warning"
        numbers = ", ".join(f"{name} {_short(value)}" for name, value in check.numbers.items())
        click.echo(f"{subject}: {check.name} {state}{f' ({numbers})' if numbers else ''}")


def print_violations(violations: Iterable[Violation]) -> None:
    """The first findings, each once."""
    listed = list(dict.fromkeys(violations))
    for violation in listed[:SHOWN]:
        click.echo(f"{violation.severity}: {violation.code}: {violation.message()}")
    if len(listed) > SHOWN:
        click.echo(f"... and {len(listed) - SHOWN} more; --json prints all of them")


def print_outcome(subject: str, outcome: Outcome[Any]) -> bool:
    """What a checked build did; false where it was not published."""
    print_checks(subject, outcome.checks)
    if outcome.published is None:
        print_violations(violation for check in outcome.blocking for violation in check.violations)
        click.echo(f"error: {subject} was not published", err=True)
        return False
    state = "published" if outcome.published.created else "unchanged"
    click.echo(f"{subject}: version {outcome.published.version} {state}")
    return True


def print_table(rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they need to be; the first row is the header."""
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
