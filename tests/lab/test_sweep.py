from coulomb.lab.claims import best_inside, chart, curve, monotone, published, sweep, told
from coulomb.lab.page import mark

ROWS = {
    "a": {"knn": 0.5, "knn_std": 0.1, "uniformity": -3.0},
    "b": {"knn": 0.7, "knn_std": 0.01, "uniformity": -2.0},
    "c": {"knn": 0.6, "uniformity": -2.5},
}
PLACES = [(2.0, "b"), (1.0, "a"), (3.0, "c")]


def test_a_run_for_each_value():
    arms = sweep((0.1, 1.0), "t{:g}".format, lambda x: {"temperature": x}, 3)
    assert [(arm.name, arm.options, arm.quick) for arm in arms] == [
        ("t0.1", {"temperature": 0.1}, 3),
        ("t1", {"temperature": 1.0}, 3),
    ]


def test_a_series_is_in_the_order_of_the_axis_and_has_deviations():
    assert curve(ROWS, [*PLACES, (4.0, "missing")], "knn", "x")["points"] == [
        (1, 0.5, 0.1),
        (2, 0.7, 0.01),
        (3, 0.6, 0),
    ]
    drawn = chart("T", "knn", "x", [published([(1, 0.4)], "theirs")])
    assert drawn["percent"] and drawn["log_x"] and drawn["series"][0]["dashed"]


def test_rising_is_at_every_step():
    assert monotone(ROWS, PLACES[:2], "knn", True, "", "").holds is True
    assert monotone(ROWS, PLACES, "knn", True, "", "").holds is False
    assert monotone(ROWS, PLACES[:2], "uniformity", False, "", "").holds is False
    assert monotone(ROWS, [*PLACES, (4.0, "missing")], "knn", True, "", "").holds is None


def test_the_best_is_inside():
    assert best_inside(ROWS, PLACES, "knn", "", "").holds is True
    claim = best_inside(ROWS, [*PLACES[:2], (0.5, "c")], "knn", "", "")
    assert claim.holds is False
    assert best_inside(ROWS, PLACES[:2], "knn", "", "").holds is None


def test_what_may_be_chance_is_marked():
    assert monotone(ROWS, PLACES[:2], "knn", True, "", "").chance is False  # .2 apart, deviations of .1 and .01
    near = {"a": {"knn": 0.70}, "b": {"knn": 0.705}, "c": {"knn": 0.6}}
    assert monotone(near, [(1, "a"), (2, "b")], "knn", True, "", "").chance is True
    assert monotone(near, [(1, "a"), (2, "b"), (3, "c")], "knn", True, "", "").chance is False  # it certainly falls
    assert monotone(near, [(1, "c"), (2, "b"), (3, "a")], "knn", True, "", "").chance is True
    assert best_inside(near, [(1, "a"), (2, "b"), (3, "c")], "knn", "", "").chance is True
    assert mark({"holds": False, "chance": True}) == "does not hold here, perhaps by chance"


def test_deviations_are_told():
    assert told(ROWS, "a", "knn") == "50.0% ± 10.0"
    assert told(ROWS, "c", "uniformity") == "−2.50"
