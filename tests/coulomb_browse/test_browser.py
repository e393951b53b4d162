"""The page in a real browser: what a user does on it, by mouse, keyboard and touch; hostile names; 20,000 images."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.synthetic_index import GROUPS, write_index
from browse_pages import first_tile, saved, settled, shown, until
from chromium import MARKS, PHONE, WIDE
from coulomb.index import Index
from coulomb_browse.maps import positions
from coulomb_browse.session import Session

pytestmark = MARKS
HOSTILE = [
    "<img src=x onerror=alert(1)>.jpg",
    '"><script>alert(1)</script>.jpg',
    "javascript:alert(1)//.jpg",
    "a&lt;b&amp;.jpg",
    "\u202egpj.exe",
    "line\nbreak\ttab.jpg",
    "=cmd|' /C calc'!A0.jpg",
    "x" * 900 + ".jpg",
    "{{7*7}}${7*7}.jpg",
]


VIEWS = {
    "images": ".tile img[src]",
    "map": "#map-canvas",
    "duplicates": ".group",
    "label-errors": ".option",
    "label": ".option",
}


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("viewport", [PHONE, WIDE], ids=["phone", "wide"])
def test_every_view_opens_quietly_fits_and_names_its_controls(visit, small, view, viewport):
    page = visit(small, view, viewport=viewport)
    if view == "label-errors":
        page.locator(".option, .empty").first.wait_for(timeout=60_000)
    else:
        page.locator(VIEWS[view]).first.wait_for(timeout=60_000)
    assert "token" not in page.url
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    cut = """[...document.querySelectorAll("nav a")].filter(e => e.getBoundingClientRect().left < 0 ||
        e.getBoundingClientRect().right > innerWidth).map(e => e.textContent)"""
    assert page.evaluate(cut) == []
    nameless = """[...document.querySelectorAll("button, a, input, select, canvas, [role=grid], img")].filter(e =>
        e.offsetParent && !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length || e.hasAttribute("alt"))
        ).map(e => e.outerHTML.slice(0, 90))"""
    assert page.evaluate(nameless) == []
    assert page.locator("nav [aria-current=page]").count() == 1


def test_only_the_rows_near_the_screen_exist(visit, small):
    page = visit(small)
    first_tile(page)
    page.evaluate("document.querySelector('.grid').scrollTop = 1e9")
    until(page, "document.querySelector('.tile[data-at=\"299\"] img')?.src")
    assert page.locator(".grid-row:not([hidden]) .tile").count() < 200
    assert page.locator(".grid").get_attribute("aria-rowcount") == str(
        -(-300 // int(page.locator(".grid").get_attribute("aria-colcount")))
    )


def test_a_click_shows_the_image_and_similar_ones(visit, small):
    page = visit(small)
    first_tile(page)
    page.locator('.tile[data-at="3"]').click()
    page.locator(".near .small-tile").first.wait_for()
    details = page.locator("#details")
    assert Path(page.session.index.ids[3]).name in details.inner_text()
    assert "640 × 480" in details.inner_text() or "1280 × 960" in details.inner_text()
    near = [
        int(value)
        for value in page.locator(".near .small-tile").evaluate_all("list => list.map(e => e.dataset.position)")
    ]
    assert near == page.session.search([{"position": 3}], [], 24)["positions"]
    page.locator(".near .small-tile").first.click()
    until(page, "name => document.querySelector('#details h2').title === name", arg=page.session.index.ids[near[0]])
    page.keyboard.press("Escape")
    assert details.is_hidden()


@pytest.mark.slow
def test_the_grid_by_keyboard_alone(visit, small):
    page = visit(small)
    first_tile(page)
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    columns = int(page.locator(".grid").get_attribute("aria-colcount"))
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        page.keyboard.press(key)
    assert page.locator(".grid").get_attribute("aria-activedescendant").endswith(f"-{columns + 1}")
    page.keyboard.press("End")
    assert page.locator(".grid").get_attribute("aria-activedescendant").endswith("-299")
    assert page.locator(".tile.active").is_visible()
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.locator("#details h2").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    settled(page, "most similar", ".status")
    assert shown(page)[:5] == page.session.search([{"position": 0}], [], 5)["positions"]
    page.keyboard.press("Escape")
    settled(page, "300 images", ".status")


@pytest.mark.slow
def test_search_by_the_mean_of_several_minus_others(visit, small):
    page = visit(small)
    first_tile(page)
    page.locator('.tile[data-at="2"]').click(modifiers=["Control"])
    page.locator('.tile[data-at="4"]').hover()
    page.locator('.tile[data-at="4"] .mark.plus').click()
    page.locator('.tile[data-at="6"]').hover()
    page.locator('.tile[data-at="6"] .mark.minus').click()
    assert page.locator(".chip.plus").count() == 2
    assert page.locator(".chip.minus").count() == 1
    page.get_by_role("button", name="Similar to their mean").click()
    settled(page, "most similar", ".status")
    expected = page.session.search([{"position": 2}, {"position": 4}], [{"position": 6}], 20)
    assert shown(page)[:20] == expected["positions"]
    page.locator(".chip.minus").click()
    page.locator(".chip.plus").first.click()
    page.get_by_role("button", name="Find similar").click()
    until(
        page,
        "first => document.querySelector('.tile[data-at=\"0\"]').dataset.position === String(first)",
        arg=page.session.search([{"position": 4}], [], 1)["positions"][0],
    )
    page.get_by_role("button", name="All images").click()
    settled(page, "300 images", ".status")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["upload", "paste", "drop"])
def test_search_by_a_picture_of_the_user(visit, digits_index, way):
    page = visit(digits_index)
    first_tile(page)
    path = page.session.index.paths[17]
    if way == "upload":
        page.locator("#file").set_input_files(path)
    else:
        page.evaluate(
            """([bytes, way]) => {
                const transfer = new DataTransfer();
                transfer.items.add(new File([Uint8Array.from(bytes)], "a.png", { type: "image/png" }));
                const init = { bubbles: true, cancelable: true };
                const event = way === "paste" ? new ClipboardEvent("paste", { ...init, clipboardData: transfer })
                    : new DragEvent("drop", { ...init, dataTransfer: transfer });
                document.body.dispatchEvent(event);
            }""",
            [list(Path(path).read_bytes()), way],
        )
    settled(page, "most similar", ".status")
    assert shown(page)[0] == 17
    assert page.locator(".chip.plus img").evaluate("e => e.src").startswith("blob:")
    assert not [path for path in page.session.index.path.rglob("*") if "upload" in path.name]


def test_a_file_that_is_no_picture_is_said(visit, small, tmp_path):
    (tmp_path / "notes.png").write_text("no picture")
    page = visit(small)
    first_tile(page)
    page.locator("#file").set_input_files(tmp_path / "notes.png")
    settled(page, "not an image", "#toast")
    page.complaints.clear()  # the browser reports the refused upload


def test_images_are_found_and_filtered(visit, small):
    page = visit(small)
    first_tile(page)
    page.locator("#find").fill("000007")
    settled(page, "1 of 300", ".status")
    assert shown(page) == [7]
    page.locator("#find").fill("nothing has this name")
    page.locator(".empty").wait_for()
    page.locator("#find").fill("")
    names = page.session.groupings["label"].names
    page.locator("#filter").select_option("label:1")
    members = [at for at, label in enumerate(page.session.index.labels) if label == names[1]]
    settled(page, f"{len(members)} of 300", ".status")
    assert shown(page)[:10] == members[:10]
    page.locator("#filter").select_option("")
    page.locator("#order").select_option("outliers")
    until(page, "() => !document.querySelector('.status').textContent.includes('compares')")
    page.wait_for_timeout(200)
    assert shown(page)[0] == page.session.places[page.session.index.outliers(1)[0]["id"]]


def canvas_colors(page):
    """The number of colors of the map."""
    picture = Image.open(io.BytesIO(page.locator("#map-canvas").screenshot())).convert("RGB")
    return len(picture.getcolors(1 << 24))


@pytest.mark.slow
def test_the_map_a_lasso_and_the_grid_beside_it(visit, small):
    page = visit(small, "map")
    page.locator("#map-canvas").wait_for(timeout=60_000)
    page.wait_for_timeout(300)
    assert canvas_colors(page) > 20  # six groups, drawn with transparency
    page.locator("#layout").select_option("pca")
    page.wait_for_timeout(300)
    box = page.locator("#map-canvas").bounding_box()
    page.keyboard.press("l")
    corners = [(0.1, 0.05), (0.5, 0.05), (0.5, 0.95), (0.1, 0.95)]
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + box["height"] * 0.05)
    page.mouse.down()
    for x, y in corners:
        page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y, steps=3)
    page.mouse.up()
    settled(page, "selected", ".status")
    places = np.frombuffer(positions(page.session.folder / "maps.npz", "pca"), "<u2").reshape(-1, 2) / 65535
    side = min(box["width"], box["height"])
    x = (places[:, 0] - 0.5) * side + box["width"] / 2
    inside = np.flatnonzero((x > 0.1 * box["width"]) & (x < 0.5 * box["width"]))
    assert 20 < len(inside) < 280
    found = int(page.locator(".status").inner_text().split(" image")[0])
    assert abs(found - len(inside)) <= 3
    assert set(shown(page)) <= set(inside.tolist()) | set(np.flatnonzero(abs(x - 0.5 * box["width"]) < 2).tolist())
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    settled(page, "300 images", ".status")
    page.keyboard.press("v")
    settled(page, "300 images selected", ".status")


@pytest.mark.slow
def test_the_map_by_mouse_legend_and_clusters(visit, small):
    page = visit(small, "map")
    page.locator(".legend button").first.wait_for(timeout=60_000)
    assert page.locator(".legend button").count() == 6
    before = canvas_colors(page)
    page.locator(".legend button").first.click()
    page.wait_for_timeout(100)
    assert canvas_colors(page) != before
    page.locator("#color").select_option("cluster")
    until(page, "document.querySelectorAll('.legend button').length === 12")
    box = page.locator("#map-canvas").bounding_box()
    x, y = (np.frombuffer(positions(page.session.folder / "maps.npz", "tsne"), "<u2")[20:22] / 65535 - 0.5) * min(
        box["width"], box["height"]
    )
    place = box["x"] + box["width"] / 2 + x, box["y"] + box["height"] / 2 + y
    page.locator("#layout").select_option("tsne")
    page.wait_for_timeout(200)
    page.mouse.move(*place)
    page.locator(".tip").wait_for()
    page.mouse.click(*place)
    page.locator("#details h2").wait_for()
    page.mouse.wheel(0, -3000)
    page.wait_for_timeout(300)


@pytest.mark.slow
def test_duplicates_by_keyboard_survive_a_reload_and_are_exported(visit, small):
    page = visit(small, "duplicates")
    page.locator(".group").first.wait_for(timeout=60_000)
    groups = page.session.jobs.status("duplicates", {"above": 0.95})["answer"]["groups"]
    assert f"of {len(groups)}" in page.locator(".group h3").first.inner_text()
    page.keyboard.press("a")
    settled(page, "Saved")
    first = {groups[0]["keep"]: "keep"} | {
        position: "keep" if keep else "drop" for position, _, keep, _ in groups[0]["members"]
    }
    saved(page, "file", first)
    page.keyboard.press("d")  # the first image of the second group
    page.keyboard.press("k")  # its second
    dropped = sum(value == "drop" for value in first.values()) + 1
    until(page, f"document.querySelector('.status').textContent.includes('{dropped} to drop')")
    page.keyboard.press("u")
    settled(page, "Undone")
    second = groups[1]
    saved(page, "file", first | {second["keep"]: "drop"})
    assert page.locator(".copy.dropped").count() == dropped
    page.reload()
    page.locator(".copy.dropped").nth(dropped - 1).wait_for(timeout=60_000)
    with page.expect_download() as download:
        page.get_by_role("link", name="Export list").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert {row["id"]: row["decision"] for row in rows} == {
        page.session.index.ids[at]: value for at, value in page.session.decisions()["decided"]["file"].items()
    }
    told = "[...document.querySelectorAll('.difference')].some(one => /larger|smaller/.test(one.textContent))"
    until(page, told)  # the rows come after the decisions
    page.locator(".copy .drop").nth(3).click()
    page.get_by_role("button", name="Keep the best in all groups").click()
    settled(page, "Saved")
    page.keyboard.press("u")
    settled(page, "Undone")
    page.locator("#above").fill("1")
    page.keyboard.press("Enter")
    page.locator(".groups .empty, .group").first.wait_for(timeout=60_000)


@pytest.fixture
def flipped(tmp_path):
    """An index of 300 images with three wrong labels."""
    clean = Index.open(write_index(tmp_path / "clean", 300, clusters=6)).labels
    flip = dict(zip(GROUPS, (*GROUPS[1:], GROUPS[0]), strict=True))
    labels = [flip[label] if at in (10, 20, 30) else label for at, label in enumerate(clean)]
    return write_index(tmp_path / "flipped.index", 300, labels=labels, clusters=6)


def test_label_errors_by_keyboard(visit, flipped):
    page = visit(flipped, "label-errors")
    page.locator(".option").first.wait_for(timeout=60_000)
    found = page.session.jobs.status("label_errors", {})["answer"]
    assert page.locator(".option.given b").inner_text() == found[0]["label"]
    assert page.locator(".option.suggested b").inner_text() == found[0]["suggested"]
    page.locator(".neighbor").first.wait_for()
    shown = "document.querySelector('.card .large').getBoundingClientRect().height"
    frame = "document.querySelector('.card .frame').getBoundingClientRect().height"
    assert page.evaluate(shown) <= page.evaluate(frame)  # the whole picture, not its center
    page.keyboard.press("a")
    settled(page, "Saved")
    page.keyboard.press("k")
    until(page, "document.querySelector('.done p').textContent.startsWith('2 of')")
    saved(page, "correction", {found[0]["position"]: found[0]["suggested"], found[1]["position"]: found[1]["label"]})
    page.keyboard.press("Control+z")
    settled(page, "Undone")
    until(page, "document.querySelector('.done p').textContent.includes('number 2')")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export checked labels").click()
    assert page.session.index.ids[found[0]["position"]] in Path(download.value.path()).read_text()


def test_label_errors_without_labels_say_so(visit, tmp_path):
    page = visit(write_index(tmp_path / "i", 40, labels=[None] * 40), "label-errors")
    page.locator(".missing").wait_for()
    assert "no labels" in page.locator(".missing").inner_text()


@pytest.mark.slow
def test_label_a_few_then_classify_the_rest(visit, tmp_path):
    truth = Index.open(write_index(tmp_path / "clean", 300, clusters=6)).labels
    page = visit(write_index(tmp_path / "i", 300, labels=[None] * 300, clusters=6), "label")
    page.locator(".option, .new").first.wait_for(timeout=60_000)
    page.locator("#number").fill("30")
    page.locator("#number").press("Enter")
    until(page, "document.querySelector('.done p')?.textContent.includes('of 30')")
    assert page.get_by_role("button", name="Classify the rest").is_disabled()
    chosen = page.session.jobs.status("choose", {"number": 30})["answer"]
    names = []
    for at in chosen:
        if truth[at] in names:
            page.keyboard.press(str(names.index(truth[at]) + 1))
        else:
            names.append(truth[at])
            page.keyboard.press("n")
            page.keyboard.type(truth[at])
            page.keyboard.press("Enter")
        page.wait_for_timeout(20)
    until(page, "document.querySelector('.done p').textContent.startsWith('All 30')")
    settled(page, "Saved")
    saved(page, "label", {at: truth[at] for at in chosen})
    page.keyboard.press("c")
    page.locator(".tabs button").first.wait_for(timeout=60_000)
    settled(page, "270 images classified by 30 labels", ".results .status")
    grouping = page.session.groupings["prediction"]
    assert sum(grouping.names[code] == label for code, label in zip(grouping.codes, truth, strict=True)) > 200
    page.locator(".grid").focus()
    page.keyboard.press("2")
    settled(page, "Saved")
    assert len(page.session.decisions()["decided"]["label"]) == 31
    page.get_by_role("button", name="Back to labeling").click()
    page.locator(".option").first.wait_for()


@pytest.mark.parametrize("view", VIEWS)
def test_hostile_names_and_labels_are_text(visit, tmp_path, view):
    ids = [f"{at}{name}" for at in range(4) for name in HOSTILE]
    labels = [HOSTILE[(at // 9) % 2] if at % 7 else HOSTILE[2] for at in range(36)]
    page = visit(write_index(tmp_path / "i<b>.index", 36, ids=ids, labels=labels, near=2), view)
    page.locator(VIEWS[view] + ", .empty").first.wait_for(timeout=60_000)
    if view == "images":
        page.locator('.tile[data-at="0"]').click()
        page.locator("#details h2").wait_for()
        page.locator("#find").fill("onerror")
        page.wait_for_timeout(300)
    page.wait_for_timeout(300)
    assert page.locator("main script, main img[onerror], aside script, aside img[onerror], main b b").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDE["width"]
    assert page.title().startswith(("Images", "Map", "Duplicates", "Label"))


def test_html_from_strings_is_impossible(visit, small):
    page = visit(small)
    first_tile(page)
    assert (
        page.evaluate(
            "() => { try { document.body.innerHTML = '<p>x</p>'; return 'set'; } catch (error) { return error.name; } }"
        )
        == "TypeError"
    )
    assert page.evaluate("() => fetch('https://example.com/').then(() => 'sent', () => 'refused')") == "refused"
    page.wait_for_timeout(500)
    page.complaints.clear()  # Chromium reports each of these


def test_a_cut_line_is_said_and_the_rest_is_there(visit, small):
    session = Session(Index.open(small))
    session.decide("file", {"0": "drop"})
    session.work.close()
    with session.work.path.open("ab") as file:
        file.write(b'{"n": 2, "kind": "fi')
    page = visit(small)
    settled(page, "1 line of", "#notes")
    first_tile(page)
    assert page.locator('.tile[data-at="0"] .badge').inner_text() == "drop"


def test_dark_and_light(visit, small):
    page = visit(small, color_scheme="dark")
    first_tile(page)

    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = paper()
    for _ in range(3):
        if page.locator("#theme").inner_text() == "Theme: light":
            break
        page.locator("#theme").click()
    assert paper() != dark


def test_a_tap_opens_and_closes_an_image_on_a_phone(visit, small):
    page = visit(small, viewport=PHONE, has_touch=True, is_mobile=True)
    first_tile(page)
    page.locator('.tile[data-at="2"]').tap(position={"x": 20, "y": 60})
    page.locator("#details h2").wait_for()
    box = page.locator("#details").bounding_box()
    assert box["width"] == PHONE["width"]
    page.get_by_role("button", name="Close").tap()
    assert page.locator("#details").is_hidden()


@pytest.mark.slow
def test_a_stopped_server_is_said_and_the_decision_taken_back(visit, small):
    page = visit(small, "duplicates")
    page.locator(".copy .drop").first.wait_for(timeout=60_000)
    page.stop()
    page.locator(".copy .drop").first.click()
    settled(page, "Not saved")
    assert "was stopped" in page.locator("#toast").inner_text()
    assert page.locator(".copy.dropped").count() == 0
    page.complaints.clear()  # the browser reports the connection


# Each frame is judged as it is painted; scrolling is a task of its own, as a user's.
GAPS = """() => new Promise((done) => {
    const grid = document.querySelector(".grid");
    let frame = 0, gaps = 0;
    const step = () => {
        const box = grid.getBoundingClientRect();
        const rows = [...grid.querySelectorAll(".grid-row:not([hidden])")].map(e => e.getBoundingClientRect());
        for (let y = box.top + 20; y < box.bottom - 20; y += 40)
            if (grid.scrollTop + y - box.top < grid.scrollHeight - 30
                && !rows.some(r => r.top - 8 <= y && r.bottom + 8 >= y)) gaps++;
        setTimeout(() => { grid.scrollTop += frame < 40 ? 137 : frame < 60 ? 4000 : grid.scrollHeight / 30; });
        if (++frame < 90) requestAnimationFrame(step); else done({ gaps, frames: frame });
    };
    requestAnimationFrame(step);
})"""


@pytest.mark.slow
def test_twenty_thousand_images(visit, tmp_path):
    path = write_index(tmp_path / "many.index", 20_000, near=400)
    page = visit(path)
    first_tile(page)
    settled(page, "20 000 images", ".status")
    page.evaluate("() => new Promise(requestAnimationFrame)")
    gaps = page.evaluate(GAPS)
    assert gaps == {"gaps": 0, "frames": 90}
    assert page.locator(".tile").count() < 600  # those that are kept to be used again, too
    page.evaluate("document.querySelector('.grid').scrollTop = 1e9")
    until(page, "document.querySelector('.tile[data-at=\"19999\"] img')?.naturalWidth > 0")
    page.locator("#find").fill("beach")
    beach = sum(label == "beach" for label in page.session.index.labels)
    settled(page, f"{beach:,} of 20 000".replace(",", " "), ".status")
    page.locator('.tile[data-at="0"]').click()
    page.locator(".near .small-tile").first.wait_for()
    page.locator("#views a", has_text="Map").click()
    page.locator("#map-canvas").wait_for(timeout=120_000)
    page.keyboard.press("v")
    settled(page, "20 000 images selected", ".status")
