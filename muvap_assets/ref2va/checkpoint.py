"""Opening a checkpoint's components so that what is loaded is whole, local and on the right device.

Belongs here: every refusal that concerns the checkpoint or the device rather than a row. Imports torch, but neither
diffusers nor transformers: ``h3`` hands in their classes.
"""

from __future__ import annotations

import math
import os
import platform
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants as hub_constants
from safetensors import SafetensorError, safe_open

from muvap_assets.errors import ConfigError
from muvap_assets.ref2va.encoder_spec import REQUIRED_COMPONENTS, EncoderSpec, read_model_index

# What a library fills in by itself where it is missing, or reports as an address it could not look up: one of these sets.
_FILES_OF = {
    "tokenizer": (("tokenizer.json",), ("vocab.json", "merges.txt")),
    "processor": (("processor_config.json",), ("preprocessor_config.json",)),
    "vae": (("config.json",),),
    "audio_vae": (("config.json",),),
    "text_encoder": (("config.json",),),
}
# The released components hold 2.6, 0.15 and 33 billion; the tiny ones 1.2 million together.
TINY_PARAMETERS = 10_000_000


def require_all(*checks: Callable[[], object]) -> None:
    """Run every check, and raise one error with the lines of all that failed.

    Raises:
        ConfigError: some check raised one.
    """
    lines: list[str] = []
    for check in checks:
        try:
            check()
        except ConfigError as error:
            lines += str(error).splitlines()
    if lines:
        raise ConfigError("\n".join(dict.fromkeys(lines)))


def require_device(spec: EncoderSpec) -> None:
    """Refuse a device that is not there, and the CPU for anything but a tiny checkpoint.

    Raises:
        ConfigError: as above, or the checkpoint is incomplete.
    """
    if spec.device_type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        number = int(spec.device.partition(":")[2] or 0)
        if number >= found:
            raise ConfigError(
                f"encoder: device is {spec.device!r} and {found} CUDA device(s) are available, required is an available one. "
                "Run where the device is, or set device to cpu with a tiny checkpoint."
            )
    read_model_index(spec.checkpoint)
    if spec.device_type == "cuda":
        return
    count = parameter_count(spec.checkpoint)
    if count > TINY_PARAMETERS:
        raise ConfigError(
            f"encoder: device is 'cpu' and the checkpoint {spec.checkpoint} holds {count:,} parameters, required for more "
            f"than {TINY_PARAMETERS:,} is a CUDA device. Set device to cuda on a machine that has one."
        )


def device_name(spec: EncoderSpec) -> str:
    """What the last bits of results depend on beside the recipe: ``cpu x86_64 AVX512`` or ``cuda NVIDIA H200``.

    The instruction set is the one that torch's own kernels use.
    """
    if spec.device_type == "cuda":
        return f"cuda {torch.cuda.get_device_name(spec.device)}"
    return f"cpu {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def parameter_count(checkpoint: Path) -> int:
    """Parameters stored in the components' safetensors files, by their headers alone.

    Raises:
        ConfigError: a component with weights holds no safetensors file, or one that is not whole.
    """
    names = (name for name in REQUIRED_COMPONENTS if name not in ("tokenizer", "processor"))
    return sum(sum(stored_tensors(checkpoint / name).values()) for name in names)


def stored_tensors(folder: Path) -> dict[str, int]:
    """Each tensor in a component's safetensors files and how many values it has, by their headers and sizes alone.

    Raises:
        ConfigError: there is no such file, or one that is not whole; each is named.
    """
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise _unusable(folder, "it holds no safetensors file")
    tensors: dict[str, int] = {}
    require_all(*(lambda path=path: tensors.update(_tensors_in(path)) for path in paths))
    return tensors


def _tensors_in(path: Path) -> dict[str, int]:
    try:
        with safe_open(path, framework="numpy") as stream:
            return {name: math.prod(stream.get_slice(name).get_shape()) for name in stream.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise _unusable(path.parent, f"{path.name} cannot be loaded ({type(error).__name__}: {error})") from error


def require_tensors(folder: Path, expected: Collection[str]) -> None:
    """Refuse a component whose files lack one of the ``expected`` tensors.

    Raises:
        ConfigError: as above, or see :func:`stored_tensors`.
    """
    if missing := sorted(set(expected) - stored_tensors(folder).keys()):
        raise _unusable(folder, f"missing_keys {missing[:5]}")


def load_component(loader: Any, spec: EncoderSpec, name: str, **options: Any) -> Any:
    """A component in evaluation mode on the spec's device, every parameter read from disk.

    Args:
        loader: its class, of diffusers or transformers.
        spec: gives the checkpoint and the device.
        name: its folder.
        options: for the loader's ``from_pretrained``.

    Raises:
        ConfigError: it cannot be loaded, came back as None, lacks a weight, or kept a parameter without storage.
    """
    folder = spec.checkpoint / name
    model = whole_component(loader, folder, **options)
    bare = [key for key, value in (*model.named_parameters(), *model.named_buffers()) if value.device.type == "meta"]
    if bare:
        raise _unusable(folder, f"left {len(bare)} parameters on meta, the first {bare[:5]}")
    return model.eval().requires_grad_(False).to(spec.device)


def whole_component(loader: Any, folder: Path, **options: Any) -> Any:
    """What a component loads as, where its files hold every weight.

    Raises:
        ConfigError: it cannot be loaded, came back as None, or lacks a weight.
    """
    model, report = _loaded(loader.from_pretrained, folder, use_safetensors=True, output_loading_info=True, **options)
    if model is None:
        raise _unusable(folder, "loaded as None")
    # A missing weight is filled with random values by one library and left without storage by the other.
    for kind in ("missing_keys", "mismatched_keys", "error_msgs"):
        if report.get(kind):
            raise _unusable(folder, f"{kind} {sorted(map(str, report[kind]))[:5]}")
    return model


def load_plain(load: Callable[..., Any], spec: EncoderSpec, name: str) -> Any:
    """A tokenizer, a processor, a configuration, or a model without its weights.

    Raises:
        ConfigError: it cannot be loaded, or a file is missing without which it would load empty.
    """
    folder = spec.checkpoint / name
    choices = _FILES_OF.get(name, ())
    if choices and not any(all((folder / file).is_file() for file in files) for files in choices):
        raise _unusable(folder, f"it lacks {', or '.join(' and '.join(files) for files in choices)}")
    loaded = _loaded(load, folder, trust_remote_code=False)
    if loaded is None:
        raise _unusable(folder, "loaded as None")
    return loaded


def _loaded(load: Callable[..., Any], folder: Path, **options: Any) -> Any:
    try:
        with offline():
            return load(folder, local_files_only=True, **options)
    except Exception as error:  # the libraries raise anything here, from OSError to safetensors' own
        told = " ".join(str(error).split())
        raise _unusable(folder, f"cannot be loaded ({type(error).__name__}: {told})") from error


def _unusable(folder: Path, found: str) -> ConfigError:
    return ConfigError(f"checkpoint component {folder}: {found}, required is a complete component. Download it again.")


@contextmanager
def offline() -> Iterator[None]:
    """Keep the loaders from asking the hub: a component missing on disk is an error, not a download."""
    before, constant = os.environ.get("HF_HUB_OFFLINE"), hub_constants.HF_HUB_OFFLINE
    # The libraries read the variable once at import, so the constant is set as well.
    os.environ["HF_HUB_OFFLINE"], hub_constants.HF_HUB_OFFLINE = "1", True
    try:
        with warnings.catch_warnings():
            # The audio VAE is built on a deprecated torch helper; its stored layout depends on it.
            warnings.filterwarnings("ignore", message=".*weight_norm.*", category=FutureWarning)
            yield
    finally:
        hub_constants.HF_HUB_OFFLINE = constant
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before


@contextmanager
def fixed_arithmetic(spec: EncoderSpec) -> Iterator[None]:
    """The settings that make results the same bytes each time, put back afterwards.

    Another thread count changes audio latents by about 2e-6; TF32 would round the VAEs' float32 convolutions to 10 bits,
    and an autotuned kernel may differ from run to run.
    """
    threads, cudnn, matmul = torch.get_num_threads(), torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32)
    torch.set_num_threads(spec.threads)
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False, False
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before
