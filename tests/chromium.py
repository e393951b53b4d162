"""Chromium for tests of pages: `MARKS`, which skip them where there is none, and `opened`."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
NEEDED = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on PATH (chromium, chromium-browser or google-chrome)"
)
MARKS = [pytest.mark.browser, NEEDED]
QUIET = "--no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync --no-first-run"
PHONE, WIDE = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@contextmanager
def opened():
    """Yields a browser without extensions or background requests; skips the test if playwright is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()
