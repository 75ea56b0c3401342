"""Lines of a text that somebody else wrote: none takes more memory than a line has reason to.

Python reads a line whole, however long; a file without a line break would be read whole as well.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import TextIO


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
