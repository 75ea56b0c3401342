"""Ground truth and official prediction files: scores meet rows by entity and timestamp, never by position.

    val_orig.csv or the official table ── read_ground_truth ──► GroundTruth ◄── align ── TrackScores, one a face track
                                                                    │
    predictions.csv  ◄── write_predictions ─────────────────────────┘     read_predictions is its mirror

Each row of the ground truth gets exactly one score, and each score one row: an entity that is missing, unknown, scored
twice, short or long is refused, all of them in one message, and nothing is written. Where tracks were set aside, the ground
truth is restricted to the others, or their rows get a constant; neither happens unless it is asked for. A track that names
its frames' timestamps is matched by them, by exact decimal value (``2`` is ``2.0``); one that does not has its frames in
order of time, as packs do.

    >>> from muvap_assets.asd.ava_csv import AvaRow
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
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.ava_csv import (
    COLUMNS,
    LABELS,
    SCORE_COLUMN,
    SPEAKING,
    AvaTable,
    parse_timestamp,
    read_table,
)
from muvap_assets.asd.ava_metric import AveragePrecision, ava_average_precision
from muvap_assets.asd.evaluation import finite_scores
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
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
    """Annotated rows in the order of their file.

    ``labels_known`` is false where the file carries filler. ``left_out`` counts the rows that the table lacks, by video.
    """

    table: AvaTable
    labels_known: bool
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def labels(self) -> npt.NDArray[np.uint8]:
        """uint8 [rows], 1 where the face speaks audibly; 0 for labels outside the vocabulary, which filler may have."""
        return np.array([LABELS.get(row.label, 0) for row in self.table.rows], np.uint8)

    def restricted_to(self, entity_ids: Iterable[str]) -> GroundTruth:
        """The rows of these entities alone, such as those a pack holds; ``left_out`` of the result counts the others.

        A value on fewer rows is not the official one: it says so wherever it is printed.

        Raises:
            ValidationError: it has no row of any of them.
        """
        held = set(entity_ids)
        rows = [row for row in self.table.rows if row.entity_id in held]
        if not rows:
            found = f"no row of these {len(held)} entities"
            raise ValidationError(Finding(Code.COUNT_MISMATCH, "ground truth", found, case="split"))
        others = Counter(row.video_id for row in self.table.rows if row.entity_id not in held)
        return replace(self, table=AvaTable.of(rows), left_out=Counter(self.left_out) + others)

    def average_precision(self, scores: npt.ArrayLike) -> AveragePrecision:
        """The official metric over all rows, for one score a row, [rows]; see :func:`ava_metric.ava_average_precision`."""
        return ava_average_precision(
            self.labels, scores, labels_known=self.labels_known, rows_left_out=sum(self.left_out.values())
        )

    def align(
        self, tracks: Iterable[TrackScores], *, missing_score: float | None = None
    ) -> npt.NDArray[np.floating[Any]]:
        """One score a row, [rows], in the order of the rows.

        Args:
            tracks: one for each entity, in any order.
            missing_score: what every row of an entity without a track gets; without it such an entity is refused. State it
                beside the result: these rows are ties.

        Raises:
            ValidationError: an entity is missing, unknown, given twice or of another length, a timestamp has no row, or
                a score is not finite; all of it together, by entity.
        """
        findings: list[Finding] = []
        given: set[str] = set()
        placed: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.floating[Any]]]] = []
        for track in tracks:
            wrong = self._wrong_with(track, seen=track.entity_id in given)
            given.add(track.entity_id)
            findings += wrong
            if not wrong:
                placed.append((self._places_of(track), finite_scores(track.scores)))
        if missing_score is None or not given:
            findings += self._unscored(given)
        if findings:
            raise ValidationError(findings, "scores for the ground truth")
        dtype = np.result_type(*(scores for _, scores in placed)) if placed else np.float64
        with np.errstate(over="ignore"):  # what becomes infinite in the dtype of the scores is refused as such
            aligned = np.full(len(self), missing_score or 0, dtype)
        finite_scores(aligned[:1], "missing_score")
        for places, scores in placed:
            aligned[places] = scores
        return aligned

    def _places_of(self, track: TrackScores) -> npt.NDArray[np.int64]:
        """The row of each frame of a track with which nothing is wrong."""
        rows = self.table.places[track.entity_id]
        if track.timestamps is None:
            return rows
        by_time = sorted(range(len(track.timestamps)), key=[Decimal(text) for text in track.timestamps].__getitem__)
        placed = np.empty_like(rows)
        placed[by_time] = rows
        return placed

    def _wrong_with(self, track: TrackScores, *, seen: bool) -> Sequence[Finding]:
        place, rows = Place(sample_id=track.entity_id), self.table.places.get(track.entity_id)
        if seen:
            return [Finding(Code.SAMPLE_ID_DUPLICATE, place, "given more than once", case="scores")]
        if rows is None:
            return [Finding(Code.SAMPLE_ID_INVALID, place, "not in the ground truth", case="scores")]
        try:
            count = len(finite_scores(track.scores, track.entity_id))
        except ValidationError as error:
            return error.findings
        if count != len(rows):
            required = f"{len(rows)}, one a row"
            return [Finding(Code.COUNT_MISMATCH, place, f"{count} scores", case="scores", required=required)]
        wrong = None if track.timestamps is None else self._wrong_timestamp(place, track.entity_id, track.timestamps)
        return [wrong] if wrong else []

    def _wrong_timestamp(self, place: Place, entity: str, timestamps: Sequence[str]) -> Finding | None:
        times = [parse_timestamp(text) for text in timestamps]
        known = {Decimal(row.timestamp) for row in self.table.of_entity(entity)}
        taken: set[Decimal] = set()
        for text, time in zip(timestamps, times, strict=True):
            if time is None or time not in known or time in taken:
                found = f"timestamp {text!r}" + (" twice" if time in taken else "")
                return Finding(Code.ROW_MALFORMED, place, found, case="timestamp")
            taken.add(time)
        if len(times) != len(known):
            found, required = f"{len(times)} timestamps", f"{len(known)}, one a row"
            return Finding(Code.COUNT_MISMATCH, place, found, case="scores", required=required)
        return None

    def _unscored(self, given: Collection[str]) -> list[Finding]:
        return [
            Finding(
                Code.COUNT_MISMATCH,
                Place(sample_id=entity),
                "no scores",
                case="unscored",
                required=f"{len(rows)}, one a row",
            )
            for entity, rows in self.table.places.items()
            if entity not in given
        ]


def read_ground_truth(paths: Path | Sequence[Path], *, labels_known: bool) -> GroundTruth:
    """Read a CSV as :mod:`ava_csv` describes it, or each of a folder; several files make one table, in their order.

    Args:
        paths: the file or folder, or several of them.
        labels_known: false for a split that carries filler, as AVA's test split does: its labels are not looked at.

    Raises:
        ValidationError: a file cannot be read, a row is malformed, a label is unknown, or two rows share an entity and a
            timestamp; everything together, by row.
    """
    files = [paths] if isinstance(paths, Path) else list(paths)
    table = read_table(files, labels=LABELS if labels_known else None, with_scores=False)
    return GroundTruth(table=table, labels_known=labels_known)


def write_predictions(
    path: Path,
    truth: GroundTruth,
    tracks: Iterable[TrackScores],
    *,
    header: bool = False,
    missing_score: float | None = None,
) -> None:
    """Write the official prediction file: the rows of ``truth`` in their order and text, label SPEAKING_AUDIBLE, a score.

    Scores are written with the fewest digits that read back as the same number of their dtype. The file is replaced in
    one step.

    Args:
        path: the file; its folder exists.
        truth: the rows; labels may be unknown.
        tracks: one for each entity, in any order.
        header: with a first line of names, as training code reads it; without, for upload.
        missing_score: see :meth:`GroundTruth.align`.

    Raises:
        ValidationError: not exactly one finite score a row, as :meth:`GroundTruth.align` says, or the ground truth was
            restricted; nothing is written then.
    """
    if truth.left_out:
        found = f"a ground truth with {sum(truth.left_out.values())} rows left out"
        raise ValidationError(Finding(Code.COUNT_MISMATCH, path.name, found, case="restricted"))
    scores = truth.align(tracks, missing_score=missing_score).astype(str).tolist()
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if header:
            writer.writerow((*COLUMNS, SCORE_COLUMN))
        writer.writerows(
            (row.video_id, row.timestamp, *row.box.split(","), SPEAKING, row.entity_id, score)
            for row, score in zip(truth.table.rows, scores, strict=True)
        )


def read_predictions(path: Path, truth: GroundTruth, *, missing_score: float | None = None) -> npt.NDArray[np.float64]:
    """Scores of a prediction file, float64 [rows], in the order of the ground truth; the mirror of the writer.

    Headered or not, in any order. Rows are matched by entity and exact timestamp, and boxes have to agree to 1e-9.
    ``missing_score`` is for entities without a row, see :meth:`GroundTruth.align`.

    Raises:
        ValidationError: the file is malformed, a label is another than SPEAKING_AUDIBLE, a score is not finite, a box
            differs, or there is not exactly one row for each row of ``truth``.
    """
    table = read_table([path], labels=(SPEAKING,), with_scores=True)
    tracks = []
    for entity in table.places:
        rows = table.of_entity(entity)
        scores, timestamps = [float(row.score) for row in rows], [row.timestamp for row in rows]
        tracks.append(TrackScores(entity_id=entity, scores=scores, timestamps=timestamps))
    aligned = truth.align(tracks, missing_score=missing_score)
    if other_boxes := _other_boxes(table, truth.table):
        raise ValidationError(other_boxes, path.name)
    return aligned.astype(np.float64)


def _other_boxes(predicted: AvaTable, annotated: AvaTable) -> list[Finding]:
    """Rows whose box is not the annotated one; both tables have the same entities and times."""
    return [
        Finding(Code.ROW_MALFORMED, row.place("entity_box"), row.box, case="box", box=truth.box)
        for entity in predicted.places
        for row, truth in zip(predicted.of_entity(entity), annotated.of_entity(entity), strict=True)
        if row.box != truth.box and not _same_box(row.box, truth.box)
    ]


def _same_box(first: str, second: str) -> bool:
    pairs = zip(first.split(","), second.split(","), strict=True)
    return all(abs(float(a) - float(b)) <= _BOX_TOLERANCE for a, b in pairs)
