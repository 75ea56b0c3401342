"""The pages a stranger reads, taken apart: fenced blocks with the comment above each, and tables under a heading."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))
COMMANDS = ("bash", "console", "python")
"""Languages of blocks that are run, unless a comment says why they are not."""

_COMMENT = re.compile(r"\s*<!-- (.*) -->")
_FENCE = re.compile(r"(\s*)```(\w*)$")


@dataclass(frozen=True)
class Block:
    """A fenced block. ``notes`` are the comments on the lines right above it, as ``name: value``."""

    page: str
    line: int
    section: str
    language: str
    text: str
    notes: dict[str, str]

    @property
    def place(self) -> str:
        """Where it stands, for messages."""
        return f"{self.page}:{self.line}"

    @property
    def not_run(self) -> str | None:
        """Why it is not run here, where it says so."""
        return self.notes.get("not run")

    @property
    def file(self) -> str | None:
        """The file the reader is asked to put it into."""
        return self.notes.get("file")


def read_page(page: str, root: Path = ROOT) -> str:
    """The text of a page."""
    return (root / page).read_text(encoding="utf-8")


def blocks(page: str, root: Path = ROOT) -> list[Block]:
    """Every fenced block of a page, in order."""
    found: list[Block] = []
    section, notes, opened, lines = "", {}, None, []
    for number, line in enumerate(read_page(page, root).splitlines(), 1):
        if opened is not None:
            start, indent, language = opened
            if line.strip() == "```":
                text = "".join(f"{each.removeprefix(indent)}\n" for each in lines)
                found.append(Block(page, start, section, language, text, notes))
                opened, notes, lines = None, {}, []
            else:
                lines.append(line)
        elif match := _FENCE.match(line):
            opened = (number, match[1], match[2])
        elif match := _COMMENT.fullmatch(line):
            name, _, value = match[1].partition(": ")
            notes[name] = value
        elif line.strip():
            notes = {}
            if line.startswith("## "):
                section = line.removeprefix("## ").strip()
    return found


def tables(page: str, heading: str) -> list[list[list[str]]]:
    """The tables below a heading and above the next one of any level, each as rows of cells, its header first."""
    text = read_page(page)
    match = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise LookupError(f"{page}: no heading {heading!r}")
    found, table = [], []
    for line in [*match[1].splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                table.append(cells)
        elif table:
            found.append(table)
            table = []
    return found


def code(cell: str) -> str:
    """A cell without the backquotes that make it code."""
    return cell.strip("`")
