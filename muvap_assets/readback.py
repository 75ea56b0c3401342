"""Reading back what was published: a damaged file is one error that names it, whatever it makes a parser stumble over.

Belongs here: the translation alone. What a file must hold is its reader's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding

STUMBLES = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    pa.ArrowException,
)
"""What parsers raise where bytes are not what they should be; each kind was seen."""

_SHOWN = 200


@contextmanager
def reading(path: Path, case: str = "published") -> Iterator[None]:
    """Read ``path`` within the block; ``case`` is one of ``ARTIFACT_INVALID`` without facts.

    Raises:
        FormatError: the block stumbled over what the file holds, or the file is not there.
    """
    try:
        yield
    except STUMBLES as error:
        finding = Finding(Code.ARTIFACT_INVALID, path, unreadable(error, path), case=case)
        raise FormatError(finding.placed(source=path.name)) from error


def unreadable(error: BaseException, path: Path) -> str:
    """What was found where ``path`` could not be read, without its folder: a finding may be published."""
    if isinstance(error, FileNotFoundError):
        return "a file of it is missing" if path.is_dir() else "missing"
    return f"unreadable ({reason_of(error).replace(f'{path.parent}/', '')})"


def reason_of(error: BaseException) -> str:
    """An error's kind and the first line of its text, cut to what a message holds."""
    if isinstance(error, FileNotFoundError):
        return "missing"
    first = (str(error).splitlines() or [""])[0][:_SHOWN]
    return f"{type(error).__name__}{f': {first}' if first else ''}"
