"""The page of a run on one column: what it is judged by, neighbors, map, and files that are damaged or hostile."""

import functools
import json

import numpy as np
import pytest

from coulomb.evaluation.one_column import ColumnInputs, Scored, assess_one_column
from coulomb.report.build import render_report
from coulomb.report.collect import read_run
from coulomb.report.column_section import column_section


def inputs(judged="labels", kind="text", rows=60):
    draw = np.random.default_rng(0)
    labels = draw.integers(3, size=2 * rows)
    x = (draw.normal(size=(3, 6))[labels] * 2 + draw.normal(size=(2 * rows, 6))).astype(np.float32)
    start = draw.normal(size=(2 * rows, 6)).astype(np.float32)
    texts = [f"word{label} text {row}" for row, label in enumerate(labels)]
    held_out = {"trained": x[:rows], "random_init": start[:rows]}
    train = {"trained": x[rows:], "random_init": start[rows:]}
    if kind == "vector":
        held_out["raw_values"], train["raw_values"] = start[:rows], start[rows:]
    more = {}
    if judged == "labels":
        more = {"labels": labels[:rows], "train_labels": labels[rows:], "train": train, "class_names": ["a", "b", "c"]}
    if judged == "scored pairs":
        half = rows // 2
        scores = (x[:half] * x[half:rows]).sum(1)
        more = {"scored": Scored(np.arange(half), np.arange(half, rows), scores)}
    if kind == "text":
        more |= {"texts": texts[:rows], "train_texts": texts[rows:] if judged == "labels" else None}
    return ColumnInputs("notes", kind, np.arange(rows), held_out, **more), texts


@functools.cache
def assessed(judged, kind):
    given, texts = inputs(judged, kind)
    return assess_one_column(given), texts


def run_with(folder, judged="labels", kind="text", arrays=None, evaluation=None, texts=None):
    found, own = assessed(judged, kind)
    (folder / "evaluation.json").write_text(json.dumps(found.evaluation | (evaluation or {})))
    (folder / "config.yaml").write_text("data: notes.txt\nepochs: 40\n")
    (folder / "metrics.jsonl").write_text('{"step": 1, "epoch": 1, "loss": 2.5}\n')
    (folder / "data.json").write_text(json.dumps({"classes": ["a", "b", "c"], "train": 60, "test": 60}))
    (folder / "environment.json").write_text("{}")
    stored = found.samples | {"shown_0": found.shown}
    if kind == "text":
        stored["texts_0"] = np.array([(texts or own)[place] for place in found.shown])
    stored |= arrays or {}
    np.savez(folder / "samples.npz", **{name: each for name, each in stored.items() if each is not None})
    return read_run(folder), found


def test_figures_by_labels_neighbors_and_map(tmp_path):
    run, found = run_with(tmp_path)
    section = column_section(run)
    assert (section.name, section.judged_by) == ("notes", "labels") and list(section.names) == [
        "trained",
        "random_init",
        "bm25",
    ]
    knn = next(row for row in section.rows if row.key == "knn")
    assert knn.values["bm25"].mean == found.evaluation["bm25"]["knn"]
    assert section.tiles.values.keys() == {"trained", "random_init"}  # BM25 is measured by kNN alone
    query = found.evaluation["samples"]["queries"][0]
    shown = section.neighbors[0]
    assert shown.cell.text.endswith(f"text {found.shown[query]}") and len(shown.found) == 3
    nearest = found.samples["neighbors"][query, 0]
    assert shown.found[0][0].row == found.samples["rows_0"][nearest]
    same = found.samples["labels"][nearest] == found.samples["labels"][query]
    assert shown.found[0][2] == same and shown.label in ("a", "b", "c")
    page = render_report(run)
    assert run.problems == [] and page.count("<circle") == 60 + 2  # the brand has two
    assert "Retrieval and clustering" in page and "uniformity" in page and "held-out texts" in page
    assert "http" not in page.replace("http-equiv", "")


def test_scored_pairs_have_a_table_of_correlations(tmp_path):
    run, found = run_with(tmp_path, "scored pairs")
    section = column_section(run)
    value = found.evaluation["trained"]["scored_pairs"]["spearman"]["value"]
    assert section.scored[0][:3] == ("trained", "trained encoder", f"{value:.3f}") and " to " in section.scored[0][3]
    assert section.tiles is None and section.rows == []
    assert "correlation with the scores" in render_report(run)


def test_without_anything_to_judge_by_the_page_says_so(tmp_path):
    run, _ = run_with(tmp_path, "nothing")
    page = render_report(run)
    assert column_section(run).judged_by == "nothing" and "There is nothing to judge by" in page
    assert (
        "Nothing is known of the held-out texts" in page
        and "R@1" not in page
        and "accuracy" not in page.split("<h2>Data")[0]
    )


def test_vectors_have_raw_values_and_row_numbers(tmp_path):
    run, _ = run_with(tmp_path, kind="vector")
    section = column_section(run)
    assert "raw_values" in section.names and section.neighbors[0].cell.text is None
    page = render_report(run)
    assert "raw values" in page and "held-out vectors" in page and ">row " in page


def test_texts_are_escaped(tmp_path):
    hostile = ["<img src=x onerror=alert(1)>", "</script><script>alert(1)</script>", "\u202egpj"] * 40
    run, _ = run_with(tmp_path, evaluation={"column": "<b>notes"}, texts=hostile)
    page = render_report(run)
    assert "<img src=x" not in page and "<script>alert" not in page and "\u202e" not in page and "<b>notes" not in page
    assert "&lt;img src=x" in page


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("rows_0", lambda x: x.astype(float)),
        ("shown_0", lambda x: x[:-1]),
        ("labels", lambda x: x - 100),
        ("neighbors", lambda x: x + 1000),
        ("neighbors", lambda x: x[:3]),
        ("labels", lambda x: None),
    ],
)
def test_damaged_samples_are_named(tmp_path, name, change):
    found, _ = assessed("labels", "text")
    stored = (found.samples | {"shown_0": found.shown})[name]
    run, _ = run_with(tmp_path, arrays={name: change(stored)})
    section = column_section(run)
    assert section.neighbors == [] and section.map is None and section.rows
    assert len(run.problems) == 1 and run.problems[0].startswith("samples.npz cannot be read")


def test_a_run_without_samples_still_has_its_figures(tmp_path):
    run, _ = run_with(tmp_path)
    (tmp_path / "samples.npz").unlink()
    run = read_run(tmp_path)
    page = render_report(run)
    assert ["samples.npz does not exist" in each for each in run.problems] == [True]
    assert "This run folder has no samples." in page and "k nearest neighbors" in page
    run.evaluation["samples"] = {"maps": 3, "queries": "x"}
    assert column_section(run).neighbors == []
