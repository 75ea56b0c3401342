"""Following a page as a reader does: files are written, commands are run, in order, in a workspace of their own.

Comments right above a fenced block say what is meant by it:

    <!-- file: PATH -->       the reader is asked to put the block into this file
    <!-- exits: N -->         its last command exits with N; without it with 0
    <!-- output -->           what the Python block before it prints, or part of what the commands before it do
    <!-- given: NAME -->      it uses something of the reader's own, which stands in :data:`GIVEN`
    <!-- run by: TEST -->     another test of this repository runs it
    <!-- not run: WHY -->     no test runs it, and why

Lines ``export NAME=VALUE`` of a page hold for what follows on it, as in one terminal. In ``console`` blocks and outputs ``...``
stands for anything. Python blocks below one heading ``##`` are one program.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pages import COMMANDS, ROOT, Block, blocks

COPIED = ("muvap_assets", "resources", "deploy", "benchmarks")
COPIED_FILES = ("Makefile", "pyproject.toml", "constraints.txt", "workspace.yaml", "README.md")
_SEPARATOR = "\x1e"
# The environment stands already: `make` is told so, and nothing is installed again.
_PRELUDE = 'make() { command make -o install "$@"; }\n'

GIVEN = {
    "model": """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(640 + 112 * 112, 6)
    def forward(self, audio, faces):
        return self.layer(torch.cat([audio.unflatten(1, (-1, 640)), faces.flatten(2)], dim=2))
model = Model()
""",
    "scores": """
import numpy as np
from muvap_assets.asd.timeline import model_frame_count
def model(sample):
    return np.linspace(0, 1, model_frame_count(len(sample.labels), sample.source_fps))
""",
}


def make_workspace(folder: Path) -> Path:
    """The repository as a reader has it after `make` once: sources, and an environment in ``.venv``."""
    folder.mkdir(parents=True)
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in COPIED_FILES:
        shutil.copy2(ROOT / name, folder / name)
    return with_environment(folder)


def with_environment(folder: Path) -> Path:
    """Put the running environment where `make` would install one."""
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


@dataclass
class Walk:
    """A page followed in ``workspace``; ``ran`` are the places of the blocks that were run."""

    page: str
    workspace: Path
    source: Path = ROOT
    ran: list[str] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)
    programs: dict[str, list[str]] = field(default_factory=dict)

    def follow(self, sections: Sequence[str] | None = None) -> list[str]:
        """Run the blocks of the page, or of some of its sections, in order; stops with what a command said where one fails."""
        found = [block for block in blocks(self.page, self.source) if sections is None or block.section in sections]
        for block, after in zip(found, [*found[1:], None], strict=True):
            if is_left_out(block):
                continue
            if block.file is not None:
                path = self.workspace / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.text, encoding="utf-8")
            elif block.language == "bash":
                self._bash(block, after)
            elif block.language == "console":
                self._console(block)
            elif block.language == "python":
                self._python(block, after)
        return self.ran

    def environment(self) -> dict[str, str]:
        """What every command is given: nothing of the caller's own settings."""
        # DATA_ROOT and what follows are of the `make` that runs the tests.
        settings = ("MUVAP_", "DAGSTER_", "DATA_ROOT", "MAKE", "MFLAGS")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
        return {**kept, "PYTHONPATH": str(self.workspace), "MUVAP_H3_DEVICE": "cpu", "COLUMNS": "200"}

    def _run(self, command: Sequence[str], block: Block) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command,
            cwd=self.workspace,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=3600,  # a command that hangs; how long it takes is no matter of these tests
        )
        expected = int(block.notes.get("exits", 0))
        if done.returncode != expected:
            raise AssertionError(
                f"{block.place}: exited with {done.returncode}, documented is {expected}\n{block.text}\n"
                f"--- stdout\n{done.stdout[-4000:]}\n--- stderr\n{done.stderr[-4000:]}"
            )
        return done

    def _shell(self, text: str, block: Block) -> str:
        script = _PRELUDE + "".join(f"{line}\n" for line in self.exports) + text
        return self._run(["bash", "-euo", "pipefail", "-c", script], block).stdout

    def _bash(self, block: Block, after: Block | None) -> None:
        printed = self._shell(block.text, block)
        if after is not None and "output" in after.notes:
            assert_shown(f"...{after.text.strip()}...", printed, after)
        self.exports += re.findall(r"^export .*$", block.text, re.MULTILINE)
        self.ran.append(block.place)

    def _console(self, block: Block) -> None:
        steps = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
        for step in steps:
            command, _, shown = re.sub(r"\\\n", " ", step).partition("\n")
            printed = self._shell(command, block)
            assert_shown(shown, printed, block)
        self.ran.append(block.place)

    def _python(self, block: Block, after: Block | None) -> None:
        before = self.programs.setdefault(block.section, [])
        given = GIVEN[block.notes["given"]] if "given" in block.notes else ""
        before.append(given + block.text)
        program = f"\nprint({_SEPARATOR!r})\n".join(["\n".join(before[:-1]), before[-1]])
        printed = self._run([sys.executable, "-W", "error", "-c", program], block).stdout.rpartition(_SEPARATOR)[2]
        if after is not None and "output" in after.notes:
            assert_shown(after.text, printed.removeprefix("\n"), after)
        self.ran.append(block.place)


def is_left_out(block: Block) -> bool:
    """Whether the page says that this block is run elsewhere or nowhere."""
    return block.not_run is not None or "run by" in block.notes


def to_run(page: str, source: Path = ROOT) -> list[str]:
    """The places of the blocks of a page that have to be run."""
    return [
        block.place
        for block in blocks(page, source)
        if block.language in COMMANDS and block.file is None and not is_left_out(block)
    ]


def assert_shown(shown: str, printed: str, block: Block) -> None:
    """What the page shows is what was printed; ``...`` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        raise AssertionError(f"{block.place}: printed was\n{printed}\n--- shown is\n{shown}")
