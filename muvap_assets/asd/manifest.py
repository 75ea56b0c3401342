"""The validated manifest: opens each row's media, keeps what meets the contract, says why the rest does not.

What belongs here: the checks that need faces, labels and audio side by side. Parsing text is a corpus reader's work
(``corpora/``), the artifact's files are ``manifest_files``.

Source: the audio-visual data contract, "Required manifest fields" and "Audio".
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from muvap_assets.asd.contract import (
    AUDIO_RATE_HZ,
    CLIP_LOCAL_TOLERANCE_SEC,
    FACE_SIZE,
    NAME_ROUNDING_SEC,
    Clip,
    ClipRow,
    ParsedManifest,
    VisualKind,
    no_clip,
)
from muvap_assets.asd.frame_times import check_frame_times
from muvap_assets.asd.manifest_checks import blocking_findings
from muvap_assets.asd.manifest_files import (
    FINDINGS_FILE,
    MANIFEST_FILE,
    PROVENANCE_FILE,
    TSV_FILE,
    write_rows,
    write_tsv,
)
from muvap_assets.asd.packs.face_writer import decode_findings
from muvap_assets.asd.policy import Policy
from muvap_assets.asd.timeline import usual_rates
from muvap_assets.asd.video_rows import open_video_rows
from muvap_assets.codes import Code, Severity
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, errors_of
from muvap_assets.media.audio import AudioProbe, probe_audio, wrong_scale
from muvap_assets.media.faces import list_frames, load_decoder, not_jpeg, open_npy_faces
from muvap_assets.media.sound_files import SoundChoice
from muvap_assets.options import NOT_CONTENT
from muvap_assets.progress import Progress, no_progress
from muvap_assets.publish import write_findings, write_json
from muvap_assets.threads import delivered, thread_pool, watched

_HOLES_TOLD_SEC = Fraction(1, 24)  # a lost packet, no hole
_OFFSET_TOLD_SEC = Fraction(1, 1000)
_SAME_LENGTH_SEC = Fraction(2, AUDIO_RATE_HZ)

MAX_CANCELLED_DB = 20
"""A mono mix further below its channels than this is reported: ten channels that share nothing are 10 dB apart."""

MANIFEST_CODE_VERSION = "1"


@dataclass(frozen=True, slots=True)
class ManifestReport:
    """The verdict on a manifest: accepted clips, every finding, and how many rows there were."""

    source: str
    clips: tuple[Clip, ...]
    findings: tuple[Finding, ...]
    row_count: int
    policy: Policy
    notes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rejected(self) -> int:
        """Rows that were not accepted."""
        return self.row_count - len(self.clips)

    @property
    def accepted_as_a_whole(self) -> bool:
        """Whether the policy lets the accepted rows go on."""
        return not blocking_findings(self.findings, self.row_count, len(self.clips), self.policy)


def validate(
    parsed: ParsedManifest,
    *,
    root: Path,
    dataset: str,
    policy: Policy,
    deep: bool = False,
    progress: Progress = no_progress,
) -> ManifestReport:
    """Open the media of every row and hold it to the contract.

    Each recording is decoded once however many rows name it, each face source is opened once; of a JPEG the first bytes are
    read. With ``deep`` every face is read and decoded as well, as packing does it. Never raises for what the media hold:
    everything wrong is in the report, together.
    """
    findings = list(parsed.findings)
    from_videos = open_video_rows(parsed.rows, root, progress)  # first: it loads the decoder that both need
    probes = _probe_recordings(parsed, root, findings, progress)
    clips = []
    for row in parsed.rows:
        if row.row in from_videos:
            shape, found = from_videos[row.row]
            faces = _Faces(*shape) if shape else None
        else:
            faces, found = _open_faces(row, root)
        probe = probes.get(_Recording.of(row))
        told = any(finding.code is Code.LABEL_COUNT_MISMATCH for finding in found)
        if faces is not None and faces.frames != len(row.labels) and not told:
            counts = f"labels has {len(row.labels)} entries, faces has {faces.frames} frames"
            found.append(Finding(Code.LABEL_COUNT_MISMATCH, row.place("labels"), counts))
        clip = None
        if faces is not None and probe is not None:
            clip = _clip(row, dataset, faces, probe)
            found.extend(_check_audio_span(row, clip, probe, policy))
        findings.extend(finding.placed(source=parsed.source) for finding in found)
        if clip is not None and not errors_of(found):
            clips.append(clip)
    clips, odd = _reject_odd_shapes(parsed.source, clips)
    findings.extend(odd)
    if deep:
        clips, undecodable = _reject_undecodable(parsed.source, clips, root, progress)
        findings.extend(undecodable)
    findings.extend(_same_media(parsed.source, clips))
    if not clips and not errors_of(findings):
        findings.append(no_clip(parsed.source))
    findings.sort(key=lambda finding: finding.row or 0)
    return ManifestReport(parsed.source, tuple(clips), tuple(findings), parsed.row_count, policy, parsed.notes)


class _Recording(NamedTuple):
    """What decoding a recording depends on."""

    path: str
    rate_hz: int | None
    from_video: bool
    choice: SoundChoice

    @classmethod
    def of(cls, row: ClipRow) -> _Recording:
        return cls(row.audio_path, row.audio_sample_rate, row.audio_from_video, row.sound_choice)


def _probe_recordings(
    parsed: ParsedManifest, root: Path, findings: list[Finding], progress: Progress
) -> dict[_Recording, AudioProbe]:
    """Every recording decoded once; what is wrong with one is reported for each row that names it."""
    rows_of: dict[_Recording, list[ClipRow]] = {}
    for row in parsed.rows:
        rows_of.setdefault(_Recording.of(row), []).append(row)

    probes: dict[_Recording, AudioProbe] = {}
    cores = os.cpu_count() or 1
    # Tens of thousands of short clips would spend more on being handed to a thread one by one than on being read.
    size = max(1, min(64, len(rows_of) // (8 * cores)))
    keys = list(rows_of)
    batches = [keys[first : first + size] for first in range(0, len(keys), size)]
    with thread_pool(cores) as pool:
        results = chain.from_iterable(pool.map(lambda batch: _probe_batch(batch, root), batches))
        for done, (key, result) in enumerate(zip(rows_of, results, strict=True), 1):
            progress(done, len(rows_of), key.path)
            if isinstance(result, Finding):
                findings.extend(_of_audio(result, row, parsed.source) for row in rows_of[key])
            else:
                probes[key] = result
                odd = _oddities(result, root / key.path)
                findings.extend(_of_audio(finding, rows_of[key][0], parsed.source) for finding in odd)
    return _one_rate_a_recording(parsed.source, probes, rows_of, findings)


def _probe_batch(keys: Sequence[_Recording], root: Path) -> list[AudioProbe | Finding]:
    """Probe recordings in one thread, unless one is stuck: to be handed to a thread costs as much as a short clip."""
    found: list[AudioProbe | Finding] = []

    def probe_rest() -> None:
        for key in keys[len(found) :]:
            result = _probe(key, root)
            delivered(root / key.path)
            found.append(result)

    while len(found) < len(keys):
        try:
            watched(probe_rest)
        except ValidationError as error:
            found.append(error.finding)
    return found


def _probe(key: _Recording, root: Path) -> AudioProbe | Finding:
    path = root / key.path
    try:
        found = probe_audio(path, key.rate_hz, key.from_video, key.choice)
    except ValidationError as error:
        return error.finding
    if found.non_finite:
        return Finding(Code.AUDIO_NON_FINITE, path, f"{found.non_finite} samples are NaN or infinite")
    return wrong_scale(path, found.peak) or found


def _oddities(probe: AudioProbe, path: Path) -> Iterator[Finding]:
    """Warnings about a recording, once for all rows that name it."""
    for note in probe.notes:
        yield note.placed(path=str(path))
    if abs(probe.offset_sec) > _OFFSET_TOLD_SEC:  # so that nobody has to wonder whether it was seen
        late = "after" if probe.offset_sec > 0 else "before"
        found = f"its sound starts {abs(float(probe.offset_sec)):.4f} s {late} its first frame"
        yield Finding(Code.AUDIO_OFFSET, path, found)
    if probe.cancelled_db > MAX_CANCELLED_DB:
        level = "is silent" if math.isinf(probe.cancelled_db) else f"lies {probe.cancelled_db:.1f} dB below them"
        found = f"the mono mix of its {probe.channels} channels {level}"
        yield Finding(Code.AUDIO_CANCELLED, path, found, limit=MAX_CANCELLED_DB)


def _of_audio(finding: Finding, row: ClipRow, source: str) -> Finding:
    """A finding about the file of a row's recording, in the row's place."""
    return finding.of_file(row.audio_path, source=source, row=row.row, sample_id=row.sample_id, field="audio_path")


def _one_rate_a_recording(
    source: str,
    probes: dict[_Recording, AudioProbe],
    rows_of: Mapping[_Recording, list[ClipRow]],
    findings: list[Finding],
) -> dict[_Recording, AudioProbe]:
    """One array named with two rates would be two recordings of one id: all its rows are refused."""
    rates: dict[str, set[int]] = {}
    # Streams of a video may have different rates; channels of an array may not.
    identity = {key: probe.recording_id if key.from_video else probe.sha256 for key, probe in probes.items()}
    for key, probe in probes.items():
        rates.setdefault(identity[key], set()).add(probe.rate_hz)
    kept = {}
    for key, probe in probes.items():
        if len(rates[identity[key]]) == 1:
            kept[key] = probe
            continue
        for row in rows_of[key]:
            found = f"the rates {sorted(rates[identity[key]])} for the same recording"
            place = row.place("audio_sample_rate", source)
            findings.append(Finding(Code.AUDIO_RATE_INVALID, place, found, case="several"))
    return kept


class _Faces(NamedTuple):
    """What a row's faces are; see ``media.faces`` for the fingerprint."""

    frames: int
    height: int
    width: int
    fingerprint: str | None = None


def _open_faces(row: ClipRow, root: Path) -> tuple[_Faces | None, list[Finding]]:
    """A row's faces, or ``None`` and what is wrong with them."""
    try:
        return watched(lambda: _found_faces(row, root))
    except ValidationError as error:
        return None, [_of_faces(error.finding, row)]


def _found_faces(row: ClipRow, root: Path) -> tuple[_Faces | None, list[Finding]]:
    path = root / row.visual_path
    delivered(path)
    if row.visual_kind is VisualKind.NPY:
        try:
            opened = open_npy_faces(path)
            return _Faces(*opened.shape, opened.fingerprint()), []
        except ValidationError as error:
            return None, [_of_faces(error.finding, row)]
    names, findings, fingerprint = list_frames(path)
    if findings:
        return None, [_of_faces(finding, row) for finding in findings]
    found = check_frame_times(row, names)
    # An extra or a missing file is the better answer to a stray one, and says what there is to do.
    if not found and len(names) == len(row.labels) and (other := not_jpeg(path, names)):
        found = [_of_faces(other, row)]
    return _Faces(len(names), FACE_SIZE, FACE_SIZE, fingerprint), found


def _of_faces(finding: Finding, row: ClipRow) -> Finding:
    """A finding about the file or folder of a row's faces, in the row's place."""
    return finding.of_file(row.visual_path, row=row.row, sample_id=row.sample_id, field="visual_path")


def _clip(row: ClipRow, dataset: str, faces: _Faces, probe: AudioProbe) -> Clip:
    return Clip(
        row=row.row,
        dataset=dataset,
        sample_id=row.sample_id,
        audio_path=row.audio_path,
        visual_path=row.visual_path,
        visual_kind=row.visual_kind,
        source_fps=row.source_fps,
        labels=row.labels,
        start_sec=row.start_sec or Fraction(0),
        audio_sample_rate=row.audio_sample_rate,
        recording_id=probe.recording_id,
        recording_samples=probe.samples_16k,
        face_height=faces.height,
        face_width=faces.width,
        faces_fingerprint=faces.fingerprint,
        labels_known=row.labels_known,
        video_id=row.video_id,
        boxes=row.boxes,
        license=row.license,
        consent=row.consent,
        audio_stream=row.audio_stream,
        audio_channel=row.audio_channel,
    )


def _check_audio_span(row: ClipRow, clip: Clip, probe: AudioProbe, policy: Policy) -> Iterator[Finding]:
    """Does the recording cover the faces, and is it known where on it they lie?"""
    audio_sec, faces_sec = Fraction(probe.frames, probe.rate_hz), clip.source_frames / clip.source_fps.value
    frame_sec = 1 / clip.source_fps.value
    cut_to_names = row.visual_kind is VisualKind.JPEG_DIRECTORY and not row.start_sec
    rounding = NAME_ROUNDING_SEC if cut_to_names else 0
    lost_sec = _lost_sec(clip, probe)
    if row.start_sec is None and audio_sec > faces_sec + frame_sec + CLIP_LOCAL_TOLERANCE_SEC:
        found = (
            f"none given, and the audio lasts {float(audio_sec):.3f} s while the faces last {float(faces_sec):.3f} s"
        )
        required = Finding(Code.START_SEC_REQUIRED, row.place("start_sec"), found)
        yield required.advised(_rate_hint(row, clip.source_frames, audio_sec))
    elif clip.padded_samples == clip.audio_samples:
        found = f"the clip starts at {float(clip.start_sec):.3f} s and the recording ends at {float(audio_sec):.3f} s"
        yield Finding(Code.AUDIO_NO_OVERLAP, row.place("start_sec"), found)
    elif clip.padded_samples > (frame_sec + rounding) * AUDIO_RATE_HZ + 1 or lost_sec > _HOLES_TOLD_SEC:
        share = (clip.padded_samples + lost_sec * AUDIO_RATE_HZ) / clip.audio_samples
        rejected = share > policy.max_missing_audio_share
        ends = f"ends {clip.padded_samples / AUDIO_RATE_HZ:.3f} s before the faces"
        holes = f"has holes of {float(lost_sec):.3f} s"
        found = " and ".join([ends] * (clip.padded_samples > 0) + [holes] * (lost_sec > 0))
        allowed = f"one frame ({float(frame_sec):.3f} s)" + f", 1/{_HOLES_TOLD_SEC.denominator} s in holes" * (
            lost_sec > 0
        )
        yield Finding(
            Code.AUDIO_SHORT,
            row.place("audio_path"),
            f"the audio {found}, {float(share):.1%} of the clip",
            case="rejected" if rejected else "",
            severity=Severity.ERROR if rejected else Severity.WARNING,
            allowed=allowed,
            share=f"{policy.max_missing_audio_share:.1%}",
        ).advised(_rate_hint(row, clip.source_frames, audio_sec))


def _lost_sec(clip: Clip, probe: AudioProbe) -> Fraction:
    """Seconds of the clip that fall into holes of a video's sound, also before its sound begins."""
    start = clip.start_sec
    stop = start + clip.source_frames / clip.source_fps.value
    spans = ((Fraction(first, probe.rate_hz), Fraction(first + count, probe.rate_hz)) for first, count in probe.holes)
    return sum((max(Fraction(0), min(stop, end) - max(start, begin)) for begin, end in spans), Fraction(0))


def _rate_hint(row: ClipRow, frames: int, audio_sec: Fraction) -> str:
    """A wrong rate looks like audio of another length: the rates at which the faces last as long as audio cut to them."""
    if row.start_sec is None:
        for shown, how in ((frames, "exactly"), (frames - 1, "to one frame, which the usual cut leaves out")):
            if rates := usual_rates(shown, audio_sec, _SAME_LENGTH_SEC):
                return f"Or source_fps is wrong: {' or '.join(rate.text for rate in rates)} would fit {how}."
    return ""


def _reject_odd_shapes(source: str, clips: Sequence[Clip]) -> tuple[list[Clip], list[Finding]]:
    """A pack holds one face shape: that of most clips, of the first one where two are as frequent."""
    shapes = Counter((clip.face_height, clip.face_width) for clip in clips)
    if len(shapes) < 2:
        return list(clips), []
    height, width = shapes.most_common(1)[0][0]
    required = f"{height}x{width} as {shapes[height, width]} other clips have"
    odd = [
        Finding(
            Code.FACE_SHAPE_MISMATCH,
            clip.place("visual_path", source),
            f"faces of {clip.face_height}x{clip.face_width}",
            required=required,
        )
        for clip in clips
        if (clip.face_height, clip.face_width) != (height, width)
    ]
    return [clip for clip in clips if (clip.face_height, clip.face_width) == (height, width)], odd


def _same_media(source: str, clips: Sequence[Clip]) -> Iterator[Finding]:
    """Clips that have the faces, the recording and the start of an earlier one, however their ids and paths differ."""
    first_of: dict[Any, Clip] = {}
    for clip in clips:
        faces = clip.faces_fingerprint or (clip.visual_path, clip.boxes, clip.source_frames)
        first = first_of.setdefault((faces, clip.recording_id, clip.start_sec), clip)
        if first is not clip:
            found = f"the faces, the recording and the start of {first.sample_id!r} in row {first.row}"
            yield Finding(Code.SHARED_MEDIA, clip.place(source=source), found, case="twice")


def _reject_undecodable(
    source: str, clips: Sequence[Clip], root: Path, progress: Progress
) -> tuple[list[Clip], list[Finding]]:
    """Read and decode the faces of every clip, from all cores."""
    load_decoder()
    kept, found = list[Clip](), list[Finding]()
    with thread_pool(os.cpu_count()) as pool:
        results = pool.map(lambda clip: decode_findings(clip, root), clips)
        for done, (clip, findings) in enumerate(zip(clips, results, strict=True), 1):
            progress(done, len(clips), clip.sample_id)
            found.extend(finding.placed(source=source) for finding in findings)
            if not findings:
                kept.append(clip)
    return kept, found


def write_manifest(
    folder: Path, report: ManifestReport, *, root: Path, published: Path, inputs: Mapping[str, str], dataset: str
) -> None:
    """Write the artifact's files into ``folder``.

    Args:
        root: the folder that the source's relative paths are meant from.
        published: the folder ``manifest.tsv`` will be read from; its relative paths start there.
        inputs: digests of what the manifest was made from.
    """
    write_rows(folder / MANIFEST_FILE, report.clips)
    write_tsv(folder / TSV_FILE, report.clips, root, published)
    write_findings(folder / FINDINGS_FILE, report.findings)
    parameters = {
        "dataset": dataset,
        **{key: _plain(value) for key, value in asdict(report.policy).items() if key not in NOT_CONTENT},
    }
    write_json(
        folder / PROVENANCE_FILE,
        {
            "artifact": "asd/manifest",
            "inputs": dict(inputs),
            "parameters": parameters,
            "code_version": MANIFEST_CODE_VERSION,
            "rows": report.row_count,
            "rejected": report.rejected,
            **({"corpus": dict(report.notes)} if report.notes else {}),
        },
    )


def _plain(value: Any) -> str | float:
    return value if isinstance(value, float) else str(value)
