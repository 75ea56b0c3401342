"""The page of a ref2va row says what its record and the index say."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from ref2va.published_rows import LONG, clean_record, published, sft_record
from sample_pages import HOSTILE, Parsed, content, muvap

from muvap_assets.pages.ref2va_row import row_page, spread


@pytest.fixture
def record():
    tags = np.array([1] * 5 + [0] * 4 + [1] * 2)
    return replace(clean_record("long", LONG), caption=HOSTILE, text_token_tags=tags)


@pytest.fixture
def dataset(tmp_path, record):
    return published(tmp_path, record, clean_record("other"))


def test_the_row_is_told_by_what_was_written(dataset, record):
    page = row_page(dataset, "long")
    text = " ".join(" ".join(Parsed(page).texts).split())
    # 11 of text; 2 + 2 visual and 6 + 2 audio rows of references; 2 x 37 of sound; 7 frames of one patch
    assert "text 11 references 12 target sound 74 target video 7 104 rows of the joint sequence; 256" in text
    assert "Token tags, in order: text 5, vision 4, text 2." in text
    assert "1 image 1 2 x 4 2 none none 0" in text
    assert "2 audio none none 0 3 0.075 s 6" in text
    assert "3 video with sound 2 2 x 2 2 1 0.025 s 2" in text
    assert "bucket=32x32-22f" in text
    assert "22 at 24 a second, 0.917 s" in text
    assert "reference noise seed 42" in text


def test_a_caption_that_is_markup_is_shown_and_nothing_else(dataset):
    parsed = Parsed(row_page(dataset, "long"))
    assert HOSTILE in parsed.texts
    assert "script" not in parsed.tags
    assert {value[:22] for tag, key, value in parsed.attributes if (tag, key) == ("img", "src")} == {
        "data:image/png;base64,"
    }


def test_latent_pictures_are_the_three_channels_that_vary_most(dataset, record):
    parsed = Parsed(row_page(dataset, "long"))
    sources = [value for tag, key, value in parsed.attributes if (tag, key) == ("img", "src")]
    pictures = [np.asarray(Image.open(content(uri))) for uri in sources]
    channels = sorted(sorted(range(24), key=lambda channel: -record.vae_latent[channel].var())[:3])
    assert f"Channels {channels[0]}, {channels[1]}, {channels[2]} of 24" in " ".join(parsed.texts)
    assert len(pictures) == 7 + 2
    for number, picture in enumerate(pictures[:7]):
        for colour, channel in enumerate(channels):
            low, high = np.percentile(record.vae_latent[channel].astype(float), [1, 99])
            exact = np.clip((record.vae_latent[channel, number] - low) / (high - low) * 255, 0, 255)
            assert np.abs(picture[..., colour] - exact).max() <= 0.5 + 1e-9
    assert [picture.shape for picture in pictures[7:]] == [(32, 37)] * 2


def test_values_that_are_all_alike_are_middle_grey():
    assert spread(np.full((2, 3), 7, np.float32)).tolist() == [[128] * 3] * 2


def test_rows_of_the_sft_format_have_a_page_without_a_seed(tmp_path):
    page = row_page(published(tmp_path, sft_record(clean_record("one"))), "one")
    assert "minimax_h3_ref2va_precomputed_v1" in page
    assert "reference noise seed" not in page


def test_the_same_row_gives_the_same_bytes(dataset):
    assert row_page(dataset, "long") == row_page(dataset, "long")
    assert str(dataset) not in row_page(dataset, "long")


def test_the_command_names_near_rows_and_refuses_a_part(dataset, tmp_path):
    out = tmp_path / "page.html"
    missing = muvap("show", dataset, "lng", "-o", out)
    assert (missing.exit_code, "no row 'lng'; required: one of its 2. Near it: long." in missing.output) == (1, True)
    part = muvap("show", dataset, "long", "-o", out, "--seconds", "1")
    assert (part.exit_code, "given for a ref2va row; required: a pack" in part.output) == (2, True)
    assert not out.exists()
    assert muvap("show", dataset, "long", "-o", out).exit_code == 0
    assert "<h1><bdi>long</bdi></h1>" in out.read_text()


def test_a_shard_that_changed_after_it_was_indexed_is_refused(dataset):
    (shard,) = dataset.glob("bucket=32x32-22f/*.parquet")
    content = bytearray(shard.read_bytes())
    content[4:200] = bytes(196)
    shard.write_bytes(content)
    done = muvap("show", dataset, "long", "-o", dataset.parent / "page.html")
    assert done.exit_code == 1
    assert "data_00000000.parquet: unreadable (" in done.output
    assert "required: what was published, whole and unchanged. Materialize" in done.output
