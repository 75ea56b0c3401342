"""What the conditioner is shown of a row: labels, vision blocks and the caption; and how many tokens that takes.

Belongs here: the arithmetic around the checkpoint's tokenizer and processor, which ``h3`` opens and hands in. No weight,
and no import of the libraries they come from.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.findings import Finding, Place
from muvap_assets.ref2va.contract import CONDITIONER_FPS, FPS, PresentedReference, ReferenceKind, TokenPlan
from muvap_assets.ref2va.encoder import Frames
from muvap_assets.ref2va.prefetch import refuse_media, size_of

VISION_TAG, TEXT_TAG = 0, 1  # blocks: video_tag, text_tag


class Presentation:
    """The presentation of a request: labels, vision blocks and the caption, by the checkpoint's tokenizer and processor.

    Holds no weight; satisfies :class:`muvap_assets.ref2va.contract.TokenPlanner`.

    Args:
        tokenizer: the checkpoint's.
        processor: the checkpoint's.
        rules: the block whose labels, vision blocks and video sampling it follows, ``MiniMaxH3Ref2VATextEncoderStep``.
    """

    def __init__(self, tokenizer: Any, processor: Any, rules: Any) -> None:
        self.tokenizer, self.processor, self._rules = tokenizer, processor, rules
        if processor.video_processor.cap_pixels_per_frame is None:
            # Unset means uncapped today, with a warning that the default will change: the recipe stays uncapped.
            processor.video_processor.cap_pixels_per_frame = False
        self._vision_tokens = {
            self.tokenizer.convert_tokens_to_ids(token): token for token in ("<|image_pad|>", "<|video_pad|>")
        }

    def plan_tokens(self, caption: str, references: Sequence[PresentedReference]) -> TokenPlan:
        """Tokens by part, from sizes alone.

        Raises:
            ValidationError: the caption holds a vision token, which would be read as a reference.
        """
        caption_ids = self.tokenizer(caption, add_special_tokens=False)["input_ids"]
        foreign = sorted({self._vision_tokens[token] for token in caption_ids if token in self._vision_tokens})
        if foreign:
            found = f"it holds {', '.join(foreign)}"
            raise ValidationError(Finding(Code.CAPTION_HOLDS_VISION_TOKEN, Place(field="caption"), found))
        ends = [len(self.tokens("", references[:count])[0]) for count in range(len(references) + 1)]
        return TokenPlan(len(caption_ids), tuple(stop - start for start, stop in itertools.pairwise(ends)))

    def tokens(self, caption: str, references: Sequence[PresentedReference]) -> tuple[list[int], list[int]]:
        """Token ids and their tags, 0 for a vision block's and 1 for text's (blocks: _build_presentation)."""
        videos = [reference for reference in references if reference.kind.media_type == "video"]
        token_ids, tags = self._rules._build_presentation(
            self.tokenizer,
            caption,
            [_Labelled(reference.kind) for reference in references],
            [self._image_tokens(reference) for reference in references if reference.kind is ReferenceKind.IMAGE],
            [self._video_block_tokens(reference) for reference in videos],
            [self.sample(reference.frames)[1] for reference in videos],
            text_tag=TEXT_TAG,
            video_tag=VISION_TAG,
        )
        return list(token_ids), list(tags)

    def sample(self, num_frames: int) -> tuple[tuple[int, ...], list[float]]:
        """Frames the conditioner reads of a video at 24 fps, and one timestamp a vision block.

        Raises:
            ValidationError: the video is too short to give one vision block.
        """
        step = self._rules._sample_video_condition_frames
        patch = self.processor.video_processor.temporal_patch_size
        try:
            indices, timestamps = step(np.arange(num_frames), float(FPS), float(CONDITIONER_FPS), patch)
        except ValueError as error:
            place, found = Place(field="reference video"), f"{num_frames} frames at {FPS} fps"
            raise ValidationError(Finding(Code.ENCODE_FAILED, place, found, case="short")) from error
        return tuple(map(int, indices)), timestamps

    def vision(self, references: Sequence[PresentedReference], frames: dict[int, Frames]) -> dict[str, torch.Tensor]:
        """The conditioner's vision tensors, batched a modality in declared order (blocks: _gather_vision_features).

        Raises:
            ValidationError: the processor makes other vision blocks of the pixels than the token plan counted.
        """
        of_kind: dict[str, list[int]] = {"image": [], "video": [], "audio": []}
        for index, reference in enumerate(references):
            of_kind[reference.kind.media_type].append(index)
        tensors: dict[str, torch.Tensor] = {}
        if of_kind["image"]:
            images = [Image.fromarray(frames[index][0]) for index in of_kind["image"]]
            features = self.processor.image_processor(images=images, return_tensors="pt")
            tensors |= {name: features[name] for name in ("pixel_values", "image_grid_thw")}
            self._require_grids(tensors["image_grid_thw"], [self._image_grid(references[i]) for i in of_kind["image"]])
        if of_kind["video"]:
            videos = [frames[index] for index in of_kind["video"]]
            features = self.processor.video_processor(videos=videos, do_sample_frames=False, return_tensors="pt")
            tensors |= {name: features[name] for name in ("pixel_values_videos", "video_grid_thw")}
            self._require_grids(tensors["video_grid_thw"], [self._video_grid(references[i]) for i in of_kind["video"]])
        return tensors

    def _image_grid(self, reference: PresentedReference) -> tuple[int, int]:
        """Vision blocks, and patches a block before merging."""
        size = size_of(reference.size, "image reference")
        return 1, int(self.processor.image_processor.get_number_of_image_patches(size.height, size.width))

    def _video_grid(self, reference: PresentedReference) -> tuple[int, int]:
        size, (indices, timestamps) = size_of(reference.size, "video reference"), self.sample(reference.frames)
        patches = self.processor.video_processor.get_num_of_video_patches(len(indices), size.height, size.width)
        return len(timestamps), int(patches) // len(timestamps)

    def _image_tokens(self, reference: PresentedReference) -> int:
        return self._image_grid(reference)[1] // int(self.processor.image_processor.merge_size) ** 2

    def _video_block_tokens(self, reference: PresentedReference) -> int:
        return self._video_grid(reference)[1] // int(self.processor.video_processor.merge_size) ** 2

    @staticmethod
    def _require_grids(grids: torch.Tensor, planned: list[tuple[int, int]]) -> None:
        made = [(int(blocks), int(height) * int(width)) for blocks, height, width in grids]
        if made != planned:
            refuse_media("references", f"vision blocks of {made} patches", f"the {planned} of the token plan")


class _Labelled:
    """What ``_build_presentation`` reads of a reference."""

    def __init__(self, kind: ReferenceKind) -> None:
        self.kind, self.has_audio = kind.media_type, kind.has_audio
