"""The real decoders, a window at a time, against one plain decode of the whole, byte for byte."""

import numpy as np
import pytest
import torch

from muvap_assets.codes import Code
from muvap_assets.errors import ValidationError
from muvap_assets.ref2va.encoder import Component, Stage

MEAN, STD = (np.array(each, np.float32) for each in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def plain_vae(tiny_checkpoint):
    from diffusers import AutoencoderKLMiniMaxH3

    return AutoencoderKLMiniMaxH3.from_pretrained(tiny_checkpoint / "vae").eval()


@pytest.fixture(scope="module")
def plain_audio_vae(tiny_checkpoint):
    from diffusers import AutoencoderKLMiniMaxH3Audio

    with pytest.warns(FutureWarning, match="weight_norm"):
        return AutoencoderKLMiniMaxH3Audio.from_pretrained(tiny_checkpoint / "audio_vae").eval()


def noise(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def denormalized(vae, latents, channel):
    shape = [1] * latents.ndim
    shape[channel] = -1
    return torch.tensor(latents) * torch.tensor(vae.config.latents_std).view(shape) + torch.tensor(
        vae.config.latents_mean
    ).view(shape)


def plain_frames(vae, latents):
    """[F, H, W, 3] by one plain ``vae.decode`` of the whole video."""
    with torch.no_grad():
        decoded = vae.decode(denormalized(vae, latents, 0)[None]).sample[0].numpy()
    pixels = decoded * STD[:, None, None, None] + MEAN[:, None, None, None]
    return np.clip(pixels, 0, 1).transpose(1, 2, 3, 0)


def decoded(encoder, stage, latents):
    with encoder.loaded(stage.component) as loaded:
        return list(loaded.decode(stage, latents, "row a"))


@pytest.mark.parametrize(
    ("windows", "height", "width"), [(1, 4, 8), (2, 4, 8), (7, 2, 2), (1, 18, 20)], ids=["22", "39", "124", "tiles"]
)
def test_frames_decoded_a_window_at_a_time_equal_one_plain_decode(tiny_encoder, plain_vae, windows, height, width):
    latents = noise(24, 5 * windows + 2, height, width)
    blocks = decoded(tiny_encoder, Stage.TARGET_VIDEO, latents)
    assert [len(block) for block in blocks] == [17] * windows + [5]
    found, expected = np.concatenate(blocks), plain_frames(plain_vae, latents)
    assert found.dtype == np.float32
    assert found.shape == expected.shape == (17 * windows + 5, height * 16, width * 16, 3)
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes()


def test_sound_equals_one_plain_decode(tiny_encoder, plain_audio_vae):
    latents = noise(2, 32, 37)
    (found,) = decoded(tiny_encoder, Stage.TARGET_AUDIO, latents)
    with torch.no_grad():
        expected = plain_audio_vae.decode(denormalized(plain_audio_vae, latents, 1)).sample[:, 0].numpy()
    assert found.shape == (2, 37 * 800)
    assert found.tobytes() == expected.tobytes()


def test_one_window_is_decoded_before_the_first_frames_come(tiny_encoder, monkeypatch):
    with tiny_encoder.loaded(Component.VAE) as loaded:
        seen = []
        decode = loaded.model.decode
        monkeypatch.setattr(loaded.model, "decode", lambda z, **options: seen.append(z.shape) or decode(z, **options))
        frames = loaded.decode(Stage.TARGET_VIDEO, noise(24, 17, 2, 2), "row a")
        next(frames)
        assert seen == [(1, 24, 7, 2, 2)]
        list(frames)
        assert seen == [(1, 24, 7, 2, 2)] * 3


@pytest.mark.parametrize("shape", [(24, 2, 4, 4), (24, 8, 4, 4), (23, 7, 4, 4), (24, 7, 4)])
def test_latents_the_decoder_does_not_take_are_refused_with_their_shape(tiny_encoder, shape):
    with pytest.raises(ValidationError, match=r"row a: latents \[2.*required: \[24, 5 \* n \+ 2, H, W\], n >= 1"):
        decoded(tiny_encoder, Stage.TARGET_VIDEO, noise(*shape))


def test_sound_of_another_shape_is_refused(tiny_encoder):
    with pytest.raises(ValidationError, match=r"latents \[1, 32, 5\]; required: \[2, 32, T\]"):
        decoded(tiny_encoder, Stage.TARGET_AUDIO, noise(1, 32, 5))


def test_out_of_device_memory_names_the_row_and_its_latents(tiny_encoder, monkeypatch):
    def full(*arguments, **options):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    with tiny_encoder.loaded(Component.VAE) as loaded:
        monkeypatch.setattr(loaded.model, "decode", full)
        with pytest.raises(ValidationError, match=r"row a, decoding target_video.*latents \[24, 7, 2, 2\]") as caught:
            list(loaded.decode(Stage.TARGET_VIDEO, noise(24, 7, 2, 2), "row a"))
    assert caught.value.finding.code is Code.DEVICE_MEMORY
