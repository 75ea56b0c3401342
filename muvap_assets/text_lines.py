"""Lines of a text that somebody else wrote: none takes more memory than a line has reason to.

Python reads a line whole, however long; a file without a line break would be read whole as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TextIO


class LineTooLong(ValueError):
    """A line, or a row of several, is beyond its limit; what follows was not read."""


class WholeLines:
    """The lines of ``stream`` with their ends, as an iterator.

    ``limit`` counts characters since :meth:`begin`, which a reader of rows that span lines calls before each row; a reader of
    single lines leaves ``spanning`` false, and each line counts by itself.
    """

    def __init__(self, stream: TextIO, limit: int, *, spanning: bool = False) -> None:
        self._read, self._limit, self._left, self._spanning = stream.readline, limit, limit, spanning

    def begin(self) -> None:
        """Count anew: another row begins."""
        self._left = self._limit

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            LineTooLong: it is longer than what is left of the limit.
        """
        line = self._read(self._left + 1)
        if not line:
            raise StopIteration
        if len(line) > self._left:
            raise LineTooLong(f"over {self._limit:,} characters without an end")
        if self._spanning:
            self._left -= len(line)
        return line
