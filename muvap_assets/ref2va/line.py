"""The ref2va line: what each artifact is made from, by which functions, held to which checks.

Both faces of the platform call these functions: Dagster's assets, and ``muvap encode`` in one process. Nothing here
imports a model; the encoder is opened where a row needs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from muvap_assets.codes import Code
from muvap_assets.errors import StaleInputError
from muvap_assets.findings import Finding, Place, errors_of
from muvap_assets.layout import Layout
from muvap_assets.progress import Progress, no_progress
from muvap_assets.provenance import read_inputs
from muvap_assets.publish import (
    CheckOutcome,
    Outcome,
    require_current,
    require_pinned,
    run_checked,
    works,
    write_findings,
    write_json,
)
from muvap_assets.readback import reading
from muvap_assets.ref2va import encode
from muvap_assets.ref2va.contract import Dataset, DatasetOptions, ModelSizes, RawSample, TokenPlanner
from muvap_assets.ref2va.decode_check import (
    DecodeReport,
    decode_rows,
    kept_figures,
)
from muvap_assets.ref2va.devices import DEVICE_FILE, added, read_devices, rows_by_device, write_devices
from muvap_assets.ref2va.encode import EncodeOptions, EncodeReport
from muvap_assets.ref2va.encoder import Encoder, RowInput
from muvap_assets.ref2va.encoder_spec import EncoderSpec, read_model_index
from muvap_assets.ref2va.manifest import ManifestReport, validate_manifest
from muvap_assets.ref2va.manifest_files import FINDINGS_NAME, read_manifest, write_manifest
from muvap_assets.ref2va.media_facts import MediaFacts
from muvap_assets.ref2va.plan import plan_row
from muvap_assets.ref2va.prepare import row_input
from muvap_assets.ref2va.publication import Assembled, FinishedRow, PublicationOptions, publish_dataset
from muvap_assets.ref2va.row_retention import in_use
from muvap_assets.ref2va.row_store import RowStore
from muvap_assets.ref2va.standing_rows import ENCODE_CHECKS, StandingRow, read_rows, verify_encoded, write_rows
from muvap_assets.storage.digests import Digests, file_sha256
from muvap_assets.threads import item_timeout

MANIFEST_CODE_VERSION = "3"
ENCODE_CODE_VERSION = "2"
INDEX_CODE_VERSION = "1"
PROVENANCE_FILE = "provenance.json"
MANIFEST_CHECKS = ("rows_valid", "rows_admitted", "tokens_counted")


# --- manifest ---------------------------------------------------------------------------------------------------------


def validate_dataset(
    dataset: Dataset,
    *,
    planner: TokenPlanner | None = None,
    checkpoint: Path | None = None,
    cache: Path | None = None,
    progress: Progress = no_progress,
) -> ManifestReport:
    """The verdict on a dataset's manifest, nothing written but counts of media in ``cache``."""
    with item_timeout(dataset.options.item_timeout_sec):
        return validate_manifest(
            dataset.manifest,
            options_for(dataset.options, checkpoint),
            facts=MediaFacts(cache),
            planner=planner,
            workers=2,
            progress=progress,
        )


def options_for(options: DatasetOptions, checkpoint: Path | None) -> DatasetOptions:
    """``options`` with the canvas sizes that the checkpoint's own index asks for."""
    return options if checkpoint is None else replace(options, sizes=ModelSizes.of_index(read_model_index(checkpoint)))


@works
def make_manifest(
    layout: Layout, dataset: Dataset, spec: EncoderSpec, progress: Progress = no_progress
) -> Outcome[ManifestReport]:
    """Validate a dataset and publish its manifest; the findings go to the artifact's reports either way."""
    artifact = layout.ref2va_manifest(dataset.name)

    def build(folder: Path) -> ManifestReport:
        from muvap_assets.ref2va.h3 import open_presentation

        planner = open_presentation(spec)
        report = validate_dataset(
            dataset, planner=planner, checkpoint=spec.checkpoint, cache=media_cache(layout), progress=progress
        )
        write_manifest(folder, report)
        _write_provenance(
            folder,
            "ref2va/manifest",
            inputs={"source": file_sha256(dataset.manifest)} if dataset.manifest.is_file() else {},
            parameters={"format": str(dataset.options.format), "parts": dataset.parts},
            code_version=MANIFEST_CODE_VERSION,
        )
        return report

    return run_checked(
        artifact,
        build=build,
        check=lambda folder, report: verify_manifest(folder),
        declared=MANIFEST_CHECKS,
        findings=lambda report: report.findings,
    )


def verify_manifest(folder: Path) -> list[CheckOutcome]:
    """Every check of a staged or published manifest, on what is read back from ``folder``."""
    files = read_manifest(folder)
    report, errors = files.report, errors_of(files.findings)
    uncounted = [
        Finding(
            Code.ARTIFACT_INVALID, Place(sample_id=record["id"], row=record["row"]), "no token count", case="tokens"
        )
        for record in files.table.select(["id", "row", "admitted", "presentation_tokens"]).to_pylist()
        if record["admitted"] and record["presentation_tokens"] is None
    ]
    too_few = []
    if report["rows_admitted"] != report["rows_total"] or not files.samples:
        found = f"{report['rows_admitted']} of {report['rows_total']} rows admitted"
        too_few = [Finding(Code.ARTIFACT_INVALID, None, found, case="refused"), *errors]
    counts = {name: int(report[name]) for name in ("rows_total", "rows_admitted", "rows_refused")}
    return [
        CheckOutcome.of("rows_valid", errors, errors=len(errors), warnings=len(files.findings) - len(errors)),
        CheckOutcome.of("rows_admitted", too_few, **counts, buckets=len(report["buckets"])),
        CheckOutcome.of("tokens_counted", uncounted, presentation_tokens=int(report["presentation_tokens"])),
    ]


# --- encoded latents --------------------------------------------------------------------------------------------------


@works
def make_encoded_latents(
    layout: Layout,
    dataset: Dataset,
    part: int,
    spec: EncoderSpec,
    progress: Progress = no_progress,
) -> Outcome[EncodeReport]:
    """Encode what is missing of one part of a dataset, decode some of it again, and publish the list of its rows.

    The rows themselves stay in the row store, also those of a part that is not published because another row failed.

    Raises:
        StaleInputError: there is no manifest, or a file changed since it was validated.
        ConfigError: the checkpoint or the device cannot be used.
    """
    manifest = require_current(layout.ref2va_manifest(dataset.name))
    files = read_manifest(manifest.path)
    samples = [sample for sample in files.samples if dataset.part_of(sample.id) == part]
    artifact = layout.ref2va_encoded_latents(dataset.name, part)

    def build(folder: Path) -> EncodeReport:
        report, decoded = EMPTY_REPORT, DecodeReport.of(dataset.options)
        if samples:
            encoder = open_h3(layout, spec)
            facts = MediaFacts(media_cache(layout))
            rows, refused = admitted_rows(facts, dataset, samples, spec.checkpoint)
            report = encode_admitted(layout, dataset, rows, encoder, progress)
            report = replace(
                report,
                findings=(*refused, *report.findings),
                media_read=facts.digests.hashed,
                media_trusted=facts.digests.trusted,
            )
            known = kept_figures(artifact.current)
            decoded = decode_rows(rows, report.rows, encoder, dataset.options, known=known, progress=progress)
        decoded.write(folder)
        write_findings(folder / FINDINGS_NAME, report.findings)
        numbers = {sample.id: sample.row for sample in samples}
        write_rows(folder, report.rows, numbers)
        write_devices(folder, rows_by_device(row.devices for row in report.rows))
        _write_provenance(
            folder,
            "ref2va/encoded_latents",
            inputs={"ref2va/manifest": manifest.version},
            parameters={"part": part, "parts": dataset.parts, "encoder": report.encoder},
            code_version=ENCODE_CODE_VERSION,
        )
        return report

    with in_use(layout.row_store), item_timeout(dataset.options.item_timeout_sec):
        return run_checked(
            artifact,
            build=build,
            check=lambda folder, report: verify_encoded(folder, samples, RowStore(layout.row_store)),
            declared=ENCODE_CHECKS,
            location_dependent=(DEVICE_FILE,),
            findings=lambda report: report.findings,
        )


EMPTY_REPORT = EncodeReport(rows=(), findings=(), encoded={}, reused={}, corrupt=0, encoder="")


def open_h3(layout: Layout, spec: EncoderSpec) -> Encoder:
    """The real encoder; digests of its weights are remembered in the cache.

    Raises:
        ConfigError: the checkpoint or the device cannot be used; all that is wrong is named, and no media were looked at.
    """
    from muvap_assets.ref2va.h3 import H3Encoder, require_usable

    require_usable(spec)
    return H3Encoder(spec, Digests(layout.cache / "weights" / "digests.json"))


def admitted_rows(
    facts: MediaFacts, dataset: Dataset, samples: Sequence[RawSample], checkpoint: Path
) -> tuple[list[RowInput], list[Finding]]:
    """Rows as the encoder takes them, and why others are not, by the verdict that admits rows to the manifest."""
    options = options_for(dataset.options, checkpoint)
    rows: list[RowInput] = []
    refused: list[Finding] = []
    for sample in samples:
        plan, _, found = plan_row(sample.resolved(dataset.manifest.parent), facts, options, dataset.manifest)
        if plan is None or errors_of(found):
            refused.extend(errors_of(found))
        else:
            rows.append(row_input(plan, sample, facts, options))
    facts.save()
    return rows, refused


def encode_admitted(
    layout: Layout,
    dataset: Dataset,
    rows: Sequence[RowInput],
    encoder: Encoder,
    progress: Progress,
) -> EncodeReport:
    """Encode what is missing of rows that were admitted; see :func:`muvap_assets.ref2va.encode.encode_rows`."""
    limit, parts = dataset.options.max_presentation_tokens, 0

    def watch(state: encode.Progress) -> None:
        nonlocal parts
        parts = state.total
        progress(state.done, state.total, f"{state.stage} of {state.sample_id}")

    report = encode.encode_rows(
        rows,
        encoder,
        RowStore(layout.row_store),
        EncodeOptions(max_presentation_tokens=limit, source=dataset.manifest.name),
        watch,
    )
    if parts:
        progress(parts, parts, "all parts")
    return report


# --- parquet cache index ----------------------------------------------------------------------------------------------


@works
def make_parquet_cache_index(layout: Layout, dataset: Dataset, progress: Progress = no_progress) -> Outcome[Assembled]:
    """Put every row of the current manifest together as the dataset a trainer opens, and publish it.

    Raises:
        StaleInputError: a part is missing, or was encoded from another manifest or by another encoder than the others.
        ValidationError: a row is not finished; each is named.
    """
    manifest = require_current(layout.ref2va_manifest(dataset.name))
    artifacts = [layout.ref2va_encoded_latents(dataset.name, part) for part in range(dataset.parts)]
    parts = [require_current(artifact) for artifact in artifacts]
    for artifact, part in zip(artifacts, parts, strict=True):
        require_pinned(artifact, inputs=read_inputs(part.path), name="ref2va/manifest", required=manifest.version)
    encoders = [read_encoder(part.path) for part in parts]
    encoder = require_same_encoder(encoders, f"ref2va/encoded_latents [{dataset.name}]")
    store = RowStore(layout.row_store)
    standing = {row.id: row for part in parts for row in read_rows(part.path)}
    rows = [_finished(sample, standing.get(sample.id), store) for sample in read_manifest(manifest.path).samples]
    options = PublicationOptions(
        format=dataset.options.format,
        max_presentation_tokens=dataset.options.max_presentation_tokens,
        provenance={
            "artifact": "ref2va/parquet_cache_index",
            "inputs": {"ref2va/manifest": manifest.version},
            "parameters": {"encoder": encoder, "reference_noise_seed": dataset.options.reference_noise_seed},
            "code_version": INDEX_CODE_VERSION,
        },
        devices=added(read_devices(part.path) for part in parts),
    )
    with in_use(layout.row_store):
        return publish_dataset(layout.ref2va_parquet_cache_index(dataset.name), rows, options, watch=progress)


def _finished(sample: RawSample, row: StandingRow | None, store: RowStore) -> FinishedRow:
    if row is None:
        return FinishedRow(sample_id=sample.id, row=sample.row, path=None)
    return FinishedRow(sample_id=sample.id, row=sample.row, path=store.row_path(row.key), sha256=row.sha256)


# --- shared -----------------------------------------------------------------------------------------------------------


def media_cache(layout: Layout) -> Path:
    """Where counts and digests of media are remembered."""
    return layout.cache / "media"


def require_same_encoder(made_by: Iterable[str], label: str) -> str:
    """The one encoder all parts were ``made_by``; empty where no part has a row.

    Raises:
        StaleInputError: parts were made by different encoders.
    """
    encoders = sorted(set(made_by) - {""})
    if len(encoders) > 1:
        raise StaleInputError(
            f"{label}: its parts were made by {len(encoders)} encoders ({', '.join(e[:12] for e in encoders)}), required is "
            "one. Materialize the older parts of ref2va/encoded_latents again."
        )
    return encoders[0] if encoders else ""


def read_encoder(folder: Path) -> str:
    """The fingerprint of the encoder that a part was made by; empty where it has no row.

    Raises:
        FormatError: the file is missing or damaged.
    """
    with reading(folder / PROVENANCE_FILE):
        match json.loads((folder / PROVENANCE_FILE).read_text(encoding="utf-8")):
            case {"parameters": {"encoder": str(encoder)}}:
                return encoder
        raise ValueError("it names no encoder")


def _write_provenance(
    folder: Path, artifact: str, *, inputs: Mapping[str, str], parameters: Mapping[str, Any], code_version: str
) -> None:
    write_json(
        folder / PROVENANCE_FILE,
        {"artifact": artifact, "inputs": dict(inputs), "parameters": dict(parameters), "code_version": code_version},
    )
