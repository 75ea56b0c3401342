"""The layout AVA and WASD share: a loader CSV, a folder of crops a track, a WAV a track; read once, for both corpora.

    csv/<split>_loader.csv                                       entity_id, frames, fps, labels [, index], by tabs, no header
    csv/<split>_orig.csv                                         optional; see ``ava_csv``
    clips_videos/<split>/<video_id>/<entity_id>/<seconds>.jpg    one crop a frame
    clips_audios/<split>/<video_id>/<entity_id>.wav              cut to the track

The fifth column is a random number that means nothing. Of crops and WAVs the folder ``<video_id>`` may be left out, as the
converters of ASC and UniTalk do. Source: the training tools that write these files.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import StringConstraints

from muvap_assets.asd.ava_csv import INAUDIBLE, LABELS, Annotation, OriginalCsv, csv_files, read_original
from muvap_assets.asd.contract import ClipRow, FrameTimes, ParsedManifest, VisualKind
from muvap_assets.asd.corpora.crop_tree import CropTree, Found, is_folder_name, video_of_entity
from muvap_assets.asd.corpora.entry import CorpusEntry, EntryPath
from muvap_assets.asd.corpora.fields import (
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
from muvap_assets.asd.timeline import FrameRate
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place

_INAUDIBLE_LABEL = 2
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class CorpusFacts:
    """What is known of a corpus beyond its files.

    ``labels_known``: whether the split's labels are labels at all. ``defects`` tells, by video id, what is wrong with it as
    it is shipped; ``any_defect`` what may be wrong with every other one. ``tools`` names who writes the loader CSV.
    """

    labels_known: bool
    tools: str
    defects: Mapping[str, str] = field(default_factory=dict)
    any_defect: str = ""


class LoaderCorpus(CorpusEntry):
    """A split of a corpus in this layout. Paths are absolute once parsed; each that is not given has its published place.

    ``audio_kind`` says what ``audio`` holds: a WAV a track, cut to it, or the whole recordings the tracks lie on.
    ``labels_known`` is for splits whose labels are filler; each corpus knows which of its own are.
    """

    root: EntryPath
    split: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,40}$")]
    loader: EntryPath | None = None
    original: EntryPath | None = None
    faces: EntryPath | None = None
    audio: EntryPath | None = None
    audio_kind: Literal["clips", "recordings"] = "clips"
    labels_known: bool | None = None

    @property
    @abstractmethod
    def facts(self) -> CorpusFacts:
        """What is known of the split beyond its files."""

    def read(self) -> ParsedManifest:
        """The rows of the split: labels and rate of the loader CSV, times of the original one, paths of the folders.

        Never raises for what the files hold: everything wrong is in the result's findings, together.
        """
        return _Reader(self).read()

    @property
    def folder(self) -> Path:
        """The root of the corpus."""
        return self.root

    def inputs(self) -> Mapping[str, Path]:
        """The loader CSV, and the original one, or each of a folder of them, where there is one."""
        original = {"original": self.original_file}
        if self.original_file.is_dir():
            original = {f"original/{path.name}": path for path in csv_files(self.original_file)}
        return {"loader": self.loader_file, **original}

    def listings(self) -> tuple[Path, ...]:
        """The folders of faces and audio: a path is written as it lies there."""
        return (self.faces_folder, self.audio_folder)

    @property
    def loader_file(self) -> Path:
        """``csv/<split>_loader.csv`` unless another was given."""
        return self.loader or self.root / "csv" / f"{self.split}_loader.csv"

    @property
    def original_file(self) -> Path:
        """``csv/<split>_orig.csv`` unless another was given."""
        return self.original or self.root / "csv" / f"{self.split}_orig.csv"

    @property
    def faces_folder(self) -> Path:
        """``clips_videos/<split>`` unless another was given."""
        return self.faces or self.root / "clips_videos" / self.split

    @property
    def audio_folder(self) -> Path:
        """``clips_audios/<split>``, or for recordings ``orig_audios`` or a folder in it, unless another was given."""
        if self.audio or self.audio_kind == "clips":
            return self.audio or self.root / "clips_audios" / self.split
        places = [self.root / "orig_audios" / name for name in (self.split, "trainval")]
        return next((place for place in places if place.is_dir()), self.root / "orig_audios")


@dataclass(slots=True)
class _LoaderRow:
    row: int
    entity_id: str
    fps: FrameRate
    labels: npt.NDArray[np.uint8]


class _Reader:
    def __init__(self, corpus: LoaderCorpus) -> None:
        self.corpus, self.facts = corpus, corpus.facts
        self.source = corpus.loader_file.name
        self.findings: list[Finding] = []
        self.faces, self.audio = CropTree(corpus.faces_folder), CropTree(corpus.audio_folder)
        self.written_faces, self.written_audio = self._written(self.faces.folder), self._written(self.audio.folder)
        self.original: OriginalCsv | None = None
        self.inaudible = 0
        self.ids: list[tuple[int, str]] = []
        self.flat: Counter[str] = Counter()

    def read(self) -> ParsedManifest:
        rows, row_count = self._rows_of_file()
        self._read_original({row.entity_id for row in rows})
        kept = [row for row in map(self._resolve, rows) if row is not None] if self._folders_stand() else []
        repeated, about_ids = check_ids(self.source, self.ids)
        self.findings += about_ids
        kept = self._reject_shared_paths([row for row in kept if row.sample_id not in repeated])
        order = sorted(self.findings, key=lambda finding: finding.row or 0)
        return ParsedManifest(self.source, tuple(kept), tuple(order), row_count, self._notes(kept))

    # --- the loader CSV -----------------------------------------------------------------------------------------------

    def _rows_of_file(self) -> tuple[list[_LoaderRow], int]:
        path, count = self.corpus.loader_file, 0
        rows: list[_LoaderRow] = []
        unread: list[Finding] = []
        try:
            for number, fields in read_lines(path, unread):
                if not count and (finding := self._other_format(fields)):
                    self.findings.append(finding)
                    return [], 1
                count += 1
                row = self._row(number, fields)
                if row is not None:
                    rows.append(row)
        except OSError as error:
            found = f"cannot be read ({error.strerror})"
            self.findings.append(Finding(Code.FILE_UNREADABLE, path, found, case="loader").placed(source=path.name))
        count += sum(map(is_no_record, unread))
        self.findings += unread
        if not count and not self.findings:
            self.findings.append(Finding(Code.MANIFEST_EMPTY, path.name, "no row"))
        return rows, count

    def _other_format(self, fields: list[str]) -> Finding | None:
        if len(fields) > 1 or fields[0].count(",") < 7:
            return None
        found = f"{len(fields[0].split(','))} columns separated by commas: an original annotation CSV"
        return Finding(Code.LOADER_FORMAT, Place(self.source, 1), found, tools=self.facts.tools)

    def _row(self, number: int, fields: list[str]) -> _LoaderRow | None:
        self.ids.append((number, fields[0].strip()[: MAX_SAMPLE_ID_CHARACTERS + 1]))
        name = id_in_findings(fields[0])
        wrong = list[Finding]()
        if len(fields) not in (4, 5):
            wrong.append(Finding(Code.ROW_MALFORMED, Place(field="row"), f"{len(fields)} columns", case="loader"))
            fields = []
        values: dict[str, Any] = {}
        parsers = {"entity_id": parse_sample_id, "fps": parse_frame_rate, "labels": self._labels}
        texts = dict(zip(("entity_id", "frames", "fps", "labels"), fields, strict=False))
        for key in parsers if fields else ():
            try:
                values[key] = parsers[key](texts[key], key) if key != "labels" else self._labels(texts[key])
            except ValidationError as error:
                wrong.append(error.finding)
        if "labels" in values and texts["frames"].strip() != str(len(values["labels"])):
            found = f"{short(texts['frames'].strip())} frames, labels has {len(values['labels'])} entries"
            wrong.append(Finding(Code.LABEL_COUNT_MISMATCH, Place(field="frames"), found, case="loader"))
        self.findings += [finding.placed(source=self.source, row=number, sample_id=name) for finding in wrong]
        return None if wrong else _LoaderRow(number, **values)

    def _labels(self, text: str, field: str = "labels") -> npt.NDArray[np.uint8]:
        values, _ = parse_labels(text, (0, 1, _INAUDIBLE_LABEL))
        inaudible = values == _INAUDIBLE_LABEL
        self.inaudible += int(inaudible.sum())
        values[inaudible] = 0
        return values

    # --- the original CSV and the folders -----------------------------------------------------------------------------

    def _read_original(self, listed: set[str]) -> None:
        """The original CSV may hold more than this split; what is wrong with the rest concerns nobody here."""
        path = self.corpus.original_file
        if path.exists():
            self.original = read_original(path, labels_known=self._labels_known)
            self.findings += [
                finding
                for finding in self.original.findings
                if finding.sample_id is None or finding.sample_id in listed
            ]
        elif self.corpus.original is not None:
            finding = Finding(Code.ORIGINAL_MISSING, path, "nothing is there", case="file")
            self.findings.append(finding.placed(source=path.name))

    def _folders_stand(self) -> bool:
        """One finding a missing folder, instead of one for each of its tracks."""
        before = len(self.findings)
        for folder, key, code in (
            (self.faces.folder, "faces", Code.FACES_MISSING),
            (self.audio.folder, "audio", Code.AUDIO_MISSING),
        ):
            if not folder.is_dir():
                finding = Finding(code, folder, f"no folder {self._written(folder)}", case="folder")
                self.findings.append(finding.placed(source=self.source, field=key))
        return len(self.findings) == before

    def _written(self, path: Path) -> str:
        """A path as rows and findings name it: relative to the root wherever it lies below it."""
        root = self.corpus.root
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)

    def _resolve(self, row: _LoaderRow) -> ClipRow | None:
        wrong: list[Finding] = []
        annotation = self._annotation(row, wrong)
        video = annotation.video_id if annotation else self._video_of(row.entity_id)
        if video is None:
            found = f"{short(row.entity_id)} does not say its video, and not exactly one folder holds it"
            wrong.append(Finding(Code.VIDEO_ID_UNKNOWN, Place(field="entity_id"), found))
        elif not (is_folder_name(video) and is_folder_name(row.entity_id)):
            found = f"video {short(video)}, entity {short(row.entity_id)}"
            wrong.append(Finding(Code.PATH_INVALID, Place(field="entity_id"), found, case="id"))
            video = None
        clip = self._clip_row(row, video, annotation, wrong) if video is not None else None
        self.findings += [finding.placed(source=self.source, row=row.row, sample_id=row.entity_id) for finding in wrong]
        broken = wrong or (self.original and row.entity_id in self.original.broken)
        return None if broken else clip

    def _clip_row(self, row: _LoaderRow, video: str, annotation: Annotation | None, wrong: list[Finding]) -> ClipRow:
        crops = self.faces.find(video, row.entity_id)
        sound, start_sec = self._sound(video, row, annotation, wrong)
        for key, column, folder, found in (
            ("faces", "visual_path", self.written_faces, crops),
            ("audio", "audio_path", self.written_audio, sound),
        ):
            self.flat[key] += found.flat
            if found.also:
                both = f"both {folder}/{found.path} and {found.also} are there"
                wrong.append(Finding(Code.ENTITY_PATH_AMBIGUOUS, Place(field=column), both))
        return ClipRow(
            row=row.row,
            sample_id=row.entity_id,
            audio_path=f"{self.written_audio}/{sound.path}",
            visual_path=f"{self.written_faces}/{crops.path}",
            visual_kind=VisualKind.JPEG_DIRECTORY,
            source_fps=row.fps,
            labels=row.labels,
            start_sec=start_sec,
            labels_known=self._labels_known,
            video_id=video,
            frame_times=FrameTimes(annotation.times_usec if annotation else None),
            known_defect=self.facts.defects.get(video, self.facts.any_defect),
        )

    @property
    def _labels_known(self) -> bool:
        given = self.corpus.labels_known
        return self.facts.labels_known if given is None else given

    def _video_of(self, entity_id: str) -> str | None:
        """By the id's own form where its crops are there; else the one folder that holds the entity."""
        video = video_of_entity(entity_id)
        if video is not None and self.faces.find(video, entity_id).exists:
            return video
        return self.faces.video_with(entity_id) or video

    def _annotation(self, row: _LoaderRow, wrong: list[Finding]) -> Annotation | None:
        """What the original CSV says of the row; where the two do not agree, nobody can say which is true."""
        if self.original is None or row.entity_id in self.original.broken:
            return None
        annotation = self.original.entities.get(row.entity_id)
        if annotation is None:
            if self.original.entities:
                found = f"not in {self.corpus.original_file.name}"
                wrong.append(Finding(Code.ORIGINAL_MISSING, Place(field="entity_id"), found))
            return None
        if len(annotation.labels) != len(row.labels):
            rows = f"the original CSV has {len(annotation.labels)} rows of this entity"
            found = f"labels has {len(row.labels)} entries, {rows}"
            wrong.append(Finding(Code.LABEL_COUNT_MISMATCH, Place(field="labels"), found, case="loader"))
        elif self._labels_known and (differ := np.flatnonzero(annotation.labels != row.labels)).size:
            at = int(differ[0])
            original = f"the original CSV says {annotation.labels[at]} ({differ.size} frames differ)"
            found = f"entry {at} is {row.labels[at]}, {original}"
            wrong.append(Finding(Code.LABELS_DISAGREE, Place(field="labels"), found))
        return annotation

    def _sound(
        self, video: str, row: _LoaderRow, annotation: Annotation | None, wrong: list[Finding]
    ) -> tuple[Found, Fraction | None]:
        """Where the row's audio lies, and on a recording where the row starts."""
        if self.corpus.audio_kind == "clips":
            return self.audio.find(video, f"{row.entity_id}.wav"), None
        if annotation is None:
            found = "audio is a whole recording, and nothing says where on it the track starts"
            wrong.append(Finding(Code.START_SEC_REQUIRED, Place(field="start_sec"), found, case="loader"))
            return self.audio.find_here(f"{video}.wav"), None
        return self.audio.find_here(f"{video}.wav"), Fraction(int(annotation.times_usec[0]), 1_000_000)

    def _reject_shared_paths(self, rows: list[ClipRow]) -> list[ClipRow]:
        """Two entities in one folder, or with one clip: ids that differ only in what stands for the colon."""
        by_path: dict[str, list[ClipRow]] = {}
        for row in rows:
            by_path.setdefault(row.visual_path, []).append(row)
            if self.corpus.audio_kind == "clips":
                by_path.setdefault(row.audio_path, []).append(row)
        shared = {path: found for path, found in by_path.items() if len(found) > 1}
        for path, found in shared.items():
            for row in found:
                others = [repr(other.sample_id) for other in found if other is not row]
                more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
                also = f"{path} is also that of {', '.join(others[:_SHOWN])}{more}"
                self.findings.append(Finding(Code.ENTITY_PATH_SHARED, row.place("entity_id", self.source), also))
        refused = {row.row for found in shared.values() for row in found}
        return [row for row in rows if row.row not in refused]

    def _notes(self, rows: list[ClipRow]) -> dict[str, Any]:
        notes: dict[str, Any] = {
            "labels": "known" if self._labels_known else "filler, not known",
            "label_rule": {**LABELS, "loader 0": 0, "loader 1": 1, "loader 2": 0},
            "loader_inaudible_frames": self.inaudible,
            "audio": self.corpus.audio_kind,
        }
        if self.flat.total():
            notes["without_video_folder"] = dict(self.flat)
        if self.original is not None:
            listed = {row.sample_id for row in rows}
            notes["original_rows_by_label"] = dict(self.original.spellings)
            notes["inaudible_frames"] = sum(self.original.spellings.get(name, 0) for name in INAUDIBLE)
            notes["entities_only_in_original"] = len(set(self.original.entities) - listed)
        return notes
