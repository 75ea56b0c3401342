"""The data root. See https://docs.dagster.io/guides/build/external-resources."""

from pathlib import Path

import dagster as dg

from muvap_assets.layout import Layout

DATA_ROOT_VARIABLE = "MUVAP_DATA_ROOT"
DEFAULT_DATA_ROOT = Path("data")


class StorageResource(dg.ConfigurableResource[Layout]):
    """Where everything is published.

    ``data_root`` is absolute, or relative to the folder the process was started in.
    """

    data_root: str

    def create_resource(self, context: dg.InitResourceContext) -> Layout:
        """The layout below the data root."""
        return Layout(Path(self.data_root).resolve())
