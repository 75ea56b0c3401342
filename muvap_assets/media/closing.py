"""What is open and has to be closed."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Closes itself where its ``with`` block ends. Subclasses say how."""

    def close(self) -> None:
        """Close what was opened."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
