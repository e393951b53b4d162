"""Runs on one column: texts with dropout or left-out tokens, vectors with values of other rows; what they are judged by."""

import json

import numpy as np
import pytest

import coulomb
from coulomb.ground.errors import InputError
from coulomb.kinds.text import LeftOutTokens, SameTokens
from coulomb.kinds.vector import MarginalViews
from coulomb.report.collect import read_run
from coulomb.report.tables import evaluation_table, summary_table
from coulomb.training.fit_columns import starting_encoders
from coulomb.training.plan.preflight_columns import preflight_columns
from coulomb.training.plan.resolve import resolve_run
from coulomb.training.plan.shown_views import training_kind
from coulomb.training.record.folder import RunFolder

WORDS = [["rose", "tulip", "petal", "stem"], ["cat", "dog", "paw", "tail"], ["rain", "snow", "wind", "cloud"]]
OPTIONS = {"epochs": 2, "batch_size": 16, "precision": "32", "workers": 0, "knn_every": 1, "progress": False}


def texts(count=120, seed=0):
    draw = np.random.default_rng(seed)
    labels = draw.integers(3, size=count)
    made = [" ".join([*draw.choice(WORDS[label], 3), f"number {row}"]) for row, label in enumerate(labels)]
    return made, labels.tolist()


def vectors(count=200, seed=0):
    """Two features name the class, the others are noise."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(3, size=count)
    rows = draw.normal(size=(count, 8)) * [1, 1, 5, 9, 1, 1, 1, 1]
    rows[:, :2] += 3 * np.array([[0, 1], [1, 0], [-1, -1]])[labels]
    return rows, labels.tolist()


def test_texts_without_labels_are_not_judged(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(texts()[0]))
    run = coulomb.train(str(path), encoder="static-random", out=str(tmp_path / "run"), **OPTIONS)
    evaluation = run.evaluation
    assert evaluation["column"] == "text" and evaluation["verdict"]["level"] == "not_judged"
    assert not {"first_to_second", "knn"} & set(evaluation["trained"])
    assert evaluation["trained"]["geometry"]["effective_rank"] > 2
    page = run.report.read_text()
    assert "There is nothing to judge by" in page and "--labels" in page and "R@1" not in page
    assert "nothing to judge by" in evaluation_table(evaluation)
    measured = [line for line in run.metrics if "uniformity" in line]
    assert measured and not any("view_retrieval" in line or "alignment" in line for line in measured)
    (said,) = [rule for rule in run.doctor["checked"] if rule["name"] == "nothing-learned"]
    assert said["state"] == "unknown" and "judge" in said["why"]


def test_texts_with_labels_are_classified_and_compared_with_words(tmp_path):
    made, labels = texts()
    run = coulomb.train(
        {"text": made, "label": labels}, columns="text", encoder="static-random", out=str(tmp_path / "run"), **OPTIONS
    )
    evaluation = run.evaluation
    assert evaluation["protocol"]["judged_by"] == "labels"
    assert evaluation["bm25"]["knn"] > 0.9 and 0 <= evaluation["trained"]["knn"] <= 1
    assert [entry["against"] for entry in evaluation["comparison"]] == ["untrained", "bm25"]
    assert evaluation["protocol"]["train"] + evaluation["protocol"]["held_out"] == 120
    table = evaluation_table(evaluation)
    assert "BM25" in table and "untrained network" in table and "uniformity" in table
    page = run.report.read_text()
    assert "k nearest neighbors" in page and "BM25" in page and page.count("<circle") > 20
    data = read_run(run.path)
    assert data.problems == [] and "training texts" in page


def test_texts_are_judged_by_scored_pairs(tmp_path):
    made, _ = texts()
    first, labels = texts(40, seed=1)
    second, others = texts(40, seed=2)
    scores = [float(a == b) + 0.001 * row for row, (a, b) in enumerate(zip(labels, others, strict=True))]
    test = tmp_path / "test.csv"
    first, second = ([" ".join(text.split()[:3]) for text in side] for side in (first, second))
    lines = [f"{a},{b},{score}" for a, b, score in zip(first, second, scores, strict=True)]
    test.write_text("sentence1,sentence2,score\n" + "\n".join(lines))
    run = coulomb.train(made, test=str(test), encoder="static-random", out=str(tmp_path / "run"), **OPTIONS)
    evaluation = run.evaluation
    assert (
        evaluation["protocol"]["judged_by"] == "scored pairs" and "40 scored pairs" in evaluation["protocol"]["split"]
    )
    assert evaluation["trained"]["scored_pairs"]["pairs"] == 40
    assert evaluation["bm25"]["scored_pairs"]["spearman"]["value"] > 0.5
    assert json.loads((run.path / "data.json").read_text())["train"] == 120  # nothing is held out of the training texts
    assert "Spearman" in evaluation_table(evaluation) and "Spearman" in run.report.read_text()
    again = coulomb.evaluate(run.path, data=made, progress=False)
    assert again["trained"] == evaluation["trained"]
    checked, said = preflight_columns({"data": made, "test": str(test), "columns": "text", "encoder": "static-random"})
    assert checked["training"]["refused"] is None and checked["split"]["test"] == 80 and "split" in said


@pytest.mark.slow
def test_vectors_are_compared_with_their_raw_values(tmp_path):
    rows, labels = vectors()
    data = {f"f{place}": column for place, column in enumerate(rows.T)} | {"label": labels}
    options = OPTIONS | {"epochs": 30, "batch_size": 32, "knn_every": 0, "temperature": 0.2}
    run = coulomb.train(data, columns="f*", out=str(tmp_path / "run"), **options)
    evaluation = run.evaluation
    assert {"trained", "random_init", "raw_values"} <= set(evaluation) and "bm25" not in evaluation
    assert [entry["against"] for entry in evaluation["comparison"]] == ["untrained", "raw_values"]
    assert evaluation["raw_values"]["linear"] > 0.8
    losses = [line["loss"] for line in run.metrics if "loss" in line]
    assert np.mean(losses[-5:]) < 0.9 * losses[0]
    assert run.encode(rows[:3]).shape[0] == 3
    assert "raw values" in run.report.read_text()


def test_views_are_of_the_kind_of_the_column(tmp_path):
    rows, _ = vectors(50)
    plan = resolve_run({"data": {"x": rows}, "columns": "x", "batch_size": 8})
    assert plan.config.temperature == 1.0
    kind = training_kind(plan, "x", None)
    assert isinstance(kind.views, MarginalViews) and len(kind.views.rows) == len(plan.split.train)
    assert np.array_equal(kind.views.rows, rows[plan.split.train].astype(np.float32))
    for encoder, views in (("static-random", LeftOutTokens), ("transformer-small", SameTokens)):
        plan = resolve_run({"data": texts(60)[0], "columns": "text", "encoder": encoder, "batch_size": 8})
        networks = starting_encoders(plan, RunFolder(tmp_path / encoder), save=False)
        assert isinstance(training_kind(plan, "text", networks["text"]).views, views)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "static", "tune": "none"}, "nothing would be trained"),
        ({"columns": "text,other:negative"}, "hard negatives need two columns"),
        ({"columns": "text", "method": "clip"}, "give simclr"),
    ],
)
def test_what_one_column_cannot_do(options, message):
    made, _ = texts(40)
    with pytest.raises(InputError, match=message):
        resolve_run({"data": {"text": made, "other": made[::-1]}, "columns": "text", "batch_size": 8} | options)


def test_a_vector_of_one_value_has_no_views(tmp_path):
    with pytest.raises(InputError, match="at least 2 values"):
        coulomb.train({"x": np.arange(40.0)}, columns="x:vector", out=str(tmp_path / "run"), **OPTIONS)
    assert not (tmp_path / "run").exists()


def test_seeds_of_one_column_are_summarized(tmp_path):
    made, labels = texts()
    data = {"text": made, "label": labels}
    options = OPTIONS | {"epochs": 1, "knn_every": 0, "encoder": "static-random"}
    summary, _ = coulomb.train_seeds(2, data, columns="text", out=str(tmp_path / "seeds"), **options)
    table = summary_table(summary)
    assert "BM25" in table and "untrained network" in table and "±" in table
