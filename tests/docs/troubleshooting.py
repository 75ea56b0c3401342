"""Writes ``docs/troubleshooting.md``: its tables from the table of codes, its messages from real bad inputs; the rest stays.

``make docs`` runs it; ``test_troubleshooting.py`` fails where the page is not what it writes.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bad_inputs import KINDS, findings_of
from pages import ROOT

from muvap_assets.codes import Code
from muvap_assets.findings import Finding

PAGE = "docs/troubleshooting.md"
SECTIONS = {
    "Text of a manifest": Code.FILE_UNREADABLE,
    "Faces": Code.FACES_MISSING,
    "Audio": Code.AUDIO_MISSING,
    "AVA, WASD and splits": Code.LOADER_FORMAT,
    "Videos, boxes and turns": Code.VIDEO_WITHOUT_WINDOW,
    "Rows and media of ref2va": Code.SCHEMA_INVALID,
    "Encoding": Code.PRESENTATION_TOO_LONG,
    "Published artifacts": Code.ARTIFACT_INVALID,
}
"""The headings of the page, each with the first of its codes; the others follow it in the table."""

_MESSAGES = re.compile(r"```text\n(?=(?:error|warning): )")


def codes_of(section: str) -> Sequence[Code]:
    """The codes below a heading."""
    table, firsts = list(Code), list(SECTIONS.values())
    place = firsts.index(SECTIONS[section])
    end = table.index(firsts[place + 1]) if place + 1 < len(firsts) else len(table)
    return table[table.index(firsts[place]) : end]


def table_row(code: Code) -> str:
    """The line of a code, with what to do in each case; a fact that a text takes is named in capitals."""
    weight = "either" if len(code.severities) > 1 else str(code.severities[0])
    hints = dict.fromkeys(code.case(name).hint for name in ("", *(case.name for case in code.cases)))
    return f"| `{code}` | {weight} | {code.causes} | {'<br>'.join(_without_facts(hint) for hint in hints)} |"


def _without_facts(text: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: match[1].upper(), text).replace("|", r"\|")


def printed(finding: Finding) -> str:
    """A finding as the commands print it."""
    return f"{finding.severity}: {finding.code}: {finding.message()}"


def real_findings(folder: Path) -> Iterator[Finding]:
    """What all bad inputs give."""
    for make in KINDS:
        place = folder / make.__name__
        place.mkdir()
        yield from findings_of(make, place)


def written(page: str, findings: Sequence[Finding]) -> str:
    """``page`` with its tables and messages written anew: of each code the first message there is."""
    first: dict[Code, Finding] = {}
    for finding in findings:
        first.setdefault(finding.code, finding)
    for section in SECTIONS:
        rows = [table_row(code) for code in codes_of(section)]
        lines = [printed(first[code]) for code in codes_of(section) if code in first]
        table = ["| code | weight | cause | what to do |", "|---|---|---|---|", *rows]
        text = "\n".join([f"## {section}", "", *table, "", "```text", *lines, "```"])
        before, _, rest = page.partition(f"## {section}\n")
        after = rest[rest.index("```", _MESSAGES.search(rest).end()) + 3 :]
        page = before + text + after
    return page


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        found = list(real_findings(Path(scratch)))
    path = ROOT / PAGE
    path.write_text(written(path.read_text(encoding="utf-8"), found), encoding="utf-8")
