"""The data root. See https://docs.dagster.io/guides/build/external-resources."""

from pathlib import Path

import dagster as dg

from muvap_assets.layout import Layout
from muvap_assets.storage.paths import data_root_of
from muvap_assets.storage.root import begin

DEFAULT_DATA_ROOT = Path("data")


class StorageResource(dg.ConfigurableResource[Layout]):
    """Where everything is published.

    ``data_root`` is absolute; ``~`` and ``$NAME`` are expanded.
    """

    data_root: str

    def create_resource(self, context: dg.InitResourceContext) -> Layout:
        """The layout below the data root.

        Raises:
            ConfigError: the data root is relative, or cannot be expanded.
        """
        layout = Layout(data_root_of(self.data_root, "data_root").resolve())
        begin(layout.root)
        return layout
