"""Assets of the asd line: manifest, loudness_index, packed_shards, one partition a corpus. Their work is ``asd.line``.

See https://docs.dagster.io/guides/build/assets.
"""

from collections.abc import Iterator

import dagster as dg

from muvap_assets.asd import line
from muvap_assets.asd.loudness import LOUDNESS_CODE_VERSION
from muvap_assets.asd.loudness_columns import LOUDNESS_TABLE
from muvap_assets.asd.manifest import MANIFEST_CODE_VERSION
from muvap_assets.asd.manifest_files import MANIFEST_TABLE
from muvap_assets.asd.packs.columns import PACK_TABLE
from muvap_assets.asd.packs.layout import PACK_CODE_VERSION
from muvap_assets.datasets import Datasets
from muvap_assets.defs import asd_pages, conditions
from muvap_assets.defs.gate import GateEvent, check_specs, gate
from muvap_assets.defs.pages import definition_metadata
from muvap_assets.layout import Layout

SOURCE = dg.AssetKey(["asd", "source"])
MANIFEST = dg.AssetKey(["asd", "manifest"])
LOUDNESS_INDEX = dg.AssetKey(["asd", "loudness_index"])
PACKED_SHARDS = dg.AssetKey(["asd", "packed_shards"])
OWNERS = ["team:data-platform"]
GUIDE = "docs/asd.md"

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
    "rejected_tracks": "Warns when tracks were set aside because a picture does not decode, and lists them.",
}

SOURCE_TEXT = """The corpus as it was handed in: its manifest, with every recording and every face file the manifest names.

Nothing is made here. It is looked at every few seconds; its version is a digest of the content, so that a touched file is no
change and a swapped one is. `missing` counts the files that are named and not there. Read more in `docs/asd.md`.
"""
MANIFEST_TEXT = """The rows of a corpus whose faces, labels and audio agree, and the reason for each row left out.

Every media file is opened: each row has to have as many labels as face frames, and a recording that covers them. Nothing is
trimmed, padded or guessed; a bad row is refused, with what was found, what is required and what to do. A row of the table is
one face track. Read more in `docs/asd.md`.
"""
LOUDNESS_TEXT = """The level of each whole recording, measured once however many face tracks share it.

A loader takes its gain from here, so that a chunk of a recording is as loud as all of it. A row is one recording; what is
silent, clipped, or very quiet or loud is listed. Read more in `docs/asd.md`.
"""
PACK_TEXT = """What a trainer opens: faces, labels and audio of a corpus, memory-mapped, at the native rate and their own gain.

Format `muvap-asd-mmap` version 4: `faces.npy` uint8 [frames, height, width], `labels.npy` uint8 [frames], `audio.npy` int16
[samples] at 16 kHz, in shards, with `index.arrow` over all of them; the columns are those of the index, a row a clip.
Everything is read back and compared before it is published. Read more in `docs/asd.md`.
"""


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
        metadata=definition_metadata(GUIDE, MANIFEST_TABLE),
        description=MANIFEST_TEXT,
    )
    def manifest(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        corpus = datasets.corpus(context.partition_key)
        yield from gate(
            context,
            layout.asd_manifest(corpus.name),
            list(MANIFEST_CHECKS),
            lambda progress: line.make_manifest(layout, corpus, progress),
            asd_pages.manifest_page,
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
        metadata=definition_metadata(GUIDE, LOUDNESS_TABLE),
        description=LOUDNESS_TEXT,
    )
    def loudness_index(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        corpus = datasets.corpus(context.partition_key)
        yield from gate(
            context,
            layout.asd_loudness_index(corpus.name),
            list(LOUDNESS_CHECKS),
            lambda progress: line.make_loudness_index(layout, corpus, progress),
            asd_pages.loudness_page,
            [layout.asd_manifest(corpus.name)],
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
        metadata=definition_metadata(GUIDE, PACK_TABLE),
        description=PACK_TEXT,
    )
    def packed_shards(
        context: dg.AssetExecutionContext, layout: dg.ResourceParam[Layout], datasets: dg.ResourceParam[Datasets]
    ) -> Iterator[GateEvent]:
        corpus = datasets.corpus(context.partition_key)
        yield from gate(
            context,
            layout.asd_packed_shards(corpus.name),
            list(PACK_CHECKS),
            lambda progress: line.make_packed_shards(layout, corpus, progress),
            asd_pages.pack_page,
            [layout.asd_loudness_index(corpus.name)],  # of a manifest made again, it is what follows first
        )

    return packed_shards
