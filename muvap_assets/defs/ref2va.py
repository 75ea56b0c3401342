"""Assets of the ref2va line, partitioned by dataset and, where a device works, by part. Their work is ``ref2va.line``.

See https://docs.dagster.io/guides/build/assets.
"""

from collections.abc import Iterator
from functools import partial

import dagster as dg

from muvap_assets.datasets import Datasets
from muvap_assets.defs import conditions, ref2va_pages
from muvap_assets.defs.gate import GateEvent, check_specs, gate
from muvap_assets.defs.pages import definition_metadata
from muvap_assets.defs.partitions import DATASET, PART, dataset_of_part
from muvap_assets.layout import Layout
from muvap_assets.ref2va import line
from muvap_assets.ref2va.contract import Format
from muvap_assets.ref2va.encoder_spec import EncoderSpec
from muvap_assets.ref2va.manifest_files import MANIFEST_TABLE
from muvap_assets.ref2va.record_columns import RECORD_TABLES
from muvap_assets.ref2va.standing_rows import STANDING_TABLE

SOURCE = dg.AssetKey(["ref2va", "source"])
MANIFEST = dg.AssetKey(["ref2va", "manifest"])
ENCODED_LATENTS = dg.AssetKey(["ref2va", "encoded_latents"])
CACHE_INDEX = dg.AssetKey(["ref2va", "parquet_cache_index"])
OWNERS = ["team:data-platform"]
GUIDE = "docs/ref2va.md"
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

SOURCE_TEXT = """The dataset as it was handed in: its raw manifest, with every video, sound and picture the manifest names.

Nothing is made here. It is looked at every few seconds; its version is a digest of the content, so that a touched file is no
change and a swapped one is. `missing` counts the files that are named and not there. Read more in `docs/ref2va.md`.
"""
MANIFEST_TEXT = """The rows of a dataset whose media were opened, counted and planned, with no model loaded.

A row is a target video with its sound, a caption and ordered references. Each file is decoded to its end, tokens are counted
with the checkpoint's own tokenizer, and what would fail on a GPU is refused here, with what to do about it. Rows of one
canvas and length share a bucket. Read more in `docs/ref2va.md`.
"""
ENCODED_TEXT = """Target latents, reference rows and Qwen3-VL embeddings of one share of a dataset's rows.

A partition is a dataset and a share, `clips|003`, so that several machines can encode one dataset. The tensors lie row by row
in the row store, by their content; what is published here is the list of rows that stand, and a rebuild encodes only what
changed. Each row is read back in full before it counts. Read more in `docs/ref2va.md`.
"""
INDEX_TEXT = """The dataset a trainer opens: one row a Parquet shard, in bucket folders, with an index it can trust.

All rows of the manifest or nothing. The columns are those of the packed format's shards; each partition's page shows those of
its own format, and the index's. Read more in `docs/ref2va.md`.
"""


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
        metadata=definition_metadata(GUIDE, MANIFEST_TABLE),
        description=MANIFEST_TEXT,
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
            layout.ref2va_manifest(dataset.name),
            list(MANIFEST_CHECKS),
            lambda progress: line.make_manifest(layout, dataset, encoder, progress),
            ref2va_pages.manifest_page,
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
        metadata=definition_metadata(GUIDE, STANDING_TABLE),
        pool=GPU_POOL,
        description=ENCODED_TEXT,
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
            layout.ref2va_encoded_latents(dataset.name, part),
            list(ENCODE_CHECKS),
            lambda progress: line.make_encoded_latents(layout, dataset, part, encoder, progress),
            partial(ref2va_pages.encoded_page, spec=encoder),
            [layout.ref2va_manifest(dataset.name)],
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
        metadata=definition_metadata(GUIDE, RECORD_TABLES[Format.PACKED]),
        description=INDEX_TEXT,
    )
    def parquet_cache_index(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        dataset = datasets.ref2va_dataset(context.partition_key)
        yield from gate(
            context,
            layout.ref2va_parquet_cache_index(dataset.name),
            list(INDEX_CHECKS),
            lambda progress: line.make_parquet_cache_index(layout, dataset, progress),
            ref2va_pages.index_page,
            [layout.ref2va_encoded_latents(dataset.name, part) for part in range(dataset.parts)],
        )

    return parquet_cache_index
