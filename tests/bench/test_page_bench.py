"""The benchmark's page: complete, offline, and readable on a phone."""

import json
import re
import shutil

import pytest

from bench_small import small_result
from coulomb.bench.growth_chart import Curve, log_chart
from coulomb.bench.results import headlines, render_page, save
from coulomb.errors import InputError

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def result():
    found = small_result(("dense", "linear_cross_entropy"))
    wrong = found["cases"][1] | {"status": "wrong", "reason": "<b>off</b>", "seconds": {}, "speedup": {}, "spread": {}}
    skipped = wrong | {"name": "skipped", "status": "skipped", "parity": None, "memory_mb": {}, "time_over_floor": {}}
    return found | {"cases": [found["cases"][0], wrong | {"time_over_floor": {}}, skipped, found["cases"][2]]}


def test_the_page_is_complete_and_asks_for_nothing(result):
    page = render_page(result)
    assert not re.search(r"(?:src|href)=\"(?!data:,)|url\(|<script|@import", page)
    assert "default-src 'none'" in page
    for words in (
        "NT-Xent",
        "dense PyTorch",
        "F.linear_cross_entropy",
        "products alone, torch.mm",
        "No speed is shown: wrong result.",
    ):
        assert words in page
    assert "&lt;b&gt;off&lt;/b&gt;" in page and "<b>off</b>" not in page


def test_it_is_saved_beside_its_data(result, tmp_path):
    data, page = save(result, tmp_path / "a" / "b")
    assert json.loads(data.read_text(encoding="utf-8"))["cases"][0]["name"] == result["cases"][0]["name"]
    assert page.read_text(encoding="utf-8") == render_page(result)
    with pytest.raises(InputError, match="this is a file"):
        save(result, data)


def test_a_page_of_nothing(result):
    empty = result | {"cases": [], "growth": None, "small": None, "counts": dict.fromkeys(result["counts"], 0)}
    assert "Measuring it yourself" in render_page(empty)
    assert headlines(empty) == []


def test_places_on_logarithmic_axes():
    curves = [Curve([(10, 1.0), (100, 10.0), (1000, 100.0)], "a", "ours"), Curve([], "b", "dense")]
    chart = log_chart(curves, title="t", unit="", x_label="N", write=lambda y: f"{y:g}")
    (line,) = chart.lines
    assert [(left, top) for left, top, _ in line.texts] == [(0, 100), (50, 50), (100, 0)]
    assert [(tick.place, tick.label) for tick in chart.y_ticks] == [(100, "1"), (50, "10"), (0, "100")]
    assert log_chart([Curve([], "b", "dense")], title="t", unit="", x_label="N", write=str) is None
    one = log_chart([Curve([(10, 1.0)], "a", "ours")], title="t", unit="", x_label="N", write=str)
    assert one.x_ticks[0].place == 50


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH (chromium, chromium-browser or google-chrome)")
@pytest.mark.parametrize("width", [390, 1280])
def test_it_opens_quietly_and_fits(result, tmp_path, width):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    _, path = save(result, tmp_path)
    requests, complaints = [], []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        beyond = """[...document.querySelectorAll("main *, header *")].filter(e => {
            const r = e.getBoundingClientRect();
            return r.width && r.right > innerWidth + 1 && !e.closest(".scroll, svg");
        }).map(e => e.outerHTML.slice(0, 80))"""
        assert page.evaluate(beyond) == []
        browser.close()
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
    assert complaints == []
