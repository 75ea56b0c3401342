"""Assets of the asd line: manifest, loudness_index, packed_shards, one partition a corpus. Their work is ``asd.line``.

See https://docs.dagster.io/guides/build/assets.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dagster as dg

from muvap_assets.asd import line
from muvap_assets.asd.contract import Clip
from muvap_assets.asd.loudness import LOUDNESS_CODE_VERSION, read_loudness_index
from muvap_assets.asd.manifest import MANIFEST_CODE_VERSION, ManifestReport
from muvap_assets.asd.packs.layout import PACK_CODE_VERSION
from muvap_assets.asd.packs.report import report_pack, unusual_figures
from muvap_assets.asd.packs.summary import summarize_pack
from muvap_assets.datasets import Datasets
from muvap_assets.defs import conditions
from muvap_assets.defs.gate import GateEvent, check_specs, gate
from muvap_assets.defs.metadata import violations_table
from muvap_assets.layout import Layout

SOURCE = dg.AssetKey(["asd", "source"])
MANIFEST = dg.AssetKey(["asd", "manifest"])
LOUDNESS_INDEX = dg.AssetKey(["asd", "loudness_index"])
PACKED_SHARDS = dg.AssetKey(["asd", "packed_shards"])
OWNERS = ["team:data-platform"]

MANIFEST_CHECKS = {
    "rows_valid": "Every row meets the contract, or the corpus may set the others aside and few enough were.",
    "sample_ids_unique": "No two rows share a sample_id.",
    "labels_match_faces": "Each clip has as many labels as face frames; nothing was trimmed or padded.",
    "audio_covers_faces": "Each clip lies on its recording, and the recording does not end too early.",
    "rejected_rows": "Warns when rows were set aside, and lists them.",
    "labels_vary": "Warns when every frame is labelled as speech: labels that were never published are filled so.",
    "splits_share_nothing": "Warns when another split of the corpus has the same recording, video or face files, in pairs.",
}
LOUDNESS_CHECKS = {
    "levels_finite": "Every level is a finite number and the levels of a recording agree with one another.",
    "one_row_per_recording": "Exactly the recordings of the manifest, each measured once.",
    "silent_share": "Not too many recordings are silent, which is how a wrong path looks.",
}
PACK_CHECKS = {
    "shapes": "Arrays have the shape, the type and the length that the index promises.",
    "offsets_contiguous": "Samples follow one another without a gap or an overlap, and none is missing.",
    "labels_binary": "Labels are 0 and 1, as many as faces.",
    "audio_spans_faces": "Each sample has round(source_frames / source_fps * 16000) audio samples; padding is silence.",
    "levels_finite": "The whole-recording levels in the index are finite.",
    "round_trip": "What is read back from disk is, byte for byte, what was written.",
}


def build_assets(partitions: dg.PartitionsDefinition, nightly_cron: str) -> list[dg.AssetsDefinition]:
    """The assets of the line over the corpora in ``partitions``."""
    return [_manifest(partitions, nightly_cron), _loudness_index(partitions), _packed_shards(partitions)]


def _manifest(partitions: dg.PartitionsDefinition, nightly_cron: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=MANIFEST,
        deps=[SOURCE],
        automation_condition=conditions.root(nightly_cron),
        group_name="asd",
        kinds={"python", "parquet"},
        owners=OWNERS,
        code_version=MANIFEST_CODE_VERSION,
        partitions_def=partitions,
        check_specs=check_specs(MANIFEST, MANIFEST_CHECKS, partitions),
        description="The rows of a corpus whose faces, labels and audio agree, and the reason for each row left out.",
    )
    def manifest(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        corpus = datasets.corpus(context.partition_key)
        yield from gate(
            context,
            list(MANIFEST_CHECKS),
            lambda progress: line.make_manifest(layout, corpus, progress),
            _describe_manifest,
        )

    return manifest


def _loudness_index(partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    @dg.asset(
        key=LOUDNESS_INDEX,
        deps=[MANIFEST],
        automation_condition=conditions.downstream(),
        group_name="asd",
        kinds={"python", "parquet"},
        owners=OWNERS,
        code_version=LOUDNESS_CODE_VERSION,
        partitions_def=partitions,
        check_specs=check_specs(LOUDNESS_INDEX, LOUDNESS_CHECKS, partitions),
        description="Level of each whole recording, once however many face tracks share it; loaders take their gain from it.",
    )
    def loudness_index(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        corpus = datasets.corpus(context.partition_key)
        yield from gate(
            context,
            list(LOUDNESS_CHECKS),
            lambda progress: line.make_loudness_index(layout, corpus, progress),
            _describe_loudness_index,
        )

    return loudness_index


def _packed_shards(partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    @dg.asset(
        key=PACKED_SHARDS,
        deps=[MANIFEST, LOUDNESS_INDEX],
        automation_condition=conditions.downstream(),
        group_name="asd",
        kinds={"python", "numpy"},
        owners=OWNERS,
        code_version=PACK_CODE_VERSION,
        partitions_def=partitions,
        check_specs=check_specs(PACKED_SHARDS, PACK_CHECKS, partitions),
        description="Faces, labels and audio at the native rate and own gain, memory-mapped (muvap-asd-mmap version 4).",
    )
    def packed_shards(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        corpus = datasets.corpus(context.partition_key)
        yield from gate(
            context,
            list(PACK_CHECKS),
            lambda progress: line.make_packed_shards(layout, corpus, progress),
            _describe_packed_shards,
        )

    return packed_shards


def _describe_manifest(folder: Path, report: ManifestReport) -> Mapping[str, Any]:
    seconds = sum(float(clip.source_frames / clip.source_fps.value) for clip in report.clips)
    return {
        "dagster/row_count": len(report.clips),
        "rejected": report.rejected,
        "frames": sum(clip.source_frames for clip in report.clips),
        "hours": seconds / 3600,
        "recordings": len({clip.recording_id for clip in report.clips}),
        "frame_rates": dg.MetadataValue.json(line.frame_rate_histogram(report.clips)),
        "clips_under_one_model_frame": line.clips_under_one_model_frame(report.clips),
        **({"corpus": dg.MetadataValue.json(dict(report.notes))} if report.notes else {}),
        **violations_table(report.violations),
    }


def _describe_loudness_index(folder: Path, clips: Sequence[Clip]) -> Mapping[str, Any]:
    stats = read_loudness_index(folder).values()
    levels = sorted(entry.dbfs for entry in stats if entry.dbfs is not None)
    return {
        "dagster/row_count": len(stats),
        "hours": sum(entry.samples_16k for entry in stats) / 16_000 / 3600,
        "silent": sum(entry.silent for entry in stats),
        "clipped_samples": sum(entry.clipped_samples for entry in stats),
        **({"dbfs_min": levels[0], "dbfs_median": levels[len(levels) // 2], "dbfs_max": levels[-1]} if levels else {}),
    }


def _describe_packed_shards(folder: Path, clips: Sequence[Clip]) -> Mapping[str, Any]:
    summary, reports = summarize_pack(folder), report_pack(folder)
    unusual = [violation for report in reports for violation in unusual_figures(report)]
    return {
        "dagster/row_count": summary.samples,
        "frames": summary.frames,
        "hours": summary.hours,
        "size_bytes": summary.size_bytes,
        "shards": summary.shards,
        "recordings": summary.recordings,
        "speaking_share": summary.speaking_share,
        "padded_samples": summary.padded_samples,
        "clipped_samples": summary.clipped_samples,
        "figures": dg.MetadataValue.json([asdict(report) for report in reports]),
        **violations_table(unusual),
    }
