"""Validating a manifest: text, media, plans, tokens, buckets. No model is loaded and nothing is encoded.

    raw_manifest     text -> samples                (what is written)
    media_facts      files -> counts                (decoded once, remembered)
    plan             sample + counts -> plan        (the encoder's own verdict)
    here             plans + token planner -> report

Every row ends as admitted or as refused with a reason; the numbers add up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place, errors_of
from muvap_assets.progress import Progress, no_progress
from muvap_assets.ref2va.contract import (
    CLIP_FRAMES,
    TEXT_WIDTH,
    DatasetOptions,
    RawSample,
    TokenPlan,
    TokenPlanner,
)
from muvap_assets.ref2va.encoder import describe_plan
from muvap_assets.ref2va.findings import Findings
from muvap_assets.ref2va.geometry import (
    bucket_name,
    clip_duration_samples,
    joint_sequence_length,
    padded_length,
)
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.plan import RowPlan, TargetFacts, plan_row
from muvap_assets.ref2va.raw_manifest import RawManifest, read_raw_manifest
from muvap_assets.ref2va.sizes import stage_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReport:
    """What is known of one row that parsed. ``sample`` has its paths as written; ``plan`` is ``None`` where it is refused.

    ``tokens`` is ``None`` where no planner counted them; ``media`` are digests of the files it names, by which it is purged.
    """

    sample: RawSample
    target: TargetFacts
    plan: RowPlan | None
    tokens: TokenPlan | None = None
    media: tuple[str, ...] = ()

    @property
    def bucket(self) -> str | None:
        """The folder its shard will lie in."""
        return None if self.plan is None else bucket_name(self.plan.geometry)

    @property
    def sequence_length(self) -> int | None:
        """Rows of the joint sequence; needs the tokens."""
        if self.plan is None or self.tokens is None:
            return None
        references = [reference.geometry for reference in self.plan.references]
        return joint_sequence_length(self.tokens.total, references, self.plan.geometry)

    @property
    def capacity(self) -> int | None:
        """The smallest multiple of 256 that holds its joint sequence."""
        return None if self.sequence_length is None else padded_length(self.sequence_length)

    @property
    def estimated_bytes(self) -> int:
        """Bytes of its tensors before compression, at the released widths; without the text where tokens are unknown."""
        if self.plan is None:
            return 0
        references = [reference.geometry for reference in self.plan.references]
        tokens = 0 if self.tokens is None else self.tokens.total
        return sum(stage_bytes(self.plan.geometry, references, tokens, TEXT_WIDTH).values())

    @property
    def vae_pixels(self) -> int:
        """Pixels the video VAE will encode, clips filled up: what the cost of a row's visual stages grows with."""
        if self.plan is None:
            return 0
        geometry = self.plan.geometry
        pixels = _clip_frames(geometry.num_frames) * geometry.width * geometry.height
        for reference in self.plan.references:
            if reference.size is not None:
                frames = 1 if reference.encoded_frames == 1 else _clip_frames(reference.encoded_frames)
                pixels += frames * reference.size.width * reference.size.height
        return pixels

    @property
    def audio_samples(self) -> int:
        """Samples at 32 kHz a channel the audio VAE will encode."""
        if self.plan is None:
            return 0
        target = clip_duration_samples(self.plan.geometry.num_frames)
        return target + sum(reference.audio_samples for reference in self.plan.references)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Rows of one target shape. ``repeats`` rows are drawn again to fill the last global batch (contract)."""

    name: str
    rows: int
    frames: int
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestReport:
    """Everything a validation found. ``rows`` are those that parsed, in order; ``rows_total`` counts all.

    ``media_read`` files were read for their digests, ``media_trusted`` ones recognized by size and time.
    """

    manifest: RawManifest
    options: DatasetOptions
    rows: tuple[RowReport, ...]
    findings: tuple[Finding, ...]
    buckets: tuple[Bucket, ...]
    has_tokens: bool
    media_read: int = 0
    media_trusted: int = 0

    @property
    def rows_total(self) -> int:
        """Rows in the file, whether they parse or not."""
        return self.manifest.rows_total

    @property
    def admitted(self) -> tuple[RowReport, ...]:
        """The rows that can be encoded."""
        refused = self.refused_rows
        return tuple(row for row in self.rows if row.plan is not None and row.sample.row not in refused)

    @property
    def plans(self) -> tuple[RowPlan, ...]:
        """The plans of the admitted rows, in order."""
        return tuple(row.plan for row in self.admitted if row.plan is not None)

    @property
    def refused_rows(self) -> frozenset[int]:
        """Numbers of the rows an error keeps out."""
        return frozenset(finding.row for finding in errors_of(self.findings) if finding.row is not None)

    @property
    def is_valid(self) -> bool:
        """Whether nothing was found that keeps a row, or the file, out."""
        return not errors_of(self.findings)

    @property
    def is_partial(self) -> bool:
        """Whether token counts are missing, for want of a checkpoint's tokenizer and processor."""
        return not self.has_tokens


def validate_manifest(
    path: Path,
    options: DatasetOptions,
    *,
    facts: MediaFacts | None = None,
    planner: TokenPlanner | None = None,
    workers: int = 1,
    progress: Progress = no_progress,
) -> ManifestReport:
    """Read, count and judge a manifest. Never raises for what is wrong in it.

    Args:
        path: JSON or JSON Lines of the raw schema.
        options: the dataset's.
        facts: counts media; give one with a folder to make the next validation free.
        planner: counts tokens; without one the report is partial.
        workers: threads that count media.
        progress: told of each media file.
    """
    manifest = read_raw_manifest(path, options)
    return check_manifest(
        manifest, options, facts=facts or MediaFacts(), planner=planner, workers=workers, progress=progress
    )


def check_manifest(
    manifest: RawManifest,
    options: DatasetOptions,
    *,
    facts: MediaFacts,
    planner: TokenPlanner | None = None,
    workers: int = 1,
    progress: Progress = no_progress,
) -> ManifestReport:
    """Judge the media, lengths, tokens and buckets of a manifest that was read; see :func:`validate_manifest`."""
    resolved = [sample.resolved(manifest.base) for sample in manifest.samples]
    facts.count_all(resolved, workers, progress)
    findings = list(manifest.findings)
    rows = []
    for sample, placed in zip(manifest.samples, resolved, strict=True):
        of_row = Findings(manifest.path.name, sample.row, sample.id, manifest.base)
        plan, target, of_row.found = plan_row(placed, facts, options, manifest.path)
        tokens = None if plan is None or planner is None else _plan_tokens(of_row, plan, planner, options)
        findings += of_row.found
        kept = plan if of_row.clean else None
        rows.append(RowReport(sample=sample, target=target, plan=kept, tokens=tokens, media=facts.digests_of(placed)))
    facts.save()
    refused = {finding.row for finding in errors_of(findings)}
    buckets = tuple(_buckets((row for row in rows if row.sample.row not in refused), options.global_batch_rows))
    return ManifestReport(
        manifest=manifest,
        options=options,
        rows=tuple(rows),
        findings=tuple([*findings, *_single_rows(buckets, manifest.path.name)]),
        buckets=buckets,
        has_tokens=planner is not None,
        media_read=facts.digests.hashed,
        media_trusted=facts.digests.trusted,
    )


def _plan_tokens(findings: Findings, plan: RowPlan, planner: TokenPlanner, options: DatasetOptions) -> TokenPlan | None:
    try:
        tokens = planner.plan_tokens(plan.sample.caption, [reference.presented for reference in plan.references])
    except ValidationError as error:
        findings.found.append(findings.placed(error.finding, "caption"))
        return None
    if tokens.total > options.max_presentation_tokens:
        findings.add(Code.TOKENS_EXCEEDED, None, describe_plan(tokens), limit=options.max_presentation_tokens)
    return tokens


def _buckets(rows: Iterable[RowReport], batch_rows: int) -> list[Bucket]:
    plans = [row.plan for row in rows if row.plan is not None]
    counts = Counter(plan.geometry for plan in plans)
    return [
        Bucket(
            name=bucket_name(geometry),
            rows=count,
            frames=count * geometry.num_frames,
            repeats=-count % batch_rows,
        )
        for geometry, count in sorted(
            counts.items(), key=lambda item: (item[0].width, item[0].height, item[0].num_frames)
        )
    ]


def _single_rows(buckets: Sequence[Bucket], source: str) -> list[Finding]:
    return [
        Finding(
            Code.BUCKET_SINGLE_ROW,
            Place(source, field=bucket.name),
            f"1 row, drawn {1 + bucket.repeats} times to fill a batch",
        )
        for bucket in buckets
        if bucket.rows == 1 and bucket.repeats
    ]


def _clip_frames(num_frames: int) -> int:
    return -(-num_frames // CLIP_FRAMES) * CLIP_FRAMES
