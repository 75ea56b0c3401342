"""``make demo``: writes the demo corpus, materializes what is missing of it with Dagster's own command, prints a summary.

An asset is materialized again where nothing is recorded for it, where its code has another version than the record says,
where what it published is gone, or where anything before it is materialized again. See https://docs.dagster.io/api/clis/cli.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import dagster as dg

from muvap_assets.asd.packs.summary import summarize_pack
from muvap_assets.defs import asd
from muvap_assets.demo.corpus import write_demo_corpus
from muvap_assets.layout import Artifact, Layout
from muvap_assets.publish import current_version

CORPORA = ("demo_train", "demo_val")
LINE = (asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS)
_DATA_VERSION, _CODE_VERSION = "dagster/data_version", "dagster/code_version"


@click.command()
@click.option("--data-root", type=click.Path(path_type=Path), envvar="MUVAP_DATA_ROOT", required=True)
def main(data_root: Path) -> None:
    """Make the demo, or only what is missing of it."""
    layout = Layout(data_root.resolve())
    corpus_is_new = write_demo_corpus(layout.root / "demo")
    click.echo(f"demo corpus: {layout.root / 'demo'} ({'written' if corpus_is_new else 'stands already'})")
    for corpus in CORPORA:
        with dg.DagsterInstance.get() as instance:
            missing = list(LINE) if corpus_is_new else list(_missing(instance, layout, corpus))
        if missing:
            materialize(missing, corpus)
    with dg.DagsterInstance.get() as instance:
        _print_summary(instance, layout)


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


def _missing(instance: dg.DagsterInstance, layout: Layout, corpus: str) -> Iterator[dg.AssetKey]:
    """The assets of a corpus that are not up to date, and all that follow from them."""
    from muvap_assets.definitions import defs

    graph = defs.resolve_asset_graph()
    stale = False
    for key in LINE:
        record = _latest(instance, key, corpus)
        tags = (record.asset_materialization.tags or {}) if record and record.asset_materialization else {}
        version = current_version(_artifact(layout, key, corpus))
        stale = (
            stale
            or version is None
            or tags.get(_DATA_VERSION) != version
            or tags.get(_CODE_VERSION) != graph.get(key).code_version
        )
        if stale:
            yield key


def _artifact(layout: Layout, key: dg.AssetKey, corpus: str) -> Artifact:
    line, name = key.path
    return layout.artifact(line, name, corpus)


def _latest(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> dg.EventLogRecord | None:
    filters = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    records = instance.fetch_materializations(filters, limit=1).records
    return records[0] if records else None


def _checks(instance: dg.DagsterInstance, corpus: str) -> tuple[int, int]:
    """How many checks passed, and how many ran, in the runs that made what now stands."""
    passed = ran = 0
    for key in LINE:
        record = _latest(instance, key, corpus)
        if record is None:
            continue
        logs = instance.all_logs(record.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
        for entry in logs:
            evaluation = entry.get_dagster_event().asset_check_evaluation_data
            if evaluation.asset_key == key and evaluation.partition == corpus:
                ran += 1
                passed += evaluation.passed
    return passed, ran


def _print_summary(instance: dg.DagsterInstance, layout: Layout) -> None:
    header = ("corpus", "samples", "frames", "hours", "bytes", "checks passed", "files")
    rows: list[tuple[str, ...]] = [header]
    for corpus in CORPORA:
        artifact = layout.asd_packed_shards(corpus)
        summary = summarize_pack(artifact.current)
        passed, ran = _checks(instance, corpus)
        place = os.path.relpath(artifact.current)
        figures = (
            summary.samples,
            summary.frames,
            f"{summary.hours:.4f}",
            f"{summary.size_bytes:,}",
            f"{passed}/{ran}",
        )
        rows.append((corpus, *map(str, figures), place))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    click.echo()
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    click.echo("\n`make dev` shows the same data in the Dagster UI; `muvap inspect` prints what is in a pack.")


if __name__ == "__main__":
    main()
