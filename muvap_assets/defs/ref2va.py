"""Assets of the ref2va line, partitioned by dataset and, where a device works, by part. Their work is ``ref2va.line``.

See https://docs.dagster.io/guides/build/assets.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from muvap_assets.datasets import Datasets
from muvap_assets.defs import conditions
from muvap_assets.defs.gate import GateEvent, check_specs, gate
from muvap_assets.defs.metadata import TABLE_ROWS, violations_table
from muvap_assets.defs.partitions import DATASET, PART, dataset_of_part
from muvap_assets.layout import Layout
from muvap_assets.ref2va import line
from muvap_assets.ref2va.decode_check import DecodeReport
from muvap_assets.ref2va.encode import EncodeReport
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.encoder_spec import EncoderSpec
from muvap_assets.ref2va.manifest import ManifestReport
from muvap_assets.ref2va.plan_report import plan_report
from muvap_assets.ref2va.publication import Assembled

SOURCE = dg.AssetKey(["ref2va", "source"])
MANIFEST = dg.AssetKey(["ref2va", "manifest"])
ENCODED_LATENTS = dg.AssetKey(["ref2va", "encoded_latents"])
CACHE_INDEX = dg.AssetKey(["ref2va", "parquet_cache_index"])
OWNERS = ["team:data-platform"]
GPU_POOL = "gpu"

MANIFEST_CHECKS = {
    "rows_valid": "Every row meets the schema, its media are there, long enough, and fit the model.",
    "rows_admitted": "Every row will be encoded; none is set aside silently.",
    "tokens_counted": "Presentations are counted with the checkpoint's own tokenizer and processor, none is too long.",
}
ENCODE_CHECKS = {
    "rows_encoded": "Every row of the part stands encoded; what failed is named, the others are kept.",
    "target_shapes": "Target latents are [24, T, H/16, W/16] and [2, 32, T_audio] by the row's geometry.",
    "reference_rows": "Reference rows are as many, in the order and of the geometry that the row declares.",
    "text_tags": "One tag a presentation token: 0 vision, 1 text.",
    "tensors_finite": "No tensor holds a NaN or an infinity.",
    "round_trip": "Each row was read back in full and is, byte for byte, what was encoded.",
    "decodes_back": "Some rows, decoded again by the VAEs, come near their media; a warning, off unless decode_check asks.",
}

INDEX_CHECKS = {
    "rows_complete": "One shard for each row of the manifest, each the row that was encoded.",
    "shards_whole": "Each shard was read back in full.",
    "buckets_match_latents": "Each bucket's name says the shape its latents were written in.",
    "one_schema": "All shards are of one schema; the two formats are never mixed.",
    "presentations_fit": "No presentation is longer than the limit its rows were admitted under.",
    "index_matches": "The index lists exactly the shards that lie there, with their sizes, row counts and digests.",
}


def build_assets(
    datasets: dg.StaticPartitionsDefinition, parts: dg.MultiPartitionsDefinition, nightly_cron: str
) -> list[dg.AssetsDefinition]:
    """The assets of the line; ``parts`` are the shares in which ``datasets`` are encoded."""
    return [_manifest(datasets, nightly_cron), _encoded_latents(parts), _parquet_cache_index(datasets)]


def _manifest(partitions: dg.PartitionsDefinition, nightly_cron: str) -> dg.AssetsDefinition:
    @dg.asset(
        key=MANIFEST,
        deps=[SOURCE],
        automation_condition=conditions.root(nightly_cron),
        group_name="ref2va",
        kinds={"python", "parquet"},
        owners=OWNERS,
        code_version=line.MANIFEST_CODE_VERSION,
        partitions_def=partitions,
        check_specs=check_specs(MANIFEST, MANIFEST_CHECKS, partitions),
        description="The rows of a dataset whose media were opened, counted and planned, with no model loaded.",
    )
    def manifest(
        context: dg.AssetExecutionContext,
        layout: dg.ResourceParam[Layout],
        datasets: dg.ResourceParam[Datasets],
        encoder: dg.ResourceParam[EncoderSpec],
    ) -> Iterator[GateEvent]:
        dataset = datasets.ref2va_dataset(context.partition_key)
        yield from gate(
            context,
            list(MANIFEST_CHECKS),
            lambda progress: line.make_manifest(layout, dataset, encoder),
            _describe_manifest,
        )

    return manifest


def _encoded_latents(partitions: dg.MultiPartitionsDefinition) -> dg.AssetsDefinition:
    upstream = dg.AssetDep(MANIFEST, partition_mapping=dataset_of_part())

    @dg.asset(
        key=ENCODED_LATENTS,
        deps=[upstream],
        automation_condition=conditions.downstream(),
        group_name="ref2va",
        kinds={"python", "pytorch"},
        owners=OWNERS,
        code_version=line.ENCODE_CODE_VERSION,
        partitions_def=partitions,
        check_specs=check_specs(ENCODED_LATENTS, ENCODE_CHECKS, partitions),
        pool=GPU_POOL,
        description="Target latents, reference rows and Qwen3-VL embeddings of a share of a dataset's rows, row by row in the "
        "row store; a rebuild encodes only what changed.",
    )
    def encoded_latents(
        context: dg.AssetExecutionContext,
        layout: dg.ResourceParam[Layout],
        datasets: dg.ResourceParam[Datasets],
        encoder: dg.ResourceParam[EncoderSpec],
    ) -> Iterator[GateEvent]:
        keys = context.partition_key.keys_by_dimension
        dataset, part = datasets.ref2va_dataset(keys[DATASET]), int(keys[PART])
        yield from gate(
            context,
            list(ENCODE_CHECKS),
            lambda progress: line.make_encoded_latents(layout, dataset, part, encoder, progress),
            _describe_encoded_latents,
        )

    return encoded_latents


def _parquet_cache_index(partitions: dg.PartitionsDefinition) -> dg.AssetsDefinition:
    encoded = dg.AssetDep(ENCODED_LATENTS, partition_mapping=dataset_of_part())

    @dg.asset(
        key=CACHE_INDEX,
        deps=[MANIFEST, encoded],
        automation_condition=conditions.downstream(not_woken_by=dg.AssetSelection.assets(MANIFEST)),
        group_name="ref2va",
        kinds={"python", "parquet"},
        owners=OWNERS,
        code_version=line.INDEX_CODE_VERSION,
        partitions_def=partitions,
        check_specs=check_specs(CACHE_INDEX, INDEX_CHECKS, partitions),
        description="The dataset a trainer opens: one row a shard in bucket folders, with an index it can trust.",
    )
    def parquet_cache_index(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        dataset = datasets.ref2va_dataset(context.partition_key)
        yield from gate(
            context,
            list(INDEX_CHECKS),
            lambda progress: line.make_parquet_cache_index(layout, dataset, progress),
            _describe_index,
        )

    return parquet_cache_index


def _describe_manifest(folder: Path, report: ManifestReport) -> Mapping[str, Any]:
    buckets = [
        dg.TableRecord({"bucket": b.name, "rows": b.rows, "frames": b.frames, "repeats": b.repeats})
        for b in report.buckets
    ]
    lengths = [row.sequence_length for row in report.admitted if row.sequence_length is not None]
    return {
        "dagster/row_count": len(report.admitted),
        "refused": report.rows_total - len(report.admitted),
        "presentation_tokens": sum(row.tokens.total for row in report.admitted if row.tokens),
        "longest_sequence": max(lengths, default=0),
        "estimated_bytes": sum(row.estimated_bytes for row in report.admitted),
        "vae_pixels": sum(row.vae_pixels for row in report.admitted),
        **({"buckets": dg.MetadataValue.table(buckets)} if buckets else {}),
        **violations_table(report.violations),
    }


def _describe_encoded_latents(folder: Path, report: EncodeReport) -> Mapping[str, Any]:
    decoded = [
        dg.TableRecord(
            {"id": row.id, "psnr_db": _db(row.psnr_db), "audio_snr_db": _db(row.audio_snr_db), "problem": row.problem}
        )
        for row in DecodeReport.read(folder).rows[:TABLE_ROWS]
    ]
    return {
        "dagster/row_count": len(report.rows),
        **{f"encoded_{stage}": report.encoded.get(stage, 0) for stage in Stage},
        **{f"reused_{stage}": report.reused.get(stage, 0) for stage in Stage},
        "corrupt_parts_made_again": report.corrupt,
        **({"decoded": dg.MetadataValue.table(decoded)} if decoded else {}),
        "encoder": report.encoder or "no row, no encoder",
    }


def _db(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.2f}"


def _describe_index(folder: Path, assembled: Assembled) -> Mapping[str, Any]:
    report = plan_report(assembled.index)
    worlds = list(report.steps)
    buckets = [
        dg.TableRecord(
            {"bucket": b.name, "rows": b.rows, "bytes": b.bytes, **{f"repeats_{w}": b.repeats[w] for w in worlds}}
        )
        for b in report.buckets
    ]
    return {
        "dagster/row_count": report.rows,
        "size_bytes": report.bytes,
        "buckets": dg.MetadataValue.table(buckets),
        "steps_by_world_size": dg.MetadataValue.json({str(world): steps for world, steps in report.steps.items()}),
        "joint_length_median": report.joint_lengths["p50"],
        "joint_length_max": report.joint_lengths["max"],
        "capacities": dg.MetadataValue.json(list(report.capacities.capacities)),
        "capacity_waste_share": report.capacities.waste_share,
    }
