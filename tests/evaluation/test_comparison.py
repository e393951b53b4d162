"""Paired comparison: the bootstrap against a plain NumPy loop, its error rate, and its invariances."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.evaluation.comparison import (
    LEVEL,
    REPLICATES,
    bootstrap,
    compare,
    compare_by_cluster,
    intervals,
    mean_intervals,
)
from coulomb.ground.randomness import numpy_generator


def correct(n, probability, seed=0, draws=None):
    draw = np.random.default_rng(seed)
    return draw.random(n if draws is None else (draws, n)) < probability


def oracle(trained, baseline, seed):
    """The definition, one replicate at a time, for measurements of one n; (low, high) by name, "overall" included."""
    n = next(iter(trained.values())).shape[-1] + 2
    draw = numpy_generator(seed, "paired bootstrap", "images")
    rows = {name: np.atleast_2d(trained[name]).astype(float) - np.atleast_2d(baseline[name]) for name in trained}
    draws = {
        len(each): numpy_generator(seed, "paired bootstrap", "draws", len(each)).multinomial(
            len(each), np.full(len(each), 1 / len(each)), size=REPLICATES
        )
        for each in rows.values()
    }
    means = {name: [] for name in rows}
    for replicate in range(REPLICATES):
        images = draw.integers(n, size=n)
        for name, each in rows.items():
            padded = np.concatenate([each, np.ones((len(each), 1)), -np.ones((len(each), 1))], axis=1)
            chosen = np.repeat(np.arange(len(each)), draws[len(each)][replicate])
            means[name].append(padded[chosen][:, images].mean())
    means = {name: np.array(each) for name, each in means.items()}
    shots = [name for name in means if name.startswith("few_shot")]
    parts = [means[name] for name in means if name not in shots]
    if shots:
        parts.append(np.mean([means[name] for name in shots], axis=0))
    means["overall"] = np.mean(parts, axis=0)
    scaled = [np.abs(each - each.mean()) / each.std() for each in means.values()]
    t = np.quantile(np.max(scaled, axis=0), LEVEL)
    return {name: (each.mean() - t * each.std(), each.mean() + t * each.std()) for name, each in means.items()}


def test_bootstrap_is_the_loop():
    trained = {"knn": correct(40, 0.7, 1), "linear": correct(40, 0.6, 2), "few_shot_1": correct(40, 0.6, 3, draws=4),
               "few_shot_5": correct(40, 0.7, 4, draws=4)}  # fmt: skip
    baseline = {
        name: correct(40, 0.5, 9, draws=len(each) if each.ndim == 2 else None) for name, each in trained.items()
    }
    found, expected = compare("raw_pixels", trained, baseline, seed=3), oracle(trained, baseline, 3)
    for name, row in (found["measurements"] | {"overall": found["overall"]}).items():
        assert (row["low"], row["high"]) == pytest.approx(expected[name], abs=1e-9)
    assert found["overall"]["of"] == ["knn", "linear", "few_shot"]
    rows = found["measurements"]
    few = (rows["few_shot_1"]["difference"] + rows["few_shot_5"]["difference"]) / 2
    mean = (rows["knn"]["difference"] + rows["linear"]["difference"] + few) / 3
    assert found["overall"]["difference"] == pytest.approx(mean)
    assert found["overall"]["share"] == pytest.approx(mean / (1 - found["overall"]["baseline"]))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 60), st.integers(0, 1000), st.floats(0, 1), st.floats(0, 1))
def test_properties_of_a_comparison(n, seed, p, q):
    trained, baseline = {"knn": correct(n, p, seed)}, {"knn": correct(n, q, seed + 1)}
    there, back = compare("raw_pixels", trained, baseline), compare("raw_pixels", baseline, trained)
    row, mirrored = there["measurements"]["knn"], back["measurements"]["knn"]
    assert row["low"] <= row["difference"] <= row["high"] and row["low"] < row["high"]
    assert row["difference"] == -mirrored["difference"]
    swapped = {"better": "worse", "worse": "better", "even": "even"}
    # The two added images change places when the sides do, so the ends agree up to the noise of the bootstrap.
    assert mirrored["outcome"] == swapped[row["outcome"]] or min(abs(row["low"]), abs(row["high"])) < 0.05
    assert json.loads(json.dumps(there)) == there == compare("raw_pixels", trained, baseline)


def test_identical_encoders_are_even():
    same = {"knn": correct(300, 0.5), "few_shot_1": correct(300, 0.5, draws=20)}
    found = compare("untrained", same, same)
    assert {row["outcome"] for row in found["measurements"].values()} == {"even"}
    assert found["overall"]["difference"] == 0 and found["overall"]["outcome"] == "even"


def test_no_difference_in_any_replicate_is_an_interval_of_zero():
    """As of two contestants that rank scored pairs alike, beside one that varies."""
    varied = numpy_generator(0, "differences").normal(size=200)
    found = intervals({"same": np.zeros(200), "other": varied})
    assert found["same"] == (0, 0) and found["other"] == intervals({"other": varied})["other"]


@pytest.mark.parametrize(("only_trained", "outcome"), [(4, "even"), (8, "better")])
def test_a_handful_of_images_is_not_significant(only_trained, outcome):
    """McNemar's exact test gives p = .125 for 4 to 0 and .008 for 8 to 0; a plain bootstrap calls both significant."""
    baseline = correct(200, 0.5)
    trained = baseline.copy()
    trained[np.flatnonzero(~baseline)[:only_trained]] = True
    assert compare("raw_pixels", {"knn": trained}, {"knn": baseline})["measurements"]["knn"]["outcome"] == outcome


def test_pairing_makes_small_differences_significant():
    baseline = correct(2000, 0.5, 1)
    trained = baseline.copy()
    trained[np.flatnonzero(~baseline)[:40]] = True  # two points, and no image lost
    shuffled = np.random.default_rng(2).permutation(trained)
    paired, unpaired = (
        compare("raw_pixels", {"knn": each}, {"knn": baseline})["overall"] for each in (trained, shuffled)
    )
    assert paired["difference"] == unpaired["difference"]
    assert (paired["outcome"], unpaired["outcome"]) == ("better", "even")


@pytest.mark.slow
def test_one_chance_result_among_many_is_rare():
    """Two equally good encoders: any of six intervals excludes 0 in about 5% of comparisons, not in 5% of each."""
    alarms, trials = 0, 150
    for trial in range(trials):
        names = ["knn", "linear", "a", "b", "c"]
        sides = [
            {name: correct(120, 0.6, 1000 * trial + 10 * i + side) for i, name in enumerate(names)} for side in (0, 1)
        ]
        found = compare("raw_pixels", *sides, seed=trial)
        rows = [*found["measurements"].values(), found["overall"]]
        alarms += any(row["outcome"] != "even" for row in rows)
    assert alarms / trials < 0.11  # .05 + 3.4 standard errors


def test_few_shot_intervals_cover_draws_and_images():
    """20 draws on 50 images: with the images held fixed, the interval would be a fifth as wide."""
    draw = np.random.default_rng(0)
    image, n, draws = draw.random(50), 50, 20
    trained = (image < 0.6)[None].repeat(draws, 0) ^ (draw.random((draws, n)) < 0.02)
    baseline = correct(n, 0.5, 5)[None].repeat(draws, 0)
    row = compare("raw_pixels", {"few_shot_1": trained}, {"few_shot_1": baseline})["overall"]
    assert row["high"] - row["low"] > 0.2
    over_draws = np.std((trained.mean(1) - baseline.mean(1)), ddof=1) / np.sqrt(draws)
    assert row["high"] - row["low"] > 5 * 2 * 2 * over_draws


def test_view_retrieval_is_overall_only_without_labels():
    views = {"view_retrieval": correct(500, 0.6, 1)}, {"view_retrieval": correct(500, 0.2, 2)}
    alone = compare("raw_pixels", *views)
    assert alone["overall"]["of"] == ["view_retrieval"] and alone["overall"]["outcome"] == "better"
    labeled = {"knn": correct(100, 0.5, 3)}, {"knn": correct(100, 0.5, 3)}
    both = compare("raw_pixels", labeled[0] | views[0], labeled[1] | views[1])
    assert both["overall"]["of"] == ["knn"] and both["overall"]["n"] == 100
    row = both["measurements"]["view_retrieval"]
    assert row["n"] == 500 and row == alone["measurements"]["view_retrieval"]


def test_measurements_missing_on_one_side_are_left_out():
    found = compare("raw_pixels", {"knn": correct(9, 0.5), "classifier": correct(9, 0.5)}, {"knn": correct(9, 0.5)})
    assert list(found["measurements"]) == ["knn"]
    assert compare("raw_pixels", {}, {}) == {"against": "raw_pixels", "measurements": {}, "overall": None}


def test_share_is_none_for_a_perfect_baseline():
    perfect = {"knn": np.ones(50, bool)}
    assert compare("raw_pixels", perfect, perfect)["overall"]["share"] is None


def test_block_size_does_not_matter(monkeypatch):
    differences = {"knn": np.sign(np.random.default_rng(0).normal(size=(1, 30))).astype(np.float32)}
    whole = bootstrap(differences, 0)
    monkeypatch.setattr("coulomb.evaluation.comparison.BLOCK", 500)
    assert np.array_equal(bootstrap(differences, 0)["knn"], whole["knn"])


def clustered_oracle(trained, baseline, clusters, seed):
    """Intervals by the definition: whole clusters are drawn, one replicate at a time."""
    count = 1 + max(int(each.max()) for each in clusters.values())
    draw = numpy_generator(seed, "paired bootstrap", "images")
    means = {name: [] for name in trained}
    for _ in range(REPLICATES):
        drawn = draw.integers(count + 2, size=count + 2)
        for name in trained:
            difference = trained[name].astype(float) - baseline[name]
            members = [difference[clusters[name] == c] for c in range(count)]
            average = np.mean([len(each) for each in members if len(each)])
            total = sum(members[c].sum() if c < count else average * (1 if c == count else -1) for c in drawn)
            size = sum(len(members[c]) if c < count else average for c in drawn)
            means[name].append(total / size)
    return {name: np.array(each) for name, each in means.items()}


def test_bootstrap_by_cluster_is_the_loop():
    clusters = {"there": np.arange(12), "back": np.repeat(np.arange(12), [1, 5, 2] * 4)}
    draw = np.random.default_rng(0)
    trained, baseline = ({name: draw.random(len(each)) for name, each in clusters.items()} for _ in range(2))
    found = compare_by_cluster("linear_map", trained, baseline, clusters, ["there", "back"], seed=3)
    means = clustered_oracle(trained, baseline, clusters, 3)
    means["overall"] = (means["there"] + means["back"]) / 2
    t = np.quantile(np.max([np.abs(each - each.mean()) / each.std() for each in means.values()], axis=0), LEVEL)
    rows = found["measurements"] | {"overall": found["overall"]}
    for name, each in means.items():
        bounds = each.mean() - t * each.std(), each.mean() + t * each.std()
        assert (rows[name]["low"], rows[name]["high"]) == pytest.approx(bounds, abs=1e-9)
    difference = (np.mean(trained["there"] - baseline["there"]) + np.mean(trained["back"] - baseline["back"])) / 2
    assert found["overall"]["difference"] == pytest.approx(difference)
    assert found["overall"]["clusters"] == 12 and found["overall"]["n"] == 12 + 32
    assert json.loads(json.dumps(found)) == found


def test_clusters_of_one_query_are_images():
    trained, baseline = {"knn": correct(80, 0.7, 1)}, {"knn": correct(80, 0.5, 2)}
    expected = compare("raw_pixels", trained, baseline)["measurements"]["knn"]
    found = compare_by_cluster("raw_pixels", trained, baseline, {"knn": np.arange(80)}, ["knn"])["measurements"]["knn"]
    assert found == pytest.approx(expected)


def test_copies_in_a_cluster_do_not_narrow_the_interval():
    once = correct(60, 0.6, 1), correct(60, 0.4, 2)
    five = tuple({"back": np.repeat(each, 5)} for each in once)
    narrow = compare_by_cluster("chance", *five, {"back": np.arange(300)}, ["back"])["overall"]
    wide = compare_by_cluster("chance", *five, {"back": np.repeat(np.arange(60), 5)}, ["back"])["overall"]
    single = compare_by_cluster("chance", *({"back": each} for each in once), {"back": np.arange(60)}, ["back"])[
        "overall"
    ]
    assert wide["high"] - wide["low"] == pytest.approx(single["high"] - single["low"])
    assert wide["high"] - wide["low"] > 1.8 * (narrow["high"] - narrow["low"])


def test_intervals_of_single_scores_stay_within_zero_and_one():
    clusters = {"all": np.arange(30), "half": np.arange(400) % 30}
    found = mean_intervals({"all": np.ones(30), "half": correct(400, 0.5)}, clusters)
    assert found["all"][0] > 0.8 and found["all"][1] == 1
    low, high = found["half"]
    assert low < 0.5 < high and 0.1 < high - low < 0.4
