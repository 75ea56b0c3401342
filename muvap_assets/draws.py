"""Random draws that are pure functions of what they are for: no state, the same on every machine and in every process.

What belongs here: the generator alone. It is splitmix64 over a counter, written out, since the streams of NumPy's
generators may change from one version to the next and an epoch must stay repeatable for longer than that.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from muvap_assets.errors import ConfigError

_MASK = 2**64 - 1
_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class Stream(IntEnum):
    """What a draw of the active-speaker line is for, so that two uses of one seed and epoch do not share their numbers."""

    CHUNK_GRID = 1
    ITEM_ORDER = 2
    BATCH_SIZE = 3
    STEP_ORDER = 4
    RANK_ORDER = 5


def draws(count: int, *, seed: int, epoch: int, stream: int, part: int = 0) -> npt.NDArray[np.uint64]:
    """``count`` draws over all of 64 bits; the i-th depends on (seed, epoch, stream, part, i) and on nothing else.

    Returns:
        uint64 [count].

    Raises:
        ConfigError: the seed or the epoch is negative or has more than 64 bits.
    """
    for name, value in (("seed", seed), ("epoch", epoch)):
        if not 0 <= value <= _MASK:
            raise ConfigError(f"{name} {value}; required: 0 or more, in 64 bits. Choose another {name}.")
    key = 0
    for value in (seed, epoch, int(stream), part):
        key = _mix(key ^ _mix(int(value) + _GOLDEN))  # NumPy's own would overflow
    numbers = np.arange(count, dtype=np.uint64) * np.uint64(_GOLDEN) + np.uint64(key)
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(_MIX_1)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(_MIX_2)
    mixed: npt.NDArray[np.uint64] = numbers ^ (numbers >> np.uint64(31))
    return mixed


def _mix(number: int) -> int:
    number = ((number ^ (number >> 30)) * _MIX_1) & _MASK
    number = ((number ^ (number >> 27)) * _MIX_2) & _MASK
    return number ^ (number >> 31)
