"""What the pages of the ref2va assets show of a published version. Belongs here: choosing figures; they are counted elsewhere."""

from pathlib import Path
from typing import Any

import dagster as dg

from muvap_assets.defs.metadata import column_schema, findings_table, table
from muvap_assets.defs.pages import Page
from muvap_assets.layout import Artifact
from muvap_assets.pictures.buckets import buckets_picture
from muvap_assets.pictures.latents import latent_pictures
from muvap_assets.progress import Work
from muvap_assets.ref2va.decode_check import DecodeReport
from muvap_assets.ref2va.encode import EncodeReport
from muvap_assets.ref2va.encoder import Stage
from muvap_assets.ref2va.encoder_spec import EncoderSpec, latent_statistics
from muvap_assets.ref2va.index_rows import INDEX_TABLE
from muvap_assets.ref2va.manifest import ManifestReport
from muvap_assets.ref2va.manifest_files import MANIFEST_TABLE
from muvap_assets.ref2va.plan_report import PlanReport, plan_report
from muvap_assets.ref2va.publication import Assembled
from muvap_assets.ref2va.record_columns import RECORD_TABLES
from muvap_assets.ref2va.standing_rows import STANDING_TABLE

_BUCKETS_FILE, _DECODED_FILE = "buckets.jsonl", "decoded.jsonl"


def manifest_page(artifact: Artifact, folder: Path, report: ManifestReport) -> Page:
    """Counts of what was admitted, its buckets, and what was found."""
    buckets = [{"bucket": b.name, "rows": b.rows, "frames": b.frames, "repeats": b.repeats} for b in report.buckets]
    lengths = [row.sequence_length for row in report.admitted if row.sequence_length is not None]
    refused = report.rows_total - len(report.admitted)
    values = {
        "dagster/row_count": len(report.rows),
        "dagster/partition_row_count": len(report.rows),
        "dagster/column_schema": column_schema(MANIFEST_TABLE),
        "admitted": len(report.admitted),
        "refused": refused,
        "presentation_tokens": sum(row.tokens.total for row in report.admitted if row.tokens),
        "longest_sequence": max(lengths, default=0),
        "estimated_bytes": sum(row.estimated_bytes for row in report.admitted),
        "vae_pixels": sum(row.vae_pixels for row in report.admitted),
        "media_read_for_their_digest": report.media_read,
        "media_recognized_by_size_and_time": report.media_trusted,
        **table("buckets", buckets, artifact.reports / _BUCKETS_FILE),
        **findings_table(report.findings, artifact.findings),
    }
    return Page(values=values, work=Work(item="row", done=len(report.admitted), skipped=refused))


def encoded_page(artifact: Artifact, folder: Path, report: EncodeReport, spec: EncoderSpec) -> Page:
    """What was encoded and what was taken over, and what decoding some rows again showed."""
    decoded = [
        {"id": row.id, "psnr_db": _db(row.psnr_db), "audio_snr_db": _db(row.audio_snr_db), "problem": row.problem}
        for row in DecodeReport.read(folder).rows
    ]
    made, reused = (sum(counts.values()) for counts in (report.encoded, report.reused))
    values = {
        "dagster/row_count": len(report.rows),
        "dagster/partition_row_count": len(report.rows),
        "dagster/column_schema": column_schema(STANDING_TABLE),
        **{f"encoded_{stage}": report.encoded.get(stage, 0) for stage in Stage},
        **{f"reused_{stage}": report.reused.get(stage, 0) for stage in Stage},
        "corrupt_parts_made_again": report.corrupt,
        "media_read_for_their_digest": report.media_read,
        "media_recognized_by_size_and_time": report.media_trusted,
        "row_file_columns": dg.MetadataValue.table_schema(column_schema(RECORD_TABLES[report.rows[0].format]))
        if report.rows
        else "no row, no file",
        **table("decoded", decoded, artifact.reports / _DECODED_FILE),
        "encoder": report.encoder or "no row, no encoder",
    }
    return Page(
        values=values,
        work=Work(item="stage of a row", done=made + reused, reused=reused),
        pictures={"latents": lambda: latent_pictures(report.rows, latent_statistics(spec.checkpoint))},
    )


def _db(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.2f}"


def index_page(artifact: Artifact, folder: Path, assembled: Assembled) -> Page:
    """What training on the dataset will look like."""
    index = assembled.index
    report = plan_report(index)
    values = {
        "dagster/row_count": report.rows,
        "dagster/partition_row_count": report.rows,
        "dagster/column_schema": column_schema(RECORD_TABLES[index.format]),
        "index_columns": dg.MetadataValue.table_schema(column_schema(INDEX_TABLE)),
        "shard_bytes": report.bytes,
        "bucket_count": len(report.buckets),
        **table("buckets", _bucket_rows(report), artifact.reports / _BUCKETS_FILE),
        "steps_by_world_size": dg.MetadataValue.json({str(world): steps for world, steps in report.steps.items()}),
        "joint_length_median": report.joint_lengths["p50"],
        "joint_length_max": report.joint_lengths["max"],
        "capacities": dg.MetadataValue.json(list(report.capacities.capacities)),
        "capacity_waste_share": report.capacities.waste_share,
    }
    return Page(
        values=values,
        work=Work(item="row", done=report.rows),
        pictures={"buckets": lambda: [buckets_picture(index, report)]},
    )


def _bucket_rows(report: PlanReport) -> list[dict[str, Any]]:
    return [
        {"bucket": b.name, "rows": b.rows, "bytes": b.bytes, **{f"repeats_{w}": b.repeats[w] for w in report.steps}}
        for b in report.buckets
    ]
