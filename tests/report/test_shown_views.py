"""Views of texts and vectors on the page of a run on one column, and files that are damaged or hostile."""

import json

import pytest

from coulomb.report.build import render_report
from coulomb.report.collect import read_run
from coulomb.report.shown_views import read_shown_views

TEXT = {
    "kind": "text", "way": "left_out", "share": 0.5, "rows": [3],
    "samples": [{"views": [[["a ", True], ["<b>red", False]], [["a <b>red", True]]], "cosine": 0.25}],
}  # fmt: skip
DROPOUT = {"kind": "text", "way": "dropout", "rates": [0.1], "rows": [3], "samples": [{"text": "a", "cosine": 0.95}]}
VECTOR = {
    "kind": "vector", "way": "replaced", "count": 1, "of": 3, "names": ["size", "age"], "rows": [7],
    "samples": [{"values": [1.5, 2.0], "view": [1.5, 9.25], "replaced": [False, True], "cosine": 0.5}],
}  # fmt: skip


def run_with(folder, views):
    (folder / "config.yaml").write_text("data: notes.txt\n")
    (folder / "evaluation.json").write_text(json.dumps({"column": "text", "kind": "text", "trained": {}}))
    (folder / "views.json").write_text(json.dumps(views))
    return read_run(folder)


@pytest.mark.parametrize(
    ("views", "parts"),
    [
        (TEXT, ["without 50", "a <del>&lt;b&gt;red</del>", "cosine 0.25", "row 3"]),
        (DROPOUT, ["dropout of 10", "cosine of 0.95"]),
        (VECTOR, ["1 of its 3 values", "<mark>9.25</mark>", "The first 2 values", ">size<"]),
    ],
)
def test_views_are_on_the_page(tmp_path, views, parts):
    page = render_report(run_with(tmp_path, views))
    assert all(part in page for part in parts) and 'href="#views"' in page
    assert "<b>red" not in page


@pytest.mark.parametrize(
    "views",
    [
        TEXT | {"samples": [{"views": 3, "cosine": 0.2}]},
        TEXT | {"samples": [{"views": [[["a", True, 5]]], "cosine": 0.2}]},
        TEXT | {"share": "half"},
        TEXT | {"way": "other"},
        TEXT | {"rows": None},
        TEXT | {"samples": []},
        VECTOR | {"names": ["size"]},
        DROPOUT | {"samples": [{"cosine": None}]},
    ],
)
def test_damaged_views_are_a_sentence(tmp_path, views):
    run = run_with(tmp_path, views)
    assert read_shown_views(run) is None and "views.json has an unexpected structure." in run.problems
    assert 'href="#views"' not in render_report(run)


def test_the_speed_is_of_texts_or_vectors(tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": step, "epoch": 1, "loss": 1.0, "images_per_second": 50}) + "\n" for step in (1, 2))
    )
    page = render_report(run_with(tmp_path, TEXT))
    assert "texts per second" in page and "images per second" not in page


def test_without_the_file_there_is_no_section(tmp_path):
    run = run_with(tmp_path, TEXT)
    (tmp_path / "views.json").unlink()
    run = read_run(tmp_path)
    assert read_shown_views(run) is None and 'id="views"' not in render_report(run)
