"""The benchmark's page: complete, offline, and readable on a phone."""

import json
import re

import pytest

from bench_small import small_result
from benchmarks.results import growth_charts, headlines, render_html, save
from chromium import NEEDED, opened
from coulomb.ground.errors import InputError


@pytest.fixture(scope="module")
def result():
    found = small_result(("dense", "linear_cross_entropy"))
    wrong = found["cases"][1] | {"status": "wrong", "reason": "<b>off</b>", "seconds": {}, "speedup": {}, "spread": {}}
    skipped = wrong | {"name": "skipped", "status": "skipped", "parity": None, "memory_mb": {}, "time_over_floor": {}}
    return found | {"cases": [found["cases"][0], wrong | {"time_over_floor": {}}, skipped, found["cases"][2]]}


def test_the_page_is_complete_and_asks_for_nothing(result):
    page = render_html(result)
    assert not re.search(r"(?:src|href)=\"(?!data:,|#)|url\(|@import", page)
    assert page.count("<script") == 2 and "default-src 'none'" in page and "script-src 'sha256-" in page
    for words in (
        "NT-Xent",
        "dense PyTorch",
        "F.linear_cross_entropy",
        "products alone, torch.mm",
        "Wrong result: no speed is shown.",
    ):
        assert words in page
    assert "&lt;b&gt;off&lt;/b&gt;" in page and "<b>off</b>" not in page


def test_it_is_saved_beside_its_data(result, tmp_path):
    data, page = save(result, tmp_path / "a" / "b")
    assert json.loads(data.read_text(encoding="utf-8"))["cases"][0]["name"] == result["cases"][0]["name"]
    assert page.read_text(encoding="utf-8") == render_html(result)
    with pytest.raises(InputError, match="this is a file"):
        save(result, data)


def test_a_page_of_nothing(result):
    empty = result | {"cases": [], "growth": None, "small": None, "counts": dict.fromkeys(result["counts"], 0)}
    assert "Reproducing the benchmark" in render_html(empty)
    assert headlines(empty) == []


def test_growth_is_drawn_on_logarithmic_axes(result):
    times, memory = growth_charts(
        {
            "dim": 8,
            "points": [
                {"n": 10**k, "seconds": {"coulomb": 100.0**k}, "memory_mb": {"coulomb": 10.0**k}} for k in (1, 2)
            ],
            "slopes": {
                "coulomb": {"seconds": {"exponent": 2.0, "from": 10}, "memory_mb": None},
                "dense": {"seconds": None, "memory_mb": None},
            },
        }
    )
    assert [curve.exponent for curve in (*times.curves, *memory.curves)] == ["2.00", ""]
    assert times.readout[0]["x"] == [0, 100] and times.readout[0]["text"][1] == "coulomb, N 100: 10000.00 s"
    assert times.curves[0].end[2] == "10000.00 s" and [tick.label for tick in times.x_ticks] == ["10", "100"]
    assert growth_charts({"dim": 8, "points": [], "slopes": result["growth"]["slopes"]}) == []


@pytest.mark.browser
@NEEDED
@pytest.mark.parametrize("width", [390, 1280])
def test_it_opens_quietly_and_fits(result, tmp_path, width):
    _, path = save(result, tmp_path)
    requests, complaints = [], []
    with opened() as browser:
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
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
    assert complaints == []
