"""The corpora and datasets of ``datasets.yaml``. See https://docs.dagster.io/guides/build/external-resources."""

from pathlib import Path

import dagster as dg

from muvap_assets.datasets import Datasets, load_datasets
from muvap_assets.storage.paths import path_of

DEFAULT_DATASETS = Path(__file__).with_name("datasets.yaml")


class CorporaResource(dg.ConfigurableResource[Datasets]):
    """Which corpora there are, their files and their options. Read again in each run, so that an edit takes effect."""

    datasets_file: str

    def create_resource(self, context: dg.InitResourceContext) -> Datasets:
        """The parsed file.

        Raises:
            ConfigError: an entry is wrong; the message names the key.
        """
        return load_datasets(path_of(self.datasets_file, "datasets_file"))
