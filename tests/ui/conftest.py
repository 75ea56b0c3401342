"""A real Chromium for the tests marked ``ui``: what a page asks for and complains of is recorded, pictures of it are kept.

``MUVAP_CHROMIUM`` names another browser than the one on the path; ``MUVAP_UI_ARTIFACTS`` where screenshots go.
"""

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from skipping import skip_or_fail

ROOT = Path(__file__).parents[2]
# a closed network is no reason for the browser to keep asking its vendor's hosts
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
]


# A browser's event loop runs until it is closed, and Dagster cannot run in a thread that has one: none outlives its file.
@pytest.fixture(scope="module")
def browser():
    executable = os.environ.get("MUVAP_CHROMIUM") or shutil.which("chromium")
    if executable is None:
        skip_or_fail("no Chromium on the path: install Debian's chromium, or set MUVAP_CHROMIUM")
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=executable, headless=True, args=_ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def artifacts():
    """Where screenshots are kept."""
    folder = Path(os.environ.get("MUVAP_UI_ARTIFACTS", ROOT / "data" / "ui-artifacts"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def page(browser):
    """A fresh page. ``page.requests`` and ``page.complaints`` list what it asked for and what its console said was wrong."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.requests, opened.complaints = [], []
    opened.on("request", lambda request: opened.requests.append(request.url))
    opened.on("pageerror", lambda error: opened.complaints.append(str(error)))
    opened.on("console", lambda said: opened.complaints.append(said.text) if said.type == "error" else None)
    yield opened
    context.close()
