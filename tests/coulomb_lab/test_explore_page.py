"""The explorer in a real browser: no requests, no errors, and what a reader does on it."""

import math

import pytest

from chromium import MARKS, PHONE, WIDE, opened
from coulomb_lab.explore import build_explorer

pytestmark = MARKS


@pytest.fixture(scope="module")
def browser():
    with opened() as made:
        yield made


@pytest.fixture
def visit(browser, tmp_path):
    """Open the explorer; at the end it must have asked for nothing and complained about nothing."""
    address = build_explorer(tmp_path / "index.html").as_uri()
    pages, requests, complaints = [], [], []

    def open_page(link="", **options):
        page = browser.new_page(**({"viewport": WIDE} | options))
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{address}#{link}")
        page.wait_for_function("() => document.querySelectorAll('.row').length > 0")
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.wait_for_timeout(60)
        page.close()
    assert [url for url in requests if not url.startswith((address, "data:"))] == []
    assert complaints == []


def settled(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page


def shown(page, name):
    return settled(page).locator(f"#{name}").inner_text()


def middle(page, name):
    box = page.get_by_role("button", name=name).first.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


ALL_STATES = [
    (f"preset={preset}&loss={loss}&space={space}&arrows={arrows}&tau={tau}")
    for k, (preset, loss) in enumerate(
        (p, l) for p in ("even", "hard", "collapsed", "classes", "false")
        for l in ("infonce", "simple", "hard", "debiased", "hcl", "supcon", "paco")
    )
    for space, arrows, tau in [(("circle", "sphere")[k % 2], ("each", "anchor", "all")[k % 3], (0.01, 0.1, 1, 10)[k % 4])]
]  # fmt: skip


LOOK = """(states) => states.flatMap((state) => {
    location.hash = state;
    fromLink();
    setSpace(app.sphere ? "sphere" : "circle");
    app.setLoss(app.options.loss);
    drawAll();
    const all = (query) => [...document.querySelectorAll(query)], wrong = [];
    const said = all("main p, main dd, main b, main text, main output, .dot");
    const text = said.map((e) => e.textContent + e.ariaLabel).join(" ");
    if (/NaN|undefined|Infinity/.test(text)) wrong.push([state, text.match(/.{20}(NaN|undefined|Infinity)/)?.[0]]);
    if (/NaN|undefined|Infinity/.test(all("main path").map((e) => e.getAttribute("d")).join())) wrong.push([state, "path"]);
    if (document.documentElement.scrollWidth > innerWidth) wrong.push([state, "scrolls"]);
    const beyond = (e) => e.getBoundingClientRect().width && e.getBoundingClientRect().right > innerWidth + 1;
    const found = all("main *, header *").find((e) => beyond(e) && !e.closest("svg"));
    return found ? [...wrong, [state, found.outerHTML.slice(0, 80)]] : wrong;
})"""


@pytest.mark.slow  # draws 35 states
@pytest.mark.parametrize("viewport", [PHONE, WIDE], ids=["phone", "wide"])
def test_it_fits_and_shows_numbers_in_every_state(visit, viewport):
    page = visit(viewport=viewport)
    wrong = page.evaluate(LOOK, ALL_STATES)
    assert wrong == []


def test_dragging_a_negative_away_lowers_the_loss(visit):
    page = visit("preset=hard&tau=0.2")
    before, share = float(shown(page, "value")), page.locator(".row.push .share").all_inner_texts()
    x, y = middle(page, "2, negative")
    stage = page.locator("#drawing").bounding_box()
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(stage["x"] + 0.3 * stage["width"], y + 60, steps=4)
    page.mouse.move(stage["x"] + stage["width"] * 0.1, stage["y"] + stage["height"] * 0.75, steps=4)
    page.mouse.up()
    assert float(shown(page, "value")) < before - 0.3
    assert page.locator(".row.push .share").all_inner_texts() != share
    assert page.evaluate("norm(app.scene.points[1])") == pytest.approx(1, abs=1e-12)
    assert page.evaluate("app.scene.points[1][2]") == 0  # still on the circle
    assert page.evaluate("app.anchor") == 0  # a drag chooses no anchor


def test_a_click_or_enter_chooses_the_anchor(visit):
    page = visit()
    page.mouse.click(*middle(page, "4, negative"))
    assert shown(page, "who") == "4"
    assert page.get_by_role("button", name="4, anchor").get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="5′, negative").focus()
    page.keyboard.press("Enter")
    assert shown(page, "who") == "5′"
    assert settled(page).get_by_role("button", name="5, positive").count() == 1


def test_points_move_by_keyboard(visit):
    page = visit("preset=hard")
    before = page.evaluate("app.scene.points[1]")
    value = shown(page, "value")
    page.get_by_role("button", name="2, negative").focus()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    after = page.evaluate("app.scene.points[1]")
    assert math.acos(sum(a * b for a, b in zip(before, after, strict=True))) == pytest.approx(0.15, abs=1e-6)
    assert after[0] < before[0]
    assert shown(page, "value") != value
    assert page.evaluate("document.activeElement.dataset.index") == "1"  # the focus stays


def test_the_temperature_by_slider_keys_and_play(visit):
    page = visit("preset=hard&tau=0.2")
    page.locator("#temperature").focus()
    value, first = shown(page, "value"), page.locator(".row .share").first.inner_text()
    page.keyboard.press("Home")
    assert shown(page, "tau") == "0.01"
    assert page.locator("#temperature").get_attribute("aria-valuetext") == "τ = 0.01"
    assert settled(page).locator(".row .share").first.inner_text() == "100%"
    assert "triplet" in shown(page, "said")
    page.keyboard.press("End")
    assert shown(page, "tau") == "10"
    assert "almost alike" in shown(page, "said")
    assert shown(page, "effective") == "10.0 of 10"
    assert shown(page, "value") != value
    assert page.locator(".row .share").first.inner_text() != first
    page.locator("#play").click()
    page.wait_for_function("() => app.options.temperature < 9.9")
    page.locator("#play").click()
    held = shown(page, "tau")
    page.wait_for_timeout(80)
    assert shown(page, "tau") == held


def test_a_chart_over_tau_is_a_slider(visit):
    page = visit("tau=1")
    page.locator("#losschart").scroll_into_view_if_needed()
    box = page.locator("#losschart").bounding_box()
    page.mouse.click(box["x"] + 42, box["y"] + 60)
    assert page.evaluate("app.options.temperature") < 0.02


def test_every_loss_shows_its_own_figures(visit):
    page, seen = visit("preset=false&tau=0.3"), {}
    for name in ("InfoNCE", "Simple", "Hard", "Debiased", "Hard-negative", "SupCon", "PaCo"):
        page.get_by_role("radio", name=name, exact=True).check()
        seen[name] = shown(page, "value") + shown(page, "formula")
    assert len(set(seen.values())) == 7
    assert settled(page).get_by_role("button", name="center of class A").is_visible()
    page.locator("#longtail").check()
    assert page.evaluate("app.options.counts") == [100, 10, 1]
    page.get_by_role("radio", name="Hard", exact=True).check()
    page.locator("#knob-topK").fill("1")
    assert shown(page, "effective") == "1.0 of 10"
    page.get_by_role("radio", name="Simple", exact=True).check()
    assert settled(page).locator("#temperature").is_disabled()
    page.get_by_role("radio", name="InfoNCE", exact=True).check()
    assert "false negative" in shown(page, "said")


def test_the_sphere_turns_and_its_points_stay_on_it(visit):
    page = visit("space=sphere&preset=even")
    box = page.locator("#drawing").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    start = page.evaluate("app.camera")
    page.mouse.move(x - 10, y + 40)
    page.mouse.down()
    page.mouse.move(x + 70, y + 80, steps=5)
    page.mouse.up()
    camera = page.evaluate("app.camera")
    assert camera != start
    for a in range(3):
        for b in range(3):
            assert sum(p * q for p, q in zip(camera[a], camera[b], strict=True)) == pytest.approx(
                float(a == b), abs=1e-9
            )
    page.locator("#drawing").focus()
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("app.camera") != camera
    page.get_by_role("button", name="1, anchor").focus()
    page.keyboard.press("Shift+ArrowUp")
    assert page.evaluate("app.scene.points.every((p) => Math.abs(norm(p) - 1) < 1e-12)")
    forces = page.evaluate(
        "forcesOf(app, anchorLoss(app.scene, app.anchor, app.options)).map((f) => dot(f.at, f.step))"
    )
    assert max(map(abs, forces)) < 1e-12  # arrows are tangents


def test_letting_go_spreads_the_points_and_can_be_taken_back(visit):
    page = visit("space=sphere&preset=collapsed", reduced_motion="reduce")
    before = {name: shown(page, name) for name in ("alignment", "uniformity", "meanloss")}
    page.locator("#letgo").click()
    number = lambda name: float(shown(page, name).replace("−", "-"))  # noqa: E731
    assert number("uniformity") < -2.5
    assert number("alignment") < 0.02
    assert number("meanloss") < float(before["meanloss"]) / 3
    assert "Let go" in shown(page, "letgo")
    page.locator("#back").click()
    assert {name: shown(page, name) for name in before} == before


def test_letting_go_is_animated_and_can_be_held(visit):
    page = visit("preset=collapsed")
    first = page.evaluate("app.scene.points[0]")
    page.locator("#letgo").click()
    page.wait_for_function("() => app.trail.length > 5")
    page.locator("#letgo").click()
    held = page.evaluate("app.scene.points[0]")
    assert held != first
    page.wait_for_timeout(80)
    assert page.evaluate("app.scene.points[0]") == held


def test_arrows_are_the_gradient(visit):
    """The net arrow of the anchor is minus the library-checked gradient, times τ."""
    page = visit("preset=hard&tau=0.3&arrows=anchor")
    gap = page.evaluate("""() => {
        const found = anchorLoss(app.scene, 0, app.options), forces = forcesOf(app, found);
        const net = forces.find((f) => f.kind === "net").step, gradient = batchLoss(app.scene, app.options, 0).points[0];
        const parts = forces.filter((f) => f.kind !== "net").reduce((sum, f) => plus(sum, f.step), [0, 0, 0]);
        return norm(plus(net, gradient, app.options.temperature)) + norm(plus(net, parts, -1));
    }""")
    assert gap < 1e-12


def test_touch_moves_a_point(visit):
    page = visit("preset=hard", viewport=PHONE, has_touch=True, is_mobile=True)
    page.locator("#drawing").scroll_into_view_if_needed()
    x, y = middle(page, "5, negative")
    page.touchscreen.tap(x, y)
    assert shown(page, "who") == "5"
    before = page.evaluate("app.scene.points[4]")
    client = page.context.new_cdp_session(page)
    for kind, at in (("touchStart", (x, y)), ("touchMove", (x + 30, y - 20)), ("touchMove", (x + 70, y - 60))):
        client.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": at[0], "y": at[1]}]})
    client.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert page.evaluate("app.scene.points[4]") != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(visit, scheme):
    page = visit("preset=hard&tau=0.05", color_scheme=scheme)
    contrast = page.evaluate("""() => {
        const probe = document.createElement("i");
        document.body.append(probe);
        const light = (name) => {
            const rgb = pageColor(name).map((v) => v / 255).map((v) => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
            return .2126 * rgb[0] + .7152 * rgb[1] + .0722 * rgb[2];
        };
        const ratio = (a, b) => (Math.max(light(a), light(b)) + .05) / (Math.min(light(a), light(b)) + .05);
        return { ink: ratio("--ink", "--paper"), soft: ratio("--soft", "--paper"), push: ratio("--push", "--paper"),
                 pull: ratio("--pull", "--paper"), paper: light("--paper") };
    }""")
    assert (contrast.pop("paper") > 0.5) == (scheme == "light")
    assert min(contrast.values()) >= 4.5, contrast


def test_it_prints(visit, tmp_path):
    page = visit()
    page.pdf(path=tmp_path / "explore.pdf")
    assert (tmp_path / "explore.pdf").stat().st_size > 20_000


def test_a_link_cannot_break_it(visit):
    page = visit("preset=__proto__&loss=constructor&tau=<b>&space=9&arrows=")
    assert shown(page, "tau") == "0.20"
    assert page.evaluate("app.preset") == "hard"
