"""Fixtures of the ref2va line. Third-party warnings are ignored where they arise, not for the whole suite."""

import pytest

# --- encoder -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def tiny_spec(tiny_checkpoint):
    """How the tests encode: the tiny checkpoint on the CPU."""
    from muvap_assets.ref2va.encoder_spec import EncoderSpec

    return EncoderSpec(checkpoint=tiny_checkpoint, device="cpu")


@pytest.fixture
def tiny_encoder(tiny_spec):
    """A fresh encoder, with its own count of loads."""
    from muvap_assets.ref2va.h3 import H3Encoder

    return H3Encoder(tiny_spec)


@pytest.fixture
def one_thread():
    """Plain computations run with the encoder's own thread count, which is part of the recipe."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
