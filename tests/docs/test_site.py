"""The built site has no warnings, external resources or broken links, and can be read and searched offline."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from chromium import NEEDED, opened
from page_blocks import ROOT


@pytest.fixture(scope="module")
def check():
    spec = importlib.util.spec_from_file_location("check_site", ROOT / "docs" / "check_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "--fail-on-warning", "--keep-going"]
    done = subprocess.run([*command, str(ROOT / "docs"), str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
@pytest.mark.timeout(900)  # the notebooks are executed
def test_the_site_has_no_faults(site, check):
    assert check.faults(site) == []
    assert (site / "index.html").is_file() and (site / "benchmarks" / "losses.html").is_file()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(900)
@NEEDED
def test_the_site_can_be_read_and_searched_in_a_browser(site):
    requests, errors = [], []
    with opened() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        for name in (
            "index.html",
            "guide/temperature.html",
            "guide/why.html",
            "losses/NTXentLoss.html",
            "api/tables.html",
            "guide/errors.html",
            *(f"notebooks/{path.stem}.html" for path in (ROOT / "docs" / "notebooks").glob("*.md")),
        ):
            page.goto((site / name).as_uri())
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 1, f"{name} is {wide} pixels wider than the screen of a phone"
            assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)"), name
        for words in ("temperature", "small blue ring", "pickle"):
            page.goto((site / "search.html").as_uri() + f"?q={words}")
            page.wait_for_selector("#search-results li")
        page.goto((site / "search.html").as_uri() + "?q=temperature")
        page.wait_for_selector("#search-results li:nth-child(4)")
    assert not errors
    assert not [url for url in requests if not url.startswith(("file://", "data:"))]


def test_faults_are_found(tmp_path, check):
    (tmp_path / "a.html").write_text('<a href="b.html#here">b</a><a href="https://x.org">x</a>')
    (tmp_path / "b.html").write_text('<p id="here">')
    assert check.faults(tmp_path) == []
    (tmp_path / "b.html").write_text("<p>")
    assert check.faults(tmp_path) == ["a.html: b.html#here: no such anchor"]
    (tmp_path / "b.html").unlink()
    assert check.faults(tmp_path) == ["a.html: b.html#here: no such file"]
    (tmp_path / "a.html").write_text(
        '<script src="//cdn.org/x.js"></script><style>p{background:url("https://x.org/y")}</style>'
    )
    assert len(check.faults(tmp_path)) == 2
    (tmp_path / "a.html").write_text('<link rel="preconnect" href="https://fonts.org">')
    assert check.faults(tmp_path) == ["a.html: loads from the network: https://fonts.org"]
    assert check.faults(Path(tmp_path / "empty"))
