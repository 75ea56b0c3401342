"""The per-category report of WASD: the official metric overall and within each of its five categories.

``dataset_division.txt`` lists recordings below headings:

    # OC              or, in older releases,   # Interview
    G16p2gY-26M                                G16p2gY-26M

A listed id stands for the video of that very id, and for its cuts ``<id>_<start>-<end>``, as WASD's ``video_id`` names
them; nothing else. (The official script takes every video whose id *contains* a listed one.) A recording listed below
two headings counts in both, as it does there, and the report names it; the released file has one.

Source: ``eval/dataset_division.txt`` and ``eval/wasd_metadata.csv`` of the WASD release.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.ava_metric import AveragePrecision, ava_average_precision
from muvap_assets.asd.evaluation import finite_scores
from muvap_assets.asd.prediction_files import GroundTruth
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place

_CUT = re.compile(r"_[0-9]+-[0-9]+$")


class Category(StrEnum):
    """The categories of WASD, easiest first."""

    OPTIMAL_CONDITIONS = "OC"
    SPEECH_IMPAIRMENT = "SI"
    FACE_OCCLUSION = "FO"
    HUMAN_VOICE_NOISE = "HVN"
    SURVEILLANCE_SETTINGS = "SS"


HEADINGS: Mapping[str, Category] = {
    **{str(category).casefold(): category for category in Category},
    "interview": Category.OPTIMAL_CONDITIONS,
    "debate": Category.SPEECH_IMPAIRMENT,
    "podcast": Category.FACE_OCCLUSION,
    "react": Category.HUMAN_VOICE_NOISE,
    "police": Category.SURVEILLANCE_SETTINGS,
}
"""Both heading sets in lower case; headings are compared without regard to case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryReport:
    """The metric over all rows and within each category of the division.

    ``unlisted`` are videos of the ground truth below no heading: they count in ``overall`` alone. ``shared`` are videos
    that count in more than one category.
    """

    overall: AveragePrecision
    categories: Mapping[Category, AveragePrecision]
    unlisted: tuple[str, ...]
    shared: tuple[str, ...]


def read_division(path: Path) -> Mapping[Category, frozenset[str]]:
    """The ids below each heading of a ``dataset_division.txt``, of either heading set.

    Raises:
        ValidationError: it cannot be read or is empty, a heading is unknown, or an id stands above the first heading.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValidationError(Finding(Code.FILE_UNREADABLE, path, f"unreadable ({error})", case="division")) from error
    findings: list[Finding] = []
    division: dict[Category, set[str]] = {}
    ids: set[str] | None = None
    headings = ", ".join(HEADINGS)
    for line, text in enumerate((line.strip() for line in lines), 1):
        place, found = Place(path.name, line), ""
        if text.startswith("#"):
            category = HEADINGS.get(text.lstrip("#").strip().casefold())
            if category is None:
                found = f"heading {text!r}"
            ids = set() if category is None else division.setdefault(category, set())
        elif text and ids is None:
            found = f"{text!r} above any heading"
        elif text and ids is not None:
            ids.add(text)
        if found:
            findings.append(Finding(Code.ROW_MALFORMED, place, found, case="division", headings=headings))
    if not division and not findings:
        findings.append(Finding(Code.FILE_UNREADABLE, path.name, "nothing", case="division"))
    if findings:
        raise ValidationError(findings, path.name)
    return {category: frozenset(division[category]) for category in Category if category in division}


def categories_of(video_id: str, division: Mapping[Category, frozenset[str]]) -> tuple[Category, ...]:
    """The categories that list a video, by its exact id or as a cut of a recording."""
    recording = _CUT.sub("", video_id)
    return tuple(category for category, ids in division.items() if video_id in ids or recording in ids)


def average_precision_by_category(
    truth: GroundTruth, scores: npt.ArrayLike, division: Mapping[Category, frozenset[str]]
) -> CategoryReport:
    """The official metric over all rows and within each category.

    Args:
        truth: the ground truth of one split.
        scores: real [rows], as ``truth.align`` gives them.
        division: the ids of each category, as :func:`read_division` gives them.

    Returns:
        A category none of whose videos are in ``truth`` has no rows and an undefined value.

    Raises:
        ValidationError: labels are unknown, a score is not finite, or there is not one a row.
    """
    values = finite_scores(scores)
    videos = dict.fromkeys([*(row.video_id for row in truth.table.rows), *truth.left_out])
    placed = {video: categories_of(video, division) for video in videos}
    categories = {}
    for category in division:
        inside = np.array([category in placed[row.video_id] for row in truth.table.rows], np.bool_)
        categories[category] = ava_average_precision(
            truth.labels[inside],
            values[inside],
            labels_known=truth.labels_known,
            rows_left_out=sum(count for video, count in truth.left_out.items() if category in placed[video]),
        )
    return CategoryReport(
        overall=truth.average_precision(values),
        categories=categories,
        unlisted=tuple(video for video, listed in placed.items() if not listed),
        shared=tuple(video for video, listed in placed.items() if len(listed) > 1),
    )
