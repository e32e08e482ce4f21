"""A browser of the system, and pages that are watched: no error in the console, no request to anywhere else."""

import shutil
import time
from pathlib import Path

import pytest

NO_CHROMIUM = "no chromium is installed; apt-get install chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCREENSHOTS = Path(__file__).parents[2] / "runs/screenshots"  # not in git
PATIENCE = 60_000  # milliseconds, on a machine that has other things to do


@pytest.fixture(scope="module")
def browser():
    place = next(filter(None, map(shutil.which, NAMES)), None)
    if place is None:
        pytest.skip(NO_CHROMIUM)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        chromium = player.chromium.launch(executable_path=place, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser):
    """Open an address at a width, in light or in dark; at the end nothing must have gone wrong on it."""
    contexts, problems = [], []

    def open_page(address, width=1280, dark=False):
        scheme = "dark" if dark else "light"
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        home = address.split("/page")[0]
        page.on("console", lambda said: problems.append(f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: asked.url.startswith((home, "data:", "blob:")) or problems.append(asked.url))
        page.goto(address)
        until(page, "document.querySelector('#page').children.length > 0")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def until(page, told):
    """Wait until an expression is true; the page's policy lets nobody else evaluate one there again and again."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(told):
        assert time.monotonic() < end, told
        page.wait_for_timeout(50)


def keep(page, name):
    """Take a picture of a whole page, for people to look at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
