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


class Browser:
    """Opens pages of a site, which share a renderer: to start one takes most of the time of a page.

    The renderer lasts as long as a page of the site is open, so that one is kept for each choice of options. Nothing that a
    page stores reaches the next.
    """

    def __init__(self, browser, site):
        self._browser, self._site, self._kept = browser, site, {}

    def new_page(self, **options):
        key = repr(sorted(options.items()))
        if key not in self._kept:
            kept = self._kept[key] = self._browser.new_context(**options).new_page()
            kept.route(self._site, lambda route: route.fulfill(body=""))
            kept.goto(self._site)
        kept = self._kept[key]
        kept.context.clear_cookies()
        kept.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        return kept.context.new_page()


@contextmanager
def opened(site="file:///empty.html"):
    """Yields a `Browser` without extensions or background requests; skips the test if playwright is not installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield Browser(browser, site)
        browser.close()
