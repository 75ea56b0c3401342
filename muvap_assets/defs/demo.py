"""``make demo``: writes the demo's media, materializes what is missing of it with Dagster's own command, prints a summary.

An asset is materialized again where nothing is recorded for it, where its code has another version than the record says,
where what it published is gone, or where anything before it is materialized again. See
https://docs.dagster.io/api/clis/cli.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import click
import dagster as dg

from muvap_assets.asd.packs.summary import summarize_pack
from muvap_assets.cli.paths import NEW_FOLDER
from muvap_assets.datasets import Datasets, load_datasets
from muvap_assets.defs import asd, ref2va
from muvap_assets.demo.sources import write_sources
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import current_version
from muvap_assets.ref2va.cache import read_index
from muvap_assets.ref2va.plan_report import plan_report
from muvap_assets.storage.paths import DATA_ROOT_VARIABLE

_DATA_VERSION, _CODE_VERSION = "dagster/data_version", "dagster/code_version"


@dataclass(frozen=True, slots=True)
class Step:
    """One partition of one asset, and where it publishes."""

    key: dg.AssetKey
    partition: str
    artifact: Artifact


@click.command()
@click.option("--data-root", type=NEW_FOLDER, envvar=DATA_ROOT_VARIABLE, required=True)
def main(data_root: Path) -> None:
    """Make the demo, or only what is missing of it."""
    layout = Layout(data_root.resolve())
    new = write_sources(layout.root / "demo")
    click.echo(f"demo sources: {layout.root / 'demo'} ({'written' if new else 'stand already'})")
    from muvap_assets.definitions import default_datasets_file, defs

    datasets = load_datasets(default_datasets_file())
    _require_manifests(datasets, default_datasets_file(), layout)
    chains = [*(corpus_chain(layout, name) for name in datasets.corpora)]
    chains += [dataset_chain(layout, datasets, name) for name in datasets.ref2va]
    graph = defs.resolve_asset_graph()
    versions = {key: graph.get(key).code_version for key in graph.get_all_asset_keys()}
    for chain in chains:
        with dg.DagsterInstance.get() as instance:
            missing = chain if new else list(_missing(instance, versions, chain))
        for partition, steps in groupby(missing, key=lambda step: step.partition):
            materialize([step.key for step in steps], partition)
    with dg.DagsterInstance.get() as instance:
        _print_corpora(instance, layout, datasets)
        _print_datasets(instance, layout, datasets)
    click.echo("\n`make dev` shows the same data in the Dagster UI; `muvap inspect` prints what is in a pack.")


def _require_manifests(datasets: Datasets, file: Path, layout: Layout) -> None:
    """Refuse a data root that ``datasets.yaml`` does not read: its paths are its own, wherever the data root is."""
    entries = [*datasets.corpora.values(), *datasets.ref2va.values()]
    manifests = [manifest for entry in entries if (manifest := getattr(entry, "manifest", None)) is not None]
    missing = [str(manifest) for manifest in manifests if not manifest.is_file()]
    if missing:
        raise click.ClickException(
            f"{file}: its manifests {missing} are not there; the demo's were written to "
            f"{layout.root / 'demo'}. Leave DATA_ROOT as it is and make `data` a link to the disk you want, or point "
            "MUVAP_DATASETS at a file that names these."
        )


def corpus_chain(layout: Layout, corpus: str) -> list[Step]:
    """The asd line of one corpus, in order."""
    return [
        Step(asd.MANIFEST, corpus, layout.asd_manifest(corpus)),
        Step(asd.LOUDNESS_INDEX, corpus, layout.asd_loudness_index(corpus)),
        Step(asd.PACKED_SHARDS, corpus, layout.asd_packed_shards(corpus)),
    ]


def dataset_chain(layout: Layout, datasets: Datasets, name: str) -> list[Step]:
    """The ref2va line of one dataset, in order."""
    parts = range(datasets.ref2va_dataset(name).parts)
    return [
        Step(ref2va.MANIFEST, name, layout.ref2va_manifest(name)),
        *(
            Step(ref2va.ENCODED_LATENTS, f"{name}|{part:03d}", layout.ref2va_encoded_latents(name, part))
            for part in parts
        ),
        Step(ref2va.CACHE_INDEX, name, layout.ref2va_parquet_cache_index(name)),
    ]


def materialize(keys: Sequence[dg.AssetKey], partition: str) -> None:
    """Run ``dagster asset materialize``, shown as a user would type it; exits with its code where it fails."""
    selection = " or ".join(f'key:"{key.to_user_string()}"' for key in keys)
    command = ["dagster", "asset", "materialize", "--select", selection, "--partition", partition]
    command += ["-m", "muvap_assets.definitions"]
    click.echo(f"$ {shlex.join(command)}")
    done = subprocess.run([sys.executable, "-m", *command], stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        click.echo(done.stderr, err=True)
        sys.exit(done.returncode)


def _missing(
    instance: dg.DagsterInstance, versions: Mapping[dg.AssetKey, str | None], chain: Sequence[Step]
) -> Iterator[Step]:
    """The steps of a chain that are not up to date, and all that follow from them."""
    stale = False
    for step in chain:
        record = _latest(instance, step)
        tags = (record.asset_materialization.tags or {}) if record and record.asset_materialization else {}
        version = current_version(step.artifact)
        stale = (
            stale
            or version is None
            or tags.get(_DATA_VERSION) != version
            or tags.get(_CODE_VERSION) != versions[step.key]
        )
        if stale:
            yield step


def _latest(instance: dg.DagsterInstance, step: Step) -> dg.EventLogRecord | None:
    filters = dg.AssetRecordsFilter(asset_key=step.key, asset_partitions=[step.partition])
    records = instance.fetch_materializations(filters, limit=1).records
    return records[0] if records else None


def _checks(instance: dg.DagsterInstance, chain: Sequence[Step]) -> str:
    """How many checks passed of those that ran, in the runs that made what now stands."""
    passed = ran = 0
    for step in chain:
        record = _latest(instance, step)
        if record is None:
            continue
        for entry in instance.all_logs(record.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION):
            evaluation = entry.get_dagster_event().asset_check_evaluation_data
            if evaluation.asset_key == step.key and evaluation.partition == step.partition:
                ran += 1
                passed += evaluation.passed
    return f"{passed}/{ran}"


def _print_corpora(instance: dg.DagsterInstance, layout: Layout, datasets: Datasets) -> None:
    rows: list[tuple[str, ...]] = [("corpus", "samples", "frames", "hours", "bytes", "checks passed", "files")]
    for corpus in datasets.corpora:
        place = layout.asd_packed_shards(corpus).current
        summary = summarize_pack(place)
        figures = (str(summary.samples), str(summary.frames), f"{summary.hours:.4f}", f"{summary.size_bytes:,}")
        checks = _checks(instance, corpus_chain(layout, corpus))
        rows.append((corpus, *figures, checks, os.path.relpath(place)))
    _print_table(rows)


def _print_datasets(instance: dg.DagsterInstance, layout: Layout, datasets: Datasets) -> None:
    header = ("dataset", "format", "rows", "buckets", "size", "longest", "checks passed", "files")
    rows: list[tuple[str, ...]] = [header]
    for name in datasets.ref2va:
        place = layout.ref2va_parquet_cache_index(name).current
        report = plan_report(read_index(place))
        # Rounded: the last bits of latents, and so the bytes they compress to, differ between kinds of processors.
        figures = (report.rows, len(report.buckets), f"{report.bytes / 1e6:.2f} MB", report.joint_lengths["max"])
        checks = _checks(instance, dataset_chain(layout, datasets, name))
        rows.append((name, report.format, *map(str, figures), checks, os.path.relpath(place)))
    _print_table(rows)


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    click.echo()
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    main()
