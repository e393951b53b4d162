"""Search by words, and indexes of texts: what the server answers, and the page in a real browser."""

import csv
import io
import threading
import time
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest

import forked
from asgi_requests import ask, post
from browse_pages import first_tile, settled, shown, until
from chromium import MARKS, PHONE, WIDE
from coulomb.ground.errors import InputError
from coulomb.index import Index
from coulomb_browse.jobs import Jobs
from coulomb_browse.maps import image_maps
from coulomb_browse.session import MOST_WORDS, check_words
from index_cases import folder
from tower_cases import tiny_run

TEXTS = [
    "a photo of the red car",
    "a blue bird",
    "the cat\non a yellow square",
    "a green dog",
    "<img src=x onerror=alert(1)> </script><script>alert(1)</script>",
    "\u202egpj something else",
    "red " * 120,
    "a blue bird",
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("words") / "run")


@pytest.fixture(scope="module")
def photos(run):
    """An index of ten pictures by a run on pictures and captions."""
    root = run.parent
    return Index.build(folder(root / "photos"), root / "photos.index", encoder=str(run), workers=0, progress=False).path


@pytest.fixture(scope="module")
def notes(run):
    """An index of texts by the same run."""
    path = run.parent / "notes.index"
    return Index.build({"caption": TEXTS}, path, columns="caption", encoder=str(run), progress=False).path


def by_words(app, **options):
    for _ in range(600):
        told = post(app, "/job/words", {"plus": [], "minus": [], "top": 5} | options).json()
        if told["state"] in ("done", "failed"):
            return told
        time.sleep(0.05)
    raise AssertionError(told)


def expected(session, top=5, **query):
    found = session.index.search(**query, top=top)
    return [session.places[row["id"]] for row in found]


def test_words_are_answered_as_by_the_command_line(open_app, photos):
    app, session = open_app(photos)
    assert ask(app, "/start").json()["words"] == {"able": True, "why": "", "most": MOST_WORDS}
    told = by_words(app, words=" a red car ", **{"not": "a bird"})
    assert told["answer"]["positions"] == expected(session, text="a red car", without_text="a bird")
    found = session.index.search(text="a red car", without_text="a bird", top=5)
    np.testing.assert_allclose(told["answer"]["similarities"], [row["similarity"] for row in found], atol=1e-4)
    mixed = by_words(app, words="a red car", plus=[{"position": 3}], minus=[{"position": 4}])
    ids = session.index.ids
    query = {"ids": ids[3], "text": "a red car", "without_ids": ids[4]}
    assert mixed["answer"]["positions"] == expected(session, **query)
    assert not {3, 4} & set(mixed["answer"]["positions"])


def test_an_index_of_texts_is_answered_by_words_rows_and_parts_of_texts(open_app, notes):
    app, _ = open_app(notes)
    start = ask(app, "/start").json()
    assert (start["kind"], start["images"], start["words"]["able"]) == ("text", 8, True)
    assert by_words(app, words="a blue bird")["answer"]["positions"][:2] == [1, 7]
    found = post(app, "/search", {"plus": [{"position": 1}], "top": 1}).json()
    assert found["positions"] == [7]
    (row,) = ask(app, "/rows", query="at=6").json()
    assert (row["characters"], len(row["text"]), row["path"]) == (len("red " * 120) - 1, 200, None)
    positions = np.frombuffer(ask(app, "/find", query="text=yellow").body, "<i4")
    assert positions.tolist() == [2]
    assert ask(app, "/thumbnail/0").status == 400
    assert b"index of texts" in ask(app, "/image/0").body


def test_the_map_of_texts_speaks_of_texts(open_app, notes, tmp_path):
    _, session = open_app(notes)
    answer = image_maps(session.index, tmp_path / "maps.npz", lambda share, note: None)
    assert answer["maps"] and all("image" not in one["caution"] for one in answer["maps"])
    assert any("texts" in one["caution"] for one in answer["maps"])


def test_decisions_on_texts_are_exported_with_their_texts(open_app, notes):
    app, session = open_app(notes)
    try:
        assert post(app, "/decide", {"kind": "file", "set": {"7": "drop"}}).status == 200
        rows = list(csv.DictReader(io.StringIO(ask(app, "/export/files.csv").body.decode())))
        assert rows == [{"id": "7", "text": "a blue bird", "decision": "drop"}]
    finally:
        session.work.path.unlink()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"not": "a bird"}, "say what to search for"),
        ({"words": "  "}, "say what to search for"),
        ({"words": 7}, "words: must be a text"),
        ({"words": "x" * (MOST_WORDS + 1)}, "at most 1000 characters"),
        ({"words": "\ud800"}, "half of a character"),
        ({"words": "a", "not": ["b"]}, "not: must be a text"),
        ({"words": "a", "top": 0}, "top=0"),
        ({"words": "a", "plus": [{"position": 99}]}, "position='99'"),
    ],
)
def test_wrong_queries_are_one_sentence(open_app, photos, options, message):
    told = by_words(open_app(photos)[0], **options)
    assert told["state"] == "failed" and message in told["note"]


def test_an_encoder_without_words_says_what_to_do(open_app, small):
    app, _ = open_app(small)
    words = ask(app, "/start").json()["words"]
    assert not words["able"]
    assert "compares images, not words" in words["why"] and "--columns image,caption" in words["why"]
    assert "compares images, not words" in by_words(app, words="a red car")["note"]


def test_an_encoder_that_was_moved_is_said(open_app, photos, run, tmp_path):
    import shutil

    moved = shutil.copytree(photos, tmp_path / "moved.index")
    away = run.rename(run.parent / "away")
    try:
        words = ask(open_app(moved)[0], "/start").json()["words"]
        assert "no longer exists; give its new place as encoder (--encoder RUN)" in words["why"]
    finally:
        away.rename(run)


def test_classes_from_names_are_those_of_the_command_line(open_app, photos):
    app, session = open_app(photos)
    for _ in range(600):
        told = post(app, "/job/names", {"names": "cat,dog,neither=something else"}).json()
        if told["state"] in ("done", "failed"):
            break
        time.sleep(0.05)
    answer, expected = told["answer"], session.index.classify(names="cat,dog,neither=something else")["images"]
    assert answer["positions"] == [session.places[row["id"]] for row in expected] and answer["labeled"] == 0
    grouping = session.groupings["prediction"]
    assert [grouping.names[grouping.codes[at]] for at in answer["positions"]] == [row["label"] for row in expected]
    assert b"neither," in ask(app, "/export/predictions.csv").body
    for names, message in ((" ", "names: give the names"), ("cat", "names"), (3, "names: must be a text")):
        while (told := post(app, "/job/names", {"names": names}).json())["state"] != "failed":
            time.sleep(0.02)
        assert message in told["note"]


def test_jobs_that_take_too_long_fail_and_those_behind_them_are_left_out():
    begun, end, computed = threading.Event(), threading.Event(), []

    def slow(options, say):
        say(None, "opens the encoder")
        begun.set()
        assert end.wait(60)
        computed.append(options)
        return "found"

    jobs = Jobs({"words": slow}, limit=0.2)
    assert jobs.status("words", {"n": 1})["state"] in ("waiting", "running")
    assert begun.wait(60)
    assert jobs.status("words", {"n": 2})["state"] == "waiting"
    time.sleep(0.25)
    told = [jobs.status("words", {"n": n}) for n in (1, 2)]
    assert [each["state"] for each in told] == ["failed", "failed"]
    assert told[0]["note"] == "no answer after 0.2 seconds (opens the encoder); try again"
    assert "other answers come first" in told[1]["note"]
    end.set()
    deadline = time.monotonic() + 60
    while jobs.status("words", {"n": 3})["state"] != "done":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert computed == [{"n": 1}, {"n": 3}]


@pytest.mark.slow
def test_words_are_checked_before_the_page_opens(photos, small, tmp_path):
    assert check_words("words", " a ") == "a" and check_words("words", None) is None
    with pytest.raises(InputError, match="not: must be a text of at most 1000"):
        check_words("not", "x" * 1001)
    refused = forked.coulomb("browse", small, "--no-open", "--text", "a red car", cwd=tmp_path)
    assert refused.returncode == 2 and "compares images, not words" in refused.stderr
    refused = forked.coulomb("browse", photos, "--no-open", "--not", "a red car", cwd=tmp_path)
    assert refused.returncode == 2 and "give --text, too" in refused.stderr


@pytest.mark.parametrize("query", ["&words=a+red+car&not=a+bird", f"&words={quote('ä' * 1000)}"])
def test_the_address_may_have_words(open_app, photos, query):
    answer = ask(open_app(photos)[0], "/", cookie=None, query=f"token=secret-token{query}")
    assert answer.status == 200 and answer.cookies


class TestInBrowser:
    """The page: words, links, keys; cards of texts."""

    pytestmark = MARKS

    def test_words_are_searched_for_by_keyboard_and_kept_in_the_address(self, visit, photos):
        page = visit(photos)
        first_tile(page)
        page.keyboard.press("w")
        page.keyboard.type("a red car")
        page.keyboard.press("Enter")
        settled(page, "most similar", ".status")
        index = page.session
        assert shown(page) == expected(index, 10, text="a red car")
        assert page.url.endswith("/?words=a+red+car#images")
        page.locator("#not").fill("a bird")
        page.locator("#not").press("Enter")
        until(page, "location.search === '?words=a+red+car&not=a+bird'")
        without = expected(index, 10, text="a red car", without_text="a bird")
        until(page, f"document.querySelector('.tile[data-at=\"0\"]').dataset.position === '{without[0]}'")
        assert shown(page) == without
        assert page.locator(".tile .similarity").first.inner_text().startswith((".", "-."))
        page.go_back()
        until(page, "document.querySelector('#not').value === ''")
        until(page, f"document.querySelector('.tile[data-at=\"1\"]').dataset.position === '{shown_second(index)}'")
        page.go_back()
        settled(page, "10 images", ".status")
        assert page.locator("#words").input_value() == ""
        page.go_forward()
        settled(page, "most similar", ".status")
        assert page.locator("#words").input_value() == "a red car"
        page.locator("#words").press("ArrowDown")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
        settled(page, "10 images", ".status")
        assert page.url.endswith("/#images")

    def test_a_link_with_words_opens_their_answer_and_other_views_keep_it(self, visit, photos):
        page = visit(photos, query="&words=a+red+car&not=a+bird")
        first_tile(page)
        settled(page, "most similar", ".status")
        assert page.url.endswith("/?words=a+red+car&not=a+bird#images") and "token" not in page.url
        assert (page.locator("#words").input_value(), page.locator("#not").input_value()) == ("a red car", "a bird")
        page.locator("#views a", has_text="Label errors").click()
        page.locator(".missing, .empty, .option").first.wait_for(timeout=60_000)
        page.locator("#views a", has_text="Images").click()
        first_tile(page)
        settled(page, "most similar", ".status")
        assert page.locator("#words").input_value() == "a red car"
        page.reload()
        first_tile(page)
        settled(page, "most similar", ".status")

    def test_a_picture_starts_a_search_and_words_refine_it(self, visit, photos):
        page = visit(photos)
        first_tile(page)
        page.locator("#words").fill("a bird")
        page.locator('.tile[data-at="3"]').click(modifiers=["Control"])
        assert page.locator("#search").inner_text() == "Search"
        page.locator("#search").click()
        settled(page, "9 most similar", ".status")
        session = page.session
        assert shown(page) == expected(session, 10, ids=session.index.ids[3], text="a bird")
        page.locator("#file").set_input_files(session.index.paths[5])
        until(page, "document.querySelector('#words').value === ''")
        until(page, "document.querySelector('.tile[data-at=\"0\"]').dataset.position === '5'")
        page.go_back()
        settled(page, "9 most similar", ".status")
        assert page.locator(".chip.plus").count() == 1 and page.locator("#words").input_value() == "a bird"
        page.locator("#clear").click()
        settled(page, "10 images", ".status")
        page.locator("#not").fill("a bird")
        page.locator("#not").press("Enter")
        settled(page, "what to search for", "#toast")

    def test_images_are_classified_by_names_without_labels(self, visit, photos):
        page = visit(photos, "label")
        page.locator(".new").first.wait_for(timeout=60_000)
        page.locator("#names").fill("cat, dog, neither=something else")
        page.locator("#names").press("Enter")
        page.locator(".results .status").wait_for(timeout=60_000)
        settled(page, "10 images classified by names", ".results .status")
        assert page.locator(".tabs button").last.inner_text().startswith("unsure")
        page.get_by_role("button", name="Back to labeling").click()
        page.locator(".option").first.wait_for()

    def test_without_an_encoder_of_words_the_page_says_what_to_do(self, visit, small):
        page = visit(small, query="&words=a+red+car")
        first_tile(page)
        settled(page, "compares images, not words", "#no-words")
        assert page.locator("#words").count() == 0
        page.get_by_role("button", name="Search by words").click()
        assert page.locator("#no-words").is_hidden()
        page.keyboard.press("w")
        assert page.locator("#no-words").is_visible()

    def test_an_error_is_said_and_the_images_stay(self, visit, photos, monkeypatch):
        page = visit(photos)
        first_tile(page)

        def broken(*args, **options):
            raise InputError("the encoder 'run' no longer exists; give its new place as encoder (--encoder RUN)")

        monkeypatch.setattr(page.session, "search", broken)
        page.locator("#words").fill("a red car")
        page.locator("#search").click()
        settled(page, "no longer exists", "#toast")
        settled(page, "10 images", ".status")
        assert page.url.endswith("/#images")

    @pytest.mark.slow
    @pytest.mark.parametrize("view", ["images", "map", "duplicates", "label-errors", "label"])
    @pytest.mark.parametrize("viewport", [PHONE, WIDE], ids=["phone", "wide"])
    def test_texts_are_cards_in_every_view(self, visit, notes, view, viewport):
        page = visit(notes, view, viewport=viewport)
        ready = {"map": "#map-canvas", "duplicates": ".group", "label-errors": ".missing", "label": ".frame .words"}
        page.locator(ready.get(view, ".tile .words")).first.wait_for(timeout=60_000)
        if view != "label-errors":
            page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        assert page.locator("main img, main script").count() == (
            0 if view != "map" else page.locator(".tip img").count()
        )
        assert page.locator("nav a").first.inner_text() == "Texts"
        if view == "images":
            until(page, "document.querySelector('.tile[data-at=\"4\"] .words').textContent.startsWith('<img src=x')")
        if view == "duplicates":
            assert "a blue bird" in page.locator(".copy .words").first.inner_text()

    def test_a_text_opens_with_those_like_it(self, visit, notes):
        page = visit(notes)
        page.locator(".tile .words").first.wait_for()
        page.locator("#words").fill("a blue bird")
        page.locator("#words").press("Enter")
        settled(page, "most similar texts", ".status")
        page.locator('.tile[data-at="0"]').click()
        page.locator("#details .near .words").first.wait_for()
        details = page.locator("#details")
        assert details.locator("h2").inner_text() == "Row 1"
        assert details.locator(".frame .words").inner_text() == "a blue bird"
        until(page, "document.querySelector('#details .near .words').textContent === 'a blue bird'")
        details.get_by_role("button", name="Similar in the grid").click()
        until(page, "document.querySelector('.tile[data-at=\"0\"]').dataset.position === '7'")
        assert page.locator(".chip .words").inner_text() == "a blue bird"
        assert page.locator("#words").input_value() == ""

    def test_images_stay_in_their_elements_when_the_query_appears(self, visit, small):
        page = visit(small)
        first_tile(page)
        page.evaluate("document.querySelector('.tile[data-at=\"4\"]').marked = true")
        before = page.locator(".grid").bounding_box()["y"]
        page.locator('.tile[data-at="2"]').click(modifiers=["Control"])
        until(page, f"document.querySelector('.grid').getBoundingClientRect().y > {before + 20}")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert page.evaluate("document.querySelector('.tile[data-at=\"4\"]').marked") is True
        assert page.locator('.tile[data-at="4"] img[src]').count() == 1


def shown_second(session):
    """The position of the second image for "a red car"."""
    return expected(session, 2, text="a red car")[1]


def test_the_page_has_no_files_of_other_hosts():
    import coulomb_browse

    page = Path(coulomb_browse.__file__).parent / "page"
    assert not [
        path.name for path in page.iterdir() if b"http://" in path.read_bytes().replace(b"http://www.w3.org", b"")
    ]
