"""What the page is told about an index, and what it may ask."""

import asyncio
import csv
import io
import json
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from asgi_requests import answer, ask, post
from benchmarks.synthetic_index import write_index
from coulomb.ground.errors import InputError
from coulomb.index import Index
from coulomb.index.given_labels import read_given_labels
from coulomb.tables.sources import open_source
from coulomb_browse.session import MOST_FOUND, duplicate_groups, work_folder
from index_cases import rewrite_info


def answer_of(app, name, options):
    for _ in range(600):
        told = post(app, f"/job/{name}", options).json()
        if told["state"] in ("done", "failed"):
            return told
        time.sleep(0.05)
    raise AssertionError(told)


@pytest.fixture
def digits(open_app, digits_index, tmp_path):
    app, session = open_app(digits_index)
    yield app, session
    session.work.path.unlink()  # the index is shared by the tests


def test_the_first_answer_describes_the_index(open_app, small):
    app, session = open_app(small)
    start = ask(app, "/start").json()
    assert (start["name"], start["images"], start["features"], start["encoder"]) == ("small.index", 300, 64, "lite0")
    names, counts = start["groupings"]["label"]["names"], start["groupings"]["label"]["counts"]
    assert sorted(names) == names
    assert sum(counts) == 300
    assert "folder" not in start["groupings"]  # the folders are the labels
    codes = np.frombuffer(ask(app, "/codes/label").body, "<i4")
    assert [names[code] for code in codes] == session.index.labels
    assert start["work"] == {"decided": {"file": {}, "correction": {}, "label": {}}, "lost": 0, "undoable": 0}


@pytest.mark.parametrize(
    ("tops", "grouping"), [(("train", "test"), "split"), (("berlin", "rome"), "folder"), (("one", "one"), None)]
)
def test_folders_that_tell_images_apart_are_a_grouping(open_app, tmp_path, tops, grouping):
    ids = [f"{tops[at % 2]}/{at}.jpg" for at in range(20)]
    _, session = open_app(write_index(tmp_path / "i", 20, ids=ids, labels=[None] * 20))
    assert set(session.groupings) == ({grouping} if grouping else set())
    if grouping:
        assert session.groupings[grouping].describe() == {"names": sorted(tops), "counts": [10, 10], "none": 0}


def test_rows_name_images_and_thumbnails_are_theirs(open_app, small):
    app, session = open_app(small)
    rows = ask(app, "/rows", query="at=7,3").json()
    assert [row["position"] for row in rows] == [7, 3]
    assert [row["id"] for row in rows] == [session.index.ids[7], session.index.ids[3]]
    assert rows[0]["width"] == 640
    picture = ask(app, "/thumbnail/7")
    assert picture.headers["content-type"] == "image/jpeg"
    assert picture.body == session.index.thumbnail(7)
    assert ask(app, "/image/7").body == session.index.thumbnail(7)  # no file: its thumbnail


def test_many_thumbnails_come_at_once(open_app, small):
    app, session = open_app(small)
    content = ask(app, "/thumbnails", query="at=7,3,299").body
    lengths = np.frombuffer(content[:12], "<u4")
    assert content[12:] == b"".join(session.index.thumbnail(at) for at in (7, 3, 299))
    assert lengths.tolist() == [len(session.index.thumbnail(at)) for at in (7, 3, 299)]


@pytest.mark.parametrize("path", ["/rows", "/thumbnails"])
@pytest.mark.parametrize("query", ["", "at=", "at=300", "at=-1", "at=x", "at=1,,2", "at=" + ",".join(["1"] * 501)])
def test_rows_that_do_not_exist_are_refused(open_app, small, path, query):
    assert ask(open_app(small)[0], path, query=query).status == 400


@pytest.mark.parametrize(
    ("text", "found"), [("000007", [7]), ("", 300), ("BEACH", "beach"), ("beach 00000", None), ("<script>", [])]
)
def test_images_are_found_by_name_and_label(open_app, small, text, found):
    from urllib.parse import quote

    app, session = open_app(small)
    positions = np.frombuffer(ask(app, "/find", query=f"text={quote(text)}").body, "<i4").tolist()
    if found == "beach":
        assert positions == [at for at, label in enumerate(session.index.labels) if label == "beach"]
    elif found == 300:
        assert len(positions) == 300
    elif found is None:
        assert positions == [at for at in range(10) if session.index.labels[at] == "beach"]
    else:
        assert positions == found


def test_search_by_image_mean_and_difference_equals_the_formula(open_app, small):
    app, session = open_app(small)
    x = np.asarray(session.index.features, np.float64)

    def unit(row):
        return row / np.linalg.norm(row)

    query = unit(unit((x[3] + x[8]) / 2) - unit(x[5]))
    expected = [at for at in np.argsort(-(x @ query)) if at not in (3, 8, 5)][:12]
    content = {"plus": [{"position": 3}, {"position": 8}], "minus": [{"position": 5}], "top": 12}
    answer = post(app, "/search", content).json()
    assert answer["positions"] == expected
    np.testing.assert_allclose(answer["similarities"], (x @ query)[expected], atol=2e-3)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"plus": []},
        {"plus": [{"position": 300}]},
        {"plus": [{"position": True}]},
        {"plus": [{"position": 1.0}]},
        {"plus": [3]},
        {"plus": {"position": 3}},
        {"plus": [{"upload": "x"}]},
        {"plus": [{"position": 1}], "top": 0},
        {"plus": [{"position": 1}], "top": MOST_FOUND + 1},
        {"plus": [{"position": 1}], "top": "9"},
        {"plus": [{"position": 1}] * 1001},
    ],
)
def test_searches_that_make_no_sense_get_a_sentence(open_app, small, content):
    answer = post(open_app(small)[0], "/search", content)
    assert answer.status == 400
    assert answer.json()["error"]


def test_search_by_a_picture_of_the_index_finds_it(digits):
    app, session = digits
    with Path(session.index.paths[17]).open("rb") as file:
        sent = ask(
            app, "/upload", method="POST", body=file.read(), headers={"content-type": "application/octet-stream"}
        )
    found = post(app, "/search", {"plus": [sent.json()], "top": 3}).json()
    assert found["positions"][0] == 17
    assert found["similarities"][0] > 0.98


@pytest.mark.parametrize(
    "content",
    [b"", b"no picture", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%!PS", b"\xff\xd8\xff\xe0" + b"\0" * 99],
)
def test_uploads_that_are_no_pictures_are_refused(open_app, small, content):
    answer = ask(
        open_app(small)[0], "/upload", method="POST", body=content, headers={"content-type": "application/octet-stream"}
    )
    assert answer.status == 400
    assert "the picture" in answer.json()["error"]


def test_decisions_are_saved_and_undone(open_app, small):
    app, session = open_app(small)
    assert post(app, "/decide", {"kind": "file", "set": {"4": "drop", "5": "keep"}}).json() == {"undoable": 1}
    assert session.decisions()["decided"]["file"] == {4: "drop", 5: "keep"}
    assert json.loads(session.work.path.read_text())["set"] == {
        session.index.ids[4]: "drop",
        session.index.ids[5]: "keep",
    }
    assert post(app, "/undo", {}).json() == {"kind": "file", "set": {"4": None, "5": None}, "undoable": 0}
    assert post(app, "/undo", {}).json() == {"kind": None, "undoable": 0}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"kind": "file"},
        {"kind": "file", "set": {"300": "drop"}},
        {"kind": "file", "set": {"1": "burn"}},
        {"kind": "file", "set": {"a.jpg": "drop"}},
        {"kind": None, "set": {"1": "drop"}},
    ],
)
def test_wrong_decisions_get_a_sentence(open_app, small, content):
    assert post(open_app(small)[0], "/decide", content).status == 400


def test_decisions_about_images_that_are_gone_are_counted_not_shown(open_session, tmp_path):
    session = open_session(write_index(tmp_path / "i", 20))
    session.decide("file", {"3": "drop", "4": "drop"})
    session.work.close()
    work = tmp_path / "i" / "browse"
    write_index(tmp_path / "j", 20, ids=[f"beach/{at:06d}.jpg" if at != 4 else "new" for at in range(20)])
    known = dict.fromkeys(Index.open(tmp_path / "j").ids)
    again = open_session(tmp_path / "j", folder=work)
    lost = [name for name in again.work["file"] if name not in known]
    assert again.decisions()["lost"] == len(lost) > 0
    assert len(again.decisions()["decided"]["file"]) == 2 - len(lost)


def test_an_index_that_cannot_be_written_keeps_decisions_in_the_cache(small, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (small / "browse").write_text("a file is in the way")
    folder = work_folder(small)
    assert folder.is_relative_to(tmp_path / "cache")
    assert folder.stat().st_mode & 0o077 == 0
    (tmp_path / "cache" / "coulomb").rename(tmp_path / "elsewhere")
    (tmp_path / "cache" / "coulomb").write_text("also here")
    with pytest.raises(InputError, match="cannot be created"):
        work_folder(small)


def test_duplicates_are_grouped_with_their_exact_copies():
    places = {name: at for at, name in enumerate("abcdef")}

    def member(name, similarity, keep=False):
        return {"id": name, "similarity": similarity, "keep": keep, "reason": f"why {name}"}

    answer = {
        "groups": [{"keep": "a", "reason": "more pixels", "members": [member("b", 0.97), member("f", 0.9, True)]}],
        "copies": [
            {"keep": "b", "reason": "name", "members": [member("c", 1.0)]},
            {"keep": "d", "reason": "name", "members": [member("e", 1.0)]},
        ],
    }
    assert duplicate_groups(answer, places) == [
        {"keep": 3, "reason": "name", "members": [[4, 1.0, 0, "why e"]]},
        {
            "keep": 0,
            "reason": "more pixels",
            "members": [[1, 0.97, 0, "why b"], [2, 0.97, 0, "why c"], [5, 0.9, 1, "why f"]],
        },
    ]


def test_every_answer_is_about_images_of_the_index(open_app, small):
    app, _ = open_app(small)
    groups = answer_of(app, "duplicates", {"above": 0.95})["answer"]["groups"]
    planted = {(at - 1, at) for at in range(10, 300, 10)}
    together = [{group["keep"], *(member[0] for member in group["members"])} for group in groups]
    assert all(any(set(pair) <= group for group in together) for pair in planted)
    outliers = answer_of(app, "outliers", {})["answer"]
    assert {one["position"] for one in outliers} <= set(range(300))
    assert all(one["reason"] for one in outliers)
    clusters = answer_of(app, "cluster", {"number": 5})["answer"]
    assert sum(clusters["counts"]) == 300
    assert len(np.unique(np.frombuffer(ask(app, "/codes/cluster").body, "<i4"))) == 5


def test_planted_label_errors_are_found_with_the_right_suggestion(open_app, tmp_path):
    write_index(tmp_path / "clean", 300, clusters=6)
    labels = list(Index.open(tmp_path / "clean").labels)
    planted = {40: "winter", 90: "train"}
    wrong = {at: new if labels[at] != new else "beach" for at, new in planted.items()}
    app, _ = open_app(
        write_index(tmp_path / "i", 300, labels=[wrong.get(at, label) for at, label in enumerate(labels)], clusters=6)
    )
    told = answer_of(app, "label_errors", {})["answer"]
    first = {one["position"]: one for one in told[:6]}
    for at, given in wrong.items():
        assert (first[at]["label"], first[at]["suggested"]) == (given, labels[at])


@pytest.mark.parametrize("unlabeled", [0, 12, 300], ids=["all labeled", "some", "none labeled"])
def test_choose_label_classify_export(open_app, tmp_path, unlabeled):
    write_index(tmp_path / "clean", 300, clusters=6)
    truth = Index.open(tmp_path / "clean").labels
    labels = [None if at < unlabeled else label for at, label in enumerate(truth)]
    app, session = open_app(write_index(tmp_path / "i", 300, labels=labels, clusters=6))
    chosen = answer_of(app, "choose", {"number": 60})["answer"]
    assert len(set(chosen)) == len(chosen) == (min(60, unlabeled) or 60)
    if unlabeled:
        assert max(chosen) < unlabeled
    for at in chosen[:40]:
        post(app, "/decide", {"kind": "label", "set": {str(at): truth[at]}})
    told = answer_of(app, "classify", {"labels": "first"})["answer"]
    if unlabeled != 12:
        assert len(told["positions"]) == 300 - len(chosen[:40])
        right = np.mean(
            [
                session.groupings["prediction"].names[code] == truth[at]
                for at, code in enumerate(session.groupings["prediction"].codes)
            ]
        )
        assert right > 0.8
    rows = list(csv.DictReader(io.StringIO(ask(app, "/export/predictions.csv").body.decode())))
    assert len(rows) == len(told["positions"])
    rows = list(csv.DictReader(io.StringIO(ask(app, "/export/labels.csv").body.decode())))
    assert {row["id"]: row["label"] for row in rows} == {session.index.ids[at]: truth[at] for at in chosen[:40]}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("duplicates", {"above": 0}),
        ("duplicates", {"above": "x"}),
        ("duplicates", {"above": True}),
        ("choose", {}),
        ("choose", {"number": 0}),
        ("cluster", {"number": 1.5}),
        ("classify", {}),
    ],
)
def test_jobs_that_cannot_be_done_say_why_and_can_be_tried_again(open_app, small, name, options):
    app, _ = open_app(small)
    for _ in range(2):
        told = answer_of(app, name, options)
        assert told["state"] == "failed"
        assert told["note"]


def test_unknown_jobs_and_lists_are_refused(open_app, small):
    app, _ = open_app(small)
    assert post(app, "/job/destroy", {}).status == 400
    assert ask(app, "/export/passwords.csv").status == 400
    assert ask(app, "/codes/nothing").status == 400


def test_exported_corrections_are_read_by_train(digits, tmp_path):
    app, session = digits
    labels = session.index.labels
    other = next(label for label in labels if label != labels[0])
    post(app, "/decide", {"kind": "correction", "set": {"0": other, "1": labels[1]}})
    content = ask(app, "/export/corrections.csv")
    assert content.headers["content-disposition"] == 'attachment; filename="corrections.csv"'
    (tmp_path / "corrections.csv").write_bytes(content.body)
    source = open_source(tmp_path / "corrections.csv", root=session.index.root)
    assert [source.class_names[label] for label in source.labels] == [other, labels[1]]
    assert source.image(0).shape[2] in (1, 3)


def test_a_moved_folder_is_one_sentence(digits_index, tmp_path, open_session):
    import shutil

    moved = shutil.copytree(digits_index, tmp_path / "i")
    rewrite_info(moved, data={"root": str(tmp_path / "gone")})
    with pytest.raises(InputError, match="--root"):
        open_session(moved)


def test_pictures_are_decoded_one_at_a_time(open_app, digits_index, monkeypatch):
    from coulomb_browse import pictures

    app, _ = open_app(digits_index)
    here, most, inner, guard = [0], [0], pictures.decode, threading.Lock()

    def slow(*arguments, **options):
        with guard:
            here[0] += 1
            most[0] = max(most[0], here[0])
        time.sleep(0.02)
        try:
            return inner(*arguments, **options)
        finally:
            with guard:
                here[0] -= 1

    monkeypatch.setattr(pictures, "decode", slow)
    file = io.BytesIO()
    Image.new("RGB", (30, 20)).save(file, "PNG")
    upload = {"method": "POST", "body": file.getvalue(), "headers": {"content-type": "application/octet-stream"}}

    async def together():
        asked = [answer(app, "/upload", **upload) for _ in range(12)] + [answer(app, f"/image/{at}") for at in range(4)]
        return await asyncio.gather(*asked)

    assert [each.status for each in asyncio.run(together())] == [200] * 16 and most == [1]


def test_exported_lists_run_no_formulas(open_app, digits_index, tmp_path):
    app, session = open_app(digits_index)
    given = {"0": "=1+1", "1": "@SUM(A1)", "2": "-1", "3": "'=x"}
    session.decide("label", given)
    content = ask(app, "/export/labels.csv").body
    (tmp_path / "labels.csv").write_bytes(content)
    assert list(read_given_labels(tmp_path / "labels.csv").values()) == list(given.values())
    with io.StringIO(content.decode()) as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["'=1+1", "'@SUM(A1)", "-1", "''=x"]
