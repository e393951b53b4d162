"""The page in a real browser: no requests, no errors, and what a reader does on it."""

import shutil
from pathlib import Path

import pytest

from chromium import MARKS, PHONE, WIDE, opened
from coulomb.report import build_comparison, build_report

pytestmark = MARKS


@pytest.fixture(scope="module")
def browser():
    with opened() as made:
        yield made


@pytest.fixture(scope="module")
def reports(pristine, maker, tmp_path_factory):
    made = {}
    for kind, change in maker.changes.items():
        folder = Path(shutil.copytree(pristine, tmp_path_factory.mktemp("pages") / kind))
        change(folder)
        made[kind] = build_report(folder)
    folders = [made[kind].parent for kind in ("labeled", "figures", "stopped", "hostile")]
    made["comparison"] = build_comparison(folders, tmp_path_factory.mktemp("compared") / "report.html")
    return made


@pytest.fixture
def visit(browser, reports):
    """Open a report; at the end the page must have asked for nothing and complained about nothing."""
    pages, requests, complaints = [], [], []

    def open_page(kind="labeled", **options):
        page = browser.new_page(**({"viewport": WIDE} | options))
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append("dialog") or dialog.dismiss())
        page.goto(reports[kind].as_uri())
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.wait_for_timeout(100)
        page.close()
    assert [url for url in requests if not url.startswith(("data:", "blob:"))] == [
        url for url in requests if url.endswith("/report.html")
    ]
    assert complaints == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["labeled", "unlabeled", "partial", "stopped", "hostile", "figures", "weights", "comparison"]
)
@pytest.mark.parametrize("viewport", [PHONE, WIDE], ids=["phone", "wide"])
def test_it_opens_quietly_and_fits(visit, kind, viewport):
    page = visit(kind, viewport=viewport)
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    beyond = """[...document.querySelectorAll("main *, header *")].filter(e => {
        const r = e.getBoundingClientRect();
        return r.width && r.right > innerWidth + 1 && !e.closest(".scroll, .skip, svg");
    }).map(e => e.outerHTML.slice(0, 90))"""
    assert page.evaluate(beyond) == []
    empty = """[...document.querySelectorAll("section, figure, dl, ul, table")].filter(
        e => !e.textContent.trim() && !e.querySelector("img")).length"""
    assert page.evaluate(empty) == 0


def test_pointing_at_the_map_shows_the_image(visit):
    page = visit()
    target = page.locator("#atlas use").nth(5)
    page.locator("#atlas").scroll_into_view_if_needed()
    box = target.bounding_box()
    assert page.locator(".tip").is_hidden()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator(".tip").wait_for()
    thumb = page.locator(".tip .thumb")
    assert thumb.bounding_box()["width"] > 90
    assert thumb.evaluate("e => getComputedStyle(e).backgroundImage").startswith('url("data:image/png;base64')
    expected = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).map.ids[5]")
    assert page.locator(".tip .id").inner_text() == expected
    columns = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).columns")
    place = thumb.evaluate("e => [e.style.getPropertyValue('--x'), e.style.getPropertyValue('--y')]")
    assert [int(value) for value in place] == [5 % columns, 5 // columns]
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.locator(".picked .near .thumb").count() == 8
    assert page.locator(".picked .id").inner_text() == expected


def test_the_map_by_keyboard_alone(visit):
    page = visit()
    page.locator("#atlas").focus()
    seen = set()
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
        assert page.locator(".tip").is_visible()
        seen.add(page.locator(".tip .id").inner_text())
    assert len(seen) >= 3
    assert page.locator(".picked .id").inner_text() in seen
    page.keyboard.press("Escape")
    assert page.locator(".tip").is_hidden()


def test_the_map_by_tap(visit):
    page = visit(viewport=PHONE, has_touch=True, is_mobile=True)
    page.locator("#atlas").scroll_into_view_if_needed()
    box = page.locator("#atlas use").nth(3).bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.locator(".tip").is_visible()
    tip, atlas = page.locator(".tip").bounding_box(), page.locator("#atlas").bounding_box()
    assert tip["x"] >= atlas["x"]
    assert tip["x"] + tip["width"] <= atlas["x"] + atlas["width"]


def test_classes_layouts_and_pictures_can_be_chosen(visit):
    page = visit(reduced_motion="reduce")
    marks, legend = page.locator("#atlas use"), page.locator(".legend button").first
    legend.click()
    assert legend.get_attribute("aria-pressed") == "true"
    assert 0 < page.locator("#atlas use.on").count() < marks.count()
    legend.click()
    assert legend.get_attribute("aria-pressed") == "false"
    before = marks.first.get_attribute("x")
    page.get_by_role("button", name="PCA").click()
    page.wait_for_function("x => document.querySelector('#atlas use').getAttribute('x') !== x", arg=before)
    assert "variance" in page.locator("#caution").inner_text()
    page.get_by_role("button", name="Pictures").click()
    assert page.locator(".pictures .thumb").count() > 20


LOOP = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.5), (0.02, 0.5)]  # the upper half of the map


def centers(page):
    """Where the marks are, in shares of the map."""
    return page.evaluate("""() => [...document.querySelectorAll("#atlas use")].map(
        e => [parseFloat(e.getAttribute("x")) / 100, parseFloat(e.getAttribute("y")) / 100])""")


def draw(page, corners=LOOP):
    page.locator("#atlas").scroll_into_view_if_needed()
    box = page.locator("#atlas").bounding_box()
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in corners]
    page.mouse.move(*at[0])
    page.mouse.down()
    for corner in at[1:]:
        page.mouse.move(*corner, steps=4)
    page.mouse.up()


def test_a_loop_drawn_with_the_mouse_lists_what_it_encloses(visit):
    page = visit()
    assert page.locator("#selected").is_hidden()
    expected = [i for i, (x, y) in enumerate(centers(page)) if 0.02 < x < 0.98 and 0.02 < y < 0.5]
    draw(page)
    names = page.evaluate("JSON.parse(document.getElementById('page-data').textContent).map.ids")
    assert 10 < len(expected) < 110
    assert page.locator("#selected [role=status]").inner_text() == f"{len(expected)} images selected"
    assert page.locator(".selectedlist .thumb").count() == len(expected)
    assert sorted(page.locator("#selected textarea").input_value().split("\n")) == sorted(names[i] for i in expected)
    assert page.locator("#atlas use.selected").count() == len(expected)
    assert page.locator(".tip").is_hidden()
    page.get_by_role("button", name="Clear selection").click()
    assert page.locator("#selected").is_hidden()
    assert page.locator("#atlas use.selected").count() == 0


def test_a_loop_takes_only_what_is_singled_out_and_the_choice_outlives_another_map_and_color(visit):
    page = visit("figures", reduced_motion="reduce")
    legend = page.locator(".legend button")
    legend.nth(0).click()
    on = page.locator("#atlas use.on").count()
    draw(page, [(0.03, 0.03), (0.97, 0.03), (0.97, 0.97), (0.03, 0.97)])
    assert page.locator("#atlas use.selected").count() == on > 0
    page.get_by_role("button", name="PCA").click()
    page.get_by_role("button", name="split", exact=True).click()
    assert page.locator("#atlas use.selected").count() == on
    assert legend.all_inner_texts() == ["held out", "training images"]
    assert "Split" in page.locator(".legendbox .sidetitle").inner_text()
    assert page.locator("#atlas use.c1").count() == 40
    legend.nth(1).click()
    assert page.locator("#atlas use.off").count() == 120
    page.get_by_role("button", name="cluster", exact=True).click()
    assert page.locator("#atlas use.off").count() == 0
    assert "k-means with 10 clusters" in page.locator("#colornote").inner_text()


def test_a_finger_draws_only_with_the_lasso(visit):
    page = visit(viewport=PHONE, has_touch=True, is_mobile=True)
    page.locator("#atlas").scroll_into_view_if_needed()
    swipe = """corners => {
        const map = document.getElementById("atlas"), box = map.getBoundingClientRect();
        const fire = (kind, [x, y]) => map.dispatchEvent(new PointerEvent(kind, {
            pointerType: "touch", pointerId: 1, isPrimary: true, button: kind === "pointermove" ? -1 : 0, bubbles: true,
            clientX: box.x + x * box.width, clientY: box.y + y * box.height }));
        map.setPointerCapture = () => {};
        fire("pointerdown", corners[0]);
        corners.slice(1).forEach(corner => fire("pointermove", corner));
        fire("pointerup", corners[corners.length - 1]);
    }"""
    page.evaluate(swipe, LOOP)
    assert page.locator("#selected").is_hidden()
    page.get_by_role("button", name="Lasso").tap()
    assert page.locator("#atlas").evaluate("e => getComputedStyle(e).touchAction") == "none"
    page.evaluate(swipe, LOOP)
    assert page.locator(".selectedlist .thumb").count() > 10


def test_images_are_chosen_by_keyboard_alone(visit):
    page = visit()
    page.locator("#atlas").focus()
    said = page.locator("#selected [role=status]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("s")
    assert said.inner_text() == "1 image selected"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("s")
    assert said.inner_text() == "2 images selected"
    page.keyboard.press("s")
    assert said.inner_text() == "1 image selected"
    sizes = []
    for _ in range(4):
        page.keyboard.press("+")
        sizes.append(page.locator("#atlas use.selected").count())
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0] >= 1
    page.keyboard.press("-")
    assert page.locator("#atlas use.selected").count() == sizes[-2]
    page.keyboard.press("Escape")
    assert page.locator("#selected").is_hidden()


def test_controls_are_reached_by_tab_and_show_their_focus(visit):
    page = visit("figures")
    page.evaluate("""() => {
        window.reached = [];
        document.addEventListener("focusin", ({ target }) => {
            const style = getComputedStyle(target), data = target.dataset;
            const name = target.id || data.layout || data.coloring || target.tagName + " " + target.className;
            window.reached.push([name, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0]);
        });
    }""")
    for start, presses in ((None, 5), ("#epoch", 12)):
        if start:
            page.locator(start).focus()
        for _ in range(presses):
            page.keyboard.press("Tab")
    reached = page.evaluate("window.reached")
    assert {"theme", "epoch", "tsne", "pca", "class", "split", "lasso", "pictures", "atlas"} <= {
        name for name, _ in reached
    }
    assert [name for name, ringed in reached if not ringed] == []


def test_the_theme_is_the_readers_choice(visit):
    page = visit(color_scheme="dark")
    button, paper = page.locator("#theme"), "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(paper)
    button.click()
    assert button.inner_text() == "Theme: light"
    light = page.evaluate(paper)
    assert light != dark
    button.click()
    assert (button.inner_text(), page.evaluate(paper)) == ("Theme: dark", dark)
    page.reload()
    assert (button.inner_text(), page.evaluate(paper)) == ("Theme: dark", dark)
    page.emulate_media(color_scheme="light")
    assert page.evaluate(paper) == dark
    button.click()
    assert (button.inner_text(), page.evaluate(paper)) == ("Theme: system", light)


def test_the_histogram_goes_through_the_epochs(visit):
    page = visit("figures")
    path, slider = page.locator(".area.positive"), page.locator("#epoch")
    last = path.get_attribute("d")
    assert page.locator(".scrub output").inner_text() == "30"
    slider.focus()
    page.keyboard.press("Home")
    assert page.locator(".scrub output").inner_text() == "0"
    assert path.get_attribute("d") != last
    page.keyboard.press("End")
    assert path.get_attribute("d") == last


def test_curves_of_one_chart_are_read_by_up_and_down(visit):
    page = visit("figures")
    plot = page.locator(".plot").filter(has=page.locator(".line.k1")).first
    plot.focus()
    page.keyboard.press("End")
    first = plot.locator(".readout").inner_text()
    page.keyboard.press("ArrowDown")
    second = plot.locator(".readout").inner_text()
    assert first.startswith("two views, ")
    assert second.startswith("hardest negative, ")
    plane = page.locator(".plot.path")
    plane.focus()
    page.keyboard.press("End")
    assert "epoch 30: uniformity" in plane.locator(".readout").inner_text()


def test_charts_tell_their_values_to_pointer_and_keyboard(visit):
    page = visit()
    plot = page.locator(".plot").first
    plot.hover()
    assert "step" in plot.locator(".readout").inner_text()
    page.locator(".plot").nth(1).focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".plot").nth(1).locator(".readout").inner_text() == "epoch 0: 89.0\u202f%"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(visit, scheme):
    page = visit(color_scheme=scheme)
    luminance = """s => {
        const linear = v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
        const [r, g, b] = getComputedStyle(document.querySelector(s[0]))[s[1]].match(/[\\d.]+/g).map(v => linear(v / 255));
        return .2126 * r + .7152 * g + .0722 * b;
    }"""
    paper = page.evaluate(luminance, ["body", "backgroundColor"])
    assert (paper > 0.5) == (scheme == "light")
    for selector in (
        "body",
        ".lead",
        ".note",
        ".levelname.raw_pixels",
        ".levelname.random_init",
        ".headline",
        ".ytick",
    ):
        ink = page.evaluate(luminance, [selector, "color"]) if "raw_pixels" not in selector else None
        if ink is not None:
            assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) >= 4.5, selector


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_starting_weights_have_a_color_of_their_own(visit, scheme):
    page = visit("weights", color_scheme=scheme)
    colors = (
        page.locator(".bars .group")
        .first.locator(".bar i")
        .evaluate_all("bars => bars.map(bar => getComputedStyle(bar).backgroundColor)")
    )
    assert len(colors) == len(set(colors)) == 4
    widths = (
        page.locator(".bars .group").first.locator(".bar i").evaluate_all("bars => bars.map(bar => bar.offsetWidth)")
    )
    assert widths[1] == max(widths)  # the starting weights are the best


def test_it_reads_without_script_and_prints(visit, tmp_path):
    page = visit(java_script_enabled=False)
    assert page.locator("#atlas use").count() == 120
    assert page.locator(".plot .line").first.is_visible()
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 20_000


def test_the_policy_stops_what_slips_in(browser, reports, tmp_path):
    """Were a name ever written unescaped, the browser would still run and fetch nothing."""
    source = reports["labeled"].read_text(encoding="utf-8")
    bad = '<script>document.title="owned"</script><img src="http://127.0.0.1:9/x" onerror="document.title=\'owned\'">'
    (tmp_path / "page.html").write_text(source.replace("<main>", bad + "<main>"), encoding="utf-8")
    page, failed = browser.new_page(), []
    page.on("console", lambda message: failed.append(message.text))
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_timeout(200)
    assert "owned" not in page.title()
    assert sum("Content Security Policy" in text for text in failed) >= 2
    page.close()
