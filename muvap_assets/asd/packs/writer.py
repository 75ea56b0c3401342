"""Writing a pack: plan, take over what is unchanged, decode the rest into place, then the index.

Memory holds one block a worker, never a clip or a shard, and the bytes do not depend on who decodes what when.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from muvap_assets.asd.contract import Clip, VisualKind, no_clip
from muvap_assets.asd.packs.arrays import ShardFiles, create_arrays
from muvap_assets.asd.packs.audio_writer import (
    ArrayPlace,
    WrittenAudio,
    WrittenRecording,
    group_by_recording,
    write_recording,
)
from muvap_assets.asd.packs.face_writer import (
    BlockWriter,
    ClipFaces,
    FaceSource,
    WrittenBlock,
    blocks_of,
    joined_findings,
    open_faces,
    wrong_shape,
)
from muvap_assets.asd.packs.layout import (
    ARTIFACT,
    LABELS_DTYPE,
    PACK_CODE_VERSION,
    PackEntry,
    PackHeader,
    shard_name,
    write_header,
    write_index,
)
from muvap_assets.asd.packs.origins import faces_origin
from muvap_assets.asd.packs.plan import Placed, ShardPlan, pack_bytes, plan_shards
from muvap_assets.asd.packs.reuse import CopiedTrack, Reuse, TrackCopier
from muvap_assets.asd.packs.set_aside import WrittenShards, remove_tracks, write_set_aside
from muvap_assets.asd.packs.video_writer import WrittenVideo, group_by_video, write_video
from muvap_assets.asd.policy import SHARD_BYTES
from muvap_assets.asd.timeline import model_frame_count
from muvap_assets.codes import Code
from muvap_assets.disk import require_space
from muvap_assets.errors import ConfigError, ValidationError
from muvap_assets.findings import Finding
from muvap_assets.media.faces import load_decoder
from muvap_assets.media.video_faces import load_video_decoder
from muvap_assets.progress import Progress, no_progress
from muvap_assets.threads import thread_pool

T = TypeVar("T")
_JOBS_A_WORKER = 4


class Levels(Protocol):
    """Level statistics of a whole recording, full scale 1; ``rms`` and ``peak`` after its mean was removed."""

    @property
    def mean(self) -> float: ...
    @property
    def rms(self) -> float: ...
    @property
    def peak(self) -> float: ...


def write_pack(  # noqa: PLR0913 - all but three have a default or a name that says it
    folder: Path,
    clips: Sequence[Clip],
    root: Path,
    loudness: Mapping[str, Levels],
    *,
    inputs: Mapping[str, str],
    notes: Mapping[str, Any] | None = None,
    shard_bytes: int = SHARD_BYTES,
    workers: int | None = None,
    reuse: Reuse | None = None,
    quarantine: bool = False,
    progress: Progress = no_progress,
) -> PackHeader:
    """Pack ``clips`` in their order into ``folder``, which is empty.

    Args:
        folder: where the pack is written; it is not a pack before this returns.
        clips: the accepted rows of a manifest.
        root: the folder relative paths of ``clips`` are meant from.
        loudness: levels of each recording, by recording id.
        inputs: versions of the artifacts this is made from, for the provenance.
        notes: facts about the corpus, such as what its labels mean, for the provenance.
        shard_bytes: about how large a shard becomes.
        workers: threads that decode; all cores where not given. The bytes are the same.
        reuse: an earlier pack whose unchanged tracks are copied; takes down what this one is made from. The bytes are the same.
        quarantine: leave out tracks with pictures that do not decode or a decoder that is stuck, and list them, instead of
            raising for them.
        progress: called in this thread after the faces of each sample.

    Returns:
        What was written to ``dataset.json``.

    Raises:
        ConfigError: ``shard_bytes`` or ``workers`` is not positive.
        PublishError: the disk has not the space the plan asks for; nothing was written.
        ValidationError: media is missing, changed since it was validated or cannot be decoded; every sample is named. With
            ``quarantine`` also where no track is left.
        OSError: the disk is full, or ``folder`` is not empty.
    """
    workers = workers if workers is not None else os.cpu_count() or 1
    if workers < 1:
        raise ConfigError(f"workers {workers}; required: at least 1. Leave it out to use all cores.")
    _raise_if_any(_unpackable(clips, loudness))
    face_shape = (clips[0].face_height, clips[0].face_width)
    shards = plan_shards(clips, face_shape, shard_bytes)
    require_space(folder, pack_bytes(shards, face_shape), "packed shards")
    work = _Work(folder, shards, face_shape, root, workers, reuse or Reuse(), progress)
    content = _write_content(work)
    bad = content.bad_tracks
    if not quarantine or content.findings or len(bad) == len(clips):
        _raise_if_any([*content.findings, *bad.values()])
    if bad:
        written = WrittenShards(folder, shards, face_shape, content.faces_crc32, content.audio)
        shards = remove_tracks(written, frozenset(bad), TrackCopier(Reuse(), root, face_shape, workers=1))
        write_set_aside(folder, [bad[position] for position in sorted(bad)])
    write_index(folder, [[_entry(placed, content, loudness) for placed in shard.samples] for shard in shards])
    header = PackHeader(
        face_shape=face_shape,
        shards=len(shards),
        samples=len(clips) - len(bad),
        source_frames=sum(shard.frames for shard in shards),
        audio_samples=sum(shard.audio_samples for shard in shards),
        provenance={
            "artifact": ARTIFACT,
            "inputs": dict(sorted(inputs.items())),
            "parameters": {"shard_bytes": shard_bytes},
            "code_version": PACK_CODE_VERSION,
            **({"rejected": len(bad)} if bad else {}),
            **({"corpus": dict(notes)} if notes else {}),
        },
    )
    write_header(folder, header)
    return header


def _raise_if_any(findings: Sequence[Finding]) -> None:
    if findings:
        raise ValidationError(sorted(findings, key=lambda finding: finding.row or 0), "packed shards")


def _unpackable(clips: Sequence[Clip], loudness: Mapping[str, Levels]) -> list[Finding]:
    """What can be known to be wrong before any media is opened."""
    if not clips:
        return [no_clip()]
    findings = []
    usual_shape = Counter((clip.face_height, clip.face_width) for clip in clips).most_common(1)[0][0]
    occurrences = Counter(clip.sample_id for clip in clips)
    for clip in clips:
        if (shape := (clip.face_height, clip.face_width)) != usual_shape:
            findings.append(wrong_shape(clip.place("visual_path"), shape, usual_shape))
        if occurrences[clip.sample_id] > 1:
            found = f"{occurrences[clip.sample_id]} clips of this id"
            findings.append(Finding(Code.SAMPLE_ID_DUPLICATE, clip.place(), found, case="stored"))
        if not clip.source_frames or clip.labels.dtype != LABELS_DTYPE or clip.labels.ndim != 1:
            found = f"labels of dtype {clip.labels.dtype} and shape {list(clip.labels.shape)}"
            findings.append(Finding(Code.LABELS_INVALID, clip.place(), found, case="packed"))
        if found := _wrong_level(clip, loudness):
            findings.append(Finding(Code.LEVEL_INVALID, clip.place(), found))
    return findings


def _wrong_level(clip: Clip, loudness: Mapping[str, Levels]) -> str:
    """What is wrong with the level of a clip's recording, or nothing."""
    levels = loudness.get(clip.recording_id)
    if levels is None:
        return f"recording {clip.recording_id} is not in the loudness index"
    if not all(map(math.isfinite, (levels.mean, levels.rms, levels.peak))):
        return f"mean {levels.mean}, RMS {levels.rms}, peak {levels.peak}"
    return ""


# --- content ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Work:
    """What there is to write, and where."""

    folder: Path
    shards: Sequence[ShardPlan]
    face_shape: tuple[int, int]
    root: Path
    workers: int
    reuse: Reuse
    progress: Progress

    @property
    def samples(self) -> list[Placed]:
        return [placed for shard in self.shards for placed in shard.samples]


class _Content:
    """What was written for each sample, gathered in the calling thread."""

    def __init__(self, work: _Work) -> None:
        self.faces_crc32: dict[int, int] = {}
        self.audio: dict[int, WrittenAudio] = {}
        self.stamps: dict[int, str] = {}
        self.findings: list[Finding] = []
        self.bad_tracks: dict[int, Finding] = {}
        self._in_work: dict[int, ClipFaces] = {}
        self._work, self._total, self._done = work, len(work.samples), 0
        self._positions: dict[str | None, int] = {placed.clip.sample_id: placed.position for placed in work.samples}

    def copied(self, track: CopiedTrack) -> None:
        """Take in what was taken over of a track."""
        placed = track.found.placed
        self._work.reuse.report.add(track)
        self.stamps[placed.position] = track.found.stamp
        if track.audio is not None:
            self.audio[placed.position] = track.audio
        if track.faces is not None:
            self._faces_written(placed, *track.faces)

    def open(self, placed: Placed) -> FaceSource | None:
        """The faces of a sample that are read block by block; nothing and a finding where they cannot be."""
        source, findings = open_faces(placed.clip, self._work.root)
        self._add_findings(findings)
        if source is None:
            self._finish(placed)
        else:
            self._in_work[placed.position] = ClipFaces(placed.clip)
        return source

    def add(self, result: WrittenRecording | WrittenVideo | WrittenBlock) -> None:
        """Take in what a job gave."""
        if isinstance(result, WrittenRecording):
            self._add_findings(result.findings)
            self.audio.update({written.position: written for written in result.clips})
        elif isinstance(result, WrittenVideo):
            self._add_findings(result.findings)
            for faces in result.faces:
                self._faces_written(faces.placed, faces.crc32, faces.origin)
            written = {faces.placed.position for faces in result.faces}
            for placed in result.clips:
                if placed.position not in written:
                    self._finish(placed)
        else:
            self._add_block(result)

    def _add_findings(self, findings: Iterable[Finding]) -> None:
        """Take down what is wrong: a decoder that was given up keeps its own tracks out, anything else the whole pack."""
        for finding in findings:
            if finding.code is Code.DECODER_STUCK:
                self.bad_tracks[self._positions[finding.sample_id]] = finding
            else:
                self.findings.append(finding)

    def _add_block(self, written: WrittenBlock) -> None:
        placed = written.block.placed
        if self._in_work[placed.position].add(written):
            faces = self._in_work.pop(placed.position)
            findings = joined_findings(placed.clip, faces.findings)
            if not findings:
                return self._faces_written(placed, faces.crc32, faces_origin(placed.clip, faces.content))
            if faces.pictures_are_bad:
                (self.bad_tracks[placed.position],) = findings
            else:
                self.findings.extend(findings)
            self._finish(placed)
        return None

    def _faces_written(self, placed: Placed, crc32: int, origin: str) -> None:
        """Take down a sample's faces, and what they were made from."""
        self.faces_crc32[placed.position] = crc32
        self._work.reuse.record(placed.clip, self.stamps[placed.position], origin)
        self._finish(placed)

    def _finish(self, placed: Placed) -> None:
        self._done += 1
        self._work.progress(self._done, self._total, placed.clip.sample_id)


def _write_content(work: _Work) -> _Content:
    """Take over what is unchanged, then decode the rest, from ``work.workers`` threads."""
    content = _Content(work)
    copier = TrackCopier(work.reuse, work.root, work.face_shape, work.workers)
    files = [_take_over(work, i, copier, content) for i in range(len(work.shards))]
    silent = [placed for placed in work.samples if placed.position not in content.audio]
    faceless = [placed for placed in work.samples if placed.position not in content.faces_crc32]
    kinds = {placed.clip.visual_kind for placed in faceless}
    if kinds - {VisualKind.NPY}:
        load_decoder()
    if VisualKind.VIDEO_BOXES in kinds or any(placed.clip.audio_from_video for placed in silent):
        load_video_decoder()
    # What is shared with an earlier pack is complete: no sample that is still to be decoded lies in it.
    audio = {i: file.audio for i, file in enumerate(files) if file.audio is not None}
    faces = {i: file.faces for i, file in enumerate(files) if file.faces is not None}
    recordings = (partial(write_recording, clips, audio, work.root) for clips in group_by_recording(silent))
    videos = (partial(write_video, clips, faces, work.root) for clips in group_by_video(faceless))
    jobs: Iterable[Callable[[], WrittenRecording | WrittenVideo | WrittenBlock]]
    jobs = chain(recordings, videos, _face_jobs(work, faceless, faces, content))
    for result in _run_bounded(jobs, work.workers):
        content.add(result)
    return content


def _take_over(work: _Work, shard: int, copier: TrackCopier, content: _Content) -> ShardFiles:
    """Create a shard's arrays, with what an earlier pack holds of them."""
    plan = work.shards[shard]
    found = list(_run_bounded((partial(copier.find, placed) for placed in plan.samples), work.workers))
    found.sort(key=lambda track: track.placed.position)
    files = create_arrays(work.folder / shard_name(shard), plan, work.face_shape, found)
    for track in _run_bounded((partial(copier.copy, track, files.faces, files.audio) for track in found), work.workers):
        content.copied(track)
    return files


def _face_jobs(
    work: _Work, samples: Sequence[Placed], faces: Mapping[int, ArrayPlace], content: _Content
) -> Iterator[Callable[[], WrittenBlock]]:
    writer = BlockWriter(work.face_shape, work.workers)
    for placed in samples:
        source = None if placed.clip.visual_kind is VisualKind.VIDEO_BOXES else content.open(placed)
        for block in blocks_of(placed, source) if source is not None else ():
            yield partial(writer.write, block, faces[placed.shard].path, faces[placed.shard].data_offset)


def _run_bounded(jobs: Iterable[Callable[[], T]], workers: int) -> Iterator[T]:
    """Run ``jobs`` in threads and yield what they return, as it comes; only a few wait at any time."""
    pending: set[Future[T]] = set()
    with thread_pool(workers, "pack") as pool:
        for job in jobs:
            pending.add(pool.submit(job))
            if len(pending) >= workers * _JOBS_A_WORKER:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def _entry(placed: Placed, content: _Content, loudness: Mapping[str, Levels]) -> PackEntry:
    clip, levels, audio = placed.clip, loudness[placed.clip.recording_id], content.audio[placed.position]
    return PackEntry(
        shard=placed.shard,
        dataset=clip.dataset,
        sample_id=clip.sample_id,
        source_fps=float(clip.source_fps),
        source_frames=clip.source_frames,
        start_sec=float(clip.start_sec),
        model_frames=model_frame_count(clip.source_frames, clip.source_fps),
        face_offset=placed.face_offset,
        audio_offset=placed.audio_offset,
        audio_samples=clip.audio_samples,
        label_offset=placed.face_offset,
        audio_mean=float(levels.mean),
        audio_rms=float(levels.rms),
        audio_peak=float(levels.peak),
        speaking_ratio=speaking_ratio(clip),
        recording_id=clip.recording_id,
        padded_samples=clip.padded_samples,
        clipped_samples=audio.clipped_samples,
        source_fps_exact=clip.source_fps.text,
        start_sec_exact=str(clip.start_sec),
        labels_known=clip.labels_known,
        faces_crc32=content.faces_crc32[placed.position],
        audio_crc32=audio.crc32,
        labels_crc32=zlib.crc32(clip.labels.tobytes()),
    )


def speaking_ratio(clip: Clip) -> float:
    """Share of the clip's native frames labelled as speaking."""
    return int(np.count_nonzero(clip.labels)) / clip.source_frames
