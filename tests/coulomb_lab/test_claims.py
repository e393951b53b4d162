"""Claims and charts over an option, on invented results."""

import pytest

from coulomb_lab.claims import (
    all_at_least,
    all_within,
    at_least,
    best_inside,
    chart_spec,
    format_value,
    monotone,
    published_series,
    result_series,
    sweep_arms,
)
from coulomb_lab.imbalance import frequency_thresholds, gradient_chart, gradient_exponent
from coulomb_lab.methods import has_collapsed

ROWS = {"a": {"knn": 0.9, "embedding_rank": 12.0}, "b": {"knn": 0.86, "embedding_rank": 1.2}, "c": {"knn": 0.80}}


def test_a_margin_is_met_or_not():
    assert at_least(ROWS, "a", "b", "knn", 0.04, "", "").holds is True
    assert at_least(ROWS, "a", "b", "knn", 0.05, "", "").holds is False
    assert "may be chance" in at_least(ROWS, "a", "b", "knn", 0.045, "", "").measured
    text = at_least(ROWS, "b", "a", "knn", 0.0, "", "").measured
    assert text == "kNN: b 86.0%, a 90.0%: −4.0 points"


def test_what_was_not_measured_is_not_judged():
    assert at_least(ROWS, "a", "z", "knn", 0, "", "").holds is None
    assert all_at_least(ROWS, ["z"], "knn", 0.5, "", "").holds is None
    assert all_within(ROWS, ["a", "z"], "knn", 0.5, "", "").holds is None
    assert has_collapsed({}) is None


def test_those_below_a_bound_are_named_worst_first():
    claim = all_at_least(ROWS, ["a", "b", "c"], "knn", 0.88, "", "")
    assert claim.holds is False
    assert claim.measured == "1 of 3 reach 88.0% (kNN); below: c 80.0%, b 86.0%"
    assert all_at_least(ROWS, ["a", "b"], "knn", 0.86, "", "").measured.endswith("the lowest: b 86.0%")
    assert all_at_least(ROWS, ["a", "b"], "embedding_rank", 5, "", "").measured.endswith("below: b 1.2")


def test_a_spread_is_judged():
    assert all_within(ROWS, ["a", "b"], "knn", 0.06, "", "").holds is True
    claim = all_within(ROWS, ["a", "b", "c"], "knn", 0.06, "", "")
    assert claim.holds is False and claim.measured.endswith("range 10.0 points")


@pytest.mark.parametrize(
    ("rank", "spread", "expected"), [(1.3, 0.5, True), (20, 0.01, True), (20, 0.9, False), (20, None, False)]
)
def test_collapse_is_seen_in_rank_or_spread(rank, spread, expected):
    assert has_collapsed({"embedding_rank": rank, "embedding_std": spread}) is expected


def test_thresholds_are_the_usual_ones_where_each_group_has_a_class():
    assert frequency_thresholds([142, 85, 51, 30, 18, 10, 6]) == frequency_thresholds([142, 14]) == (100, 20)
    assert frequency_thresholds([]) == (100, 20)


def test_elsewhere_they_cut_off_about_a_third_of_the_classes():
    counts = [5000, 2997, 1796, 1077, 645, 387, 232, 139, 83, 50]  # CIFAR-10 at imbalance 100: none below 20
    many_above, few_below = frequency_thresholds(counts)
    assert (many_above, few_below) == (1795, 140)
    assert [sum(n > many_above for n in counts), sum(n < few_below for n in counts)] == [3, 3]


@pytest.mark.parametrize("counts", [[142] * 5 + [24] * 5, [9, 3], [500, 500, 2], [30, 1]])
def test_a_step_has_its_two_groups(counts):
    many_above, few_below = frequency_thresholds(counts)
    assert few_below <= many_above + 1
    assert all(n > many_above for n in counts if n == max(counts)) and all(
        n < few_below for n in counts if n == min(counts)
    )


@pytest.mark.parametrize("counts", [[10, 10, 10], [7], [0, 5]])
def test_classes_that_are_alike_are_not_told_apart(counts):
    assert frequency_thresholds(counts) == (100, 20)


def test_gradients_are_told_relative_to_the_most_frequent_class():
    found = {"gradients": [1.0, None, 4.0, 2.0], "class_counts": [10, 0, 1000, 100]}
    (series,) = gradient_chart({"x": found, "none": {}})["series"]
    assert series["points"] == [(1000, 1.0), (100, 0.5), (10, 0.25)]
    assert gradient_exponent(found) == pytest.approx(0.301, abs=1e-3)  # halves by a tenth of the images
    assert gradient_exponent({}) is None


SWEEP = {
    "a": {"knn": 0.5, "knn_std": 0.1, "uniformity": -3.0},
    "b": {"knn": 0.7, "knn_std": 0.01, "uniformity": -2.0},
    "c": {"knn": 0.6, "uniformity": -2.5},
}
PLACES = [(2.0, "b"), (1.0, "a"), (3.0, "c")]


def test_a_run_for_each_value():
    arms = sweep_arms((0.1, 1.0), "t{:g}".format, lambda x: {"temperature": x}, 3)
    assert [(arm.name, arm.options, arm.quick) for arm in arms] == [
        ("t0.1", {"temperature": 0.1}, 3),
        ("t1", {"temperature": 1.0}, 3),
    ]


def test_a_series_is_in_the_order_of_the_axis_and_has_deviations():
    assert result_series(SWEEP, [*PLACES, (4.0, "missing")], "knn", "x")["points"] == [
        (1, 0.5, 0.1),
        (2, 0.7, 0.01),
        (3, 0.6, 0),
    ]
    drawn = chart_spec("T", "knn", "x", [published_series([(1, 0.4)], "theirs")])
    assert drawn["percent"] and drawn["log_x"] and drawn["series"][0]["dashed"]


def test_rising_is_at_every_step():
    assert monotone(SWEEP, PLACES[:2], "knn", True, "", "").holds is True
    assert monotone(SWEEP, PLACES, "knn", True, "", "").holds is False
    assert monotone(SWEEP, PLACES[:2], "uniformity", False, "", "").holds is False
    assert monotone(SWEEP, [*PLACES, (4.0, "missing")], "knn", True, "", "").holds is None


def test_the_best_is_inside():
    assert best_inside(SWEEP, PLACES, "knn", "", "").holds is True
    claim = best_inside(SWEEP, [*PLACES[:2], (0.5, "c")], "knn", "", "")
    assert claim.holds is False
    assert best_inside(SWEEP, PLACES[:2], "knn", "", "").holds is None


def test_what_may_be_chance_is_marked():
    assert monotone(SWEEP, PLACES[:2], "knn", True, "", "").chance is False  # .2 apart, deviations of .1 and .01
    near = {"a": {"knn": 0.70}, "b": {"knn": 0.705}, "c": {"knn": 0.6}}
    assert monotone(near, [(1, "a"), (2, "b")], "knn", True, "", "").chance is True
    assert monotone(near, [(1, "a"), (2, "b"), (3, "c")], "knn", True, "", "").chance is False  # it certainly falls
    assert monotone(near, [(1, "c"), (2, "b"), (3, "a")], "knn", True, "", "").chance is True
    assert best_inside(near, [(1, "a"), (2, "b"), (3, "c")], "knn", "", "").chance is True


def test_deviations_are_told():
    assert format_value(SWEEP, "a", "knn") == "50.0% ± 10.0"
    assert format_value(SWEEP, "c", "uniformity") == "−2.50"
