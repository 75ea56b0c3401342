"""The tiny checkpoint: deterministic, small, and opened by the stock pipeline like a released one."""

import pytest
from encoder_rows import tree

from muvap_assets.errors import PublishError
from muvap_assets.ref2va.contract import ModelSizes
from muvap_assets.ref2va.encoder_spec import read_model_index
from muvap_assets.ref2va.tiny import COMPONENTS, write_tiny_checkpoint


def test_writing_it_twice_gives_the_same_bytes_and_leaves_the_random_state_alone(tmp_path, tiny_checkpoint):
    import torch

    torch.manual_seed(5)
    before = torch.get_rng_state()
    again = write_tiny_checkpoint(tmp_path / "again")
    assert torch.equal(torch.get_rng_state(), before)
    assert tree(again) == tree(tiny_checkpoint)
    assert sum(map(len, tree(again).values())) < 4_000_000


def test_a_folder_that_is_not_empty_is_refused(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(PublishError, match="not empty"):
        write_tiny_checkpoint(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "keep"


def test_its_index_names_every_component_and_a_small_canvas_and_no_path(tiny_checkpoint):
    index = read_model_index(tiny_checkpoint)
    assert set(COMPONENTS) <= set(index)
    assert ModelSizes.of_index(index) == ModelSizes(
        canvas_short_edge=64, canvas_max_pixels=8192, reference_image_short_edge=64
    )
    assert str(tiny_checkpoint) not in (tiny_checkpoint / "modular_model_index.json").read_text()


def test_the_stock_pipeline_opens_every_component(tiny_checkpoint):
    from diffusers import MiniMaxH3Transformer3DModel
    from diffusers.modular_pipelines.minimax_h3.before_encoder import MiniMaxH3Ref2VASetupStep

    pipeline = MiniMaxH3Ref2VASetupStep().init_pipeline(str(tiny_checkpoint))
    assert pipeline.config.canvas_short_edge == 64
    assert pipeline.config.reference_image_short_edge == 64
    transformer = MiniMaxH3Transformer3DModel.from_pretrained(tiny_checkpoint / "transformer_ref")
    assert transformer.config.text_dim == 32
