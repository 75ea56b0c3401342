"""Pages of single samples in a real browser: what is seen and heard at a time is what the pack holds for it."""

import re
import socket
from dataclasses import replace
from fractions import Fraction
from math import floor

import pytest
from ref2va.published_rows import LONG, clean_record, published
from sample_pages import HOSTILE, TRACKS, labels_of, muvap, write_pack

pytestmark = pytest.mark.ui
SPOKEN = {0: "not speaking", 1: "speaking"}


@pytest.fixture
def pack(corpus):
    return write_pack(corpus)


def open_page(page, folder, name, *options):
    """Write the page of a sample, open it from the disk, and wait until it is ready."""
    file = folder.parent / "page.html"
    done = muvap("show", folder, name, "-o", file, *options)
    assert done.exit_code == 0, done.output
    page.goto(file.as_uri())
    page.locator("main:not([aria-busy])").wait_for()
    return file


def nothing_left_the_page(page, file):
    """Only the file itself was asked for, and the console had nothing to say."""
    assert page.requests[0] == file.as_uri()
    assert [url[:60] for url in page.requests[1:] if not url.startswith(("data:", "blob:"))] == []
    assert page.complaints == []


def scrub(page, tick):
    page.locator("#scrubber").evaluate(
        "(slider, tick) => { slider.value = tick; slider.dispatchEvent(new Event('input')); }", tick
    )


def seen(page):
    """What the page says of its time, and the number each face is: its grey level, the same all over."""
    face = """(canvas) => {
        const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return [...new Set(pixels.filter((_, i) => i % 4 < 3))];
    }"""
    texts = {name: page.locator(f"#{name}").text_content() for name in ("native-frame", "native-label", "model-frame")}
    texts |= {name: page.locator(f"#{name}").text_content() for name in ("model-shows", "model-label", "targets")}
    return texts, page.locator("#face-native").evaluate(face), page.locator("#face-model").evaluate(face)


def expected(name, tick):
    """The same, by fractions alone."""
    fps, frames = Fraction(TRACKS[name][0]), TRACKS[name][1]
    labels, at = labels_of(frames), Fraction(tick, 1_000_000)
    native, model = floor(at * fps), floor(at * 25)
    shows = min(floor((model + Fraction(1, 2)) / 25 * fps), frames - 1)
    return native, SPOKEN[labels[native]], model, shows, SPOKEN[labels[shows]]


@pytest.mark.parametrize(
    ("name", "ticks"),
    [
        ("third", [0, 33_366, 33_367, 500_000, 1_201_199, 1_201_200, 1_201_201, 1_959_999]),
        ("slow", [0, 79_999, 80_000, 1_000_000, 1_599_999]),
        ("short", [0, 9_999, 10_000, 29_999]),
    ],
)
def test_a_time_shows_its_own_face_label_and_frames(page, pack, name, ticks):
    file = open_page(page, pack, name)
    for tick in ticks:
        scrub(page, tick)
        native, label, model, shows, model_label = expected(name, tick)
        texts, native_face, model_face = seen(page)
        assert (texts["native-frame"], texts["native-label"]) == (str(native), label), tick
        assert (texts["model-frame"], texts["model-shows"], texts["model-label"]) == (
            str(model),
            str(shows),
            model_label,
        )
        assert (native_face, model_face) == ([native], [shows])
        assert re.fullmatch(r"[01]{4} \| [01]{2}", texts["targets"])
    nothing_left_the_page(page, file)


def test_after_the_last_whole_model_frame_there_is_none(page, pack):
    open_page(page, pack, "third")
    scrub(page, 2_030_000)
    texts, native_face, _ = seen(page)
    assert native_face == [floor(Fraction(203, 100) * Fraction(30000, 1001))]
    assert (texts["model-frame"], texts["model-shows"]) == ("none: past the last whole one", "none")


def test_the_keyboard_goes_frame_by_frame(page, pack):
    open_page(page, pack, "third")
    slider = page.get_by_role("slider", name="time in the sample")
    slider.focus()
    for _ in range(17):
        page.keyboard.press("ArrowRight")
    assert seen(page)[0]["native-frame"] == "17"
    assert seen(page)[1] == [17]
    page.keyboard.press("ArrowLeft")
    assert seen(page)[0]["native-frame"] == "16"
    page.keyboard.press("PageUp")
    assert seen(page)[0]["model-frame"] == str(floor(Fraction(33, 2) * Fraction(1001, 30000) * 25) + 1)
    page.keyboard.press("End")
    assert seen(page)[1] == [60]
    assert slider.get_attribute("aria-valuetext").startswith("2.035 seconds, native frame 60, ")
    page.keyboard.press("Home")
    assert seen(page)[1] == [0]


def test_a_click_on_a_lane_goes_there(page, pack):
    open_page(page, pack, "slow")
    lane = page.locator("svg.lane.native")
    box = lane.bounding_box()
    lane.click(position={"x": box["width"] * 0.77, "y": 5})
    assert seen(page)[1] == [15]
    cursor = page.locator("#cursor").bounding_box()
    assert abs(cursor["x"] + cursor["width"] / 2 - (box["x"] + box["width"] * 0.77)) < 2


def test_sound_has_its_native_length_and_takes_the_cursor_along(page, pack):
    file = open_page(page, pack, "slow")
    audio = page.locator("audio")
    assert audio.evaluate("(a) => a.duration") == pytest.approx(1.6, abs=1e-6)
    page.get_by_role("slider").focus()
    page.keyboard.press("Space")
    page.wait_for_function("() => document.querySelector('audio').ended")
    page.wait_for_function("() => document.querySelector('#native-frame').textContent === '19'")
    assert seen(page)[1] == [19]
    audio.evaluate("(a) => { a.currentTime = 0.5; }")
    page.wait_for_function("() => document.querySelector('#native-frame').textContent === '6'")
    nothing_left_the_page(page, file)


def test_a_part_is_on_the_samples_own_clock(page, pack):
    file = open_page(page, pack, "third", "--start-sec", "0.35", "--seconds", "1.05")
    assert page.locator("audio").evaluate("(a) => a.duration") == pytest.approx(1.05, abs=1e-6)
    assert page.get_by_text("A part: seconds 0.35 to 1.4 of 2.035367").is_visible()
    for tick in (350_000, 1_000_000, 1_399_999):
        scrub(page, tick)
        native, label, model, shows, model_label = expected("third", tick)
        texts, native_face, model_face = seen(page)
        assert (texts["native-frame"], texts["native-label"]) == (str(native), label)
        assert (texts["model-frame"], texts["model-label"]) == (str(model), model_label)
        assert (native_face, model_face) == ([native], [shows])
    scrub(page, 1_000_000)
    assert page.locator("audio").evaluate("(a) => a.currentTime") == pytest.approx(0.65, abs=1e-3)
    nothing_left_the_page(page, file)


def test_a_name_that_is_markup_does_nothing(page, pack):
    file = open_page(page, pack, HOSTILE)
    assert page.locator("h1").text_content() == HOSTILE
    assert page.title() == f"{' '.join(HOSTILE.split())} · sample"
    assert page.evaluate("() => window.ran") is None
    assert page.locator("img").count() == 0
    nothing_left_the_page(page, file)


def test_a_caption_that_is_markup_does_nothing(page, tmp_path):
    dataset = published(tmp_path, replace(clean_record("long", LONG), caption=HOSTILE))
    file = open_page(page, dataset, "long")
    assert page.locator(".caption").text_content() == HOSTILE
    assert page.evaluate("() => window.ran") is None
    loaded = page.locator("img").evaluate_all("(images) => images.map((image) => [image.naturalWidth, image.complete])")
    assert loaded == [[2, True]] * 7 + [[37, True]] * 2
    nothing_left_the_page(page, file)


def test_markup_that_got_in_all_the_same_would_neither_run_nor_load(page, pack):
    open_page(page, pack, "slow")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        page.evaluate(
            """(port) => {
                const main = document.querySelector('main');
                main.insertAdjacentHTML('beforeend', `<img src="http://127.0.0.1:${port}/x" onerror="window.ran = 1">`);
                main.insertAdjacentHTML('beforeend', '<p id="styled" style="position: fixed">x</p>');
                const script = document.createElement('script');
                script.textContent = 'window.ran = 1';
                main.append(script);
            }""",
            listener.getsockname()[1],
        )
        page.wait_for_timeout(500)
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):  # nobody called
            listener.accept()
    assert page.evaluate("() => window.ran") is None
    assert page.locator("#styled").evaluate("(p) => getComputedStyle(p).position") == "static"
    assert sum("Content Security Policy" in said for said in page.complaints) == 4


def contrast(page, selector):
    """The ratio of an element's text colour to the nearest ground behind it, as WCAG counts it."""
    return page.locator(selector).first.evaluate(
        """(element) => {
            const parts = (text) => text.match(/[\\d.]+/g).map(Number);
            const light = (rgb) => {
                const [r, g, b] = rgb.slice(0, 3).map((v) => v / 255).map(
                    (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            let ground = element;
            while (parts(getComputedStyle(ground).backgroundColor)[3] === 0) ground = ground.parentElement;
            const [a, b] = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor].map(parts).map(light);
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }"""
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_colour_schemes_can_be_read(page, pack, tmp_path, artifacts, scheme):
    page.emulate_media(color_scheme=scheme)
    open_page(page, pack, "third", "--start-sec", "0.3")
    scrub(page, 1_000_000)
    grounds = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert grounds == {"light": "rgb(255, 255, 255)", "dark": "rgb(15, 18, 23)"}[scheme]
    for selector in ("h1", ".kind", ".notice", ".name", ".hint", "dt", "dd", "output", "figcaption span"):
        assert contrast(page, selector) >= 4.5, selector
    page.screenshot(path=artifacts / f"sample-{scheme}.png", full_page=True)
    open_page(page, published(tmp_path, clean_record("long", LONG)), "long")
    for selector in ("h2", ".caption", "th", "td", ".legend li"):
        assert contrast(page, selector) >= 4.5, selector
    page.screenshot(path=artifacts / f"row-{scheme}.png", full_page=True)


def test_a_narrow_window_scrolls_no_page_sideways(page, pack, artifacts):
    page.set_viewport_size({"width": 420, "height": 800})
    open_page(page, pack, "third")
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.screenshot(path=artifacts / "sample-narrow.png", full_page=True)
