"""Partition keys, from ``datasets.yaml``: static, so that they are reviewed in git and known to CI with an empty home.

See https://docs.dagster.io/guides/build/partitions-and-backfills.
"""

import dagster as dg

from muvap_assets.datasets import Datasets


def corpora(datasets: Datasets) -> dg.StaticPartitionsDefinition:
    """One partition a corpus."""
    return dg.StaticPartitionsDefinition(sorted(datasets.corpora))
