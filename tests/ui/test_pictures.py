"""Every picture in a browser, on white and on Dagster's dark page: it is shown whole, at its size, and its ink has contrast.

Screenshots are kept beside the others of the tests marked ``ui``, to be looked at.
"""

import base64
from io import BytesIO

import numpy as np
import pytest
from picture_figures import FIGURES
from PIL import Image

from muvap_assets.asd.packs.reader import PackReader
from muvap_assets.pictures.alignment import alignment_picture
from muvap_assets.pictures.canvas import FAINT, INK, PAPER, encoded, own_style
from muvap_assets.pictures.faces import faces_picture

pytestmark = pytest.mark.ui

PAGES = {"light": "#ffffff", "dark": "#0d1015"}
"""White, and the ground of Dagster's pages in its dark theme."""

_HTML = """<!doctype html><html><body style="margin:0;padding:20px;background:{ground};color:{ink};font:14px sans-serif">
<p>{name}</p><img id="picture" alt="{name}" src="data:image/png;base64,{data}"></body></html>"""


def show(page, name, theme, png, artifacts):
    """Open a page with the picture, keep a screenshot, and return the picture's place in it and its pixels."""
    ink = "#111" if theme == "light" else "#eee"
    data = base64.b64encode(png).decode()
    page.set_content(_HTML.format(ground=PAGES[theme], ink=ink, name=name, data=data))
    image = page.locator("#picture")
    image.wait_for(state="visible")
    page.wait_for_function("document.querySelector('#picture').complete")
    box = image.bounding_box()
    taken = page.screenshot(path=str(artifacts / f"picture_{name}_{theme}.png"), full_page=True)
    return box, np.asarray(Image.open(BytesIO(taken)).convert("RGB"))


def luminance(colour):
    """Relative luminance of ``#rrggbb`` (WCAG 2)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first, second):
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", PAGES)
@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_is_shown_whole_at_its_own_size_and_with_its_own_colours(page, artifacts, name, theme):
    with own_style():
        png = encoded(FIGURES[name]())
    drawn = np.asarray(Image.open(BytesIO(png)).convert("RGB"))
    box, taken = show(page, name, theme, png, artifacts)
    assert (box["width"], box["height"]) == (drawn.shape[1], drawn.shape[0])
    left, top = round(box["x"]), round(box["y"])
    shown = taken[top : top + drawn.shape[0], left : left + drawn.shape[1]]
    assert np.array_equal(shown, drawn)
    assert not page.complaints
    ground = np.array([int(PAGES[theme][i : i + 2], 16) for i in (1, 3, 5)])
    assert np.array_equal(taken[2, 2], ground)


def test_ink_is_readable_on_the_pictures_own_paper_whatever_the_page():
    assert contrast(INK, PAPER) >= 7
    assert contrast(PAPER, PAGES["dark"]) >= 7
    assert contrast(FAINT, PAPER) < 2  # only lines that nobody has to read


def test_the_pictures_of_the_demo_are_shown(page, artifacts, tmp_path):
    """Those that read a pack: with the demo's own faces, whose blocks spell out the number of the frame."""
    from muvap_assets.asd.line import make_loudness_index, make_manifest, make_packed_shards
    from muvap_assets.datasets import parse_datasets
    from muvap_assets.demo.corpus import write_demo_corpus
    from muvap_assets.layout import Layout

    write_demo_corpus(tmp_path / "asd")
    entry = {"kind": "tsv", "manifest": "asd/train.tsv"}
    corpus = parse_datasets({"corpora": {"train": entry}}, tmp_path / "datasets.yaml").corpus("train")
    layout = Layout(tmp_path / "data")
    for make in (make_manifest, make_loudness_index, make_packed_shards):
        assert make(layout, corpus).published
    pack = PackReader(layout.asd_packed_shards("train").current)
    for picture in (faces_picture(pack), alignment_picture(pack)):
        for theme in PAGES:
            box, _ = show(page, f"demo_{picture.name}", theme, picture.png, artifacts)
            assert box["width"] > 900
    assert not page.complaints
