"""The canonical tab-separated manifest: text to :class:`ClipRow`, every broken row reported, no media opened.

    sample_id  audio_path  visual_path  source_fps  labels  [start_sec] [visual_kind] [audio_sample_rate]
    [audio_stream] [audio_channel] [boxes_path] [face_id] [first_frame] [license] [consent]

UTF-8 with or without a byte-order mark, LF or CRLF, fields quoted or not, columns in any order.
Source: the audio-visual data contract, "Required manifest fields".
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from muvap_assets.asd.contract import (
    MANIFEST_COLUMNS,
    OPTIONAL_COLUMNS,
    ClipRow,
    ParsedManifest,
    TrackBoxes,
    VisualKind,
)
from muvap_assets.asd.corpora.entry import CorpusEntry, EntryPath
from muvap_assets.asd.corpora.fields import (
    CONTROL_CHARACTER,
    DECIMAL,
    MAX_SAMPLE_ID_CHARACTERS,
    check_ids,
    id_in_findings,
    is_no_record,
    parse_frame_rate,
    parse_labels,
    parse_sample_id,
    read_lines,
    short,
)
from muvap_assets.asd.policy import AudioSampleRate
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place, errors_of
from muvap_assets.media.sound_files import MAX_RATE_HZ, stream_name

_FRACTION = re.compile(r"\d{1,18}/[1-9]\d{0,17}", re.ASCII)
_MAX_START_SEC = 10**7
MAX_COLUMNS = 1000
_NAMES_SHOWN, _NAME_CHARACTERS = 15, 60


class TsvCorpus(CorpusEntry):
    """A corpus in the canonical TSV. ``manifest`` is absolute once parsed.

    ``audio_sample_rate`` is that of NumPy waveforms whose row gives none; what a row gives wins.
    """

    kind: Literal["tsv"]
    manifest: EntryPath
    audio_sample_rate: AudioSampleRate = None

    @property
    def folder(self) -> Path:
        """Where the manifest lies."""
        return self.manifest.parent

    def read(self) -> ParsedManifest:
        """See :func:`read_tsv`."""
        return read_tsv(self.manifest, self.audio_sample_rate)

    def inputs(self) -> Mapping[str, Path]:
        """The manifest itself."""
        return {"source": self.manifest}


def read_tsv(path: Path, audio_sample_rate: int | None = None) -> ParsedManifest:
    """Read a canonical manifest.

    ``audio_sample_rate`` in Hz is that of NumPy waveforms whose row gives none.

    Never raises for what the file holds: everything wrong is in the result's findings, together.
    """
    findings: list[Finding] = []
    rows: list[ClipRow] = []
    ids: list[tuple[int, str]] = []
    row_count = 0
    try:
        for number, record in _records(path, findings, ids):
            row_count += 1
            if audio_sample_rate is not None and _is_array(record) and not record.get("audio_sample_rate", "").strip():
                record["audio_sample_rate"] = str(audio_sample_rate)
            row = _parse_row(path.name, number, record, findings)
            if row is not None:
                rows.append(row)
    except OSError as error:
        found = f"cannot be read ({error.strerror})"
        findings.append(Finding(Code.FILE_UNREADABLE, path, found).placed(source=path.name))
    row_count += sum(map(is_no_record, findings))
    repeated, about_ids = check_ids(path.name, ids)
    if not row_count and not findings:
        findings.append(Finding(Code.MANIFEST_EMPTY, path.name, "no row below the header"))
    ordered = sorted([*findings, *about_ids], key=lambda finding: finding.row or 0)
    return ParsedManifest(
        path.name, tuple(row for row in rows if row.sample_id not in repeated), tuple(ordered), row_count
    )


def _records(path: Path, findings: list[Finding], ids: list[tuple[int, str]]) -> Iterator[tuple[int, dict[str, str]]]:
    """Each row with its line number; rows that are not even a record go to ``findings``, the id of each to ``ids``."""
    header: list[str] | None = None
    for number, fields in read_lines(path, findings):
        if header is None:
            if findings:  # about the header: the line after it is none
                break
            header = [name.strip() for name in fields]
            about_header = list(_check_header(path, header))
            findings.extend(about_header)
            if errors_of(about_header):
                return
            continue
        record = dict(zip(header, fields, strict=False))
        ids.append((number, record.get("sample_id", "").strip()[: MAX_SAMPLE_ID_CHARACTERS + 1]))
        if len(fields) != len(header):
            place, found = Place(path.name, number), f"{len(fields)} fields"
            findings.append(Finding(Code.ROW_MALFORMED, place, found, count=len(header)))
        else:
            yield number, record
    if header is None:
        del findings[1:]


def _check_header(path: Path, header: list[str]) -> Iterator[Finding]:
    known, place = (*MANIFEST_COLUMNS, *OPTIONAL_COLUMNS), Place(path.name, 1)
    if len(header) > MAX_COLUMNS:
        yield Finding(Code.ROW_MALFORMED, place, f"{len(header)} columns", case="header", count=MAX_COLUMNS)
        return
    missing = [name for name in MANIFEST_COLUMNS if name not in header]
    if missing:
        yield _missing_columns(place, header, missing)
    for name, count in Counter(header).items():
        # Where columns are missing the line may be none of names at all, and whatever else is odd about it means nothing.
        if count > 1 and (name in known or not missing):
            found = f"column {short(name)} occurs {'twice' if count == 2 else f'{count} times'}"
            yield Finding(Code.COLUMN_DUPLICATE, place, found)
        if name not in known and not missing:
            near = difflib.get_close_matches(name, known, 1)
            yield Finding(
                Code.COLUMN_UNKNOWN,
                place,
                f"column {short(name)} is not read",
                case="misspelt" if near else "",
                severity=Severity.WARNING,
                columns=", ".join(known),
                near="".join(map(repr, near)),
            )


def _missing_columns(place: Place, header: list[str], missing: list[str]) -> Finding:
    more = f", and {len(header) - _NAMES_SHOWN} more" if len(header) > _NAMES_SHOWN else ""
    found = f"no column {', '.join(map(repr, missing))} in [{', '.join(map(short, header[:_NAMES_SHOWN]))}{more}]"
    columns, separator = ", ".join(MANIFEST_COLUMNS), max(";,", key=header[0].count)
    if len(header) == 1 and separator in header[0]:
        found = f"one column {short(header[0])}, separated by {separator!r}"
        return Finding(Code.COLUMN_MISSING, place, found, case="separator", columns=columns)
    if misspelt := list(_misspelt(header, missing)):
        near = ", ".join(misspelt)
        return Finding(Code.COLUMN_MISSING, place, found, case="misspelt", columns=columns, near=near)
    return Finding(Code.COLUMN_MISSING, place, found, columns=columns)


def _misspelt(header: list[str], missing: list[str]) -> Iterator[str]:
    names = [name for name in header if len(name) <= _NAME_CHARACTERS and name not in MANIFEST_COLUMNS]
    for column in missing:
        for name in difflib.get_close_matches(column, names, 1):
            yield f"{column!r} by {name!r}"


def _parse_row(source: str, number: int, record: Mapping[str, str], findings: list[Finding]) -> ClipRow | None:
    """The typed row, or ``None`` after adding every finding of its fields to ``findings``."""
    values: dict[str, Any] = {}
    sample_id = id_in_findings(record["sample_id"])
    broken = False
    for field, parse in _PARSERS.items():
        try:
            values[field] = parse(record.get(field, ""), record)
        except ValidationError as error:
            findings.append(error.finding.placed(source=source, row=number, sample_id=sample_id))
            broken = True
    if broken:
        return None
    labels, were_floats = values.pop("labels")
    if were_floats:
        place = Place(source, number, sample_id, "labels")
        findings.append(Finding(Code.LABELS_FLOAT, place, "written as 0.0 and 1.0"))
    return ClipRow(row=number, labels=labels, start_sec_text=record.get("start_sec", "").strip(), **values)


def _path(field: str, text: str) -> str:
    text = text.strip()
    if not text or CONTROL_CHARACTER.search(text):
        raise ValidationError(Finding(Code.PATH_INVALID, Place(field=field), short(text)))
    return text


def _start_sec(text: str, record: Mapping[str, str]) -> Fraction | None:
    text = text.strip()
    if not text:
        return None
    value = Fraction(text) if DECIMAL.fullmatch(text) or _FRACTION.fullmatch(text) else None
    if value is None or value > _MAX_START_SEC:
        raise ValidationError(Finding(Code.START_SEC_INVALID, Place(field="start_sec"), short(text)))
    return value


def _visual_kind(text: str, record: Mapping[str, str]) -> VisualKind:
    text = text.strip() or str(VisualKind.NPY)
    if text not in set(VisualKind):
        place, kinds = Place(field="visual_kind"), ", ".join(VisualKind)
        raise ValidationError(Finding(Code.VISUAL_KIND_INVALID, place, short(text), kinds=kinds))
    return VisualKind(text)


def _boxes(text: str, record: Mapping[str, str]) -> TrackBoxes | None:
    """Three columns at once: they are needed together, and only where the faces are boxes of a video."""
    if record.get("visual_kind", "").strip() != VisualKind.VIDEO_BOXES:
        return None
    return TrackBoxes(
        _path("boxes_path", record.get("boxes_path", "")),
        _whole("face_id", record.get("face_id", "")),
        _whole("first_frame", record.get("first_frame", "")),
    )


def _whole(field: str, text: str) -> int:
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,9}", text):
        raise ValidationError(Finding(Code.BOX_INVALID, Place(field=field), short(text), case="number"))
    return int(text)


def _is_array(record: Mapping[str, str]) -> bool:
    """Whether the waveform is a NumPy array, which does not say its own rate."""
    return record["audio_path"].strip().lower().endswith(".npy")


def _audio_sample_rate(text: str, record: Mapping[str, str]) -> int | None:
    text = text.strip()
    if not text and not _is_array(record):
        return None
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 0 < int(text) <= MAX_RATE_HZ:
        place = Place(field="audio_sample_rate")
        raise ValidationError(Finding(Code.AUDIO_RATE_INVALID, place, short(text), least=1, largest=MAX_RATE_HZ))
    return int(text)


def _audio_stream(text: str, record: Mapping[str, str]) -> str | None:
    if not text.strip():
        return None
    name = stream_name(text)
    if name is None:
        raise ValidationError(Finding(Code.AUDIO_STREAM, Place(field="audio_stream"), short(text)))
    return name


def _audio_channel(text: str, record: Mapping[str, str]) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,4}", text):
        raise ValidationError(Finding(Code.AUDIO_CHANNELS, Place(field="audio_channel"), short(text), case="field"))
    return int(text)


def _labels_known(text: str) -> bool:
    values = {"": True, "true": True, "false": False}
    if text.strip().lower() not in values:
        raise ValidationError(Finding(Code.LABELS_KNOWN_INVALID, Place(field="labels_known"), short(text)))
    return values[text.strip().lower()]


_PARSERS: dict[str, Callable[[str, Mapping[str, str]], Any]] = {
    "sample_id": lambda text, record: parse_sample_id(text),
    "audio_path": lambda text, record: _path("audio_path", text),
    "visual_path": lambda text, record: _path("visual_path", text),
    "source_fps": lambda text, record: parse_frame_rate(text),
    "labels": lambda text, record: parse_labels(text),
    "start_sec": _start_sec,
    "visual_kind": _visual_kind,
    "audio_sample_rate": _audio_sample_rate,
    "audio_stream": _audio_stream,
    "audio_channel": _audio_channel,
    "boxes": _boxes,
    "license": lambda text, record: text.strip() or None,
    "consent": lambda text, record: text.strip() or None,
    "labels_known": lambda text, record: _labels_known(text),
    "video_id": lambda text, record: text.strip() or None,
}
