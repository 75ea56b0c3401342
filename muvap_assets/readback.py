"""Reading back what was published: a damaged file is one error that names it, whatever it makes a parser stumble over.

Belongs here: the translation, and that no link is followed within what was published. What a file must hold is its reader's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa

from muvap_assets.codes import Code
from muvap_assets.errors import FormatError
from muvap_assets.findings import Finding
from muvap_assets.storage.trees import LINK, VersionLink, foreign, opened, walk

T = TypeVar("T")
STUMBLES = (
    *(OSError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    pa.ArrowException,
)
"""What parsers raise where bytes are not what they should be; each kind was seen."""

_SHOWN = 200


@contextmanager
def reading(path: Path, case: str = "published", *, folder: bool = False) -> Iterator[None]:
    """Read the file ``path`` within the block, or all of a ``folder``; ``case`` is one of ``ARTIFACT_INVALID`` without facts.

    Raises:
        FormatError: the block stumbled over what the file holds, or the file is not there, or a link or a special file is.
    """
    try:
        require_plain(*((path,) if folder else (path.parent, path.name)))
        yield
    except STUMBLES as error:
        finding = Finding(Code.ARTIFACT_INVALID, path, unreadable(error, path), case=case)
        raise FormatError(finding.placed(source=path.name)) from error


def typed(kind: type[T], values: Any) -> T:
    """A dataclass of the fields in ``values``, each of the type that it declares; what a tuple or mapping holds is not looked at.

    Raises:
        TypeError, ValueError: ``values`` are no fields of it, or one is of another type.
    """
    made = kind(**values)
    for name, kinds in _kinds(kind):  # type: ignore[arg-type]  # mypy does not know that classes are hashable
        value = getattr(made, name)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise ValueError(f"{name} is a {type(value).__name__}")
        if isinstance(value, int) and float in kinds:
            float(value)  # raises where it is too large
    return made


@cache
def _kinds(kind: type) -> list[tuple[str, tuple[type, ...]]]:
    """The names of a dataclass's fields and what they may be; JSON writes a whole float as an integer."""
    hints, kinds = get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        each = [get_origin(one) or one for one in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
        kinds.append((field.name, (*each, int) if float in each else tuple(each)))
    return kinds


def published_folder(path: Path) -> Path:
    """The real path of a published folder that a reader is given as ``path``, wherever ``current`` points later.

    Raises:
        FormatError: a link stands in the place of a version.
    """
    return _opened(path).resolve()


def require_plain(folder: Path, name: str = "") -> None:
    """Refuse a published folder that holds a link or a special file; with ``name`` only the file of it that is read.

    Raises:
        FormatError: it does, or a link stands in the place of the version.
    """
    folder = _opened(folder)
    parts = [Path(name), *Path(name).parents][:-1][::-1]
    for path, kind in ((part.as_posix(), foreign(folder / part)) for part in parts) if parts else walk(folder):
        if kind is not None:
            raise _linked(folder / path, path, kind)


def _opened(path: Path) -> Path:
    try:
        return opened(path)
    except VersionLink as error:
        raise _linked(error.path, error.path.name, LINK) from None


def _linked(path: Path, name: str, kind: str) -> FormatError:
    return FormatError(Finding(Code.ARTIFACT_INVALID, path, kind, case="link").placed(source=name))


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
