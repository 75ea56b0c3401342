"""The one record of what was found in an input, in whatever line or stage.

It says *where: what was found; what is required. What to do.* The latter two follow from its code (:mod:`muvap_assets.codes`).
A value in a message is one line and cut where it is long (:mod:`muvap_assets.text_lines`); what is published is whole.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from muvap_assets.codes import Code, Severity
from muvap_assets.text_lines import VALUE_CHARACTERS, cut, line


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where in an input something is: a file, its 1-based line, the id of that row, and the column or key."""

    source: str | None = None
    row: int | None = None
    sample_id: str | None = None
    field: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Finding:
    """One thing that is wrong or odd in one place of an input.

    Attributes:
        source: the file it is in, as it is written; findings are published, and hold no path of a machine.
        row: the 1-based line in ``source``, or ``None`` where the file as a whole is meant.
        path: the file that was looked at, as it was resolved; it is in messages, and not in what is published.
    """

    code: Code
    severity: Severity
    source: str | None
    row: int | None
    sample_id: str | None
    field: str | None
    found: str
    required: str
    hint: str
    path: str | None = dataclasses.field(compare=False)

    def __init__(
        self,
        code: Code,
        where: Place | Path | str | None,
        found: str,
        *,
        case: str = "",
        severity: Severity | None = None,
        **facts: object,
    ) -> None:
        """Make a finding.

        Args:
            code: what is wrong.
            where: its place, or the file that was looked at.
            found: what was found there, in words.
            case: a case of ``code``.
            severity: error or warning, of a code that may be either; such a code is an error by default.
            facts: what the texts of ``code`` name in braces.
        """
        place = where if isinstance(where, Place) else Place(source=where if isinstance(where, str) else None)
        texts = code.case(case)
        self._set(
            code=code,
            severity=severity or code.severities[0],
            source=place.source,
            row=place.row,
            sample_id=place.sample_id,
            field=place.field,
            found=found,
            required=texts.required.format_map(facts),
            hint=texts.hint.format_map(facts),
            path=str(where) if isinstance(where, Path) else None,
        )

    def _set(self, **values: object) -> Finding:
        for name, value in values.items():
            object.__setattr__(self, name, value)
        return self

    def _values(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    def placed(self, **place: str | int | None) -> Finding:
        """The same finding with other values: of its place (``source``, ``row``, ``sample_id``, ``field``), or ``found``."""
        return Finding.__new__(Finding)._set(**self._values() | place)

    def of_file(self, written: str, **place: str | int | None) -> Finding:
        """The same finding about a file that an input names as ``written``, in the input's place.

        What a path cannot be is said where nothing was found at it: ``~`` and URLs are not read, and ``\\`` separates nothing.
        """
        return self.placed(**place, found=f"{written}: {self.found}").advised(_advice(self.code, written))

    def advised(self, text: str) -> Finding:
        """The same finding with one thing more to do, where ``text`` is not empty: a sentence about this very case."""
        return self.placed(hint=f"{self.hint} {text}") if text else self

    @property
    def found_where(self) -> str:
        """What was found, with the file that was looked at as it was resolved."""
        found = cut(self.found, VALUE_CHARACTERS)
        return f"{found} ({self.path})" if self.path and self.path not in self.found else found

    def message(self) -> str:
        """The finding in the one grammar all messages follow; a file is named as it is written and as it was resolved."""
        where = " ".join(
            [
                *([_value(self.source)] if self.source else []),
                *([f"row {self.row}"] if self.row is not None else []),
                *([f"({_value(self.sample_id)})"] if self.sample_id else []),
            ]
        )
        found = line(self.found_where, 2 * VALUE_CHARACTERS)
        if self.path and not where and not self.field:
            where, found = _value(self.path), _value(self.found)
        parts = [part for part in (where, _value(self.field or ""), found) if part]
        return f"{': '.join(parts)}; required: {_value(self.required)}. {_value(self.hint)}"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values of what is published, in a fixed key order: all but ``path``."""
        record = self._values()
        del record["path"]
        return {**record, "code": str(self.code), "severity": str(self.severity)}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Finding:
        """The inverse of :meth:`to_dict`.

        Raises:
            KeyError, TypeError, ValueError: it is no such record.
        """
        known = {"path": None, **record, "code": CODES[record["code"]], "severity": Severity(record["severity"])}
        for name, kinds in _KINDS.items():
            if not isinstance(known[name], kinds):
                raise ValueError(f"{name} is a {type(known[name]).__name__}")
        return cls.__new__(cls)._set(**{each.name: known[each.name] for each in dataclasses.fields(cls)})


def _value(text: str) -> str:
    return line(text, VALUE_CHARACTERS)


_TEXT = (str, type(None))
_KINDS = {
    **dict.fromkeys(("found", "required", "hint"), (str,)),
    **dict.fromkeys(("source", "sample_id", "field", "path"), _TEXT),
    "row": (int, type(None)),
}
"""What the values of a record may be, apart from its code and severity."""

CODES = {str(code): code for code in Code}
"""Each code by its name, as records name it."""

_MISSING = frozenset({Code.FACES_MISSING, Code.AUDIO_MISSING, Code.MEDIA_MISSING, Code.FILE_UNREADABLE})


def _advice(code: Code, written: str) -> str:
    """What to say of a path at which nothing was found, for what it looks like."""
    if code not in _MISSING:
        return ""
    if "://" in written:
        return "A URL is not read: download the file first."
    if written.startswith("~"):
        return "~ is not expanded in a manifest: write the whole path."
    return "Write / for \\ in paths." if "\\" in written else ""


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Only those findings that keep a row out."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def count_by_code(findings: Iterable[Finding]) -> dict[str, int]:
    """How often each code occurs, most frequent first."""
    return dict(Counter(str(finding.code) for finding in findings).most_common())
