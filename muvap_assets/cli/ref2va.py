"""Verbs of the ref2va line. The domain is imported when a verb runs; a model only by ``encode`` and ``tiny-checkpoint``."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muvap_assets.cli.ops import layout_of
from muvap_assets.cli.options import record_options
from muvap_assets.cli.output import (
    RUN_AGAIN,
    in_file,
    print_checks,
    print_findings,
    print_json,
    print_outcome,
    print_table,
    progress,
    say,
    to_json,
)
from muvap_assets.cli.paths import FILE, FOLDER, NEW_FOLDER, PathArgument
from muvap_assets.layout import Layout
from muvap_assets.options import made_of
from muvap_assets.ref2va.contract import Dataset, DatasetOptions

if TYPE_CHECKING:
    from muvap_assets.publish import CheckOutcome
    from muvap_assets.ref2va.encoder_spec import EncoderSpec
    from muvap_assets.ref2va.manifest import ManifestReport, RowReport

SUFFIXES = (".json", ".jsonl", ".ndjson")
"""By which ``validate`` knows a raw manifest; ``encode`` takes any name."""

AFTER_VALIDATION = ("reference_noise_seed", "decode_check", "decode_check_min_psnr_db", "decode_check_min_audio_snr_db")
"""Options that no row is validated by."""


def dataset_of(manifest: Path, options: Mapping[str, Any]) -> Dataset:
    """The dataset a command is about; ``options`` as the command line gives them."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", manifest.stem).strip("-_")[:80] or "dataset"
    return Dataset(name=name, manifest=manifest.resolve(), options=made_of(DatasetOptions, options))


def validate_ref2va(file: Path, *, as_json: bool, checkpoint: Path | None, **options: Any) -> int:
    """Print the verdict on a raw manifest; the exit code."""
    from muvap_assets.ref2va.line import validate_dataset
    from muvap_assets.ref2va.manifest_files import report_values

    planner = None
    if checkpoint is not None:
        from muvap_assets.ref2va.encoder_spec import EncoderSpec
        from muvap_assets.ref2va.h3 import open_presentation

        planner = open_presentation(EncoderSpec(checkpoint=checkpoint, device="cpu"))
    report = validate_dataset(
        dataset_of(file, options), planner=planner, checkpoint=checkpoint, progress=progress("validate")
    )
    if as_json:
        values = report_values(report)
        counts = {"finding_counts": values.pop("violations")}  # as the asd line names them
        rows = [dict(zip(_ROW_COLUMNS, row, strict=True)) for row in _row_table(report)]
        print_json({**values, "rows": rows, **counts, "findings": to_json(report.findings)})
    else:
        _print_report(file, report)
    return 0 if report.is_valid and report.admitted else 1


_ROW_COLUMNS = (
    *("id", "source_frames", "source_fps", "duration_sec", "frames_at_24", "longest_valid", "audio_samples"),
    *("references", "tokens", "sequence", "bucket", "estimated_bytes"),
)


def _row_table(report: ManifestReport) -> list[tuple[object, ...]]:
    return [
        (
            row.sample.id,
            *_counted(row),
            row.target.frames_at_24,
            row.target.longest_valid_frames,
            row.target.audio_samples,
            " ".join(_shown(reference) for reference in row.plan.references) if row.plan else None,
            row.tokens.total if row.tokens else None,
            row.sequence_length,
            row.bucket,
            row.estimated_bytes,
        )
        for row in report.rows
    ]


def _counted(row: RowReport) -> tuple[object, object, object]:
    video = row.target.video
    return (None, None, None) if video is None else (video.frames, video.rate, f"{float(video.duration_sec):.3f}")


def _shown(reference: Any) -> str:
    size = "" if reference.size is None else f":{reference.size.width}x{reference.size.height}"
    return f"{reference.kind}{size}"


def _print_report(file: Path, report: ManifestReport) -> None:
    by_name = file.suffix.lower() in SUFFIXES
    rest = f"muvap validate --json {file}, with the same options, prints all of them" if by_name else RUN_AGAIN
    print_findings(report.findings, rest)
    if report.rows:
        print_table([_ROW_COLUMNS, *_row_table(report)])
    if report.buckets:
        say("")
        rows = [(bucket.name, bucket.rows, bucket.frames, bucket.repeats) for bucket in report.buckets]
        print_table([("bucket", "rows", "frames", "repeats to fill a batch"), *rows])
    partial = "; partial: tokens were not counted, name a --checkpoint" if report.is_partial else ""
    state = "valid" if report.is_valid and report.admitted else "NOT VALID"
    say(f"{file}: {state}; {report.rows_total} rows, {len(report.admitted)} admitted{partial}")


@click.command()
@click.option(
    "--manifest",
    required=True,
    type=FILE,
    help="Raw rows, as JSON or JSON Lines.",
)
@click.option("--checkpoint", required=True, type=FOLDER, help="The MiniMax-H3 checkpoint's folder.")
@click.option("--output-dir", required=True, type=PathArgument(), help="Absent or empty; the dataset's root.")
@click.option(
    "--work-dir",
    type=NEW_FOLDER,
    help="Keeps what was encoded, for the next run; default: OUTPUT_DIR.work.",
)
@click.option("--device", default="auto", show_default=True, help="cuda, cuda:N, cpu (tiny checkpoints only) or auto.")
@click.option("--validate-manifest-only", is_flag=True, help="Check everything, load no model, write nothing.")
@record_options(DatasetOptions)
def encode(
    manifest: Path,
    checkpoint: Path,
    output_dir: Path,
    work_dir: Path | None,
    device: str,
    validate_manifest_only: bool,
    **options: Any,
) -> None:
    """Validate, encode, verify and publish a ref2va dataset, in one process on one device, without Dagster.

    Every row is published or none: OUTPUT_DIR appears at the end, or stays as it was. A run that was stopped goes on where it
    was when it is started again. To encode on several devices, use the Dagster assets.
    """
    if validate_manifest_only:
        sys.exit(validate_ref2va(manifest, as_json=False, checkpoint=checkpoint, **options))
    from muvap_assets.exports import clear_exports
    from muvap_assets.ref2va.encoder_spec import EncoderSpec, chosen_device
    from muvap_assets.ref2va.publication import export_dataset, require_places

    output_dir = output_dir.resolve()
    # The root of a file system has no name to change.
    work_dir = (work_dir or output_dir.parent / f"{output_dir.name}.work").resolve()
    layout, dataset = layout_of(work_dir), dataset_of(manifest, options)
    clear_exports(layout, output_dir)
    require_places(output_dir, work_dir)
    spec = EncoderSpec(checkpoint=checkpoint.resolve(), device=chosen_device(device))
    if not _encode(layout, dataset, spec):
        sys.exit(1)
    index = export_dataset(layout, layout.ref2va_parquet_cache_index(dataset.name).current.resolve(), output_dir)
    say(f"{output_dir}: {len(index.rows)} rows in {len(index.buckets)} buckets")


def _encode(layout: Layout, dataset: Dataset, spec: EncoderSpec) -> bool:
    from muvap_assets.ref2va import line

    line.open_h3(layout, spec)  # what cannot encode is refused before media are decoded for it
    outcome = line.make_manifest(layout, dataset, spec, progress("manifest"))
    if not print_outcome("ref2va/manifest", outcome, layout.ref2va_manifest(dataset.name).findings):
        return False
    encoded = line.make_encoded_latents(layout, dataset, 0, spec, progress("encode"))
    made, kept = sum(encoded.value.encoded.values()), sum(encoded.value.reused.values())
    say(f"ref2va/encoded_latents: {made} parts encoded, {kept} reused, {encoded.value.corrupt} damaged ones made again")
    found = layout.ref2va_encoded_latents(dataset.name, 0).findings
    if not print_outcome("ref2va/encoded_latents", encoded, found):
        return False
    if encoded.published is not None and dataset.options.decode_check:
        _print_decoded(encoded.published.path, encoded.checks, found)
    published = line.make_parquet_cache_index(layout, dataset, progress("index"))
    report = layout.ref2va_parquet_cache_index(dataset.name).findings
    return print_outcome("ref2va/parquet_cache_index", published, report)


def _print_decoded(folder: Path, checks: Iterable[CheckOutcome], report: Path) -> None:
    from muvap_assets.ref2va.decode_check import DecodeReport

    figures = [(row.id, row.psnr_db, row.audio_snr_db) for row in DecodeReport.read(folder).rows]
    print_table([("decoded again", "psnr dB", "audio snr dB"), *figures])
    print_findings((found for check in checks if not check.passed for found in check.findings), in_file(report))


@click.command("tiny-checkpoint")
@click.argument("out", type=PathArgument())
def tiny_checkpoint(out: Path) -> None:
    """Write a tiny random MiniMax-H3 checkpoint with the released layout into OUT, offline, in seconds."""
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    say(str(write_tiny_checkpoint(out)))


@click.group()
def index() -> None:
    """The index of a published ref2va dataset."""


@index.command()
@click.argument("root", type=FOLDER)
def rebuild(root: Path) -> None:
    """Index the dataset at ROOT anew where it lies, after it was moved or changed."""
    from muvap_assets.ref2va.cache import rebuild_index

    rebuilt = rebuild_index(root, watch=progress("index"))
    say(f"{root}: {len(rebuilt.rows)} rows in {len(rebuilt.buckets)} buckets indexed")


@click.command()
@click.argument("root", type=FOLDER)
@click.option("-k", "count", type=click.IntRange(min=1), default=4, show_default=True, help="How many at most.")
def capacities(root: Path, count: int) -> None:
    """Propose the fixed sequence capacities that pad the dataset at ROOT least, and show the waste."""
    from muvap_assets.ref2va.cache import open_index
    from muvap_assets.ref2va.capacities import propose

    proposal = propose(open_index(root, require_existing=True).lengths, count)
    rows = list(zip(proposal.capacities, proposal.documents, strict=True))
    print_table([("capacity", "documents"), *rows])
    say(f"{proposal.waste_rows} rows of padding, {proposal.waste_share:.2%} of what is computed")


def inspect_dataset(root: Path, *, as_json: bool) -> None:
    """Print the plan of a published dataset."""
    from muvap_assets.ref2va.cache import open_index
    from muvap_assets.ref2va.plan_report import plan_report

    report = plan_report(open_index(root, require_existing=True))
    if as_json:
        print_json(report.to_dict())
        return
    say(f"{report.format}: {report.rows} rows, {report.bytes:,} bytes")
    for line in report.lines():
        say(line)


def verify_dataset_folder(root: Path, *, full: bool) -> int:
    """Print every check of a published dataset; the exit code."""
    from muvap_assets.publish import compare_with_declared
    from muvap_assets.ref2va.cache import Depth
    from muvap_assets.ref2va.publication_checks import PUBLICATION_CHECKS, verify_dataset

    found = verify_dataset(root, depth=Depth.FULL if full else Depth.CHANGED, watch=progress("verify"))
    checks = compare_with_declared(found, PUBLICATION_CHECKS)
    print_checks(str(root), checks)
    print_findings(finding for check in checks for finding in check.findings)
    return 1 if any(check.blocks for check in checks) else 0


def is_dataset(folder: Path) -> bool:
    """Whether a folder looks like a published ref2va dataset."""
    if (folder / "map_style_cache").is_dir():
        return True
    return any(re.match(r"bucket=\d+x\d+-\d+f$", entry.name) for entry in folder.iterdir())
