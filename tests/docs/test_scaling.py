"""``docs/scaling.md``: each figure says how it is known, and the arithmetic of sizes is done again with the planning functions."""

import re

import pytest
from pages import read_page, tables

from muvap_assets.asd.packs.plan import INDEX_BYTES, _array_bytes
from muvap_assets.asd.policy import SHARD_BYTES
from muvap_assets.ref2va.contract import (
    AUDIO_CHANNELS,
    AUDIO_ROW_WIDTH,
    TEXT_WIDTH,
    VIDEO_CHANNELS,
    VISUAL_ROW_WIDTH,
    Geometry,
    ModelSizes,
    ReferenceKind,
    Size,
)
from muvap_assets.ref2va.geometry import (
    reference_geometry,
    reference_image_size,
    target_audio_latents,
    target_video_shape,
)

PAGE = "docs/scaling.md"
HEADINGS = ("Measured on two cores", "40,000 tracks: a corpus like AVA", "A million samples", "100,000 rows of ref2va")
FRAMES, SAMPLES, FACES = 100, 4 * 16_000, (112, 112)


def figures(heading):
    return {row[0]: row[1] for table in tables(PAGE, heading) for row in table[1:]}


def number(text):
    """The first number of a cell, in its unit."""
    match = re.search(r"([\d.,]+) ?(TB|GB|MB)?", text)
    return float(match[1].replace(",", "")) * {"TB": 1e12, "GB": 1e9, "MB": 1e6, None: 1}[match[2]]


def test_every_figure_says_how_it_is_known():
    rows = [row for heading in HEADINGS for table in tables(PAGE, heading) for row in table[1:]]
    assert len(rows) > 30
    assert [row for row in rows if not re.match(r"(measured|reasoned: .+|not measured.*)", row[-1])] == []


@pytest.mark.parametrize(("heading", "tracks"), [(HEADINGS[1], 40_000), (HEADINGS[2], 1_000_000)])
def test_sizes_of_a_pack_are_those_the_planner_takes(heading, tracks):
    found = {name.removesuffix(" of the pack"): text for name, text in figures(heading).items()}
    faces = _array_bytes(tracks * FRAMES, 0, FACES)
    audio = _array_bytes(0, tracks * SAMPLES, FACES)
    assert number(found["faces and labels"]) == pytest.approx(faces, rel=0.005)
    assert number(found["audio"]) == pytest.approx(audio, rel=0.005)
    assert number(found["index"]) == pytest.approx(INDEX_BYTES * tracks)
    if "shards" in found:
        assert number(found["shards"]) == -(-(faces + audio) // SHARD_BYTES)


def test_the_size_of_a_row_is_that_of_its_tensors():
    size = reference_image_size(Size(1920, 1080), ModelSizes())
    reference = reference_geometry(ReferenceKind.IMAGE, size=size)
    geometry = Geometry(1344, 768, 124)
    frames, height, width = target_video_shape(geometry)
    tokens = reference.visual_rows + 60
    latents = 4 * VIDEO_CHANNELS * frames * height * width
    text = tokens * (4 * TEXT_WIDTH + 8)
    sound = 4 * AUDIO_CHANNELS * AUDIO_ROW_WIDTH * target_audio_latents(124)
    rows = 4 * reference.visual_rows * VISUAL_ROW_WIDTH
    total = latents + text + sound + rows
    found = figures(HEADINGS[3])
    assert f"{tokens:,} presentation tokens" in read_page(PAGE)
    assert number(found["a row's tensors"]) == pytest.approx(total, rel=0.005)
    assert number(found["parts in the row store"]) == pytest.approx(100_000 * total, rel=0.005)


@pytest.mark.slow
def test_the_arithmetic_of_a_row_is_that_of_the_released_layers():
    import torch
    from diffusers import AutoencoderKLMiniMaxH3
    from torch.utils.flop_counter import FlopCounterMode

    def tera(shape):
        counter = FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            encoder(torch.empty(shape, device="meta"))
        return counter.get_total_flops() / 1e12

    with torch.device("meta"):  # the class's defaults are the released sizes: 0.72 GB of float32
        encoder = AutoencoderKLMiniMaxH3().encoder
    assert 4 * sum(weights.numel() for weights in encoder.parameters()) == pytest.approx(0.72e9, rel=0.005)
    size = reference_image_size(Size(1920, 1080), ModelSizes())
    clip, picture = tera((1, 3, 17, 768, 1344)), tera((1, 3, 1, size.height, size.width))
    vae = -(-124 // 17) * clip + picture
    text = 2 * 7_356 * 51 / 64 * 66.7e9 / 2 / 1e12
    found = figures(HEADINGS[3])
    assert number(found["arithmetic of the VAE, a row"]) == pytest.approx(vae, rel=0.005)
    assert number(found["arithmetic of the text encoder, a row"]) == pytest.approx(text, rel=0.005)
    hours = 100_000 * (vae / 40 + text / 400) / 3600
    assert float(re.search(r"\d+", found["GPU hours"])[0]) == pytest.approx(hours, rel=0.01)
    basis = next(row[2] for table in tables(PAGE, HEADINGS[3]) for row in table if row[0].endswith("VAE, a row"))
    assert (f"at {clip:.0f}" in basis, f"at {picture:.0f}" in basis) == (True, True)
