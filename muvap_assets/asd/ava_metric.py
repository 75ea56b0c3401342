"""The AVA active-speaker metric: one average precision over all rows of all videos.

Rows are ranked by score, highest first. At each row precision is positives so far over rows so far, recall is positives so
far over all positives; precision is then raised to the largest that any later row reaches, and summed over the steps of
recall. Without ties this is the official computation.

**Ties.** The official script ranks rows of one score by whatever order its sort leaves, so that the number depends on
the row order. Here rows of one score enter together: no order of the rows changes the value. It is the lowest that the
official script can print for these scores, with negatives ahead of positives in every tie; ``highest`` is the most, with
positives ahead. Both are reported, and how many rows share their score; above the model rate lifted scores always do.

    >>> tied = ava_average_precision([1, 0, 1, 0], [0.5, 0.5, 0.5, 0.5], labels_known=True)
    >>> tied.value, tied.highest, tied.tied_rows
    (0.5, 1.0, 4)

**No positives.** Recall is undefined then, and so is the value: ``None``, where the official script crashes. The
same goes for no rows at all, for which it prints 0.

Source: ``get_ava_active_speaker_performance.py`` of the AVA ActiveSpeaker release, read for its definition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.evaluation import finite_scores
from muvap_assets.asd.targets import unknown_labels_error
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place

_SUBJECT = "average precision"


@dataclass(frozen=True, slots=True, kw_only=True)
class AveragePrecision:
    """What the metric says of a table.

    ``value`` is in 0..1, or ``None`` where there are no positives and it is undefined. ``highest`` is what the official
    script prints if every tie falls well; it equals ``value`` unless ``tied_rows``, the rows that share their score with
    another, mix positives and negatives. ``rows_left_out`` counts annotated rows that are not part of the table.
    """

    value: float | None
    highest: float | None
    rows: int
    positives: int
    tied_rows: int
    rows_left_out: int = 0

    def __str__(self) -> str:
        """The value in percent, and what a reader has to know about it."""
        left_out = f"; {self.rows_left_out} rows left out" if self.rows_left_out else ""
        if self.value is None or self.highest is None:
            return f"undefined (no positives in {self.rows} rows{left_out})"
        ties = f", {self.tied_rows} tied, up to {self.highest:.4%}" if self.tied_rows else ""
        return f"{self.value:.4%} ({self.rows} rows, {self.positives} positive{ties}{left_out})"


def ava_average_precision(
    labels: npt.ArrayLike, scores: npt.ArrayLike, *, labels_known: bool, rows_left_out: int = 0
) -> AveragePrecision:
    """Average precision of ``scores`` against ``labels``, pooled over all rows.

    Args:
        labels: 0 or 1 [rows], 1 where the face speaks audibly.
        scores: real [rows], one a row, higher for speech.
        labels_known: whether ``labels`` are annotation; packs and ground truth carry it. AVA's test split has filler only.
        rows_left_out: how many annotated rows ``labels`` lacks; named with the result.

    Raises:
        ValidationError: ``labels_known`` is false, labels are not 0 and 1, a score is not finite, or there is not one
            score a label.
    """
    if not labels_known:
        raise unknown_labels_error("labels", _SUBJECT)
    values = finite_scores(scores)
    positive = _positive(labels)
    if len(positive) != len(values):
        place, required = Place(field="scores"), f"{len(positive)}, one a label"
        raise ValidationError(Finding(Code.COUNT_MISMATCH, place, f"{len(values)}", case="scores", required=required))
    # Ascending by label within a score, so that reversing puts the positives of a tie first.
    order = np.lexsort((positive, values))[::-1]
    ranked, hits = values[order], positive[order]
    last_of_score = np.append(ranked[1:] != ranked[:-1], True)[: len(ranked)]
    sizes = np.diff(np.flatnonzero(last_of_score), prepend=-1)
    return AveragePrecision(
        value=_area(hits, last_of_score),
        highest=_area(hits, np.ones_like(last_of_score)),
        rows=len(hits),
        positives=int(hits.sum()),
        tied_rows=int(sizes[sizes > 1].sum()),
        rows_left_out=rows_left_out,
    )


def _area(hits: npt.NDArray[np.bool_], thresholds: npt.NDArray[np.bool_]) -> float | None:
    """Area under the precision envelope of ranked rows [n], with a point of the curve where ``thresholds`` is true."""
    found = np.cumsum(hits, dtype=np.int64)
    if not hits.any():
        return None
    precision = (found / np.arange(1, len(hits) + 1))[thresholds]
    recall = found[thresholds] / found[-1]
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * envelope))


def _positive(labels: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    values: npt.NDArray[Any] = np.asarray(labels)
    if values.ndim != 1 or (values.size and values.dtype.kind not in "biuf"):
        found = f"{values.dtype} {list(values.shape)}"
        raise ValidationError(Finding(Code.LABELS_INVALID, Place(field="labels"), found, case="metric"))
    wrong = (values != 0) & (values != 1)
    if wrong.any():
        place = int(np.argmax(wrong))
        found = f"{values[place]} at {place}"
        raise ValidationError(Finding(Code.LABELS_INVALID, Place(field="labels"), found, case="metric"))
    return values.astype(np.bool_)
