"""Rows whose faces are boxes of a video, against that video and those boxes: each file read once, however many rows name it.

What belongs here: whether the frames and boxes of a row are there and usable. Where rows come from is for the corpora.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import numpy as np

from muvap_assets.asd.contract import FACE_SIZE, Clip, ClipRow, TrackBoxes, VisualKind
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.face_boxes import BoxListing, read_face_boxes
from muvap_assets.media.video_faces import VideoProbe, load_video_decoder, probe_video, wrong_box
from muvap_assets.progress import Progress, no_progress
from muvap_assets.threads import thread_pool, watched

FoundFaces: TypeAlias = tuple[tuple[int, int, int] | None, list[Finding]]
"""(frames, height, width) of a row's faces, or ``None``, and what is wrong with them."""


def boxes_of(row: ClipRow | Clip) -> TrackBoxes:
    """The boxes of a row that has some.

    Raises:
        ValidationError: it names none; a reader never yields such a row.
    """
    if row.boxes is None:
        found = "a row of kind video_boxes without boxes"
        raise ValidationError(Finding(Code.BOX_INVALID, row.place("boxes_path"), found, case="columns"))
    return row.boxes


def open_video_rows(rows: Sequence[ClipRow], root: Path, progress: Progress = no_progress) -> dict[int, FoundFaces]:
    """What was found for each row of kind ``video_boxes``, by its ``row``. Each video is decoded once, to count its frames.

    Never raises for what the files hold.
    """
    groups: dict[tuple[str, Fraction], list[ClipRow]] = {}
    for row in rows:
        if row.visual_kind is VisualKind.VIDEO_BOXES:
            groups.setdefault((row.visual_path, row.source_fps.value), []).append(row)
    if not groups:
        return {}
    load_video_decoder()
    found: dict[int, FoundFaces] = {}
    with thread_pool(os.cpu_count()) as pool:
        results = pool.map(lambda group: _group_faces(group, root), groups.values())
        for done, ((path, _), result) in enumerate(zip(groups, results, strict=True), 1):
            progress(done, len(groups), path)
            found.update(result)
    return found


def _group_faces(rows: Sequence[ClipRow], root: Path) -> dict[int, FoundFaces]:
    """The rows of one video at one rate."""
    path = rows[0].visual_path
    try:
        video = watched(lambda: probe_video(root / path, rows[0].source_fps.value))
    except ValidationError as error:
        return {row.row: (None, [_of_file(error.finding, row, "visual_path", path)]) for row in rows}
    listings: dict[str, BoxListing] = {}
    found = {}
    for row in rows:
        name = boxes_of(row).boxes_path
        if name not in listings:
            listings[name] = read_face_boxes(root / name)
        found[row.row] = _row_faces(row, video, listings)
    return found


def _row_faces(row: ClipRow, video: VideoProbe, listings: Mapping[str, BoxListing]) -> FoundFaces:
    track = boxes_of(row)
    listing = listings[track.boxes_path]
    if listing.findings:
        return None, [_of_file(finding, row, "boxes_path", track.boxes_path) for finding in listing.findings]
    findings = [*_wrong_frames(row, video, listing.boxes.frame_count)]
    findings.extend(wrong_boxes(row, listing, video.width, video.height))
    return (len(row.labels), FACE_SIZE, FACE_SIZE), findings


def _wrong_frames(row: ClipRow, video: VideoProbe, boxed_frames: int) -> Iterator[Finding]:
    """What is wrong with the frames of a row, or of the whole video, whose boxes need ``boxed_frames``."""
    first, stop = boxes_of(row).first_frame, boxes_of(row).first_frame + len(row.labels)
    if max(stop, boxed_frames) > video.frames:
        # Boxes past the end come of another video, or of another cut of it: then no box is known to be on its frame.
        beyond = boxed_frames > video.frames
        stopped = f" (decoding stopped: {video.stopped})" if video.stopped else ""
        covered = f"its boxes need {boxed_frames}" if beyond else f"the clip covers frames {first} to {stop - 1}"
        field, case = ("boxes_path", "boxes") if beyond else ("visual_path", "video")
        found = f"{row.visual_path}: {video.frames} frames decode{stopped}, {covered}"
        yield Finding(Code.LABEL_COUNT_MISMATCH, row.place(field), found, case=case)
    if video.off_grid is not None and video.off_grid[0] < stop:
        index, seconds = video.off_grid
        found = (
            f"{row.visual_path}: frame {index} is shown at {float(seconds):.4f} s, at {row.source_fps.text} frames a second "
            f"it would be at {float(index / row.source_fps.value):.4f} s"
        )
        yield Finding(Code.VIDEO_TIMESTAMPS, row.place("source_fps"), found, case="variable")


def wrong_boxes(row: ClipRow | Clip, listing: BoxListing, width: int, height: int) -> list[Finding]:
    """What is wrong with the boxes of a row on pictures of this size: one finding a kind, the first offender named."""
    track, place = boxes_of(row), row.place("boxes_path")
    window = listing.boxes.window(track.face_id, track.first_frame, len(row.labels))
    present = np.flatnonzero(~np.isnan(window[:, 0]))
    if not len(present):
        found = f"face {track.face_id} has no box on any frame of the clip"
        return [Finding(Code.FACES_EMPTY, place, found, case="boxes")]
    wrong: dict[Code, list[str]] = {}
    for i in present:
        if found_in := wrong_box(window[i], width, height):
            frame = track.first_frame + int(i)
            where = f"face {track.face_id}, frame {frame} at {float(frame / row.source_fps.value):.3f} s"
            wrong.setdefault(found_in[0], []).append(f"{where}: {found_in[1]}")
    return [
        Finding(code, place, f"{texts[0]}{f' (and {len(texts) - 1} more frames)' if len(texts) > 1 else ''}")
        for code, texts in wrong.items()
    ]


def _of_file(finding: Finding, row: ClipRow, field: str, written: str) -> Finding:
    return finding.of_file(written, row=row.row, sample_id=row.sample_id, field=field)
