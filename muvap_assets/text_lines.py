"""Lines of a text that somebody else wrote, read and told: none takes more room than a line has reason to.

Python reads a line whole, however long; a file without a line break would be read whole as well. A name that is printed may
hold what moves a terminal's cursor, ends the line, or turns the text after it around.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import TextIO

UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028\u2029"  # control characters, and what ends a line
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of text
    r"\ud800-\udfff]"  # bytes of a file's name that are no UTF-8
)
"""What no line that is shown may hold as it is."""

LINE_CHARACTERS = 4000
VALUE_CHARACTERS = 1000
"""The longest line of a message, and the longest value in one."""


def line(text: str, length: int = LINE_CHARACTERS) -> str:
    """``text`` as a line may hold it: one line, what is unprintable as ``\\x1b`` or ``\\u202e``, and cut where it is long."""
    return cut(UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], text[: length + 1]), length)


def lines(text: str) -> str:
    """The same of each line of a text whose line breaks are ours, and of no more than a hundred long ones."""
    return "\n".join(map(line, cut(text, 100 * LINE_CHARACTERS).split("\n")))


def cut(text: str, length: int = 2000) -> str:
    """``text``, or its beginning: a message is no place for all that an untrusted file may hold."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


class LineTooLong(ValueError):
    """A line is beyond its limit; what follows was not read."""


class WholeLines:
    """The lines of ``stream`` with their ends, as an iterator; each of at most ``limit`` characters."""

    def __init__(self, stream: TextIO, limit: int) -> None:
        self._read, self._limit = stream.readline, limit

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            LineTooLong: it is longer than the limit.
        """
        line = self._read(self._limit + 1)
        if not line:
            raise StopIteration
        if len(line) > self._limit:
            raise LineTooLong(f"over {self._limit:,} characters without an end")
        return line


def folded(name: str) -> str:
    """The same text for names that differ only by case or by Unicode form, which file systems may take for one."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
