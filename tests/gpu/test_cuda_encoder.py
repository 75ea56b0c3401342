"""The CUDA path, which is the same code: the tiny checkpoint and one released-width video VAE with random weights.

Under five minutes on one device. Run it with ``pytest -m gpu tests/gpu``; it needs about 16 GB of device memory.
"""

import numpy as np
import pytest
from encoder_rows import audio, frames, image, row, tree, video

from muvap_assets.ref2va.contract import Geometry
from muvap_assets.ref2va.encode import encode_rows
from muvap_assets.ref2va.encoder import Component, Stage
from muvap_assets.ref2va.encoder_spec import EncoderSpec
from muvap_assets.ref2va.prefetch import stage_media
from muvap_assets.ref2va.records import read_shard
from muvap_assets.ref2va.row_store import RowStore

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def cuda():
    """Every test here needs a CUDA device."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device is available to torch")


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    from muvap_assets.ref2va.tiny import write_tiny_checkpoint

    checkpoint = write_tiny_checkpoint(tmp_path_factory.mktemp("tiny") / "checkpoint")
    return EncoderSpec(checkpoint=checkpoint, device="cuda")


def rows():
    return [row("a", image(1), audio(2), seed=11), row("b", video(3, sound=1600), image(4), seed=12)]


def test_the_tiny_checkpoint_gives_the_same_bytes_twice_and_the_cpus_values(spec, tmp_path):
    from muvap_assets.ref2va.h3 import H3Encoder

    stores = [RowStore(tmp_path / name) for name in ("first", "second")]
    reports = [encode_rows(rows(), H3Encoder(spec), store) for store in stores]
    assert tree(stores[0].root) == tree(stores[1].root)
    on_cpu = EncoderSpec(checkpoint=spec.checkpoint, device="cpu")
    expected = encode_rows(rows(), H3Encoder(on_cpu), RowStore(tmp_path / "cpu"))
    assert expected.encoder != reports[0].encoder, "the device is part of the fingerprint"
    for one, other in zip(reports[0].rows, expected.rows, strict=True):
        (found,), (wanted,) = read_shard(one.path), read_shard(other.path)
        for name, values in found.tensors.items():
            # bfloat16 keeps 8 bits, and kernels sum in another order over 50 layers; the VAEs are float32.
            tolerance = 0.1 if name == "text_embedding" else 2e-3
            np.testing.assert_allclose(values, wanted.tensors[name], atol=tolerance, rtol=tolerance, err_msg=name)


def test_targets_decode_on_the_device_to_the_cpus_pixels_and_sound(spec):
    from muvap_assets.ref2va.h3 import H3Encoder

    random = np.random.default_rng(5)
    latents = {
        Stage.TARGET_VIDEO: random.standard_normal((24, 12, 4, 8)).astype(np.float32),
        Stage.TARGET_AUDIO: random.standard_normal((2, 32, 65)).astype(np.float32),
    }
    made = []
    for each in (spec, EncoderSpec(checkpoint=spec.checkpoint, device="cpu")):
        encoder = H3Encoder(each)
        for stage, values in latents.items():
            with encoder.loaded(stage.component) as loaded:
                made.append(list(loaded.decode(stage, values, "row a")))
    for found, wanted in zip(made[:2], made[2:], strict=True):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-3, rtol=2e-3)


def test_components_leave_the_device_before_the_next_is_loaded(spec):
    import torch

    from muvap_assets.ref2va.h3 import H3Encoder

    encoder = H3Encoder(spec)
    before = torch.cuda.memory_allocated()
    for component in Component:
        with encoder.loaded(component):
            assert torch.cuda.memory_allocated() > before
        assert torch.cuda.memory_allocated() == before


def test_a_released_width_vae_encodes_clip_by_clip_what_it_encodes_whole(spec):
    import torch
    from diffusers import AutoencoderKLMiniMaxH3

    from muvap_assets.ref2va.checkpoint import fixed_arithmetic
    from muvap_assets.ref2va.contract import PIXEL_MEAN, PIXEL_STD
    from muvap_assets.ref2va.h3 import _VideoVae

    torch.manual_seed(0)
    with torch.device("cuda"):
        vae = AutoencoderKLMiniMaxH3().eval().requires_grad_(False)
    geometry = Geometry(1344, 768, 22)
    one = row(geometry=geometry)
    with fixed_arithmetic(spec), torch.no_grad():
        session = _VideoVae(vae, spec)
        media = stage_media(Stage.TARGET_VIDEO, one, lambda count: ())
        found = session.encode(Stage.TARGET_VIDEO, one, media, 0)["vae_latent"]
        pixels = torch.from_numpy(frames(10, 22, geometry.size)).cuda().permute(3, 0, 1, 2)[None].float().div(255.0)
        mean, std = (torch.tensor(each, device="cuda").view(1, -1, 1, 1, 1) for each in (PIXEL_MEAN, PIXEL_STD))
        whole = vae.encode((pixels - mean) / std).latent_dist.sample(generator=torch.Generator().manual_seed(42))
    assert found.shape == (24, 7, 48, 84)
    assert np.isfinite(found).all()
    assert found.tobytes() == whole[0].cpu().numpy().tobytes()
