"""Which checkpoint to encode with, and how: the specification of an encoder, and the fingerprint of what it depends on.

Belongs here: everything about a checkpoint that its files tell without a weight being loaded. ``checkpoint`` opens the
components, ``h3`` encodes with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.encoder import Component, EncoderFingerprint, Stage, json_digest
from muvap_assets.storage.digests import Digests

# Raised whenever a recipe below changes what it makes, so that parts made before are made again.
RECIPE_VERSION = 1
POSTERIOR_SEED = 42  # blocks: keyframe_encode_seed; facts use the same for targets
TEXT_LAYER = 50  # blocks: text_encoder_layer, the hidden state that conditions the transformer
INDEX_NAME = "modular_model_index.json"
REQUIRED_COMPONENTS = ("vae", "audio_vae", "tokenizer", "processor", "text_encoder", "transformer_ref")
# Folders of the checkpoint a stage's result depends on, and the libraries that compute it.
_FOLDERS_OF = {
    Component.VAE: ("vae",),
    Component.AUDIO_VAE: ("audio_vae",),
    Component.TEXT_ENCODER: ("text_encoder", "tokenizer", "processor"),
}
_LIBRARIES_OF = {
    Component.VAE: ("torch", "diffusers"),
    Component.AUDIO_VAE: ("torch", "diffusers"),
    Component.TEXT_ENCODER: ("torch", "diffusers", "transformers", "torchvision"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSpec:
    """Which checkpoint to encode with, and how.

    Attributes:
        checkpoint: the folder that holds ``modular_model_index.json``.
        device: ``cuda``, ``cuda:N``, or ``cpu`` for a tiny checkpoint.
        vae_dtype: both VAEs compute in it; only float32 gives the released model's latents.
        text_dtype: the conditioner computes in it; the released one is bfloat16.
        threads: of torch on the CPU; another count changes audio latents by about 2e-6, so it is part of the recipe.

    Raises:
        ConfigError: a value is outside what it may be.
    """

    checkpoint: Path
    device: str = "cuda"
    vae_dtype: str = "float32"
    text_dtype: str = "bfloat16"
    threads: int = 1

    def __post_init__(self) -> None:
        checks = (
            ("device", self.device, bool(re.fullmatch(r"cpu|cuda(:\d+)?", self.device)), "cuda, cuda:N or cpu"),
            ("vae_dtype", self.vae_dtype, self.vae_dtype == "float32", "float32: lower precision changes the latents"),
            ("text_dtype", self.text_dtype, self.text_dtype in ("bfloat16", "float32"), "bfloat16 or float32"),
            ("threads", self.threads, self.threads >= 1, "at least 1"),
        )
        for name, value, holds, required in checks:
            if not holds:
                raise ConfigError(f"encoder: {name} is {value!r}, required is {required}. Change it.")

    @property
    def device_type(self) -> str:
        """``cuda`` or ``cpu``, without a device's number."""
        return self.device.partition(":")[0]


def chosen_device(device: str) -> str:
    """A device as it is named; for ``auto`` ``cuda`` where there is a device, else ``cpu``."""
    if device != "auto":
        return device
    import torch  # here, since the code location loads without it

    return "cuda" if torch.cuda.is_available() else "cpu"


def read_model_index(checkpoint: Path) -> dict[str, Any]:
    """The checkpoint's ``modular_model_index.json``, with every component folder the encoding requires in its place.

    Raises:
        ConfigError: the index or a component is missing; all that is missing is named.
    """
    path = checkpoint / INDEX_NAME
    try:
        index = dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"checkpoint {checkpoint}: {INDEX_NAME} cannot be read ({error}), required is a MiniMax-H3 checkpoint folder. "
            "Check the path."
        ) from error
    missing = [name for name in REQUIRED_COMPONENTS if not _is_filled(checkpoint / name) or name not in index]
    if missing:
        raise ConfigError(
            f"checkpoint {checkpoint}: no {', '.join(missing)}, required are the folders and index entries "
            f"{', '.join(REQUIRED_COMPONENTS)}. Complete the download."
        )
    return index


@dataclass(frozen=True, slots=True)
class LatentStatistics:
    """Mean and deviation of each latent channel, as a VAE's config has them: latents are stored with both taken out."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def latent_statistics(checkpoint: Path) -> LatentStatistics | None:
    """Those of the video VAE, from its config alone; ``None`` where it has none that can be read."""
    try:
        config = json.loads((checkpoint / str(Component.VAE) / "config.json").read_text(encoding="utf-8"))
        mean, std = (tuple(float(value) for value in config[name]) for name in ("latents_mean", "latents_std"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return LatentStatistics(mean, std) if len(mean) == len(std) else None


def fingerprint_of(spec: EncoderSpec, digests: Digests | None = None) -> EncoderFingerprint:
    """The fingerprint of an encoder by its files, settings and libraries; no weight is loaded.

    Raises:
        ConfigError: the checkpoint is incomplete.
    """
    files = digests or Digests()
    read_model_index(spec.checkpoint)
    folders = {name: _folder_digest(spec.checkpoint / name, files) for name in REQUIRED_COMPONENTS[:-1]}
    files.save()
    return EncoderFingerprint({stage: _stage_facts(stage, spec, folders) for stage in Stage})


def _stage_facts(stage: Stage, spec: EncoderSpec, folders: Mapping[str, str]) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "recipe": RECIPE_VERSION,
        "weights": {name: folders[name] for name in _FOLDERS_OF[stage.component]},
        "libraries": {name: version(name) for name in _LIBRARIES_OF[stage.component]},
        "device": spec.device_type,
        "threads": spec.threads,
        "dtype": spec.text_dtype if stage is Stage.TEXT else spec.vae_dtype,
    }
    if stage.component is Component.VAE:
        facts["posterior_seed"] = POSTERIOR_SEED
    if stage is Stage.TEXT:
        facts["layer"] = TEXT_LAYER
    return facts


def _folder_digest(folder: Path, files: Digests) -> str:
    """Over names and bytes of a component's files; a downloaded snapshot's links are followed, hidden files are not."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return json_digest({name: files.of(folder / name) for name in names if not name.startswith(".")})


def _is_filled(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())
