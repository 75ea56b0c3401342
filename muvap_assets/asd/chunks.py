"""Which frames of which track an item of the dataset is: arithmetic alone, the same in every process.

A track longer than ``window`` is cut into near-equal chunks that tile it; each begins with up to ``context`` frames of
history, which are read and not scored. Spans are half open, in model frames.

    track      |0 ............................................... T|
    chunks     |------ 0 ------|------ 1 ------|------ 2 ----------|
    chunk 1        |~ history ~|==== scored ===|
                   first       scored_from     stop

With jitter one grid a track moves by a phase drawn from (seed, epoch, track). The chunks still tile the track, so every frame
is scored exactly once an epoch, and none is longer than ``window``. What the grid leaves at an end is shared with its
neighbour where it is under half a step, so that no chunk is a sliver:

    phase 3    |--|------ 1 ------|------ 2 ------|---- 3 ---|
    becomes    |--- 0 ---|-- 1 ---|------ 2 ------|---- 3 ---|

Source: the audio-visual data contract, "Dataset policy": everything of an example has one duration, labels are aligned
before targets are computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from muvap_assets.draws import Stream, draws
from muvap_assets.errors import ConfigError

Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkOptions:
    """How tracks are cut. ``window`` is the most scored frames of a chunk, ``None`` for whole tracks.

    Raises:
        ConfigError: a field is out of range; the message names it.
    """

    window: int | None = None
    context: int = 0
    jitter: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if self.window is not None and (not is_whole(self.window) or self.window < 1):
            raise ConfigError(
                f"window {self.window!r}; required: at least 1 frame, a whole number. Leave it out to read whole tracks."
            )
        if not is_whole(self.context) or self.context < 0:
            raise ConfigError(
                f"context {self.context!r}; required: 0 frames or more, a whole number. Leave it out to have none."
            )


def is_whole(value: object) -> bool:
    """Whether a setting given in Python is a whole number, of NumPy's types too; ``True`` is none."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Spans:
    """Chunks as arrays, int64 [chunks]: the track, and its frames ``[first, stop)``, scored from ``scored_from`` on."""

    tracks: Integers
    first: Integers
    scored_from: Integers
    stop: Integers

    @property
    def lengths(self) -> Integers:
        """Frames of each chunk, its history included."""
        return self.stop - self.first


class ChunkPlan:
    """The chunks of one epoch, numbered from 0 in the order of the tracks; made of a few numbers a track."""

    def __init__(self, track_frames: Integers, options: ChunkOptions, epoch: int = 0) -> None:
        """Plan ``epoch`` over tracks of ``track_frames`` model frames, each at least 1."""
        self._frames, self._context = track_frames, options.context
        window = options.window if options.window is not None else max(int(track_frames.max(initial=1)), 1)
        pieces = -(-track_frames // window)
        self._step = -(-track_frames // pieces)
        self._moved = options.jitter and bool((pieces > 1).any())
        # The first cut of the grid; a phase of 0 is a cut at the track's start, which cuts nothing.
        self._lead = self._step
        if self._moved:
            phases = draws(len(track_frames), seed=options.seed, epoch=epoch, stream=Stream.CHUNK_GRID)
            phase = (phases % self._step.astype(np.uint64)).astype(np.int64)
            self._lead = np.where((pieces > 1) & (phase > 0), phase, self._step)
            pieces = np.where(pieces > 1, 1 - (self._lead - track_frames) // self._step, 1)
        self._pieces = pieces
        self._first_chunk = np.concatenate([np.zeros(1, np.int64), np.cumsum(pieces)])

    def __len__(self) -> int:
        return int(self._first_chunk[-1])

    def spans(self, chunks: Integers) -> Spans:
        """The spans of ``chunks``, numbers in ``range(len(self))``."""
        tracks = np.searchsorted(self._first_chunk, chunks, side="right") - 1
        piece = chunks - self._first_chunk[tracks]
        scored_from, stop = self._cut(tracks, piece), self._cut(tracks, piece + 1)
        return Spans(tracks, np.maximum(scored_from - self._context, 0), scored_from, stop)

    def lengths(self) -> Integers:
        """Frames of every chunk, history included: int64 [len(self)]."""
        return self.spans(np.arange(len(self))).lengths

    def _cut(self, tracks: Integers, piece: Integers) -> Integers:
        """Where ``piece`` of each track begins."""
        frames, pieces = self._frames[tracks], self._pieces[tracks]
        if not self._moved:
            even: Integers = piece * frames // pieces
            return even
        step, lead = self._step[tracks], self._lead[tracks]
        second = np.where(pieces > 2, lead + step, frames)
        first_cut = np.where(lead < step // 2, second // 2, lead)
        last_cut = np.where(pieces == 2, first_cut, lead + (pieces - 2) * step)
        before = np.where(pieces == 2, 0, np.where(pieces == 3, first_cut, lead + (pieces - 3) * step))
        last_cut = np.where(frames - last_cut < step // 2, (before + frames) // 2, last_cut)
        cut = lead + (piece - 1) * step
        cut = np.where(piece == 1, first_cut, cut)
        cut = np.where(piece == pieces - 1, last_cut, cut)
        return np.where(piece <= 0, 0, np.where(piece >= pieces, frames, cut))
