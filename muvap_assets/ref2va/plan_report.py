"""What training on a dataset will look like: its buckets, repeats, lengths and padding, from the index alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from muvap_assets.ref2va.capacities import Capacities, Proposal, measured, propose
from muvap_assets.ref2va.index_rows import DatasetIndex
from muvap_assets.ref2va.sampler import Schedule, group_of

_QUANTILES = (("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("max", 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPlan:
    """One bucket: its rows, their bytes on disk, and rows drawn again an epoch, by world size."""

    name: str
    rows: int
    bytes: int
    repeats: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReport:
    """A dataset's plan.

    Attributes:
        format: ``packed`` or ``sft``.
        rows, bytes: of the whole dataset.
        buckets: in the index's order.
        steps: of an epoch, by world size.
        joint_lengths, text_tokens: least, median, 90th percentile and greatest, each the value of a row.
        capacities: proposed ones, or those given, with their waste.
    """

    format: str
    rows: int
    bytes: int
    buckets: tuple[BucketPlan, ...]
    steps: dict[int, int]
    joint_lengths: dict[str, int]
    text_tokens: dict[str, int]
    capacities: Proposal

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), "waste_share": self.capacities.waste_share}

    def lines(self) -> list[str]:
        """The report as text, a table of the buckets first."""
        worlds = list(self.steps)
        width = max(len("bucket"), *(len(bucket.name) for bucket in self.buckets))
        head = f"{'bucket':{width}}  {'rows':>8}  {'MB':>10}" + "".join(f"  repeats@{world}" for world in worlds)
        table = [
            f"{bucket.name:{width}}  {bucket.rows:>8}  {bucket.bytes / 1e6:>10.1f}"
            + "".join(f"  {bucket.repeats[world]:>{len(f'repeats@{world}')}}" for world in worlds)
            for bucket in self.buckets
        ]
        waste = self.capacities
        return [
            f"{self.format}: {self.rows} rows in {len(self.buckets)} buckets, {self.bytes / 1e6:.1f} MB",
            head,
            *table,
            *(f"steps an epoch with {world} ranks: {steps}" for world, steps in self.steps.items()),
            f"joint sequence length: {_spread(self.joint_lengths)}",
            f"presentation tokens: {_spread(self.text_tokens)}",
            f"capacities {list(waste.capacities)} take {list(waste.documents)} documents and waste {waste.waste_rows} rows "
            f"({waste.waste_share:.2%} of what is computed)",
        ]


def plan_report(
    index: DatasetIndex,
    *,
    world_sizes: Sequence[int] = (1, 8, 32),
    batch_size: int = 1,
    sp_size: int = 1,
    capacities: Capacities | int = 4,
) -> PlanReport:
    """Plan a dataset.

    Args:
        index: the dataset's.
        world_sizes: ranks to compute repeats and steps for; each a multiple of ``sp_size``.
        batch_size: rows a group trains on in a step.
        sp_size: ranks that share rows.
        capacities: capacities to measure, or how many to propose.

    Raises:
        ConfigError: a number is off its rule, or a given capacity list holds no row's length.
    """
    names = index.buckets
    sizes = tuple(size for _, size in names)
    schedules = {
        world: Schedule(bucket_sizes=sizes, batch_size=batch_size, groups=group_of(0, world, sp_size)[1])
        for world in world_sizes
    }
    lengths = index.lengths
    bytes_of: dict[str, int] = dict.fromkeys((name for name, _ in names), 0)
    for row in index.rows:
        bytes_of[row.bucket] += row.bytes
    return PlanReport(
        format=str(index.format),
        rows=len(index.rows),
        bytes=sum(bytes_of.values()),
        buckets=tuple(
            BucketPlan(
                name=name,
                rows=size,
                bytes=bytes_of[name],
                repeats={world: schedule.repeats[place] for world, schedule in schedules.items()},
            )
            for place, (name, size) in enumerate(names)
        ),
        steps={world: schedule.steps for world, schedule in schedules.items()},
        joint_lengths=_quantiles(lengths),
        text_tokens=_quantiles([row.text_tokens for row in index.rows]),
        capacities=propose(lengths, capacities) if isinstance(capacities, int) else measured(lengths, capacities),
    )


def _quantiles(values: Sequence[int]) -> dict[str, int]:
    ordered = np.sort(np.array(values, dtype=np.int64))
    return {name: int(ordered[int(np.ceil(share * (len(ordered) - 1)))]) for name, share in _QUANTILES}


def _spread(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
