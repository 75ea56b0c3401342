"""The asd line: what each artifact is made from, by which functions, held to which checks.

Both faces of the platform call these three functions: Dagster's assets, and ``muvap pack`` in one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

from muvap_assets.asd.contract import Clip, Corpus
from muvap_assets.asd.leakage import LEAKAGE_FILE
from muvap_assets.asd.loudness import (
    LOUDNESS_CHECKS,
    build_loudness_index,
    read_inputs,
    read_loudness_index,
    verify_loudness_index,
)
from muvap_assets.asd.manifest import ManifestReport, validate, write_manifest
from muvap_assets.asd.manifest_checks import MANIFEST_CHECKS, blocking_findings, verify_manifest
from muvap_assets.asd.manifest_files import LOCATION_DEPENDENT, read_manifest, read_notes, read_row_count
from muvap_assets.asd.packs.reuse import Reuse
from muvap_assets.asd.packs.set_aside import read_set_aside, without_set_aside
from muvap_assets.asd.packs.verify import PACK_CHECKS, verify_pack
from muvap_assets.asd.packs.writer import write_pack
from muvap_assets.asd.policy import OnViolation
from muvap_assets.asd.timeline import MODEL_FPS
from muvap_assets.errors import ValidationError
from muvap_assets.layout import Artifact, Layout
from muvap_assets.progress import Progress, no_progress
from muvap_assets.publish import (
    CheckOutcome,
    Outcome,
    current_version,
    require_current,
    require_pinned,
    run_checked,
    works,
    write_findings,
    write_json,
)
from muvap_assets.storage.digests import file_sha256
from muvap_assets.storage.files import replacing
from muvap_assets.threads import item_timeout

REUSE_FILE = "reuse.json"


def validate_corpus(corpus: Corpus, progress: Progress = no_progress, deep: bool = False) -> ManifestReport:
    """The verdict on a corpus, nothing written; with ``deep`` after decoding every face."""
    with item_timeout(corpus.policy.item_timeout_sec):
        return validate(
            corpus.source.read(),
            root=corpus.root,
            dataset=corpus.dataset,
            policy=corpus.policy,
            deep=deep,
            progress=progress,
        )


@works
def make_manifest(layout: Layout, corpus: Corpus, progress: Progress = no_progress) -> Outcome[ManifestReport]:
    """Validate a corpus and publish its manifest; the findings go to the artifact's reports either way."""
    artifact = layout.asd_manifest(corpus.name)

    def build(folder: Path) -> ManifestReport:
        report = validate_corpus(corpus, progress)
        inputs = {name: file_sha256(path) for name, path in corpus.source.inputs().items() if path.is_file()}
        published = artifact.version("version")
        write_manifest(folder, report, root=corpus.root, published=published, inputs=inputs, dataset=corpus.dataset)
        return report

    def check(folder: Path, report: ManifestReport) -> list[CheckOutcome]:
        siblings = {name: _published(layout.asd_manifest(name)) for name in corpus.siblings}
        outcomes = verify_manifest(folder, corpus.policy, siblings)
        shared = next(outcome for outcome in outcomes if outcome.name == "splits_share_nothing")
        write_findings(artifact.reports / LEAKAGE_FILE, shared.findings)
        return outcomes

    return run_checked(
        artifact,
        build=build,
        check=check,
        declared=MANIFEST_CHECKS,
        location_dependent=LOCATION_DEPENDENT,
        findings=lambda report: report.findings,
    )


def _published(artifact: Artifact) -> Path | None:
    """The folder of the current version, if there is one."""
    version = current_version(artifact)
    return artifact.version(version) if version else None


@works
def make_loudness_index(layout: Layout, corpus: Corpus, progress: Progress = no_progress) -> Outcome[list[Clip]]:
    """Measure every recording of the current manifest and publish the index.

    Raises:
        StaleInputError: there is no manifest.
        ValidationError: recordings cannot be measured; all of them are named.
    """
    manifest = require_current(layout.asd_manifest(corpus.name))
    clips = read_manifest(manifest.path)

    def build(folder: Path) -> list[Clip]:
        inputs = {"asd/manifest": manifest.version}
        with item_timeout(corpus.policy.item_timeout_sec):
            build_loudness_index(folder, clips, corpus.root, inputs=inputs, progress=progress)
        return clips

    return run_checked(
        layout.asd_loudness_index(corpus.name),
        build=build,
        check=lambda folder, clips: verify_loudness_index(folder, clips, corpus.policy),
        declared=LOUDNESS_CHECKS,
    )


@works
def make_packed_shards(layout: Layout, corpus: Corpus, progress: Progress = no_progress) -> Outcome[list[Clip]]:
    """Pack every clip of the current manifest and publish the shards.

    Tracks that are unchanged since the current pack are copied from it; the artifact's reports say how many. With
    ``quarantine`` tracks with pictures that do not decode are left out and listed; the value is the clips that were packed.

    Raises:
        StaleInputError: manifest or loudness index is missing, or the index was built from another manifest.
        ValidationError: media cannot be decoded, and the policy does not let them be left out; all of them are named.
    """
    manifest = require_current(layout.asd_manifest(corpus.name))
    index_artifact = layout.asd_loudness_index(corpus.name)
    index = require_current(index_artifact)
    require_pinned(index_artifact, inputs=read_inputs(index.path), name="asd/manifest", required=manifest.version)
    clips, rows = read_manifest(manifest.path), read_row_count(manifest.path)
    artifact = layout.asd_packed_shards(corpus.name)

    def attempt(reuse: Reuse) -> Outcome[list[Clip]]:
        def build(folder: Path) -> list[Clip]:
            with item_timeout(corpus.policy.item_timeout_sec):
                write_pack(
                    folder,
                    clips,
                    corpus.root,
                    read_loudness_index(index.path),
                    inputs={"asd/manifest": manifest.version, "asd/loudness_index": index.version},
                    notes=read_notes(manifest.path),
                    shard_bytes=corpus.shard_bytes,
                    reuse=reuse,
                    quarantine=corpus.policy.on_violation is OnViolation.QUARANTINE,
                    progress=progress,
                )
            bad = read_set_aside(folder)
            kept = without_set_aside(clips, bad)
            if blocking := blocking_findings(bad, rows, len(kept), corpus.policy):
                raise ValidationError(blocking, "packed shards")
            with replacing(artifact.reports / REUSE_FILE) as partial:
                write_json(partial, asdict(reuse.report))
            return kept

        return run_checked(
            artifact, build=build, check=lambda folder, _: verify_pack(folder, clips), declared=PACK_CHECKS
        )

    reuse = _earlier_pack(layout, corpus)
    outcome = attempt(reuse)
    if outcome.published is None and reuse.report.any_copied:
        # The earlier pack may be what is damaged: only what is decoded afresh says whether the media are.
        reuse = Reuse()
        outcome = attempt(reuse)
    if outcome.published is not None:
        reuse.save(layout.pack_tracks(corpus.name, outcome.published.version))
    return outcome


def _earlier_pack(layout: Layout, corpus: Corpus) -> Reuse:
    artifact = layout.asd_packed_shards(corpus.name)
    version = current_version(artifact)
    if version is None:
        return Reuse()
    # By its version, not through ``current``, which may move meanwhile.
    return Reuse.of(artifact.version(version), layout.pack_tracks(corpus.name, version))


def frame_rate_histogram(clips: Sequence[Clip]) -> dict[str, int]:
    """How many clips have each frame rate, as given; no corpus is assumed to have one rate."""
    return dict(Counter(clip.source_fps.text for clip in clips).most_common())


def clips_under_one_model_frame(clips: Sequence[Clip]) -> int:
    """Clips shorter than one 25 Hz interval: each still has one model frame, its audio padded with silence."""
    return sum(clip.source_frames / clip.source_fps.value < Fraction(1, MODEL_FPS) for clip in clips)
