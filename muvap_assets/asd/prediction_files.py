"""Ground truth and official prediction files: scores meet rows by entity and timestamp, never by position.

    val_orig.csv or the official table ── read_ground_truth ──► GroundTruth ◄── align ── TrackScores, one a face track
                                                                    │
    predictions.csv  ◄── write_predictions ─────────────────────────┘     read_predictions is its mirror

Each row of the ground truth gets exactly one score, and each score one row: an entity that is missing, unknown, scored
twice, short or long is refused, all of them in one message, and nothing is written. A track that names its frames'
timestamps is matched by them, by exact decimal value (``2`` is ``2.0``); one that does not has its frames in order of
time, as packs do.

    >>> rows = [
    ...     AvaRow("v", "0.04", "0,0,1,1", "SPEAKING_AUDIBLE", "v:1", "", "val.csv", 1),
    ...     AvaRow("v", "0.00", "0,0,1,1", "NOT_SPEAKING", "v:1", "", "val.csv", 2),
    ... ]
    >>> truth = GroundTruth(table=AvaTable.of(rows), labels_known=True)
    >>> truth.align([TrackScores(entity_id="v:1", scores=[0.1, 0.9])]).tolist()
    [0.9, 0.1]

Source: the AVA ActiveSpeaker release: a prediction is the ground-truth row with the label SPEAKING_AUDIBLE in every row
and a score behind it, without a header where it is to be uploaded.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.ava_rows import (
    COLUMNS,
    LABELS,
    SCORE_COLUMN,
    SPEAKING,
    AvaRow,
    AvaTable,
    parse_timestamp,
    read_table,
)
from muvap_assets.asd.evaluation import finite_scores
from muvap_assets.errors import ValidationError, Violation, ViolationCode
from muvap_assets.storage.files import replacing

_BOX_TOLERANCE = 1e-9
"""How far the official script lets a predicted box lie from the annotated one."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrackScores:
    """One face track's scores on its native frames, real [source_frames], as :func:`evaluation.lift` gives them.

    ``timestamps`` are those of the frames in seconds as text, [source_frames], such as the names of the crops; without
    them the frames are in order of time.
    """

    entity_id: str
    scores: npt.ArrayLike
    timestamps: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroundTruth:
    """Annotated rows in the order of their file. ``labels_known`` is false where the file carries filler."""

    table: AvaTable
    labels_known: bool

    def __len__(self) -> int:
        return len(self.table)

    @property
    def labels(self) -> npt.NDArray[np.uint8]:
        """uint8 [rows], 1 where the face speaks audibly; 0 for labels outside the vocabulary, which filler may have."""
        return np.array([LABELS.get(row.label, 0) for row in self.table.rows], np.uint8)

    def align(self, tracks: Iterable[TrackScores]) -> npt.NDArray[np.floating[Any]]:
        """One score a row, [rows], in the order of the rows.

        Raises:
            ValidationError: an entity is missing, unknown, given twice or of another length, a timestamp has no row, or
                a score is not finite; all of it together, by entity.
        """
        violations: list[Violation] = []
        given: set[str] = set()
        placed: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.floating[Any]]]] = []
        for track in tracks:
            faults = self._faults(track, seen=track.entity_id in given)
            given.add(track.entity_id)
            violations += faults
            if not faults:
                placed.append((self._places_of(track), finite_scores(track.scores)))
        violations += self._unscored(given)
        if violations:
            raise ValidationError("scores for the ground truth", violations)
        aligned = np.empty(len(self), np.result_type(*(scores for _, scores in placed)) if placed else np.float64)
        for places, scores in placed:
            aligned[places] = scores
        return aligned

    def _places_of(self, track: TrackScores) -> npt.NDArray[np.int64]:
        """The row of each frame of a track without fault."""
        rows = self.table.places[track.entity_id]
        if track.timestamps is None:
            return rows
        by_time = sorted(range(len(track.timestamps)), key=[Decimal(text) for text in track.timestamps].__getitem__)
        placed = np.empty_like(rows)
        placed[by_time] = rows
        return placed

    def _faults(self, track: TrackScores, *, seen: bool) -> Sequence[Violation]:
        entity, rows = track.entity_id, self.table.places.get(track.entity_id)
        if seen:
            code = ViolationCode.SAMPLE_ID_DUPLICATE
            return [_violation(code, entity, "given more than once", "one track", "Score each track once.")]
        if rows is None:
            hint = "Score the split that the ground truth belongs to; ids are compared exactly."
            required = "an entity of the ground truth"
            return [_violation(ViolationCode.SAMPLE_ID_INVALID, entity, "not in the ground truth", required, hint)]
        try:
            count = len(finite_scores(track.scores, entity))
        except ValidationError as error:
            return error.violations
        if count != len(rows):
            hint = "Lift the scores of the whole track to its native frames."
            required = f"{len(rows)}, one a row"
            return [_violation(ViolationCode.COUNT_MISMATCH, entity, f"{count} scores", required, hint)]
        fault = None if track.timestamps is None else self._timestamp_fault(entity, track.timestamps)
        return [fault] if fault else []

    def _timestamp_fault(self, entity: str, timestamps: Sequence[str]) -> Violation | None:
        times = [parse_timestamp(text) for text in timestamps]
        known = {Decimal(row.timestamp) for row in self.table.of_entity(entity)}
        taken: set[Decimal] = set()
        for text, time in zip(timestamps, times, strict=True):
            if time is None or time not in known or time in taken:
                found = f"timestamp {text!r}" + (" twice" if time in taken else "")
                hint = "Name the frames as the ground truth does; timestamps are compared by value."
                return _violation(ViolationCode.ROW_MALFORMED, entity, found, "each timestamp of its rows once", hint)
            taken.add(time)
        if len(times) != len(known):
            found, required = f"{len(times)} timestamps", f"{len(known)}, one a row"
            return _violation(ViolationCode.COUNT_MISMATCH, entity, found, required, "Name every frame.")
        return None

    def _unscored(self, given: Collection[str]) -> list[Violation]:
        hint = "Score every track; one left out must not move the others."
        return [
            _violation(ViolationCode.COUNT_MISMATCH, entity, "no scores", f"{len(rows)}, one a row", hint)
            for entity, rows in self.table.places.items()
            if entity not in given
        ]


def read_ground_truth(paths: Path | Sequence[Path], *, labels_known: bool) -> GroundTruth:
    """Read the official headerless table or a headered combined one; several files make one table, in their order.

    Args:
        paths: the file or files.
        labels_known: false for a split that carries filler, as AVA's test split does: its labels are not looked at.

    Raises:
        ValidationError: a file cannot be read, a row is malformed, a label is unknown, or two rows share an entity and a
            timestamp; everything together, by row.
    """
    files = [paths] if isinstance(paths, Path) else list(paths)
    table = read_table(files, labels=LABELS if labels_known else None, with_scores=False)
    return GroundTruth(table=table, labels_known=labels_known)


def write_predictions(path: Path, truth: GroundTruth, tracks: Iterable[TrackScores], *, header: bool = False) -> None:
    """Write the official prediction file: the rows of ``truth`` in their order and text, label SPEAKING_AUDIBLE, a score.

    Scores are written with the fewest digits that read back as the same number of their dtype. The file is replaced in
    one step.

    Args:
        path: the file; its folder exists.
        truth: the rows; labels may be unknown.
        tracks: one for each entity, in any order.
        header: with a first line of names, as training code reads it; without, for upload.

    Raises:
        ValidationError: not exactly one finite score a row, as :meth:`GroundTruth.align` says; nothing is written then.
    """
    scores = truth.align(tracks).astype(str).tolist()
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if header:
            writer.writerow((*COLUMNS, SCORE_COLUMN))
        writer.writerows(
            (row.video_id, row.timestamp, *row.box.split(","), SPEAKING, row.entity_id, score)
            for row, score in zip(truth.table.rows, scores, strict=True)
        )


def read_predictions(path: Path, truth: GroundTruth) -> npt.NDArray[np.float64]:
    """Scores of a prediction file, float64 [rows], in the order of the ground truth; the mirror of the writer.

    Headered or not, in any order. Rows are matched by entity and exact timestamp, and boxes have to agree to 1e-9.

    Raises:
        ValidationError: the file is malformed, a label is another than SPEAKING_AUDIBLE, a score is not finite, a box
            differs, or there is not exactly one row for each row of ``truth``.
    """
    table = read_table([path], labels=(SPEAKING,), with_scores=True)
    if faults := [fault for row in table.rows if (fault := _score_fault(row))]:
        raise ValidationError(path.name, faults)
    tracks = []
    for entity in table.places:
        rows = table.of_entity(entity)
        scores, timestamps = [float(row.score) for row in rows], [row.timestamp for row in rows]
        tracks.append(TrackScores(entity_id=entity, scores=scores, timestamps=timestamps))
    aligned = truth.align(tracks)
    if faults := _box_faults(table, truth.table):
        raise ValidationError(path.name, faults)
    return aligned.astype(np.float64)


def _score_fault(row: AvaRow) -> Violation | None:
    try:
        finite = isfinite(float(row.score))
    except ValueError:
        finite = False
    if finite:
        return None
    found, hint = repr(row.score), "Write the predictions again."
    return row.violation(ViolationCode.ROW_MALFORMED, SCORE_COLUMN, found, "a finite number", hint)


def _box_faults(predicted: AvaTable, annotated: AvaTable) -> list[Violation]:
    """Rows whose box is not the annotated one; both tables have the same entities and times."""
    faults = []
    for entity in predicted.places:
        for row, truth in zip(predicted.of_entity(entity), annotated.of_entity(entity), strict=True):
            if row.box != truth.box and not _same_box(row.box, truth.box):
                hint = "Predictions repeat the boxes of the ground truth, as write_predictions does."
                faults.append(row.violation(ViolationCode.ROW_MALFORMED, "entity_box", row.box, truth.box, hint))
    return faults


def _same_box(first: str, second: str) -> bool:
    pairs = zip(first.split(","), second.split(","), strict=True)
    return all(abs(float(a) - float(b)) <= _BOX_TOLERANCE for a, b in pairs)


def _violation(code: ViolationCode, entity: str, found: str, required: str, hint: str) -> Violation:
    return Violation(code=code, sample_id=entity, found=found, required=required, hint=hint)
