"""What tests of the page of an index wait for and read."""

import time


def until(page, script, arg=None):
    """Waits until a script returns something true; Playwright's own waiting needs eval, which the page forbids."""
    end = time.monotonic() + 60
    while not page.evaluate(script, arg):
        assert time.monotonic() < end, script
        page.wait_for_timeout(20)


def saved(page, kind, expected):
    """Waits until the server has exactly these decisions; the page shows a decision before it is saved."""
    end = time.monotonic() + 60
    while page.session.decisions()["decided"].get(kind) != expected:
        assert time.monotonic() < end, page.session.decisions()["decided"]
        page.wait_for_timeout(20)


def first_tile(page):
    page.locator(".tile img[src]").first.wait_for()
    until(page, "[...document.querySelectorAll('.tile img[src]')].every(image => image.complete)")


def shown(page):
    """The positions of the images in the grid on the screen, in order."""
    return page.evaluate("""() => [...document.querySelectorAll(".grid-row:not([hidden]) .tile:not([hidden])")].map(
        tile => [Number(tile.dataset.at), Number(tile.dataset.position)]).sort((a, b) => a[0] - b[0]).map(pair => pair[1])""")


def settled(page, text, place="#saved"):
    until(page, "([place, text]) => document.querySelector(place).textContent.includes(text)", arg=[place, text])
