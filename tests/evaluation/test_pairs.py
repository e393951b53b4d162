"""Evaluation of pairs: contestants, clusters, verdict and samples, on features whose structure is known."""

import dataclasses
import json

import numpy as np
import pytest

from coulomb.evaluation.pairs import (
    Embedded,
    assess_pairs,
    chance_measurements,
    draw_clusters,
    measurements,
    query_clusters,
)
from coulomb.ground.errors import InputError
from coulomb.metrics.matching import distinct_pairs, pair_retrieval
from pair_cases import pair_inputs


@pytest.fixture(scope="module")
def assessed():
    inputs = pair_inputs(skill=3)
    return inputs, assess_pairs(inputs)


def test_figures_are_those_of_the_metrics_on_distinct_cells(assessed):
    inputs, found = assessed
    pairs = distinct_pairs(inputs.ids)
    first, second = inputs.trained.first[pairs.first_rows], inputs.trained.second[pairs.second_rows]
    assert len(first) == 120 and len(second) == 240
    expected = pair_retrieval(first, second, pairs.correct)
    trained = found.evaluation["trained"]
    assert {name: trained[name] for name in expected} == expected
    low, high = trained["intervals"]["second_to_first_mrr"]
    assert low < trained["second_to_first"]["mrr"] < high
    chance = found.evaluation["chance"]["first_to_second"]
    assert chance == expected["first_to_second"]["chance"]
    assert list(found.evaluation) == [
        "columns", "trained", "linear_map", "chance", "comparison", "geometry", "verdict", "towers", "maps", "protocol",
    ]  # fmt: skip
    assert json.loads(json.dumps(found.evaluation)) == found.evaluation


def test_comparison_is_of_both_directions_and_all_contestants(assessed):
    _, found = assessed
    entries = {entry["against"]: entry for entry in found.evaluation["comparison"]}
    assert list(entries) == ["linear_map", "chance"]
    overall = entries["chance"]["overall"]
    assert overall["trained"] == pytest.approx(found.evaluation["trained"]["mean"]["mrr"])
    assert overall["baseline"] == pytest.approx(found.evaluation["chance"]["mean"]["mrr"])
    assert overall["of"] == ["first_to_second_mrr", "second_to_first_mrr"] and overall["clusters"] == 120
    assert overall["outcome"] == "better" and len(entries["chance"]["measurements"]) == 8
    row = entries["linear_map"]["measurements"]["second_to_first_recall_at_5"]
    assert row["trained"] == pytest.approx(found.evaluation["trained"]["second_to_first"]["recall_at"]["5"])
    assert row["baseline"] == pytest.approx(found.evaluation["linear_map"]["second_to_first"]["recall_at"]["5"])


@pytest.mark.parametrize(
    ("skill", "weights", "level"),
    [
        (12, "lite0", "adapting_helped"),
        (3, "lite0", "use_starting_point"),
        (0.5, "lite0", "adapting_hurt"),
        (12, "", "learned_something"),
        (3, "", "nothing_measurable"),
    ],
)
def test_levels(skill, weights, level):
    inputs = pair_inputs(skill=skill, weights=weights)
    found = assess_pairs(inputs).evaluation
    assert found["verdict"]["level"] == level
    assert ("untrained" in found) == (not weights)


def test_towers_that_share_a_space_are_compared_as_they_are():
    inputs = pair_inputs(skill=3)
    shared = dataclasses.replace(inputs, untouched=inputs.trained, untouched_train=inputs.untouched_train, shared=True)
    train = Embedded(inputs.untouched_train.first[:, :6], inputs.untouched_train.second[:, :6])
    found = assess_pairs(dataclasses.replace(shared, untouched_train=train)).evaluation
    entry = found["comparison"][0]
    assert entry["against"] == "starting_point" and entry["overall"]["difference"] == 0
    assert found["starting_point"]["first_to_second"] == found["trained"]["first_to_second"]


def test_texts_are_compared_with_bm25():
    inputs = pair_inputs(skill=0.3)
    texts = (
        [f"w{first} of" for first in inputs.ids[:, 0]],
        [f"the w{first} no. {second}" for first, second in inputs.ids],
    )
    found = assess_pairs(dataclasses.replace(inputs, texts=texts)).evaluation
    assert found["bm25"]["first_to_second"]["recall_at"]["1"] == 1
    assert found["verdict"]["level"] == "worse_than_bm25" and found["verdict"]["title"] == "Worse than BM25"


def test_without_untouched_towers_nothing_is_said_of_training():
    inputs = dataclasses.replace(pair_inputs(skill=12), untouched=None, untouched_train=None)
    verdict = assess_pairs(inputs).evaluation["verdict"]
    assert verdict["level"] == "learned_something"
    assert "not compared with the untouched towers" in verdict["remarks"][-1]


def test_collapsed_towers_are_no_better_than_chance():
    inputs = pair_inputs(weights="")
    constant = Embedded(np.ones_like(inputs.trained.first), np.ones_like(inputs.trained.second))
    found = assess_pairs(dataclasses.replace(inputs, trained=constant)).evaluation
    assert found["verdict"]["level"] == "collapsed"
    assert found["trained"]["first_to_second"]["recall_at"]["10"] == 0


def test_captions_of_a_picture_are_one_cluster():
    ids = np.array([[0, 0], [0, 1], [1, 2], [1, 1], [2, 3]])  # caption 1 is of two pictures
    pairs = distinct_pairs(ids)
    clusters = query_clusters(pairs)
    assert clusters["first_to_second"].tolist() == [0, 1, 2] and clusters["second_to_first"].tolist() == [0, 0, 1, 2]
    few = query_clusters(distinct_pairs(ids[:, ::-1]))
    assert few["second_to_first"].tolist() == [0, 1, 2] and few["first_to_second"].tolist() == [0, 0, 1, 2]


def test_chance_per_query_averages_to_the_chance_figures():
    pairs = distinct_pairs(pair_inputs(held_out=9).ids)
    values = chance_measurements(pairs)
    draw = np.random.default_rng(0)
    first, second = draw.normal(size=(9, 4)), draw.normal(size=(18, 4))
    chance = pair_retrieval(first, second, pairs.correct)["second_to_first"]["chance"]
    assert values["second_to_first_mrr"].mean() == pytest.approx(chance["mrr"])
    assert values["second_to_first_recall_at_5"].mean() == pytest.approx(chance["recall_at"]["5"])
    assert set(values) == set(measurements((np.ones(9), np.ones(18))))


def test_samples_show_the_worst_misses_with_their_answers(assessed):
    inputs, found = assessed
    samples = found.samples
    pairs = distinct_pairs(inputs.ids)
    for side in (0, 1):
        ranks, query, answer = (samples[f"{name}_{side}"] for name in ("ranks_trained", "query", "answer"))
        worst = samples[f"worst_{side}"]
        assert ranks[query[worst]].min() >= np.sort(ranks)[-worst.sum()] and len(np.unique(query)) == len(query)
        right = set(zip(pairs.correct[side].tolist(), pairs.correct[1 - side].tolist(), strict=True))
        assert all((int(q), int(a)) in right for q, a in zip(query, answer, strict=True))
        beaten = samples[f"cosine_{side}"]
        assert (beaten[worst, 1] >= beaten[worst, 0] - 1e-6).all()  # what was found is nearer than the answer
        first = samples[f"found_{side}"][:, 0]
        hit = np.array([(int(q), int(f)) in right for q, f in zip(query, first, strict=True)])
        assert (hit == (ranks[query] == 1)).all()
    assert samples["rows_0"].tolist() == np.arange(0, 240, 2).tolist()
    assert len(samples["map_pca"]) == len(samples["mapped_0"]) + len(samples["mapped_1"])
    assert np.isin(samples["place_0"][samples["answer_1"]], found.shown[0]).all()
    assert all(each.dtype != object for each in samples.values())


def test_each_tower_alone_is_measured_where_there_are_labels():
    inputs = pair_inputs(skill=3)
    labels, train_labels = (
        np.asarray(each)[:, 0] > 0 for each in (inputs.untouched.first, inputs.untouched_train.first)
    )
    train = Embedded(inputs.untouched_train.first[:, :6], inputs.untouched_train.second[:, :6])
    given = dataclasses.replace(
        inputs, labels=labels.astype(int), train_labels=train_labels.astype(int), trained_train=train
    )
    towers = assess_pairs(given).evaluation["towers"]
    assert towers["image"]["knn"]["untouched"]["accuracy"] > 0.8 and towers["image"]["knn"]["trained"]["test"] == 120
    assert set(towers["caption"]["knn"]) == {"trained", "untouched"}
    assert assess_pairs(inputs).evaluation["towers"] == {}


def test_more_rows_than_the_limit_are_dropped_by_whole_clusters(monkeypatch):
    ids = pair_inputs(held_out=50, captions=3).ids
    drawn = draw_clusters(ids, 30, seed=0)
    assert len(drawn) == 30 and set(np.unique(ids[drawn, 0], return_counts=True)[1]) == {3}
    assert draw_clusters(ids, 10**6, seed=0).tolist() == list(range(150))
    monkeypatch.setattr("coulomb.evaluation.pairs.MOST_ROWS", 90)
    found = assess_pairs(pair_inputs(held_out=50, captions=3)).evaluation["protocol"]
    assert found["pairs"] == 90 and found["pairs_left_out"] == 60


def test_arrays_of_different_rows_are_refused():
    inputs = pair_inputs(held_out=20)
    with pytest.raises(InputError, match="trained has 39 rows and ids 40"):
        dataclasses.replace(inputs, trained=Embedded(inputs.trained.first, inputs.trained.second[:39]))
    with pytest.raises(InputError, match="give untouched_train"):
        dataclasses.replace(inputs, train_ids=None)
