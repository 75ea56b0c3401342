"""A stage's media as blocks: cut into clips, told apart by reference, prepared ahead of the device in bounded memory.

Belongs here: moving plain arrays between preparation and an encoder. No decoding, no model.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.contract import CLIP_FRAMES, ReferenceKind, Size
from muvap_assets.ref2va.encoder import Frames, MediaBlock, RowInput, Stage
from muvap_assets.threads import delivered, thread_pool, watched

# A row's sources are long and short in turn, a target and a reference image. With one ahead, a target would have only an
# image's time to be prepared in.
SOURCES_AHEAD = 2


def clips_of(blocks: Iterator[Frames], num_frames: int, size: Size, where: str) -> Iterator[Frames]:
    """Blocks of any length, cut anew into clips of 17 frames; the last may be shorter.

    Raises:
        ValidationError: the blocks hold another number, size or type of frames.
    """
    held: list[Frames] = []
    count = 0
    for block in blocks:
        if block.dtype != np.uint8 or block.shape[1:] != (size.height, size.width, 3):
            refuse_media(
                where, f"frames {block.dtype} {list(block.shape)}", f"uint8 [n, {size.height}, {size.width}, 3]"
            )
        count += block.shape[0]
        held.append(block)
        while sum(map(len, held)) >= CLIP_FRAMES:
            joined = np.concatenate(held)
            yield joined[:CLIP_FRAMES]
            held = [joined[CLIP_FRAMES:]]
    if count != num_frames:
        refuse_media(where, f"{count} frames", f"the {num_frames} it declares")
    rest = np.concatenate(held)
    if len(rest):
        yield rest


def by_reference(media: Iterator[MediaBlock]) -> Iterator[tuple[int, Iterator[Any]]]:
    """The blocks of each reference, in the order they come; read one group before asking for the next."""
    for index, group in itertools.groupby(media, lambda block: block.reference):
        if index is not None:
            yield index, (block.data for block in group)


def size_of(size: Size | None, where: str) -> Size:
    """``size``, which a visual reference always has.

    Raises:
        ValidationError: it is None.
    """
    if size is None:
        refuse_media(where, "no size", "the pixels of a visual reference")
    return size


def refuse_media(where: str, found: str, required: str) -> NoReturn:
    """Report media that is not what its row promises.

    Raises:
        ValidationError: always.
    """
    raise ValidationError(Finding(Code.ENCODE_FAILED, Place(field=where), found, case="media", required=required))


def stage_media(
    stage: Stage, row: RowInput, conditioner_frames: Callable[[int], tuple[int, ...]]
) -> Iterator[MediaBlock]:
    """What a stage reads of a row, in the order the encoder wants it, decoded as it is asked for.

    Args:
        stage: the stage.
        row: the row.
        conditioner_frames: the encoder's, which frames of a video reference the text stage needs.
    """
    if stage is Stage.TARGET_VIDEO:
        yield from (MediaBlock(None, block) for block in row.target_frames())
    elif stage is Stage.TARGET_AUDIO:
        yield MediaBlock(None, row.target_waveform())
    else:
        for index, reference in enumerate(row.references):
            if stage is Stage.REFERENCE_AUDIO:
                if reference.waveform is not None:
                    yield MediaBlock(index, reference.waveform())
            elif reference.frames is not None:
                wanted: Sequence[int] = range(reference.encoded_frames)
                if stage is Stage.TEXT and reference.kind is not ReferenceKind.IMAGE:
                    wanted = conditioner_frames(reference.num_frames)
                yield from (MediaBlock(index, block) for block in _picked(reference.frames(), wanted))


def _picked(blocks: Iterator[Frames], indices: Sequence[int]) -> Iterator[Frames]:
    """The frames at ``indices``, which ascend; reads no block after the last of them."""
    start, last = 0, indices[-1]
    for block in blocks:
        stop = start + len(block)
        inside = [index - start for index in indices if start <= index < stop]
        if inside:
            yield block if len(inside) == len(block) else block[inside]
        start = stop
        if start > last:
            return


def prepared_ahead(
    sources: Iterable[Callable[[], Iterator[MediaBlock]]], *, workers: int = 1, blocks: int = 4
) -> Generator[Iterator[MediaBlock], None, None]:
    """The media of each source in turn, while threads prepare what comes next.

    The device waits only for the first source: by the time one is used up, the next has its first blocks ready. At most
    ``blocks`` wait for each of ``workers + 2`` sources, whatever their length. Decoding and resizing release the
    interpreter lock, so threads use the other cores. An error of a source is raised where its blocks are read; what is
    left of a source when the next is asked for is dropped.

    Close the iterator when leaving it early.
    """
    remaining = iter(sources)
    waiting: deque[_Source] = deque()
    with thread_pool(workers, "prepare") as pool:

        def start_next() -> None:
            for make in itertools.islice(remaining, 1):
                waiting.append(_Source(make, blocks))
                pool.submit(waiting[-1].produce)

        try:
            for _ in range(workers + SOURCES_AHEAD):
                start_next()
            while waiting:
                source = waiting[0]
                yield source.read()
                source.dropped.set()
                waiting.popleft()
                start_next()
        finally:
            for source in waiting:
                source.dropped.set()


class _Source:
    """One source being prepared in another thread."""

    def __init__(self, make: Callable[[], Iterator[MediaBlock]], blocks: int) -> None:
        self._make = make
        self._ready: queue.Queue[MediaBlock | BaseException | None] = queue.Queue(blocks)
        self.dropped = threading.Event()

    def produce(self) -> None:
        """Fill the queue; ``None`` ends it."""
        try:
            watched(self._fill)
        except BaseException as error:  # raised again in the reading thread
            self._put(error)

    def _fill(self) -> None:
        for block in self._make():
            if not self._put(block):
                return
        self._put(None)

    def read(self) -> Iterator[MediaBlock]:
        """The blocks, as they become ready."""
        while (item := self._ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def _put(self, item: MediaBlock | BaseException | None) -> bool:
        while not self.dropped.is_set():
            delivered()  # it waits for the device, which may take as long as it likes
            try:
                self._ready.put(item, timeout=0.05)
            except queue.Full:
                continue
            return True
        return False
