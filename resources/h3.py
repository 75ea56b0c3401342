"""The MiniMax-H3 checkpoint and the device it encodes on. See https://docs.dagster.io/guides/build/external-resources."""

import dagster as dg

from muvap_assets.ref2va.encoder_spec import EncoderSpec, chosen_device
from muvap_assets.storage.paths import path_of

CHECKPOINT_VARIABLE, DEVICE_VARIABLE = "MUVAP_H3_CHECKPOINT", "MUVAP_H3_DEVICE"


class MiniMaxH3Resource(dg.ConfigurableResource[EncoderSpec]):
    """Hands over the recipe of an encoder; weights are loaded by the asset that needs them, one component at a time.

    ``device`` is ``cuda``, ``cuda:N``, ``cpu`` (a tiny checkpoint only) or ``auto``: CUDA where there is a device.
    """

    checkpoint: str
    device: str = "auto"
    vae_dtype: str = "float32"
    text_dtype: str = "bfloat16"
    threads: int = 1

    def create_resource(self, context: dg.InitResourceContext) -> EncoderSpec:
        """The recipe.

        Raises:
            ConfigError: a value is outside what it may be, or the path cannot be expanded.
        """
        return EncoderSpec(
            checkpoint=path_of(self.checkpoint, "checkpoint").resolve(),
            device=chosen_device(self.device),
            vae_dtype=self.vae_dtype,
            text_dtype=self.text_dtype,
            threads=self.threads,
        )
