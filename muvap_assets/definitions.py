"""The code location: domain, assets and resources meet here, and only here.

``MUVAP_DATASETS`` names the datasets file, ``MUVAP_DATA_ROOT`` the folder everything is published below,
``MUVAP_H3_CHECKPOINT`` the MiniMax-H3 checkpoint (default: the demo's tiny one) and ``MUVAP_H3_DEVICE`` its device.
See https://docs.dagster.io/guides/build/projects-and-components.
"""

import os
import sys
from pathlib import Path

import dagster as dg

from muvap_assets.datasets import DATASETS_VARIABLE, load_datasets
from muvap_assets.defs import alerts, asd, automation, freshness, maintenance, partitions, pools, ref2va
from muvap_assets.storage.paths import DATA_ROOT_VARIABLE, data_root_of, path_of_variable, written
from resources.corpora import DEFAULT_DATASETS, CorporaResource
from resources.h3 import CHECKPOINT_VARIABLE, DEVICE_VARIABLE, MiniMaxH3Resource
from resources.storage import DEFAULT_DATA_ROOT, StorageResource


def build_defs(*, datasets_file: Path | None = None, data_root: Path | None = None) -> dg.Definitions:
    """Assemble the code location; what is not given comes from the environment, then from the defaults.

    Raises:
        ConfigError: the datasets file is wrong, or a path of the environment; the message names the key or the variable.
    """
    datasets_file = datasets_file or default_datasets_file()
    data_root = (data_root or default_data_root()).resolve()
    checkpoint = path_of_variable(CHECKPOINT_VARIABLE) or data_root / "demo" / "tiny-checkpoint"
    datasets = load_datasets(datasets_file)
    cron = automation.check_cron(datasets.nightly_cron)
    by_line = {"asd": partitions.corpora(datasets), "ref2va": partitions.ref2va_datasets(datasets)}
    lines = [
        *asd.build_assets(by_line["asd"], cron),
        *ref2va.build_assets(by_line["ref2va"], partitions.ref2va_parts(datasets), cron),
    ]
    return dg.Definitions(
        assets=[
            *automation.build_sources(by_line),
            *maintenance.build_assets(datasets.keep_versions),
            *freshness.with_policies(lines, datasets),
        ],
        asset_checks=freshness.build_age_checks(datasets, by_line),
        jobs=[maintenance.build_job()],
        sensors=[
            automation.build_source_sensor(by_line, poll_sec=datasets.source_poll_sec),
            *automation.build_automation_sensors(),
            *freshness.build_age_sensors(datasets),
            *alerts.build_alert_sensors(),
            pools.build_dead_run_sensor(),
        ],
        schedules=automation.build_schedules(by_line, cron),
        resources={
            "layout": StorageResource(data_root=written(data_root)),
            "datasets": CorporaResource(datasets_file=written(datasets_file)),
            "encoder": MiniMaxH3Resource(
                checkpoint=written(checkpoint), device=os.environ.get(DEVICE_VARIABLE) or "auto"
            ),
        },
        executor=pools.one_process_executor,
    )


def default_datasets_file() -> Path:
    """The datasets file of the environment, or the one that comes with the platform."""
    return path_of_variable(DATASETS_VARIABLE) or DEFAULT_DATASETS


def default_data_root() -> Path:
    """The data root of the environment, or ``data`` in the folder the process was started in.

    Raises:
        ConfigError: the variable holds a relative path, or one that cannot be expanded.
    """
    text = os.environ.get(DATA_ROOT_VARIABLE)
    return data_root_of(text) if text else DEFAULT_DATA_ROOT


partitions.refuse_range(sys.argv[1:])
defs = build_defs()
