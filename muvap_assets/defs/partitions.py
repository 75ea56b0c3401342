"""Partition keys, from ``datasets.yaml``: static, so that they are reviewed in git and known to CI with an empty home.

See https://docs.dagster.io/guides/build/partitions-and-backfills.
"""

import warnings
from collections.abc import Sequence

import click
import dagster as dg

from muvap_assets.datasets import Datasets

DATASET, PART = "dataset", "part"


def corpora(datasets: Datasets) -> dg.StaticPartitionsDefinition:
    """One partition a corpus."""
    return dg.StaticPartitionsDefinition(sorted(datasets.corpora))


def ref2va_datasets(datasets: Datasets) -> dg.StaticPartitionsDefinition:
    """One partition a ref2va dataset."""
    return dg.StaticPartitionsDefinition(sorted(datasets.ref2va))


def ref2va_parts(datasets: Datasets) -> dg.MultiPartitionsDefinition:
    """A dataset's shares: keys read ``clips|003``.

    All datasets have as many as the one that asks for most; those past a dataset's own number are empty and succeed.
    """
    most = max((entry.parts for entry in datasets.ref2va.values()), default=1)
    parts = dg.StaticPartitionsDefinition([f"{part:03d}" for part in range(most)])
    return dg.MultiPartitionsDefinition({DATASET: ref2va_datasets(datasets), PART: parts})


def dataset_of_part() -> dg.MultiToSingleDimensionPartitionMapping:
    """Links a dataset's shares to the dataset, both ways."""
    with warnings.catch_warnings():
        # A beta class; there is no other mapping between two and one dimension. The pinned version is tested.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.MultiToSingleDimensionPartitionMapping(DATASET)


def refuse_range(arguments: Sequence[str]) -> None:
    """Say in one line that ``dagster asset materialize`` takes one partition: its own answer to a range is a traceback.

    A range would have to be one run, and the results of checks would lose the partition they are of.

    Raises:
        click.ClickException: ``arguments`` of the command line ask for a range.
    """
    if "materialize" in arguments and any(text.startswith("--partition-range") for text in arguments):
        raise click.ClickException(
            "--partition-range: found a range; required: one partition a run, which the results of checks are tied to. Run the "
            "command once for each with --partition, or select the range in the UI, which launches one run for each."
        )
