"""The raw schema ``minimax_h3_ref2va_raw_v1``: one JSON value to one sample, or everything that is wrong with it.

Only the text is looked at; no media file is opened here, though whether it exists is checked. As in the public loader a key
whose value is null counts as not given, at any depth (a loader that gives all rows the same keys fills the others with
null), and blanks around the id, the caption and paths are no part of them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from muvap_assets.codes import Code
from muvap_assets.findings import Finding
from muvap_assets.media.sound_files import MAX_RATE_HZ, stream_name
from muvap_assets.options import options_of
from muvap_assets.ref2va.contract import (
    CANVAS_RULE,
    GEOMETRY_RULES,
    MAX_CANVAS_PIXELS,
    PACKED_SCHEMA,
    RAW_SCHEMA,
    SFT_SCHEMA,
    DatasetOptions,
    Format,
    Geometry,
    RawSample,
    Reference,
    ReferenceKind,
)
from muvap_assets.ref2va.findings import Findings

ROW_KEYS = ("schema_version", "id", "target", "caption", "references", "target_geometry")
OPTIONAL_ROW_KEYS = ("target_geometry",)
REFERENCE_KEYS: Mapping[ReferenceKind, tuple[str, ...]] = {
    ReferenceKind.IMAGE: ("type", "image"),
    ReferenceKind.VIDEO: ("type", "video", "fps"),
    ReferenceKind.AUDIO: ("type", "audio", "sample_rate", "audio_stream"),
    ReferenceKind.VIDEO_AUDIO: ("type", "video", "audio", "fps", "sample_rate", "audio_stream"),
}
OPTIONAL_REFERENCE_KEYS = ("fps", "sample_rate", "audio_stream")
TARGET_KEYS = ("video", "audio_stream")
OPTIONAL_TARGET_KEYS = ("audio_stream",)
GEOMETRY_KEYS = tuple(GEOMETRY_RULES)
MAX_ID_LENGTH = 200
_DEFAULTS = {option.name: option.default for option in options_of(DatasetOptions)}


_NUMBER_TEXT = re.compile(r"\d{1,9}(\.\d{1,9}|/\d{1,9})?", re.ASCII)


class DuplicateKeys(dict[str, Any]):
    """A JSON object with repeated keys; ``repeated`` names them."""

    repeated: tuple[str, ...] = ()


def json_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """For ``object_pairs_hook``: a dict that remembers keys given twice, where a plain one keeps the last in silence."""
    value = dict(pairs)
    if len(value) == len(pairs):
        return value
    counts = Counter(name for name, _ in pairs)
    marked = DuplicateKeys(pairs)
    marked.repeated = tuple(sorted(name for name, count in counts.items() if count > 1))
    return marked


def parse_row(
    value: Any, *, row: int, base: Path, options: DatasetOptions, source: str
) -> tuple[RawSample | None, list[Finding]]:
    """One manifest row.

    Args:
        value: what JSON held.
        row: its line or position, from 1.
        base: the manifest's folder.
        options: the dataset's: limits, format, whether paths may leave ``base``.
        source: the manifest's name, for messages.

    Returns:
        The sample, its paths as written but relative to ``base`` where they lead into it, or ``None``; and every finding found.
    """
    identity = id_of(value)
    findings = Findings(source, row, printable(identity) if identity else None)
    reader = _Reader(findings, base, options)
    given = reader.given(value, None, ROW_KEYS, OPTIONAL_ROW_KEYS)
    if given is None:
        return None, findings.found
    reader.check_schema(given)
    sample_id = reader.sample_id(given)
    target = reader.target(given)
    stream = reader.stream(given.get("target"), "target")
    caption = reader.caption(given)
    references = reader.references(given)
    geometry = reader.geometry(given)
    if not findings.clean or sample_id is None or target is None or caption is None:
        return None, findings.found
    sample = RawSample(
        id=sample_id,
        target_video=target,
        caption=caption,
        references=references,
        geometry=geometry,
        row=row,
        audio_stream=stream,
    )
    return sample, findings.found


def id_of(value: Any) -> str | None:
    """The id that a row's JSON value gives, without the blanks around it; ``None`` where it gives no text."""
    sample_id = value.get("id") if isinstance(value, dict) else None
    return sample_id.strip() if isinstance(sample_id, str) else None


class _Reader:
    """Reads the parts of one row and reports what is wrong with each."""

    def __init__(self, findings: Findings, base: Path, options: DatasetOptions) -> None:
        self.findings, self.base, self.options = findings, base.resolve(), options
        self.base_as_written = Path(os.path.normpath(base.absolute()))

    def wrong(self, where: str | None, value: Any, required: str) -> None:
        self.findings.add(Code.VALUE_INVALID, where, shown(value), required=required)

    def given(
        self, value: Any, where: str | None, keys: Sequence[str], optional: Sequence[str]
    ) -> dict[str, Any] | None:
        """The keys of an object that are not null, or ``None`` where it is no object; wrong keys are reported."""
        if not isinstance(value, dict):
            self.wrong(where, value, f"an object with {', '.join(keys)}")
            return None
        given = {key: item for key, item in value.items() if item is not None}
        missing = [key for key in keys if key not in given and key not in optional]
        prefix = f"{where}." if where else ""
        repeated = value.repeated if isinstance(value, DuplicateKeys) else ()
        for code, names, found in (
            (Code.KEY_DUPLICATE, repeated, "the key is given twice"),
            (Code.KEY_UNKNOWN, sorted(set(given) - set(keys)), "an unknown key"),
            (Code.KEY_MISSING, [key for key in missing if key not in value], "the key is missing"),
            (Code.KEY_MISSING, [key for key in missing if key in value], "null, which counts as not given"),
        ):
            for name in names:
                self.findings.add(code, f"{prefix}{printable(name)}", found, keys=", ".join(keys))
        return given

    def check_schema(self, value: Mapping[str, Any]) -> None:
        version = value.get("schema_version", RAW_SCHEMA)
        if version == RAW_SCHEMA:
            return
        encoded = version in (SFT_SCHEMA, PACKED_SCHEMA)
        found = shown(version) + (", which names already encoded rows" if encoded else "")
        case = "encoded" if encoded else ""
        self.findings.add(Code.SCHEMA_INVALID, "schema_version", found, case=case, schema=RAW_SCHEMA)

    def sample_id(self, value: Mapping[str, Any]) -> str | None:
        sample_id = id_of(value)
        if "id" not in value:
            return None
        if sample_id is not None and _is_id(sample_id):
            return sample_id
        self.findings.add(Code.SAMPLE_ID_INVALID, "id", shown(value["id"]), longest=MAX_ID_LENGTH)
        return None

    def caption(self, value: Mapping[str, Any]) -> str | None:
        caption = value.get("caption")
        if isinstance(caption, str) and caption.strip():
            try:
                caption.encode("utf-8")
            except UnicodeEncodeError:
                self.wrong("caption", caption, "text without lone surrogates")
                return None
            return caption.strip()
        if "caption" in value:
            self.wrong("caption", caption, "text that is not blank")
        return None

    def target(self, value: Mapping[str, Any]) -> Path | None:
        target = self.given(value["target"], "target", TARGET_KEYS, OPTIONAL_TARGET_KEYS) if "target" in value else None
        return None if target is None else self.path(target, "video", "target")

    def stream(self, entry: Any, where: str) -> str | None:
        """The audio stream that is chosen, by number or language."""
        given = entry.get("audio_stream") if isinstance(entry, dict) else None
        if given is None:
            return None
        is_number = isinstance(given, int) and not isinstance(given, bool)
        name = stream_name(str(given)) if is_number or isinstance(given, str) else None
        if name is None:
            self.wrong(f"{where}.audio_stream", given, Code.AUDIO_STREAM.required)
        return name

    def references(self, value: Mapping[str, Any]) -> tuple[Reference, ...]:
        entries = value.get("references")
        if not isinstance(entries, list):
            if "references" in value:
                self.wrong("references", entries, "a list")
            return ()
        kinds = [entry.get("type") if isinstance(entry, dict) else None for entry in entries]
        self._check_counts([kind for kind in kinds if kind in tuple(ReferenceKind)], len(entries))
        read = [self._reference(entry, f"references[{index}]") for index, entry in enumerate(entries)]
        return tuple(reference for reference in read if reference is not None)

    def _check_counts(self, kinds: Sequence[str], total: int) -> None:
        videos = kinds.count("video") + kinds.count("video_audio")
        for what, count, name in (
            ("image", kinds.count("image"), "max_images"),
            ("video", videos, "max_videos"),
            ("standalone audio", kinds.count("audio"), "max_audios"),
            ("", total, "max_references"),
        ):
            limit = getattr(self.options, name)
            source = "MiniMaxH3Ref2VASetupStep" if limit == _DEFAULTS[name] else name
            if count > limit:
                found = f"{count} {what} references".replace("  ", " ")
                self.findings.add(Code.REFERENCE_COUNT, "references", found, limit=limit, source_of_limit=source)
        if len(kinds) == total and not any(ReferenceKind(kind).has_visual for kind in kinds):
            found = "only audio references" if kinds else "no reference"
            self.findings.add(Code.REFERENCE_VISUAL_MISSING, "references", found)

    def _reference(self, entry: Any, where: str) -> Reference | None:
        kinds = ", ".join(ReferenceKind)
        if not isinstance(entry, dict):
            self.wrong(where, entry, f"an object of type {kinds}")
            return None
        if entry.get("type") not in tuple(ReferenceKind):
            self.wrong(f"{where}.type", entry.get("type"), f"one of {kinds}")
            return None
        kind = ReferenceKind(entry["type"])
        given = self.given(entry, where, REFERENCE_KEYS[kind], OPTIONAL_REFERENCE_KEYS) or {}
        allowed = [name for name in ("image", "video", "audio") if name in REFERENCE_KEYS[kind]]
        paths = {name: self.path(given, name, where) for name in allowed}
        fps = self._rate(given, "fps", where) if "fps" in REFERENCE_KEYS[kind] else None
        hertz = self._rate(given, "sample_rate", where) if "sample_rate" in REFERENCE_KEYS[kind] else None
        return Reference(
            kind=kind,
            **paths,
            fps=fps,
            sample_rate_hz=None if hertz is None else int(hertz),
            audio_stream=self.stream(given, where) if kind.has_audio else None,
        )

    def _rate(self, entry: Mapping[str, Any], name: str, where: str) -> Fraction | None:
        """An optional rate; fps as a number or an exact text like ``30000/1001``, hertz as a whole number."""
        if name not in entry:
            return None
        given = entry[name]
        rate = exact_number(given)
        hertz = name == "sample_rate"
        if rate is None or rate <= 0 or rate > (MAX_RATE_HZ if hertz else 1000) or (hertz and rate.denominator != 1):
            required = f"a whole number up to {MAX_RATE_HZ}" if hertz else "a positive number or ratio up to 1000"
            self.wrong(f"{where}.{name}", given, required)
            return None
        return rate

    def path(self, entry: Mapping[str, Any], name: str, where: str) -> Path | None:
        """A path relative to the manifest, after checking that it stays in its folder and that the file is there."""
        if name not in entry:
            return None
        given, place = entry[name], f"{where}.{name}"
        if not isinstance(given, str) or not given.strip() or "\0" in given:
            self.findings.add(Code.PATH_INVALID, place, shown(given))
            return None
        path = Path(given.strip())
        try:
            resolved = (self.base / path).resolve()
            is_file, exists = resolved.is_file(), resolved.exists()
            relative = self._relative(path, resolved)
        # A name too long, a loop of links, a folder closed to us, a lone surrogate.
        except (OSError, RuntimeError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            self.findings.add(Code.PATH_INVALID, place, f"{shown(given)} cannot be looked up ({reason})")
            return None
        if not self.options.allow_outside and not resolved.is_relative_to(self.base):
            finding = Finding(Code.PATH_OUTSIDE, resolved, "it leads out of the manifest's folder")
            self.findings.add_file(finding, place, given)
        elif not is_file:
            finding = Finding(Code.MEDIA_MISSING, resolved, "no file" if exists else "nothing is there")
            self.findings.add_file(finding, place, given)
        return relative

    def _relative(self, path: Path, resolved: Path) -> Path:
        """An absolute path into the folder as relative to it, so that what is published does not say where it lay.

        As it is written where that leads to the same file, for links keep their names; as it is resolved otherwise. A path that
        leads elsewhere stays as it is.
        """
        if not path.is_absolute():
            return path
        written = Path(os.path.normpath(path))
        for base in (self.base_as_written, self.base):
            if written.is_relative_to(base):
                relative = written.relative_to(base)
                if (self.base / relative).resolve() == resolved:
                    return relative
        return resolved.relative_to(self.base) if resolved.is_relative_to(self.base) else path

    def geometry(self, value: Mapping[str, Any]) -> Geometry | None:
        """The canvas and frames a row asks for, what it leaves out from the dataset's options; ``None`` where it gives none."""
        place = "target_geometry"
        given = self.given(value[place], place, GEOMETRY_KEYS, GEOMETRY_KEYS) if place in value else None
        if not given:
            return None
        if self.options.format is Format.SFT:
            self.findings.add(Code.GEOMETRY_REFUSED, place, shown(given))
            return None
        width, height, num_frames = (self._lattice(given, name) for name in GEOMETRY_KEYS)
        if width is not None and height is not None and width * height > MAX_CANVAS_PIXELS:
            self.findings.add(Code.GEOMETRY_INVALID, place, f"{shown(width)}x{shown(height)}", required=CANVAS_RULE)
            return None
        return None if width is None or height is None or num_frames is None else Geometry(width, height, num_frames)

    def _lattice(self, given: Mapping[str, Any], name: str) -> int | None:
        number, place = given.get(name, getattr(self.options, name)), f"target_geometry.{name}"
        if not isinstance(number, int) or isinstance(number, bool):
            self.wrong(place, number, "a whole number")
            return None
        if required := GEOMETRY_RULES[name](number):
            self.findings.add(Code.GEOMETRY_INVALID, place, shown(number), required=required)
            return None
        return number


def _is_id(text: str) -> bool:
    return text.isprintable() and 0 < len(text) <= MAX_ID_LENGTH


def exact_number(value: Any) -> Fraction | None:
    """A JSON number or a text such as ``29.97`` or ``30000/1001`` as it is written; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and not _NUMBER_TEXT.fullmatch(value):  # an exponent of a million digits would hang
        return None
    try:
        return Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        return None


def printable(text: str) -> str:
    """A name as findings carry it: itself, unless it could not be printed or is no name."""
    return text if text.isprintable() and len(text) <= MAX_ID_LENGTH else shown(text)


def shown(value: Any) -> str:
    """A value in a message, cut to a line."""
    try:
        text = repr(value)
    except RecursionError:
        text = f"a {type(value).__name__} of many levels"
    return text if len(text) <= 80 else f"{text[:76]}..."
