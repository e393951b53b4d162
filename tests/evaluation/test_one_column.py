"""Evaluation of one column: by labels, by scored pairs, by nothing, on features whose structure is known."""

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from coulomb.evaluation.one_column import ColumnInputs, Scored, assess_one_column
from coulomb.metrics.evaluate import evaluate_features
from coulomb.metrics.geometry import alignment, uniformity

WORDS = [["rose", "tulip", "petal"], ["cat", "dog", "paw"], ["rain", "snow", "wind"]]


def labeled(skill=1.0, start_skill=0.3, seed=0, test=90, train=240, start="starting_point", **others):
    """Features with a class direction of the given strength, and texts of which few name their class."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(3, size=test + train)
    centers = np.random.default_rng(99).normal(size=(3, 8))
    features = {}
    for name, strength in (("trained", skill), (start, start_skill)):
        features[name] = (strength * centers[labels] + draw.normal(size=(test + train, 8))).astype(np.float32)
    texts = [
        " ".join(
            [
                draw.choice(WORDS[label]) if draw.random() < 0.4 else "thing",
                *draw.choice(["a", "the", "one"], 3),
                str(row),
            ]
        )
        for row, label in enumerate(labels)
    ]
    return ColumnInputs(
        column="text",
        kind="text",
        ids=np.arange(test),
        held_out={name: x[:test] for name, x in features.items()},
        train={name: x[test:] for name, x in features.items()},
        labels=labels[:test],
        train_labels=labels[test:],
        class_names=["flower", "pet", "weather"],
        texts=texts[:test],
        train_texts=texts[test:],
        weights="MiniLM" if start == "starting_point" else "",
        **others,
    )


@pytest.fixture(scope="module")
def by_labels():
    inputs = labeled(1.5)
    return inputs, assess_one_column(inputs)


def test_with_labels_the_figures_are_those_of_the_metrics(by_labels):
    inputs, found = by_labels
    evaluation = found.evaluation
    assert evaluation["protocol"]["judged_by"] == "labels"
    expected = evaluate_features(
        inputs.train["trained"], inputs.train_labels, inputs.held_out["trained"], inputs.labels, k=20,
        class_names=inputs.class_names,
    )  # fmt: skip
    assert {name: evaluation["trained"][name] for name in expected} == expected
    entries = {entry["against"]: entry for entry in evaluation["comparison"]}
    assert list(entries) == ["starting_point", "bm25"]
    assert entries["bm25"]["overall"]["of"] == ["knn"] and len(entries["starting_point"]["measurements"]) == 5
    assert entries["bm25"]["overall"]["baseline"] == pytest.approx(evaluation["bm25"]["knn"])
    assert evaluation["verdict"]["level"] == "adapting_helped"
    assert "MiniLM" in evaluation["verdict"]["title"]
    assert json.loads(json.dumps(evaluation)) == evaluation


def test_geometry_is_of_distinct_cells_and_pairs_of_one_class(by_labels):
    inputs, found = by_labels
    x = inputs.held_out["trained"]
    import torch

    geometry = found.evaluation["trained"]["geometry"]
    assert geometry["uniformity"] == pytest.approx(uniformity(torch.from_numpy(x)), abs=1e-6)
    same = [(i, j) for i in range(90) for j in range(90) if i != j and inputs.labels[i] == inputs.labels[j]]
    first, second = (torch.from_numpy(x[[pair[side] for pair in same]]) for side in (0, 1))
    assert geometry["alignment"] == pytest.approx(alignment(first, second), rel=0.1)
    assert "one class" in found.evaluation["protocol"]["alignment"]
    repeated = ColumnInputs("t", "vector", np.zeros(4, int), {"trained": np.eye(4, dtype=np.float32)})
    assert assess_one_column(repeated).evaluation["trained"]["geometry"]["uniformity"] is None


@pytest.mark.parametrize(
    ("skill", "start_skill", "start", "level"),
    [
        (1.5, 0.3, "starting_point", "adapting_helped"),
        (1.0, 1.0, "starting_point", "use_starting_point"),
        (0.5, 2.0, "starting_point", "adapting_hurt"),
        (0.0, 0.0, "starting_point", "worse_than_bm25"),
        (2.0, 0.2, "random_init", "learned_well"),
    ],
)
def test_the_verdict_follows_the_comparison(skill, start_skill, start, level):
    found = assess_one_column(labeled(skill, start_skill, start=start, seed=1, test=200)).evaluation["verdict"]
    assert found["level"] == level, found


def scored(noise, start_noise, seed=0, n=150):
    """Pairs whose cosines follow the scores up to noise."""
    draw = np.random.default_rng(seed)
    base = draw.normal(size=(2 * n, 12))
    base[n:] = base[:n] * draw.uniform(-1, 1, n)[:, None] + 0.5 * base[n:]
    x = base / np.linalg.norm(base, axis=1, keepdims=True)
    scores = (x[:n] * x[n:]).sum(1)
    held_out = {
        name: (x + strength * draw.normal(size=x.shape) / 3).astype(np.float32)
        for name, strength in (("trained", noise), ("starting_point", start_noise))
    }
    texts = [f"word{row % n} shared" if draw.random() < 0.5 else f"other{row}" for row in range(2 * n)]
    places = np.arange(n), np.arange(n, 2 * n)
    return ColumnInputs(
        "text", "text", np.arange(2 * n), held_out, texts=texts, scored=Scored(*places, scores), weights="MiniLM"
    )


def test_scored_pairs_are_judged_by_ranks():
    inputs = scored(0.2, 1.0)
    found = assess_one_column(inputs).evaluation
    x = inputs.held_out["trained"].astype(np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (x[:150] * x[150:]).sum(1)
    expected = spearmanr(cosines, inputs.scored.scores).statistic
    assert found["trained"]["scored_pairs"]["spearman"]["value"] == pytest.approx(expected, abs=1e-9)
    assert found["protocol"]["judged_by"] == "scored pairs" and "knn" not in found["trained"]
    entries = {entry["against"]: entry["overall"] for entry in found["comparison"]}
    assert list(entries) == ["starting_point", "bm25"]
    assert entries["starting_point"]["trained"] == pytest.approx(expected, abs=1e-9)
    row = entries["starting_point"]
    assert row["low"] < row["difference"] < row["high"] and row["outcome"] == "better"
    assert found["verdict"]["level"] == "adapting_helped" and "Spearman" in found["verdict"]["sentence"]
    assert assess_one_column(scored(1.0, 0.2)).evaluation["verdict"]["level"] == "adapting_hurt"
    assert assess_one_column(scored(0.5, 0.5)).evaluation["verdict"]["level"] == "use_starting_point"


def test_without_labels_and_scores_the_verdict_says_that_nothing_was_judged():
    inputs = labeled()
    unknown = np.full(90, -1)
    for labels in (None, unknown):
        bare = ColumnInputs("text", "text", inputs.ids, inputs.held_out, labels=labels, texts=inputs.texts)
        found = assess_one_column(bare).evaluation
        assert found["verdict"]["level"] == "not_judged" and found["comparison"] == []
        assert "--labels" in found["verdict"]["next"][0] and "score" in found["verdict"]["next"][0]
        assert found["trained"] == {"geometry": found["trained"]["geometry"]}
        assert found["trained"]["geometry"]["alignment"] is None and "bm25" not in found


def test_constant_embeddings_have_collapsed():
    inputs = scored(0.2, 0.2)
    constant = {name: np.ones_like(x) for name, x in inputs.held_out.items()}
    found = assess_one_column(
        ColumnInputs("text", "text", inputs.ids, constant, texts=inputs.texts, scored=inputs.scored)
    ).evaluation
    assert found["verdict"]["level"] == "collapsed" and "cells" in found["verdict"]["sentence"]
    assert "all are equal" in found["protocol"]["not_measured"]["trained"]


def test_samples_are_distinct_cells():
    inputs = labeled(test=60)
    ids = np.arange(60) // 2
    found = assess_one_column(
        ColumnInputs("text", "text", ids, inputs.held_out, texts=inputs.texts, rows=np.arange(100, 160), seed=3)
    )
    assert found.shown.tolist() == list(range(0, 60, 2)) and found.samples["rows_0"].tolist() == list(
        range(100, 160, 2)
    )
    assert found.samples["neighbors"].shape == (30, 8)
    assert {entry["key"] for entry in found.evaluation["samples"]["maps"]} >= {"pca"}
