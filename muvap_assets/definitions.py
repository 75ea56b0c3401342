"""The code location: domain, assets and resources meet here, and only here.

``MUVAP_DATASETS`` names the datasets file, ``MUVAP_DATA_ROOT`` the folder everything is published below.
See https://docs.dagster.io/guides/build/projects-and-components.
"""

import os
from pathlib import Path

import dagster as dg

from muvap_assets.datasets import DATASETS_VARIABLE, load_datasets
from muvap_assets.defs import asd, partitions
from resources.corpora import DEFAULT_DATASETS, CorporaResource
from resources.storage import DATA_ROOT_VARIABLE, DEFAULT_DATA_ROOT, StorageResource


def build_defs(*, datasets_file: Path | None = None, data_root: Path | None = None) -> dg.Definitions:
    """Assemble the code location; what is not given comes from the environment, then from the defaults.

    Raises:
        ConfigError: the datasets file is wrong; the message names the key.
    """
    datasets_file = datasets_file or Path(os.environ.get(DATASETS_VARIABLE) or DEFAULT_DATASETS)
    data_root = data_root or Path(os.environ.get(DATA_ROOT_VARIABLE) or DEFAULT_DATA_ROOT)
    corpora = partitions.corpora(load_datasets(datasets_file))
    return dg.Definitions(
        assets=asd.build_assets(corpora),
        resources={
            "layout": StorageResource(data_root=str(data_root)),
            "datasets": CorporaResource(datasets_file=str(datasets_file)),
        },
        executor=dg.in_process_executor,
    )


defs = build_defs()
