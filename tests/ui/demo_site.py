"""The demo and the failing demo, materialized into one home by Dagster itself: ``python demo_site.py FOLDER``.

One process makes every partition, since each process would import everything anew; whatever fails is meant to.
"""

import os
import sys
from pathlib import Path

import dagster as dg
import yaml
from dagster_processes import ROOT, write_instance

HOME, DATA, DATASETS, CHECKPOINT = "home", "data", "datasets.yaml", "demo/tiny-checkpoint"
SERVED_LATER = "served_later"
"""A corpus of the demo that is left for the UI to make."""


def environment(folder: Path) -> dict[str, str]:
    """What every process of the site is given."""
    return {
        "DAGSTER_HOME": str(folder / HOME),
        "MUVAP_DATA_ROOT": str(folder / DATA),
        "MUVAP_DATASETS": str(folder / DATASETS),
        "MUVAP_H3_CHECKPOINT": str(folder / CHECKPOINT),
        "MUVAP_H3_DEVICE": "cpu",
    }


def write_datasets(folder: Path) -> None:
    """The demo's entries and the failing ones in one file, whose sources are looked at once a day."""
    from muvap_assets.demo.failing import write_failing_demo
    from muvap_assets.demo.sources import write_sources

    write_sources(folder / "demo")
    failing = write_failing_demo(folder / "failing")
    demo = yaml.safe_load((ROOT / "resources" / "datasets.yaml").read_text())
    entries = {"source_poll_sec": 86_400}
    for line in ("corpora", "ref2va"):
        entries[line] = {}
        for file, part in ((folder / "demo.yaml", demo), (failing, yaml.safe_load(failing.read_text()))):
            for name, entry in part[line].items():
                place = str(entry["manifest"]).removeprefix("../data/")
                entries[line][name] = {**entry, "manifest": str(file.parent / place)}
    entries["corpora"][SERVED_LATER] = {**entries["corpora"]["demo_val"], "dataset": SERVED_LATER}
    (folder / DATASETS).write_text(yaml.safe_dump(entries, sort_keys=False))


def build(folder: Path) -> None:
    """Write the sources and materialize every partition but one."""
    write_datasets(folder)
    write_instance(folder / HOME)
    os.environ.update(environment(folder))
    from muvap_assets.definitions import build_defs
    from muvap_assets.defs import asd, ref2va
    from muvap_assets.demo.failing import CORPORA, DATASETS

    asd_line = [asd.MANIFEST, asd.LOUDNESS_INDEX, asd.PACKED_SHARDS]
    runs = [([asd.MANIFEST], name) for name in CORPORA] + [([ref2va.MANIFEST], name) for name in DATASETS]
    runs += [(asd_line, "demo_val"), (asd_line, "demo_train"), ([ref2va.MANIFEST], "demo_clips")]
    runs += [([ref2va.ENCODED_LATENTS], f"demo_clips|{part:03d}") for part in range(2)]
    runs += [([ref2va.CACHE_INDEX], "demo_clips")]
    job = build_defs().resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.get() as instance:
        for keys, partition in runs:
            done = job.execute_in_process(
                asset_selection=keys, partition_key=partition, instance=instance, raise_on_error=False
            )
            if done.success == (partition in CORPORA or partition in DATASETS) and partition != "quarantined":
                sys.exit(f"{keys} {partition}: {'succeeded' if done.success else 'failed'}, which it should not")


if __name__ == "__main__":
    build(Path(sys.argv[1]))
