import math

import pytest

from coulomb.report.pages.numbers import (
    axis_value,
    count,
    duration,
    percent,
    plural,
    shorten,
    signed,
    significant,
    trim_zeros,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(6.2364, "6.24"), (0.0005, "0.000500"), (0, "0"), (-3.4, "−3.40"), (12345.6, "12,346"), (1.5e-7, "1.5·10⁻⁷"),
     (None, "–"), (math.nan, "–"), (1e9, "1·10⁹"), (200, "200")],
)  # fmt: skip
def test_significant_digits(number, text):
    assert significant(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (48.2, "48 s"), (600, "10 min"), (12_000, "3 h 20 min"), (7200, "2 h")]
)
def test_durations(seconds, text):
    assert duration(seconds).replace("\u202f", " ") == text


def test_percent_counts_plurals_and_long_names():
    assert percent(0.9342) == "93.4\u202f%"
    assert percent(None) == "–"
    assert count(12345) == "12,345"
    assert (plural(1, "image"), plural(2, "image")) == ("1 image", "2 images")
    assert len(shorten("x" * 500, 90)) <= 92
    assert shorten("name.png") == "name.png"


def test_tick_labels_have_no_needless_zeros():
    assert [trim_zeros(text) for text in ("6.00", "50.0\u202f%", "200", "1.50·10⁻⁷")] == [
        "6",
        "50\u202f%",
        "200",
        "1.50·10⁻⁷",
    ]


def test_axis_values():
    assert [axis_value(x) for x in (30, 1200.0, 2.5, -3, None)] == ["30", "1,200", "2.50", "−3", "–"]


def test_differences_have_a_sign():
    assert (signed(4.66), signed(-0.42), signed(-1.234, 2)) == ("+4.7", "−0.4", "−1.23")
