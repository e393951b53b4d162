"""Text of a figure: on which side of its threshold it lies."""

import pytest

from coulomb.evaluation.doctor.text import figure_text


@pytest.mark.parametrize(
    ("value", "bad", "text"),
    [
        (0.00125, "above", "share: 0.00125 (not above the threshold 0.01)"),
        (0.02, "above", "share: 0.02 (above the threshold 0.01)"),
        (0.02, "below", "share: 0.02 (not below the threshold 0.01)"),
        (0.02, None, "share: 0.02 (threshold 0.01)"),
        (None, "above", "share (threshold 0.01)"),
        ("many", "above", "share: many (threshold 0.01)"),
    ],
)
def test_a_figure_says_whether_it_crossed_its_threshold(value, bad, text):
    assert figure_text({"what": "share", "value": value, "threshold": 0.01, "bad": bad}) == text
