"""Encoding the rows of a run: stage-major, incremental, one row's failure its own.

    plan       tokens and keys of every row, before any weight is loaded; rows that stand finished are done
    encode     component by component: load, encode what is missing of every row, store each part as it is made, release
    finish     assemble each row from its parts, write it, read it back, let it stand if nothing is wrong

Belongs here: that order. No decoding, no model, no publishing. Killed at any moment, the same call goes on where it was.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from muvap_assets.codes import Code
from muvap_assets.disk import require_space
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.assembly import assembled, record_of
from muvap_assets.ref2va.contract import (
    AUDIO_ROW_WIDTH,
    DEFAULT_PRESENTATION_TOKENS,
    Format,
    Geometry,
    ReferenceGeometry,
)
from muvap_assets.ref2va.encoder import (
    Component,
    Encoder,
    LoadedComponent,
    MediaBlock,
    RowInput,
    Stage,
    Tensors,
    describe_plan,
)
from muvap_assets.ref2va.geometry import joint_sequence_length
from muvap_assets.ref2va.prefetch import prepared_ahead, stage_media
from muvap_assets.ref2va.records import write_shard
from muvap_assets.ref2va.row_store import RowStore, part_key, row_key
from muvap_assets.ref2va.sizes import stage_bytes
from muvap_assets.ref2va.verify import non_finite, verify_row_file

# What a file holds beside its tensors, at most; the least that a file takes on most disks is 4 KiB.
_PART_BYTES, _ROW_BYTES, _REFERENCE_BYTES = 4096, 16_384, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a run stands: ``done`` of ``total`` parts, about to encode ``stage`` of row ``sample_id``.

    ``parts_per_sec`` is the mean so far; ``left_sec`` follows from it, and is ``None`` before the first part.
    """

    stage: Stage
    sample_id: str
    done: int
    total: int
    parts_per_sec: float
    left_sec: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRow:
    """A row that stands in the store, read back and checked. ``path`` is a one-row Parquet file to be published.

    ``devices`` are those that its parts were made on.
    """

    sample_id: str
    key: str
    path: Path
    format: Format
    geometry: Geometry
    sequence_length: int
    text_tokens: int
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeReport:
    """What a run did. Every row given is in ``rows`` or has a finding that names it.

    Attributes:
        rows: in the order given.
        findings: of the rows that do not stand.
        encoded: parts made, by stage.
        reused: parts found whole and not made again, by stage; rows that stood finished count all of theirs.
        corrupt: parts found damaged and made again.
        encoder: the encoder's fingerprint, for the published metadata.
        media_read: files that whoever prepared the rows read for their digests.
        media_trusted: files recognized by size and time instead.
    """

    rows: tuple[EncodedRow, ...]
    findings: tuple[Finding, ...]
    encoded: Mapping[Stage, int]
    reused: Mapping[Stage, int]
    corrupt: int
    encoder: str
    media_read: int = 0
    media_trusted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions:
    """How a run goes about it; none of it changes a result.

    Attributes:
        max_presentation_tokens: rows above it are rejected before a weight is loaded.
        workers: threads that prepare media ahead of the device; by default every core but one, at most 8.
        blocks_ahead: media blocks that may wait for each row being prepared.
        source: the manifest's name, for messages.
    """

    max_presentation_tokens: int = DEFAULT_PRESENTATION_TOKENS
    workers: int = field(default_factory=lambda: min(8, max(1, (os.cpu_count() or 2) - 1)))
    blocks_ahead: int = 4
    source: str | None = None


@dataclass(slots=True)
class _Work:
    """One admitted row of the run."""

    row: RowInput
    parts: dict[Stage, str]
    key: str
    text_tokens: int
    sequence_length: int
    failed: bool = False


@dataclass(slots=True)
class _Run:
    encoder: Encoder
    store: RowStore
    options: EncodeOptions
    progress: Callable[[Progress], None] | None
    findings: list[Finding] = field(default_factory=list)
    encoded: Counter[Stage] = field(default_factory=Counter)
    reused: Counter[Stage] = field(default_factory=Counter)
    done: int = 0
    total: int = 0
    started: float = field(default_factory=time.monotonic)

    def reject(self, row: RowInput, error: Exception) -> None:
        """Record why a row does not stand."""
        if isinstance(error, ValidationError):
            finding = error.finding
        else:
            finding = Finding(Code.ENCODE_FAILED, None, f"{type(error).__name__}: {error}")
        self.findings.append(self.of_row(row, finding))

    def of_row(self, row: RowInput, finding: Finding) -> Finding:
        """A finding about a row or its file, told as one about the manifest's row."""
        if finding.path is not None:  # a file is named without its folder: findings of a part are published
            finding = finding.of_file(Path(finding.path).name)
        return finding.placed(row=row.row, sample_id=row.sample_id, source=self.options.source)

    def report_progress(self, stage: Stage, row: RowInput) -> None:
        """Tell what is encoded next."""
        if self.progress is not None:
            rate = self.done / max(time.monotonic() - self.started, 1e-9)
            left = (self.total - self.done) / rate if self.done else None
            self.progress(
                Progress(
                    stage=stage,
                    sample_id=row.sample_id,
                    done=self.done,
                    total=self.total,
                    parts_per_sec=rate,
                    left_sec=left,
                )
            )


def encode_rows(
    rows: Sequence[RowInput],
    encoder: Encoder,
    store: RowStore,
    options: EncodeOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> EncodeReport:
    """Encode what is missing of ``rows`` and return those that stand.

    Each large component is loaded at most once, only if a part of its stages is missing, and released before the next.
    Rows are independent: processes that share ``store`` may encode shares of the same rows.

    Raises:
        ConfigError: the encoder's checkpoint or device cannot be used.
        PublishError: the disk has not the space that the missing parts and rows may take.
        OSError: the store cannot be written.
    """
    run = _Run(encoder, store, options or EncodeOptions(), progress)
    works = [work for work in (_plan(run, row) for row in rows) if work is not None]
    standing = {work.key for work in works if _stands(run, work)}
    open_works = [work for work in works if work.key not in standing]
    require_space(store.root, _bytes_to_write(run, open_works), f"rows of {run.options.source or 'the manifest'}")
    _encode_missing(run, open_works)
    finished = {work.key for work in open_works if not work.failed and _finish(run, work)}
    return EncodeReport(
        rows=tuple(_encoded_row(run, work) for work in works if work.key in standing | finished),
        findings=tuple(run.findings),
        encoded=dict(run.encoded),
        reused=dict(run.reused),
        corrupt=store.corrupt,
        encoder=encoder.fingerprint.total,
    )


def _plan(run: _Run, row: RowInput) -> _Work | None:
    """Tokens and keys of a row, or ``None`` with a finding."""
    try:
        plan = run.encoder.plan_tokens(row.caption, [reference.presented for reference in row.references])
        limit = run.options.max_presentation_tokens
        if plan.total > limit:
            place = Place(field="presentation")
            raise ValidationError(Finding(Code.PRESENTATION_TOO_LONG, place, describe_plan(plan), limit=limit))
    except ValidationError as error:
        run.reject(row, error)
        return None
    parts = {stage: part_key(stage, row, run.encoder.fingerprint) for stage in Stage}
    geometries = [reference.geometry for reference in row.references]
    return _Work(
        row=row,
        parts=parts,
        key=row_key(row, parts),
        text_tokens=plan.total,
        sequence_length=joint_sequence_length(plan.total, geometries, row.geometry),
    )


def _stands(run: _Run, work: _Work) -> bool:
    path = run.store.row_path(work.key)
    if not path.is_file():
        return False
    if verify_row_file(path, declared=_declared(work.row)):
        run.store.remove_row(work.key)
        return False
    run.reused.update(Stage)
    return True


def _bytes_to_write(run: _Run, works: Sequence[_Work]) -> int:
    """What is written at most: the parts that do not stand, each once, and the rows as if their tensors were not compressed."""
    rows, missing, width = 0, dict[tuple[Stage, str], int](), run.encoder.text_width
    for work in works:
        references = [reference.geometry for reference in work.row.references]
        tensors = stage_bytes(work.row.geometry, references, work.text_tokens, width)
        rows += sum(tensors.values()) + _ROW_BYTES + _REFERENCE_BYTES * len(references)
        rows += len(work.row.caption.encode()) + len(work.row.file_name.encode())
        for stage, key in work.parts.items():
            if not run.store.names_part(stage, key):
                missing[stage, key] = tensors[stage] + _PART_BYTES + _REFERENCE_BYTES * len(references)
    return rows + sum(missing.values())


def _encode_missing(run: _Run, works: Sequence[_Work]) -> None:
    """Make every missing part, component by component."""
    missing: list[tuple[Stage, _Work]] = []
    for stage, work in ((stage, work) for component in Component for work in works for stage in component.stages):
        if run.store.has_part(stage, work.parts[stage]):
            run.reused[stage] += 1
        elif stage is Stage.REFERENCE_AUDIO and not any(r.kind.has_audio for r in work.row.references):
            run.store.write_part(stage, work.parts[stage], _no_audio(), device="")
        else:
            missing.append((stage, work))
    run.total = len(missing)
    for component in Component:
        jobs = [(stage, work) for stage, work in missing if stage.component is component]
        run.done += sum(work.failed for _, work in jobs)
        jobs = [(stage, work) for stage, work in jobs if not work.failed]
        if jobs:
            with run.encoder.loaded(component) as loaded:
                _encode_jobs(run, loaded, jobs)


def _encode_jobs(run: _Run, loaded: LoadedComponent, jobs: Sequence[tuple[Stage, _Work]]) -> None:
    made: set[tuple[Stage, str]] = set()
    sources = [partial(_media_of, run, stage, work) for stage, work in jobs]
    ahead = prepared_ahead(sources, workers=run.options.workers, blocks=run.options.blocks_ahead)
    with closing(ahead):
        for (stage, work), media in zip(jobs, ahead, strict=True):
            place = (stage, work.parts[stage])
            if place in made:  # another row of this run reads the very same
                run.reused[stage] += 1
            elif not work.failed:
                run.report_progress(stage, work.row)
                if _encode_part(run, loaded, stage, work, media):
                    made.add(place)
            run.done += 1


def _media_of(run: _Run, stage: Stage, work: _Work) -> Iterator[MediaBlock]:
    if not work.failed:
        yield from stage_media(stage, work.row, run.encoder.conditioner_frames)


def _encode_part(run: _Run, loaded: LoadedComponent, stage: Stage, work: _Work, media: Iterator[MediaBlock]) -> bool:
    try:
        tensors = loaded.encode(stage, work.row, media, work.sequence_length)
        for name, values in tensors.items():
            if (found := non_finite(values)) is not None:
                place = Place(field=name)
                raise ValidationError(Finding(Code.TENSOR_NON_FINITE, place, f"{found} in stage {stage}"))
    except Exception as error:  # libraries raise anything at media they cannot take; it must not end the other rows
        work.failed = True
        run.reject(work.row, error)
        return False
    run.store.write_part(stage, work.parts[stage], tensors, run.encoder.device)
    run.encoded[stage] += 1
    return True


def _finish(run: _Run, work: _Work) -> bool:
    """Assemble a row, and let it stand if nothing is wrong with what is read back."""
    row = work.row
    try:
        record = record_of(row, assembled(row, {stage: _part(run, work, stage) for stage in Stage}))
        provenance = {
            "row_key": work.key,
            "encoder": run.encoder.fingerprint.total,
            "parts": {str(stage): key for stage, key in work.parts.items()},
            "media": list(row.media),
        }
        found = run.store.write_row(
            work.key,
            write=lambda path: write_shard(path, [record], provenance),
            verify=partial(verify_row_file, declared=_declared(row)),
        )
    except ValidationError as error:
        run.reject(row, error)
        return False
    run.findings += [run.of_row(row, finding) for finding in found]
    return not found


def _part(run: _Run, work: _Work, stage: Stage) -> Tensors:
    tensors = run.store.read_part(stage, work.parts[stage])
    if tensors is None:
        place, found = Place(field=f"part {stage}"), "it is gone or damaged since it was made"
        raise ValidationError(Finding(Code.DIGEST_MISMATCH, place, found, case="part"))
    return tensors


def _declared(row: RowInput) -> list[ReferenceGeometry]:
    return [reference.geometry for reference in row.references]


def _no_audio() -> Tensors:
    return {
        "ref_audio_rows": np.empty((0, AUDIO_ROW_WIDTH), dtype=np.float32),
        "ref_audio_latents": np.empty(0, dtype=np.int64),
    }


def _encoded_row(run: _Run, work: _Work) -> EncodedRow:
    return EncodedRow(
        sample_id=work.row.sample_id,
        key=work.key,
        path=run.store.row_path(work.key),
        format=work.row.format,
        geometry=work.row.geometry,
        sequence_length=work.sequence_length,
        text_tokens=work.text_tokens,
        devices=tuple(sorted({run.store.part_device(stage, key) for stage, key in work.parts.items()} - {""})),
    )
