"""Speaker turns of RTTM files, and labels read off them at the centres of video frames.

    SPEAKER <file> <channel> <start> <duration> <NA> <NA> <speaker> <NA> <NA>

Times are decimals, kept exactly. Other record types and lines that begin with ``;;`` are comments.
Source: the NIST Rich Transcription format, fields 2, 4, 5 and 8.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code
from muvap_assets.findings import Finding, Place
from muvap_assets.text_lines import LineTooLong, WholeLines

_DECIMAL = re.compile(r"\d{1,9}(\.\d{1,12})?", re.ASCII)
_MIN_FIELDS, _MAX_FIELDS = 8, 10
_MAX_LINE_CHARACTERS = 100_000


@dataclass(frozen=True, slots=True)
class Turn:
    """Speech on ``[start_sec, stop_sec)``."""

    start_sec: Fraction
    stop_sec: Fraction


@dataclass(frozen=True, slots=True)
class Rttm:
    """The turns of a file, by recording, then by speaker, and everything wrong with it.

    ``broken`` are the recordings with a line that cannot be read: what their speakers say is not known.
    """

    turns: Mapping[str, Mapping[str, tuple[Turn, ...]]]
    broken: frozenset[str]
    findings: tuple[Finding, ...]


def read_rttm(path: Path) -> Rttm:
    """Read the turns of all recordings of a file. Never raises for what it holds; a file without a turn is a finding."""
    turns: dict[str, dict[str, list[Turn]]] = {}
    broken: set[str] = set()
    findings: list[Finding] = []
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as stream:
            for number, line in enumerate(WholeLines(stream, _MAX_LINE_CHARACTERS), 1):
                fields = line.split()
                if not fields or fields[0] != "SPEAKER":
                    continue
                turn = _turn(fields)
                if turn is None:
                    name = fields[1] if len(fields) > 1 else ""
                    broken.add(name)
                    findings.append(_malformed(path, number, name, line.strip()))
                else:
                    turns.setdefault(fields[1], {}).setdefault(fields[7], []).append(turn)
    except (OSError, LineTooLong) as error:
        found = f"it cannot be read ({getattr(error, 'strerror', None) or f'a line of {error}'})"
        finding = Finding(Code.RTTM_MISSING, path, found).placed(source=path.name)
        return Rttm({}, frozenset(), (finding,))
    if not turns and not findings:
        findings.append(Finding(Code.RTTM_MISSING, path.name, "no SPEAKER line"))
    by_name = {name: {key: tuple(value) for key, value in speakers.items()} for name, speakers in turns.items()}
    return Rttm(by_name, frozenset(broken), tuple(findings))


def labels_at_centres(turns: Iterable[Turn], first: int, count: int, fps: FrameRate) -> npt.NDArray[np.uint8]:
    """uint8 [count]: 1 where a turn holds the centre of frame ``first + i``, ``(first + i + 1/2) / fps``, exactly."""
    labels = np.zeros(count, np.uint8)
    for turn in turns:
        begin, end = (math.ceil(time * fps.value - Fraction(1, 2)) - first for time in (turn.start_sec, turn.stop_sec))
        labels[max(begin, 0) : max(end, 0)] = 1
    return labels


def _turn(fields: list[str]) -> Turn | None:
    if not _MIN_FIELDS <= len(fields) <= _MAX_FIELDS:
        return None
    if not _DECIMAL.fullmatch(fields[3]) or not _DECIMAL.fullmatch(fields[4]):
        return None
    start = Fraction(fields[3])
    return Turn(start, start + Fraction(fields[4]))


def _malformed(path: Path, number: int, name: str, line: str) -> Finding:
    # A line that names no recording may be any one's: a finding about the file as a whole.
    place = Place(path.name, number, name) if name else Place(path.name)
    return Finding(Code.RTTM_INVALID, place, f"{line[:80]!r}" if name else f"line {number} is {line[:80]!r}")
