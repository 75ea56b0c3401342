"""Sequence capacities: the lengths a joint sequence is padded to. Pure arithmetic on lengths known from metadata.

A capacity is a positive multiple of 256 (contract). A row gets the smallest that holds it; a row longer than all of them is
rejected with its length, for a capacity never crops a document.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from muvap_assets.codes import Code
from muvap_assets.errors import ConfigError
from muvap_assets.findings import Finding
from muvap_assets.ref2va.contract import CAPACITY_MULTIPLE
from muvap_assets.ref2va.geometry import padded_length
from muvap_assets.ref2va.index_rows import IndexedRow


@dataclass(frozen=True, slots=True)
class Capacities:
    """Capacities in ascending order.

    Raises:
        ConfigError: there is none, one is no positive multiple of 256, or they do not ascend.
    """

    values: tuple[int, ...]

    def __post_init__(self) -> None:
        for value in self.values:
            if value <= 0 or value % CAPACITY_MULTIPLE:
                raise ConfigError(
                    f"fixed_sequence_capacities: found {value}, required is a positive multiple of {CAPACITY_MULTIPLE}. Change it."
                )
        if not self.values or list(self.values) != sorted(set(self.values)):
            raise ConfigError(
                f"fixed_sequence_capacities: found {list(self.values)}, required is at least one, each once, ascending. Sort them."
            )

    def smallest(self, length: int) -> int | None:
        """The smallest capacity that holds ``length`` rows, ``None`` where none does."""
        place = bisect_left(self.values, length)
        return self.values[place] if place < len(self.values) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Capacities for a dataset, and what they cost.

    ``waste_rows`` are the rows of padding over all documents, ``total_rows`` the documents' own; ``documents`` says how many
    each capacity takes.
    """

    capacities: tuple[int, ...]
    documents: tuple[int, ...]
    waste_rows: int
    total_rows: int

    @property
    def waste_share(self) -> float:
        """Padding as a share of everything computed."""
        padded = self.waste_rows + self.total_rows
        return self.waste_rows / padded if padded else 0.0


def propose(lengths: Iterable[int], count: int) -> Proposal:
    """The at most ``count`` capacities that pad ``lengths`` least; exact. Of equal ones, those with fewer capacities.

    Dynamic programming over the documents' own padded lengths: an optimal capacity is always one of them, and with the
    lengths sorted each capacity takes a run of them. Memory and time grow with the number of different padded lengths.

    Raises:
        ConfigError: no length, a length below 1, or a count below 1.
    """
    counted = Counter(lengths)
    if not counted or min(counted) < 1 or count < 1:
        raise ConfigError(
            f"capacities: found {sum(counted.values())} lengths for {count} capacities, required is at least one of each, "
            "every length at least 1. Check the dataset and -k."
        )
    documents = Counter[int]()
    for length, times in counted.items():
        documents[padded_length(length)] += times
    steps = sorted(documents)
    ends = _optimal_ends(
        np.array(steps, dtype=np.int64), np.array([documents[step] for step in steps], dtype=np.int64), count
    )
    capacities = tuple(steps[end] for end in ends)
    return measured(counted, Capacities(capacities))


def measured(lengths: Iterable[int], capacities: Capacities) -> Proposal:
    """What given capacities cost for ``lengths``.

    Raises:
        ConfigError: a length is longer than all of them.
    """
    counted = lengths if isinstance(lengths, Counter) else Counter(lengths)
    documents, waste = Counter[int](), 0
    for length, times in counted.items():
        capacity = capacities.smallest(length)
        if capacity is None:
            raise ConfigError(
                f"fixed_sequence_capacities: the longest is {capacities.values[-1]}, required are {length} rows for the longest "
                "document. Add a capacity."
            )
        documents[capacity] += times
        waste += (capacity - length) * times
    return Proposal(
        capacities=capacities.values,
        documents=tuple(documents[capacity] for capacity in capacities.values),
        waste_rows=waste,
        total_rows=sum(length * times for length, times in counted.items()),
    )


def overlong(rows: Iterable[IndexedRow], limit: int) -> list[Finding]:
    """Every row whose presentation is longer than ``limit`` tokens."""
    return [
        Finding(Code.PRESENTATION_TOO_LONG, row.place, f"{row.text_tokens} presentation tokens", limit=limit)
        for row in rows
        if row.text_tokens > limit
    ]


def oversized(rows: Sequence[IndexedRow], capacities: Capacities, num_frames: int | None = None) -> list[Finding]:
    """Every row no capacity holds, with its length; ``num_frames`` as the dataset crops targets."""
    longest = capacities.values[-1]
    return [
        Finding(
            Code.CAPACITY_EXCEEDED,
            row.place,
            f"joint sequence of {length} rows",
            limit=longest,
            capacity=padded_length(length),
        )
        for row in rows
        if (length := row.cropped_length(num_frames)) > longest
    ]


def _optimal_ends(steps: npt.NDArray[np.int64], documents: npt.NDArray[np.int64], count: int) -> list[int]:
    """Positions in ``steps`` of the best capacities.

    ``best[j]`` is the least padding of the first ``j`` steps with the capacities used so far; a run of steps [i, j) costs
    steps[j-1] * documents - rows, its last step being its capacity.
    """
    total = len(steps)
    before = np.concatenate([[0], np.cumsum(documents)])
    rows = np.concatenate([[0], np.cumsum(documents * steps)])
    best = np.concatenate([[0], steps * before[1:] - rows[1:]])
    choices: list[npt.NDArray[np.int64]] = [np.zeros(total + 1, dtype=np.int64)]
    for _ in range(min(count, total) - 1):
        improved, choice = best.copy(), np.full(total + 1, -1, dtype=np.int64)
        for stop in range(1, total + 1):
            costs = best[:stop] + steps[stop - 1] * (before[stop] - before[:stop]) - (rows[stop] - rows[:stop])
            start = int(np.argmin(costs))
            if costs[start] < best[stop]:
                improved[stop], choice[stop] = costs[start], start
        if improved[total] == best[total]:
            break
        best = improved
        choices.append(choice)
    return _ends(choices, total)


def _ends(choices: Sequence[npt.NDArray[np.int64]], total: int) -> list[int]:
    ends, stop, level = [], total, len(choices) - 1
    while stop > 0:
        while choices[level][stop] < 0:  # no gain from one more capacity up to here
            level -= 1
        ends.append(stop - 1)
        stop, level = int(choices[level][stop]), level - 1
    return ends[::-1]
