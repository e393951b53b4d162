"""The chart engine: ticks, places, averaging, levels, logarithmic axes and paths."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.report.pages.chart import (
    MAX_CURVES,
    MAX_POINTS,
    MAX_STEPS,
    Level,
    Series,
    line_chart,
    powers,
    ticks,
)
from coulomb.report.pages.numbers import percent, significant

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False, allow_subnormal=False)


def chart_of(*curves, **options):
    return line_chart([Series(*curve) for curve in curves], title="T", x_label="x", **options)


def one_curve(points, **options):
    return chart_of(("", points), x_name="step", **options)


@given(NUMBERS, NUMBERS)
def test_ticks_cover_the_range_evenly(a, b):
    low, high = min(a, b), max(a, b)
    values = ticks(low, high)
    rounding = 1e-6 * max(abs(low), abs(high))
    assert values[0] <= low + rounding
    assert values[-1] >= high - rounding
    assert 2 <= len(values) <= 8 or high - low < 1e-9 * max(abs(low), abs(high), 1e-3)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 100, [0, 50, 100]), (2.9, 6.24, [2, 3, 4, 5, 6, 7]), (0.894, 0.98, [0.85, 0.9, 0.95, 1.0])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == expected


def test_ticks_stay_within_limits():
    assert ticks(1.0, 1.0, limits=(0.0, 1.0))[-1] == 1.0


@pytest.mark.parametrize(
    ("low", "high", "write", "expected"),
    [
        (0.8401, 0.8431, lambda share: percent(share, 0), ["84.0 %", "84.1 %", "84.2 %", "84.3 %", "84.4 %"]),
        (0.835, 0.855, lambda share: percent(share, 0), ["83.5 %", "84.0 %", "84.5 %", "85.0 %", "85.5 %"]),
        (0.2, 0.6, lambda share: percent(share, 0), ["20 %", "30 %", "40 %", "50 %", "60 %"]),
        (5.0001, 5.0004, significant, ["5.0001", "5.0002", "5.0003", "5.0004"]),
        (-1.00012, -1.0001, significant, ["−1.000120", "−1.000115", "−1.000110", "−1.000105", "−1.000100"]),
        (12.0, 15.0, lambda value: "some words", ["some words"] * 4),
    ],
)
def test_labels_of_a_small_range_have_the_digits_that_tell_them_apart(low, high, write, expected):
    labels = [tick.label.replace("\u202f", " ") for tick in one_curve([(0, low), (1, high)], write=write).y_ticks]
    assert labels == expected


def test_a_level_is_always_in_the_plot_at_its_height():
    chart = one_curve([(0, 1.0), (10, 2.0)], levels=[Level(6.0, "constant embeddings", "nosignal")])
    top, bottom = chart.y_ticks[-1], chart.y_ticks[0]
    assert top.place == 0
    assert bottom.place == 100
    assert chart.levels[0].place == pytest.approx(
        100 * (float(top.label) - 6) / (float(top.label) - float(bottom.label))
    )


def test_labels_of_near_levels_do_not_overlap():
    chart = one_curve([(0, 0.2), (1, 0.9)], levels=[Level(0.5, "a", "p"), Level(0.51, "b", "q")])
    assert ["below" in level.style for level in chart.levels] == [False, True]


@pytest.mark.parametrize(
    ("heights", "below"), [([0.1, 0.9, 0.55], True), ([0.9, 0.1, 0.45], False), ([0.55, 0.1, 0.1], False)]
)
def test_the_label_of_a_level_avoids_the_curve(heights, below):
    curve = Series("", [(x, y) for x, y in enumerate(heights)])
    chart = line_chart([curve], title="t", x_label="x", y_range=(0, 1), levels=[Level(0.5, "half", "base")])
    assert ["below" in level.style for level in chart.levels] == [below]


def test_many_points_become_means_with_their_range():
    points = [(x, 5.0 + (1 if x % 2 else -1)) for x in range(10 * MAX_POINTS)]
    chart = one_curve(points)
    assert len(chart.readout[0]["x"]) == MAX_POINTS
    assert chart.curves[0].band
    assert set(chart.readout[0]["y"]) == {50.0}
    heights = {float(y) for y in re.findall(r" ([\d.]+)", chart.curves[0].band)}
    assert len(heights) == 2
    assert "mean of 10" in chart.note
    several = chart_of(("a", points), ("b", points))
    assert not any(curve.band for curve in several.curves) and "mean of 10" in several.note


def test_points_that_are_not_finite_are_left_out_and_one_point_is_a_dot():
    chart = one_curve([(1, math.nan), (2, 3.0), (3, math.inf)])
    assert len(chart.readout[0]["x"]) == 1
    assert chart.curves[0].line == ""
    assert chart.curves[0].dots == "M500 500h0"


def test_no_finite_point_gives_no_chart():
    assert line_chart([], title="t", x_label="x") is None
    assert one_curve([]) is None
    assert one_curve([(0, math.nan)]) is None
    assert one_curve([(0, 1.0)], log_x=True) is None


def test_several_curves_share_their_axes():
    chart = chart_of(
        ("a", [(0, 0.0), (10, 1.0)]), ("none", [], "k1"), ("b", [(5, 2.0), (20, 4.0)], "k2"), x_name="step"
    )
    assert [curve.name for curve in chart.curves] == ["a", "b"]
    assert [one["x"] for one in chart.readout] == [[0, 50], [25, 100]]
    assert [one["y"] for one in chart.readout] == [[100, 75], [50, 0]]
    assert chart.readout[1]["text"][0] == "b, step 5: 2.00"
    assert "a from 0 to 1.00" in chart.summary


def test_paths_are_in_a_box_of_1000():
    chart = chart_of(("a", [(0, 0.0), (10, 1.0)]), ("b", [(5, 0.5)]), write=percent, limits=(0.0, 1.0))
    assert chart.curves[0].line == "M0 1000L1000 0"
    assert (chart.curves[1].line, chart.curves[1].dots) == ("", "M500 500h0")
    assert (chart.y_ticks[0].place, chart.y_ticks[-1].place) == (100.0, 0.0)
    assert (
        chart.summary.replace("\u202f", "")
        == "T: a from 0.0% to 100.0% over 2 points; b from 50.0% to 50.0% over 1 points"
    )


def test_deviations_are_bars_within_the_plot():
    chart = chart_of(("a", [(0, 2.0, 1.0), (1, 3.0, 0.0), (2, 4.0)]), y_label="y")
    assert chart.curves[0].bars == "M0 1000V333"  # from 1 to 3 on an axis from 1 to 4
    assert chart.readout[0]["text"] == ["a, x 0: 2.00 ± 1.00", "a, x 1: 3.00", "a, x 2: 4.00"]


def test_formulas_have_no_dots_and_scattered_points_no_line():
    line, dots = chart_of(("f", [(0, 1), (1, 2)], "", False, "line"), ("p", [(0, 1), (1, 2)], "", True, "dots")).curves
    assert line.line and not line.dots and line.style == "k0"
    assert dots.dots and not dots.line and dots.style == "k1 dashed"


def test_more_curves_than_colors_are_named():
    chart = chart_of(*((f"n{i}", [(0, i), (1, i)]) for i in range(MAX_CURVES + 2)))
    assert len(chart.curves) == MAX_CURVES and chart.note == "Not drawn: n8, n9."


def test_a_logarithmic_axis_leaves_out_what_has_no_logarithm():
    chart = one_curve([(1, 1.0), (2, 0.1), (3, 0.0), (4, 0.01)], log_y=True)
    assert chart.readout[0]["y"] == [0, 50, 100]
    assert [tick.place for tick in chart.y_ticks] == [100, 50, 0]
    points = [(0, 1.0), (10, 1.0), (100, 3.0), (1000, 2.0), (10, math.nan)]
    across = one_curve(points, log_x=True)
    assert [(tick.place, tick.label) for tick in across.x_ticks] == [(0.0, "10"), (50.0, "100"), (100.0, "1,000")]


def test_many_values_on_a_logarithmic_axis_have_round_ticks():
    chart = one_curve([(x, x) for x in range(3, 50)], log_x=True)
    assert [tick.label for tick in chart.x_ticks] == ["5", "10", "20"]
    wide = one_curve([(10.0**k, k) for k in range(7)], log_x=True)
    assert [tick.label for tick in wide.x_ticks] == ["1", "10", "100", "1,000", "10,000", "100,000", "1,000,000"]


def test_both_axes_logarithmic_with_the_last_value_at_each_end():
    chart = chart_of(("a", [(10, 1.0), (100, 10.0), (1000, 100.0)]), ("b", []), log_x=True, log_y=True, ends=True)
    assert chart.readout[0]["x"] == [0, 50, 100] and chart.readout[0]["y"] == [100, 50, 0]
    assert [(tick.place, tick.label) for tick in chart.y_ticks] == [(100, "1"), (50, "10"), (0, "100")]
    assert [curve.end for curve in chart.curves] == [(100, 0, "100")] and chart.kind == "ends"
    assert one_curve([(10, 1.0)], log_x=True, log_y=True).x_ticks[0].place == 50


def test_a_fixed_range_leaves_out_what_is_outside():
    chart = one_curve([(0, 0.0), (1, 5.0), (2, 20.0)], y_range=(0.0, 10.0))
    assert chart.readout[0]["y"] == [100, 50]


def test_a_path_keeps_its_order_and_thins_out_to_its_last_point():
    points = [(-e / 100, 0.5) for e in range(1000)]
    chart = chart_of(("a", points), ("empty", []), path=True)
    assert len(chart.curves) == 1 and chart.kind == "path"
    assert len(chart.readout[0]["x"]) <= MAX_STEPS + 1
    assert chart.readout[0]["x"] == sorted(chart.readout[0]["x"], reverse=True)
    assert chart.curves[0].end[0] == chart.readout[0]["x"][-1]


@given(st.floats(1e-8, 1e8), st.floats(1, 1e6))
def test_powers_cover_the_range(low, factor):
    values = powers(low, low * factor)
    assert values[0] <= low * (1 + 1e-6)
    assert values[-1] >= low * factor * (1 - 1e-6)
    assert 2 <= len(values) <= 8
