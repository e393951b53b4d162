"""The result of an experiment as a chart and as text."""

from coulomb_lab.page import draw_chart, outcome


def test_a_chart_of_a_result_is_drawn():
    series = [
        {"name": "here", "points": [(0.1, 0.5, 0.1), (1, 0.7, 0.1)]},
        {"name": "published", "points": [(0.1, 0.4)], "dashed": True},
        {"name": "formula", "points": [(0.1, 0.4), (1, 0.5)], "smooth": True},
        {"name": "minima", "points": [(0.1, 0.4), (1, 0.5)], "scattered": True},
    ]
    spec = {"title": "T", "x_label": "τ", "y_label": "y", "log_x": True, "percent": True, "note": "N."}
    chart = draw_chart(spec | {"series": series})
    assert chart.readout[0]["text"] == [
        "here, τ 0.1: 50.0\u202f% ± 10.0\u202f%",
        "here, τ 1: 70.0\u202f% ± 10.0\u202f%",
    ]
    assert [bool(curve.line) for curve in chart.curves] == [True, False, True, False]
    assert [bool(curve.dots) for curve in chart.curves] == [True, True, False, True]
    assert chart.curves[1].style == "k1 dashed" and chart.curves[0].bars and chart.note == "N."
    assert draw_chart(spec | {"series": []}) is None


def test_a_trajectory_is_a_path():
    series = [{"name": "a", "points": [(-1.0, 0.2), (-3.0, 0.1), (-2.0, 0.3)]}]
    chart = draw_chart({"title": "T", "x_label": "x", "y_label": "y", "path": True, "series": series})
    assert chart.kind == "path" and chart.readout[0]["x"] == [100, 0, 50]


def test_outcomes_that_may_be_chance_say_so():
    assert outcome({"holds": False, "chance": True}) == "does not hold here, perhaps by chance"
