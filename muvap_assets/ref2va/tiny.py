"""A tiny random MiniMax-H3 checkpoint with the released layout: same component classes, same geometry, other widths.

It is what the demo, CI and the tests encode with. Everything that shapes a record is the released model's: a video VAE
that turns 17*n + 5 frames into 5*n + 2 latents of 24 channels at 1/16 of the canvas, an audio VAE of 32 channels at 40
latents a second, a Qwen3-VL conditioner with more than 50 decoder layers. Only widths are small, and the canvas keys of
``modular_model_index.json`` name a small canvas, which is what makes encoding on a CPU cheap.

Belongs here: writing that folder, offline and with the same bytes each time. Imports torch, diffusers and transformers;
of the package, only this module and ``h3`` import the last two. Values: facts document, "A tiny checkpoint".
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from diffusers import (
    AutoencoderKLMiniMaxH3,
    AutoencoderKLMiniMaxH3Audio,
    MiniMaxH3Scheduler,
    MiniMaxH3Transformer3DModel,
)
from transformers import (
    Qwen2Tokenizer,
    Qwen2VLImageProcessor,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
    Qwen3VLProcessor,
    Qwen3VLVideoProcessor,
)

from muvap_assets.errors import PublishError
from muvap_assets.ref2va.h3 import quiet

SEED = 20_26
CANVAS = {"canvas_short_edge": 64, "canvas_max_pixels": 8192, "reference_image_short_edge": 64}
TEXT_HIDDEN = 32
MERGES = (("t", "h"), ("th", "e"), ("Ġ", "the"), ("i", "n"), ("e", "r"), ("Ġ", "a"))
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
COMPONENTS: dict[str, tuple[str, str]] = {
    "vae": ("diffusers", "AutoencoderKLMiniMaxH3"),
    "audio_vae": ("diffusers", "AutoencoderKLMiniMaxH3Audio"),
    "text_encoder": ("transformers", "Qwen3VLForConditionalGeneration"),
    "tokenizer": ("transformers", "Qwen2TokenizerFast"),
    "processor": ("transformers", "Qwen3VLProcessor"),
    "transformer_ref": ("diffusers", "MiniMaxH3Transformer3DModel"),
    "scheduler": ("diffusers", "MiniMaxH3Scheduler"),
    "audio_scheduler": ("diffusers", "MiniMaxH3Scheduler"),
}


def write_tiny_checkpoint(out: Path) -> Path:
    """Write the tiny checkpoint into ``out``, about 3 MB in a few seconds; the bytes are the same each time.

    Raises:
        PublishError: ``out`` exists and is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise PublishError(f"{out}: not empty, required is a new or empty folder for the checkpoint. Choose another.")
    out.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]), quiet(), warnings.catch_warnings():
        # The audio VAE is built on a deprecated torch helper; its stored layout depends on it.
        warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)
        tokenizer = _write_tokenizer(out)
        _write_processor(out, tokenizer)
        _seeded(0, _video_vae).save_pretrained(out / "vae")
        _seeded(1, _audio_vae).save_pretrained(out / "audio_vae")
        _seeded(2, lambda: _text_encoder(tokenizer)).save_pretrained(out / "text_encoder")
        _seeded(3, _transformer).save_pretrained(out / "transformer_ref")
        MiniMaxH3Scheduler(shift=12.0).save_pretrained(out / "scheduler")
        MiniMaxH3Scheduler(shift=3.0).save_pretrained(out / "audio_scheduler")
    _write_index(out)
    return out


def _seeded(index: int, build: Callable[[], Any]) -> Any:  # diffusers and transformers ship no types
    torch.manual_seed(SEED + index)
    module = build().eval()
    # Zero-initialized biases, gains of one and the like would let a wrong recipe go unnoticed.
    generator = torch.Generator().manual_seed(SEED + 100 + index)
    for name, parameter in sorted(module.named_parameters()):
        spread = 0.02 if parameter.ndim > 1 else 0.1
        parameter.data.add_(torch.randn(parameter.shape, generator=generator, dtype=torch.float32) * spread)
        if name.endswith("bias"):
            parameter.data.clamp_(-1.0, 1.0)
    return module


def _spread_values(count: int, low: float, high: float) -> list[float]:
    """``count`` different values between ``low`` and ``high``, so that a swapped channel shows."""
    return [round(low + (high - low) * ((index * 7) % count) / count, 6) for index in range(count)]


def _video_vae() -> Any:
    return AutoencoderKLMiniMaxH3(
        latent_channels=24,
        block_out_channels=(4, 4, 4, 4),
        layers_per_block=0,
        norm_num_groups=2,
        spatial_downsample_factors=(2, 2, 2, 2),
        temporal_downsample_factors=(1, 2, 2, 1),
        decoder_num_layers=1,
        decoder_num_attention_heads=1,
        decoder_attention_head_dim=8,
        decoder_num_register_tokens=1,
        decoder_ffn_mult=1,
        clip_length=17,
        token_drop=3,
        latents_mean=_spread_values(24, -0.5, 0.5),
        latents_std=_spread_values(24, 0.5, 1.5),
    )


def _audio_vae() -> Any:
    return AutoencoderKLMiniMaxH3Audio(
        encoder_dim=2,
        encoder_rates=(2, 4, 4, 5, 5),
        latent_dim=64,
        latent_channels=32,
        num_attention_heads=1,
        decoder_dim=8,
        decoder_rates=(20, 40),
        decoder_kernel_sizes=(20, 40),
        resblock_kernel_sizes=(3,),
        resblock_dilation_sizes=((1,),),
        sampling_rate=32_000,
        latents_mean=_spread_values(32, -0.5, 0.5),
        latents_std=_spread_values(32, 0.5, 1.5),
    )


def _text_encoder(tokenizer: Qwen2Tokenizer) -> Any:
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": TEXT_HIDDEN,
            "intermediate_size": 64,
            # hidden_states[50] is read, and the last state of a stack is post-norm: 50 layers would not do.
            "num_hidden_layers": 51,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 131_072,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000.0,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 4,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "out_hidden_size": TEXT_HIDDEN,
            "num_position_embeddings": 64,
            "deepstack_visual_indexes": [0, 1],
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<|image_pad|>"),
        video_token_id=tokenizer.convert_tokens_to_ids("<|video_pad|>"),
        vision_start_token_id=tokenizer.convert_tokens_to_ids("<|vision_start|>"),
        vision_end_token_id=tokenizer.convert_tokens_to_ids("<|vision_end|>"),
    )
    return Qwen3VLForConditionalGeneration(config).to(torch.bfloat16)


def _transformer() -> Any:
    return MiniMaxH3Transformer3DModel(
        num_attention_heads=2,
        attention_head_dim=32,
        hidden_size=64,
        num_layers=2,
        num_refiner_layers=1,
        ffn_dim=64,
        in_channels=24,
        audio_in_channels=32,
        patch_size=(1, 2, 2),
        text_dim=TEXT_HIDDEN,
        freq_dim=16,
        time_embed_hidden_dim=32,
        time_embed_dim=16,
        rope_freq_dim=4,
    )


def _byte_symbols() -> list[str]:
    """The printable stand-ins of the 256 bytes, in byte order, as every byte-level BPE vocabulary names them."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    symbols, shifted = [], 0
    for byte in range(256):
        symbols.append(chr(byte) if byte in printable else chr(256 + shifted))
        shifted += byte not in printable
    return symbols


def _write_tokenizer(out: Path) -> Qwen2Tokenizer:
    entries = [*_byte_symbols(), *("".join(merge) for merge in MERGES)]
    tokenizer = Qwen2Tokenizer(
        vocab={entry: index for index, entry in enumerate(entries)},
        merges=[tuple(merge) for merge in MERGES],
        unk_token=None,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=list(SPECIAL_TOKENS[1:]),
    )
    tokenizer.save_pretrained(out / "tokenizer")
    return tokenizer


def _write_processor(out: Path, tokenizer: Qwen2Tokenizer) -> None:
    patches = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2}
    moments = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(
            size={"shortest_edge": 65_536, "longest_edge": 16_777_216}, **patches, **moments
        ),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(
            size={"shortest_edge": 4096, "longest_edge": 25_165_824}, cap_pixels_per_frame=False, **patches, **moments
        ),
    ).save_pretrained(out / "processor")


def _write_index(out: Path) -> None:
    index: dict[str, object] = {
        "_class_name": "MiniMaxH3ModularPipeline",
        "_diffusers_version": "0.42.1",
        "_blocks_class_name": "MiniMaxH3Blocks",
    }
    for name, (library, class_name) in COMPONENTS.items():
        index[name] = [
            library,
            class_name,
            {
                "type_hint": [library, class_name],
                "pretrained_model_name_or_path": None,
                "subfolder": name,
                "variant": None,
                "revision": None,
            },
        ]
    text = json.dumps(index | CANVAS, indent=2) + "\n"
    (out / "modular_model_index.json").write_text(text, encoding="utf-8")
