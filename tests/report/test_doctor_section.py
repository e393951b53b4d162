"""Evidence of the doctor on the page: on which side of its threshold a figure lies."""

import pytest

from coulomb.report.doctor_section import evidence_text


@pytest.mark.parametrize(
    ("value", "bad", "told"),
    [
        (0.00125, "above", "share: 0.00125 (not above the threshold 0.01)"),
        (0.02, "above", "share: 0.02 (above the threshold 0.01)"),
        (0.02, "below", "share: 0.02 (not below the threshold 0.01)"),
        (0.02, None, "share: 0.02 (threshold 0.01)"),
    ],
)
def test_a_figure_says_whether_it_crossed_its_threshold(value, bad, told):
    assert evidence_text({"what": "share", "value": value, "threshold": 0.01, "bad": bad}) == told
