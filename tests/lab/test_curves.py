import math

from coulomb.lab.page import MOST_CURVES, chart_of


def chart(series, **more):
    return chart_of({"title": "T", "x_label": "x", "y_label": "y", "series": series, **more})


def test_places_are_percent_of_the_axes():
    found = chart([{"name": "a", "points": [(0, 0.0), (10, 1.0)]}, {"name": "b", "points": [(5, 0.5)]}], percent=True)
    assert found.curves[0].line == "M0 1000L1000 0"
    assert (found.curves[1].line, found.curves[1].dots) == ("", "M500 500h0")
    assert (found.y_ticks[0].place, found.y_ticks[-1].place) == (100.0, 0.0)
    assert found.summary == "T: a ends at 100.0\u202f%; b ends at 50.0\u202f%"


def test_a_logarithmic_axis_takes_positive_values_alone():
    points = [(0, 1.0), (10, 1.0), (100, 3.0), (1000, 2.0), (10, math.nan)]
    found = chart([{"name": "a", "points": points}], log_x=True)
    assert [(tick.place, tick.label) for tick in found.x_ticks] == [(0.0, "10"), (50.0, "100"), (100.0, "1,000")]


def test_nothing_to_draw():
    assert chart([]) is None
    assert chart([{"name": "a", "points": [(0, 1.0)]}], log_x=True) is None


def test_one_point_and_level_curves_have_a_place():
    found = chart([{"name": "a", "points": [(3, 2.0)]}])
    assert found.curves[0].dots.startswith("M500 ")


def test_more_curves_than_colours_are_named():
    found = chart([{"name": f"n{i}", "points": [(0, i), (1, i)]} for i in range(MOST_CURVES + 2)])
    assert len(found.curves) == MOST_CURVES and found.notes == ["Not drawn: n8, n9."]
