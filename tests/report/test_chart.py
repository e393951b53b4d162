import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.pages.chart import MAX_POINTS, Level, Series, line_chart, lines_chart, powers, ticks

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False, allow_subnormal=False)


@given(NUMBERS, NUMBERS)
def test_ticks_cover_the_range_evenly(a, b):
    low, high = min(a, b), max(a, b)
    found = ticks(low, high)
    rounding = 1e-6 * max(abs(low), abs(high))
    assert found[0] <= low + rounding
    assert found[-1] >= high - rounding
    assert 2 <= len(found) <= 8 or high - low < 1e-9 * max(abs(low), abs(high), 1e-3)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 100, [0, 50, 100]), (2.9, 6.24, [2, 3, 4, 5, 6, 7]), (0.894, 0.98, [0.85, 0.9, 0.95, 1.0])],
)
def test_ticks_are_round(low, high, expected):
    assert ticks(low, high) == expected


def test_ticks_stay_within_what_is_possible():
    assert ticks(1.0, 1.0, limits=(0.0, 1.0))[-1] == 1.0


def test_a_level_is_always_in_the_picture_at_its_height():
    chart = line_chart([(0, 1.0), (10, 2.0)], title="t", x_label="x", levels=[Level(6.0, "no signal", "nosignal")])
    top, bottom = chart.y_ticks[-1], chart.y_ticks[0]
    assert top.place == 0
    assert bottom.place == 100
    assert chart.levels[0].place == pytest.approx(
        100 * (float(top.label) - 6) / (float(top.label) - float(bottom.label))
    )


def test_near_levels_do_not_write_over_each_other():
    chart = line_chart(
        [(0, 0.2), (1, 0.9)], title="t", x_label="x", levels=[Level(0.5, "a", "p"), Level(0.51, "b", "q")]
    )
    assert ["below" in level.style for level in chart.levels] == [False, True]


def test_many_points_become_means_with_their_range():
    points = [(x, 5.0 + (1 if x % 2 else -1)) for x in range(10 * MAX_POINTS)]
    chart = line_chart(points, title="t", x_label="x")
    assert len(chart.readout[0]["x"]) == MAX_POINTS
    assert chart.curves[0].band
    assert set(chart.readout[0]["y"]) == {50.0}
    heights = {float(y) for y in re.findall(r" ([\d.]+)", chart.curves[0].band)}
    assert len(heights) == 2
    assert "mean of 10" in chart.note


def test_points_that_are_not_finite_are_left_out_and_one_point_is_a_dot():
    chart = line_chart([(1, math.nan), (2, 3.0), (3, math.inf)], title="t", x_label="x")
    assert len(chart.readout[0]["x"]) == 1
    assert chart.curves[0].line == ""
    assert chart.curves[0].dots == "M500 500h0"


def test_nothing_to_draw():
    assert line_chart([], title="t", x_label="x") is None
    assert line_chart([(0, math.nan)], title="t", x_label="x") is None


def test_several_curves_share_their_axes():
    chart = lines_chart(
        [Series("a", [(0, 0.0), (10, 1.0)], "k0"), Series("none", [], "k1"), Series("b", [(5, 2.0), (20, 4.0)], "k2")],
        title="t",
        x_label="x",
    )
    assert [curve.name for curve in chart.curves] == ["a", "b"]
    assert [one["x"] for one in chart.readout] == [[0, 50], [25, 100]]
    assert [one["y"] for one in chart.readout] == [[100, 75], [50, 0]]
    assert chart.readout[1]["text"][0] == "b, step 5: 2.00"
    assert "a from 0 to 1.00" in chart.summary


def test_a_logarithmic_axis_leaves_out_what_has_no_logarithm():
    chart = line_chart([(1, 1.0), (2, 0.1), (3, 0.0), (4, 0.01)], title="t", x_label="x", log_y=True)
    assert chart.readout[0]["y"] == [0, 50, 100]
    assert [tick.place for tick in chart.y_ticks] == [100, 50, 0]


@given(st.floats(1e-8, 1e8), st.floats(1, 1e6))
def test_powers_cover_the_range(low, factor):
    found = powers(low, low * factor)
    assert found[0] <= low * (1 + 1e-6)
    assert found[-1] >= low * factor * (1 - 1e-6)
    assert 2 <= len(found) <= 8
