"""The checks of a manifest artifact: what of it has to hold before it is published, on what is read back from disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow.parquet as pq

from muvap_assets.asd.contract import AUDIO_RATE_HZ, NAME_ROUNDING_SEC, Clip
from muvap_assets.asd.leakage import find_leakage, read_split
from muvap_assets.asd.manifest_files import FINDINGS_FILE, MANIFEST_FILE, read_manifest, read_row_count
from muvap_assets.asd.policy import OnViolation, Policy
from muvap_assets.codes import Code, Severity
from muvap_assets.findings import Finding, Place, errors_of
from muvap_assets.publish import CheckOutcome, read_findings

MANIFEST_CHECKS = (
    "rows_valid",
    "sample_ids_unique",
    "labels_match_faces",
    "audio_covers_faces",
    "rejected_rows",
    "labels_vary",
    "splits_share_nothing",
)

_NO_SIBLINGS: Mapping[str, Path | None] = MappingProxyType({})
_SUBJECTS = {
    "sample_ids_unique": {Code.SAMPLE_ID_DUPLICATE, Code.SAMPLE_ID_INVALID},
    "labels_match_faces": {
        Code.LABELS_INVALID,
        Code.LABELS_DISAGREE,
        Code.LABEL_UNKNOWN,
        Code.LABEL_COUNT_MISMATCH,
        Code.VIDEO_UNREADABLE,
        Code.VIDEO_TIMESTAMPS,
        *(code for code in Code if code.startswith(("faces_", "face_", "frame_", "box_", "rttm_"))),
    },
    "audio_covers_faces": {
        Code.START_SEC_REQUIRED,
        *(code for code in Code if code.startswith("audio_")),
    },
}


def verify_manifest(
    folder: Path, policy: Policy, siblings: Mapping[str, Path | None] = _NO_SIBLINGS
) -> list[CheckOutcome]:
    """Every check of a staged or published manifest, on what is read back from ``folder``.

    ``siblings`` are the current manifests of the other splits of the corpus, ``None`` where nothing is published yet.
    """
    clips, findings = read_manifest(folder), read_findings(folder / FINDINGS_FILE)
    rows, errors = read_row_count(folder), errors_of(findings)
    rejected_share = (rows - len(clips)) / rows if rows else 1.0
    warnings = len(findings) - len(errors)
    blocking = blocking_findings(findings, rows, len(clips), policy)

    def concerning(name: str) -> list[Finding]:
        return [finding for finding in blocking if finding.code in _SUBJECTS[name]]

    return [
        CheckOutcome.of(
            "rows_valid",
            blocking,
            rows=rows,
            accepted=len(clips),
            rejected=rows - len(clips),
            errors=len(errors),
            warnings=warnings,
        ),
        CheckOutcome.of(
            "sample_ids_unique",
            [*concerning("sample_ids_unique"), *_repeated_ids(clips)],
            unique=len({c.sample_id for c in clips}),
        ),
        CheckOutcome.of(
            "labels_match_faces",
            [*concerning("labels_match_faces"), *_count_mismatches(folder)],
            frames=sum(clip.source_frames for clip in clips),
        ),
        CheckOutcome.of(
            "audio_covers_faces",
            [*concerning("audio_covers_faces"), *_uncovered(clips, policy)],
            recordings=len({clip.recording_id for clip in clips}),
            padded_samples=sum(clip.padded_samples for clip in clips),
            clips_padded=sum(clip.padded_samples > 0 for clip in clips),
        ),
        CheckOutcome(
            name="rejected_rows",
            passed=rows == len(clips),
            severity=Severity.WARNING,
            numbers={"rejected": rows - len(clips), "rejected_share": rejected_share},
            findings=tuple(errors),
        ),
        _labels_vary(clips),
        _splits_share_nothing(folder, siblings),
    ]


def _splits_share_nothing(folder: Path, siblings: Mapping[str, Path | None]) -> CheckOutcome:
    others = [read_split(name, path) for name, path in siblings.items() if path is not None]
    shared = find_leakage(read_split("this split", folder), others)
    return CheckOutcome(
        name="splits_share_nothing",
        passed=not shared,
        severity=Severity.WARNING,
        numbers={
            "shared": len(shared),
            "compared_with": ", ".join(split.name for split in others),
            "not_published": ", ".join(name for name, path in siblings.items() if path is None),
        },
        findings=tuple(shared),
    )


def _labels_vary(clips: Sequence[Clip]) -> CheckOutcome:
    """Warns of labels that are all ones, which is how a split without labels is filled; those known to be filler do not count."""
    known = [clip for clip in clips if clip.labels_known]
    frames, speaking = sum(clip.source_frames for clip in known), sum(int(clip.labels.sum()) for clip in known)
    filler = bool(frames) and speaking == frames
    found = f"all {frames} frames are labelled as speech"
    finding = Finding(Code.LABELS_ALL_SPEAKING, Place(field="labels"), found)
    return CheckOutcome(
        name="labels_vary",
        passed=not filler,
        severity=Severity.WARNING,
        numbers={
            "known_frames": frames,
            "speaking_share": speaking / frames if frames else 0.0,
            "clips_unknown": len(clips) - len(known),
        },
        findings=(finding,) if filler else (),
    )


def blocking_findings(findings: Iterable[Finding], rows: int, accepted: int, policy: Policy) -> list[Finding]:
    """The findings that keep the manifest as a whole from being published."""
    errors = errors_of(findings)
    if policy.on_violation is OnViolation.FAIL:
        return errors
    whole_file = [error for error in errors if error.sample_id is None and error.row in (None, 1)]
    share = (rows - accepted) / rows if rows else 1.0
    if share > policy.max_rejected_share or not accepted:
        found, limit = f"{rows - accepted} of {rows} rows rejected, {share:.1%}", f"{policy.max_rejected_share:.1%}"
        too_many = Finding(Code.REJECTED_SHARE, None, found, limit=limit)
        return [*whole_file, too_many, *errors]
    return whole_file


def _repeated_ids(clips: Sequence[Clip]) -> list[Finding]:
    counts = Counter(clip.sample_id for clip in clips)
    return [
        Finding(Code.SAMPLE_ID_DUPLICATE, clip.place(), f"{counts[clip.sample_id]} rows of this id", case="stored")
        for clip in clips
        if counts[clip.sample_id] > 1
    ]


def _count_mismatches(folder: Path) -> list[Finding]:
    """Label lists against the face counts that were read from the media, as both stand in the file."""
    table = pq.read_table(folder / MANIFEST_FILE, columns=["row", "sample_id", "labels", "source_frames"])
    lengths = np.diff(table.column("labels").combine_chunks().offsets.to_numpy())
    frames = table.column("source_frames").to_numpy()
    return [
        Finding(
            Code.LABEL_COUNT_MISMATCH,
            Place(None, table.column("row")[i].as_py(), table.column("sample_id")[i].as_py(), "labels"),
            f"labels has {lengths[i]} entries, faces has {frames[i]} frames",
            case="stored",
        )
        for i in np.flatnonzero(lengths != frames)
    ]


def _uncovered(clips: Sequence[Clip], policy: Policy) -> list[Finding]:
    return [
        Finding(
            Code.AUDIO_SHORT,
            clip.place(),
            f"{clip.padded_samples} of {clip.audio_samples} samples lie past the recording",
            case="stored",
            allowed="one frame",
            share=f"{policy.max_missing_audio_share:.1%}",
        )
        for clip in clips
        if clip.padded_samples
        > max(
            clip.audio_samples * policy.max_missing_audio_share,
            math.floor(AUDIO_RATE_HZ * (1 / clip.source_fps.value + NAME_ROUNDING_SEC)) + 1,
        )
    ]
