"""A stage's media as blocks: cut into clips, told apart by reference, prepared ahead of the device in bounded memory.

Belongs here: moving plain arrays between preparation and an encoder. No decoding, no model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np

from muvap_assets.errors import EncodeError, ViolationCode
from muvap_assets.ref2va.contract import CLIP_FRAMES, Size
from muvap_assets.ref2va.encoder import Frames, MediaBlock


def clips_of(blocks: Iterator[Frames], num_frames: int, size: Size, where: str) -> Iterator[Frames]:
    """Blocks of any length, cut anew into clips of 17 frames; the last may be shorter.

    Raises:
        EncodeError: the blocks hold another number, size or type of frames.
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
        EncodeError: it is None.
    """
    if size is None:
        refuse_media(where, "no size", "the pixels of a visual reference")
    return size


def refuse_media(where: str, found: str, required: str) -> NoReturn:
    """Report media that is not what its row promises.

    Raises:
        EncodeError: always.
    """
    raise EncodeError(
        ViolationCode.ENCODE_FAILED,
        where,
        found=found,
        required=f"required is {required}",
        hint="The media changed, or was prepared by other rules; validate the manifest again.",
    )
