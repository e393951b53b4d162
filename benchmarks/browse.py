"""The page of a large index in Chromium: first screen, scrolling, search.

    python -m benchmarks.browse --images 100000

Writes an index of synthetic images (1280 features in float16, thumbnails of 160 × 120 pixels), runs `coulomb browse` on it and
prints one JSON object. Times are in milliseconds, medians of ``--repeats``:

* ``first_screen``: from the request of the page until all thumbnails on the screen are decoded. The server is running.
* ``scroll``: frames in which a part of the grid had no rows, and thumbnails missing on the screen after scrolling ends;
  150 frames, from 1 row per frame to a fiftieth of the grid per frame.
* ``search``: from the key to the decoded thumbnails of the 500 most similar images on the screen; ``request`` is the server's
  part. ``picture``: the same for a picture that is dropped on the page, embedded by lite0 at 96 pixels; the first loads lite0.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.command import Repeats, command
from benchmarks.synthetic_index import thumbnail, write_index
from coulomb.cli.app import say

READY = """() => { const tiles = [...document.querySelectorAll(".grid-row:not([hidden]) .tile:not([hidden])")].filter(tile => {
    const box = tile.getBoundingClientRect(), grid = document.querySelector(".grid").getBoundingClientRect();
    return box.bottom > grid.top && box.top < grid.bottom; });
  return tiles.length > 10 && tiles.every(tile => tile.querySelector("img").naturalWidth); }"""
WAIT = f"""() => new Promise(done => {{ const ready = {READY};
  const step = () => ready() ? done(performance.now()) : requestAnimationFrame(step); step(); }})"""
# Each frame is judged as it is painted; scrolling is a task of its own, as a user's.
SCROLL = """() => new Promise(done => {
  const grid = document.querySelector(".grid"), times = [];
  let frame = 0, gaps = 0, before = performance.now();
  grid.scrollTop = 0;
  const step = now => {
    times.push(now - before); before = now;
    setTimeout(() => { grid.scrollTop += frame < 60 ? 160 : frame < 100 ? 1500 : grid.scrollHeight / 50; });
    const box = grid.getBoundingClientRect();
    const rows = [...grid.querySelectorAll(".grid-row:not([hidden])")].map(e => e.getBoundingClientRect());
    let gap = false;
    for (let y = box.top + 20; y < box.bottom - 20; y += 30)
      if (!rows.some(r => r.top - 8 <= y && r.bottom + 8 >= y)) gap = true;
    if (gap && grid.scrollTop < grid.scrollHeight - box.height - 30) gaps++;
    if (++frame < 150) { requestAnimationFrame(step); return; }
    times.shift();
    times.sort((a, b) => a - b);
    const at = share => times[Math.floor((times.length - 1) * share)];
    done({ frames: frame, frames_with_gaps: gaps, median: at(.5), p95: at(.95), longest: at(1) });
  };
  requestAnimationFrame(step); })"""
DROP = """bytes => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([Uint8Array.from(bytes)], "a.jpg", { type: "image/jpeg" }));
  document.body.dispatchEvent(new DragEvent("drop", { bubbles: true, cancelable: true, dataTransfer: transfer })); }"""
SIMILAR = "document.querySelector('.status').textContent.includes('most similar')"


def until(page: Any, condition: str) -> None:
    """Waits for the frame in which a condition holds; Playwright's own waiting needs eval, which the page forbids."""
    page.evaluate(
        f"() => new Promise(done => {{ const step = () => {condition} ? done() : requestAnimationFrame(step); step(); }})"
    )


def measure(page: Any, address: str, repeats: int) -> dict[str, Any]:
    """Returns the figures of one index."""
    first = []
    for _ in range(repeats):
        page.goto("about:blank")
        page.goto(address)
        first.append(page.evaluate(WAIT))
    page.evaluate("performance.setResourceTimingBufferSize(100000)")
    scroll = page.evaluate(SCROLL)
    scroll["thumbnails_after"] = page.evaluate(
        f"async () => {{ const from = performance.now(); return await ({WAIT})() - from; }}"
    )
    page.evaluate("document.querySelector('.grid').scrollTop = 0")
    search, request, picture = [], [], []
    for number in range(repeats + 1):
        page.keyboard.press("Escape")
        until(page, f"!({SIMILAR})")
        page.locator(".grid").focus()
        page.keyboard.press("Home")
        for _ in range(number):
            page.keyboard.press("ArrowRight")
        before = page.evaluate("performance.now()")
        page.keyboard.press("s")
        until(page, SIMILAR)
        search.append(page.evaluate(WAIT) - before)
        request.append(
            page.evaluate(
                "performance.getEntriesByType('resource').filter(e => e.name.endsWith('/search')).at(-1).duration"
            )
        )
    for number in range(repeats + 1):
        page.keyboard.press("Escape")
        until(page, f"!({SIMILAR})")
        before = page.evaluate("performance.now()")
        page.evaluate(DROP, list(thumbnail(number)))
        until(page, SIMILAR)
        picture.append(page.evaluate(WAIT) - before)
    median = statistics.median
    return {
        "first_screen": median(first),
        "scroll": scroll,
        "search": {"median": median(search[1:]), "first": search[0], "request": median(request[1:])},
        "picture": {"median": median(picture[1:]), "first": picture[0]},
    }


def bench_browse(images: int, repeats: int = 5) -> dict[str, Any]:
    """Writes an index, starts `coulomb browse` and Chromium, and returns the figures."""
    from playwright.sync_api import sync_playwright

    from coulomb.index.encoders import fingerprint, open_encoder

    encoder = {"name": "lite0", "image_size": 96, "canvas": None}
    encoder["fingerprint"] = fingerprint(open_encoder("lite0", 96).encoder)
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with tempfile.TemporaryDirectory() as folder:
        index = write_index(Path(folder) / "large.index", images, width=1280, encoder=encoder)
        server_command = [sys.executable, "-m", "coulomb", "browse", str(index), "--no-open", "--json"]
        with (
            subprocess.Popen(server_command, stdout=subprocess.PIPE, text=True) as server,
            sync_playwright() as playwright,
        ):
            try:
                address = json.loads(server.stdout.readline())["address"]  # type: ignore[union-attr]
                browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
                figures = measure(browser.new_page(viewport={"width": 1360, "height": 860}), address, repeats)
                browser.close()
            finally:
                server.terminate()
    return {"images": images, "load": os.getloadavg()[0]} | figures


def main(
    images: Annotated[int, typer.Option(help="images of the index", min=100)] = 100_000, repeats: Repeats = 5
) -> None:
    """Measure the page of `coulomb browse` in Chromium: first screen, scrolling, search. Prints one JSON object."""
    say(json.dumps(bench_browse(images, repeats)))


if __name__ == "__main__":
    command(main, "--images 100000")
