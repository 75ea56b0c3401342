"""Faces of a pack that are boxes of a video: the video is decoded once, as a stream, and scattered to all its clips.

frames      0 . . . 5 . . . . 10 . . . . 15 . . . .
clips       face 0  |──── a ────|
            face 1  |──── b ────|
            face 0         |──── c ────|            frames 7 to 10 of face 0 are cut once, written twice

A frame's crops are written as they are cut: memory holds one picture a video in work, whatever its length.
"""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from muvap_assets.asd.contract import FACE_SIZE, Clip, VisualKind
from muvap_assets.asd.packs.audio_writer import ArrayPlace
from muvap_assets.asd.packs.face_writer import of_faces, wrong_shape
from muvap_assets.asd.packs.origins import boxes_content, faces_origin, files_state
from muvap_assets.asd.packs.plan import Placed
from muvap_assets.asd.video_rows import boxes_of, wrong_boxes
from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.face_boxes import BoxListing, read_face_boxes
from muvap_assets.media.npy import write_at
from muvap_assets.media.video import VideoFrame
from muvap_assets.media.video_faces import BORDER_GREY, crop_face, grey_picture, open_video
from muvap_assets.storage.digests import file_sha256
from muvap_assets.threads import watched


@dataclass(frozen=True, slots=True)
class WrittenFaces:
    """The clip whose faces were written, the CRC-32 of their bytes, and what they were made from, empty where not known."""

    placed: Placed
    crc32: int
    origin: str


@dataclass(frozen=True, slots=True)
class WrittenVideo:
    """What became of one video: all clips of it, those that were written, and everything that is wrong."""

    clips: tuple[Placed, ...]
    faces: tuple[WrittenFaces, ...]
    findings: tuple[Finding, ...]


def group_by_video(samples: Iterable[Placed]) -> list[tuple[Placed, ...]]:
    """The clips of each video sorted by first frame; the video with most to decode first, since it takes longest."""
    groups: dict[str, list[Placed]] = {}
    for placed in samples:
        if placed.clip.visual_kind is VisualKind.VIDEO_BOXES:
            groups.setdefault(placed.clip.visual_path, []).append(placed)
    ordered = [tuple(sorted(group, key=lambda placed: boxes_of(placed.clip).first_frame)) for group in groups.values()]
    return sorted(ordered, key=lambda group: -max(_stop(placed.clip) for placed in group))


def write_video(clips: tuple[Placed, ...], places: Mapping[int, ArrayPlace], root: Path) -> WrittenVideo:
    """Decode one video as far as its last clip needs and write every clip's faces.

    Args:
        clips: all clips of the video, sorted by first frame; they may overlap.
        places: the preallocated array of faces of each shard.
        root: the folder relative paths are meant from.

    Raises:
        OSError: the target cannot be written.
    """
    path = clips[0].clip.visual_file(root)
    listed = sorted({boxes_of(placed.clip).boxes_path for placed in clips})
    before = files_state([path, *(root / name for name in listed)])
    listings = {name: read_face_boxes(root / name) for name in listed}
    findings = [finding for placed in clips for finding in _unusable(placed.clip, listings)]
    if findings:
        return WrittenVideo(clips, (), tuple(findings))
    try:
        with ExitStack() as stack:
            tracks = _open_tracks(clips, places, listings, stack)
            findings = watched(lambda: _scatter(tracks, path, listings))
    except ValidationError as error:
        return WrittenVideo(clips, (), tuple(of_faces(placed.clip, error.finding) for placed in clips))
    origins = {} if findings else _origins(clips, path, root, before)
    faces = tuple(
        WrittenFaces(track.placed, track.crc32, origins.get(track.placed.position, ""))
        for track in tracks
        if track.complete
    )
    return WrittenVideo(clips, faces, tuple(findings))


def _origins(clips: tuple[Placed, ...], path: Path, root: Path, before: str | None) -> dict[int, str]:
    """What the faces of each clip were made from; nothing where a file was written to since ``before``, its state then."""
    listed = sorted({boxes_of(placed.clip).boxes_path for placed in clips})
    files = [path, *(root / name for name in listed)]
    try:
        digests = watched(lambda: [file_sha256(file) for file in files])
    except (OSError, ValidationError):
        return {}
    if before is None or files_state(files) != before:
        return {}
    boxes = dict(zip(listed, digests[1:], strict=True))
    return {
        placed.position: faces_origin(
            placed.clip, boxes_content(placed.clip, digests[0], boxes[boxes_of(placed.clip).boxes_path])
        )
        for placed in clips
    }


def _scatter(tracks: list[_Track], path: Path, listings: Mapping[str, BoxListing]) -> list[Finding]:
    """Hand each frame to the tracks it is part of; returns what kept a track from being complete."""
    waiting, active = deque(tracks), list[_Track]()
    stop = max(track.stop for track in tracks)
    decoded, findings = 0, list[Finding]()
    with open_video(path) as source:
        for frame in source.frames():
            if decoded == 0:
                width, height = frame.size
                findings = [
                    finding
                    for track in tracks
                    for finding in wrong_boxes(track.placed.clip, listings[track.boxes_path], width, height)
                ]
            if findings or frame.index >= stop:
                break
            decoded = frame.index + 1
            while waiting and waiting[0].first <= frame.index:
                active.append(waiting.popleft())
            _write_frame(active, frame)
            active = [track for track in active if track.stop > decoded]
        stopped = source.stopped
    if findings:
        return findings
    found = f"{decoded} frames decode{f' (decoding stopped: {stopped})' if stopped else ''}, the clip needs"
    return [
        of_faces(track.placed.clip, Finding(Code.LABEL_COUNT_MISMATCH, path, f"{found} {track.stop}", case="packed"))
        for track in tracks
        if not track.complete
    ]


def _write_frame(active: Iterable[_Track], frame: VideoFrame) -> None:
    """Cut each face once, however many clips it is part of; the picture is made grey only where a face is."""
    grey: npt.NDArray[np.uint8] | None = None
    crops: dict[tuple[str, int], npt.NDArray[np.uint8]] = {}
    for track in active:
        box = track.boxes[frame.index - track.first]
        if np.isnan(box[0]):
            track.write(_NO_FACE)
            continue
        key = (track.boxes_path, track.face_id)
        if key not in crops:
            grey = grey_picture(frame) if grey is None else grey
            crops[key] = np.empty((FACE_SIZE, FACE_SIZE), np.uint8)
            crop_face(grey, box, crops[key])
        track.write(crops[key])


_NO_FACE = np.full((FACE_SIZE, FACE_SIZE), BORDER_GREY, np.uint8)


class _Track:
    """One clip while its video streams by."""

    def __init__(self, placed: Placed, boxes: npt.NDArray[np.float64], descriptor: int, data_offset: int) -> None:
        track = boxes_of(placed.clip)
        self.placed, self.boxes = placed, boxes
        self.boxes_path, self.face_id, self.first = track.boxes_path, track.face_id, track.first_frame
        self.stop = _stop(placed.clip)
        self.crc32 = 0
        self._written = 0
        self._descriptor = descriptor
        self._offset = data_offset + placed.face_offset * FACE_SIZE * FACE_SIZE

    @property
    def complete(self) -> bool:
        """Whether every face was written."""
        return self._written == self.placed.clip.source_frames

    def write(self, face: npt.NDArray[np.uint8]) -> None:
        """Put the next face, uint8 [112, 112], where the plan says."""
        write_at(self._descriptor, face, self._offset + self._written * face.nbytes)
        self.crc32 = zlib.crc32(face.data, self.crc32)
        self._written += 1


def _open_tracks(
    clips: tuple[Placed, ...], places: Mapping[int, ArrayPlace], listings: Mapping[str, BoxListing], stack: ExitStack
) -> list[_Track]:
    descriptors: dict[int, int] = {}
    tracks = []
    for placed in clips:
        if placed.shard not in descriptors:
            descriptors[placed.shard] = os.open(places[placed.shard].path, os.O_WRONLY)
            stack.callback(os.close, descriptors[placed.shard])
        box = boxes_of(placed.clip)
        window = listings[box.boxes_path].boxes.window(box.face_id, box.first_frame, placed.clip.source_frames)
        tracks.append(_Track(placed, window, descriptors[placed.shard], places[placed.shard].data_offset))
    return tracks


def _stop(clip: Clip) -> int:
    return boxes_of(clip).first_frame + clip.source_frames


def _unusable(clip: Clip, listings: Mapping[str, BoxListing]) -> Iterator[Finding]:
    """What can be known to be wrong with a clip before its video is opened."""
    if (shape := (clip.face_height, clip.face_width)) != (FACE_SIZE, FACE_SIZE):
        yield wrong_shape(clip.place("visual_path"), shape, (FACE_SIZE, FACE_SIZE), "resized")
    boxes_path = boxes_of(clip).boxes_path
    for finding in listings[boxes_path].findings:
        yield finding.of_file(boxes_path, row=clip.row, sample_id=clip.sample_id, field="boxes_path")
