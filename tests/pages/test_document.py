"""Pages hold nothing but what was put in: markup, media and the policy that says so."""

import base64
import hashlib
from html.parser import HTMLParser

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from sample_pages import HOSTILE, Parsed, content

from muvap_assets.errors import ConfigError
from muvap_assets.pages.document import document, element, unknown_name, write_page
from muvap_assets.pages.media import png_uri, sheet_size, sheet_uris, wav_uri

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"))


@given(TEXTS, TEXTS)
def test_any_text_comes_back_from_a_parser_as_text_and_as_attribute(text, value):
    seen = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.append((tag, attrs))

        def handle_data(self, data):
            seen.append(data)

    reader = Reader()
    reader.feed(element("p", text, title=value))
    reader.close()
    assert seen[0] == ("p", [("title", value)])
    assert "".join(seen[1:]) == text


def test_a_script_in_the_data_stays_data():
    page = document(title=HOSTILE, body=element("main", HOSTILE), script="asd_sample.js", data={"text": HOSTILE})
    parsed = Parsed(page)
    assert parsed.tags.count("script") == 2
    assert "img" not in parsed.tags
    assert parsed.data == {"text": HOSTILE}


def test_only_the_style_and_the_script_of_the_page_pass_its_policy():
    parsed = Parsed(document(title="t", body=element("main", "x"), script="asd_sample.js", data={}))
    (policy,) = (value for tag, key, value in parsed.attributes if key == "content" and "default-src" in value)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def digest(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert rules == {
        "default-src": "'none'",
        "img-src": "data:",
        "media-src": "data:",
        "style-src": digest(parsed.raw["style"][0]),
        "script-src": digest(parsed.raw["script"][1]),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_a_page_without_a_script_allows_none():
    page = document(title="t", body=element("main", "x"))
    assert "script-src" not in page
    assert "<script" not in page


@given(arrays(np.uint8, st.tuples(st.integers(1, 6), st.integers(1, 6))))
def test_a_grey_picture_is_read_back_exactly(pixels):
    picture = Image.open(content(png_uri(pixels)))
    assert picture.mode == "L"
    assert np.array_equal(np.asarray(picture), pixels)


@given(arrays(np.uint8, st.tuples(st.integers(1, 5), st.integers(1, 5), st.just(3))))
def test_a_colour_picture_is_read_back_exactly(pixels):
    picture = Image.open(content(png_uri(pixels)))
    assert picture.mode == "RGB"
    assert np.array_equal(np.asarray(picture), pixels)


@pytest.mark.parametrize("samples", [0, 1, 999])
def test_sound_is_read_back_exactly(samples):
    written = np.random.default_rng(samples).integers(-32768, 32768, samples).astype(np.int16)
    read, rate = soundfile.read(content(wav_uri(written, 16_000)), dtype="int16")
    assert (rate, read.ndim) == (16_000, 1)
    assert np.array_equal(read, written)


def test_faces_lie_one_above_the_other_on_sheets_a_browser_can_open():
    faces = np.random.default_rng(0).integers(0, 256, (150, 5, 7)).astype(np.uint8)
    sheets = [np.asarray(Image.open(content(uri))) for uri in sheet_uris(faces)]
    assert [len(sheet) for sheet in sheets] == [320, 320, 110]
    assert np.array_equal(np.concatenate(sheets).reshape(faces.shape), faces)
    assert sheet_size(5) == 64
    assert sheet_size(1000) * 1000 <= 4096
    assert sheet_size(9000) == 1


def test_a_page_replaces_one_that_stands_and_says_why_it_cannot(tmp_path):
    path = tmp_path / "new" / "page.html"
    write_page(path, "one")
    write_page(path, "two")
    assert path.read_text() == "two"
    assert [entry.name for entry in path.parent.iterdir()] == ["page.html"]
    with pytest.raises(ConfigError, match=r"below: cannot be written .* required: a place for a file"):
        write_page(path / "below", "three")


def test_an_unknown_name_comes_with_those_that_are_like_it(tmp_path):
    known = [f"talk_{number}" for number in range(40)]
    assert "Near it: talk_7." in str(unknown_name(tmp_path, "sample", "TALK_7", known))
    assert "Near it: talk_" in str(unknown_name(tmp_path, "sample", "tlk_12", known))
    assert "required: one of its 40. The first are: talk_0," in str(unknown_name(tmp_path, "row", "zzz", known))
