"""No cell of a CSV file is a formula, and reading restores every text."""

import random

import pytest

from coulomb.ground.reading.cells import from_cell, to_cell

RUN = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    '=HYPERLINK("http://a")',
    "-",
    "+",
    "@",
    "-cat.jpg",
    "-1-1",
]
KEPT = ["a=b", "'quoted'", "", "holidays/001.jpg", " =1", "-1", "+1.5", "-.5e-7", "-0", "1e5", None, -0.25, 3, True]


@pytest.mark.parametrize("text", RUN)
def test_formulas_get_an_apostrophe(text):
    assert to_cell(text) == "'" + text and from_cell(to_cell(text)) == text


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_numbers_and_other_text_are_kept(value):
    assert to_cell(value) is value


def test_every_text_is_restored():
    draw = random.Random(0)
    for _ in range(20_000):
        text = "".join(draw.choices("'=+-@\t\r1.e a", k=draw.randint(0, 6)))
        cell = to_cell(text)
        assert from_cell(cell) == text
        assert cell[:1] not in ("=", "@", "\t", "\r") and (cell[:1] not in ("+", "-") or float(cell) is not None)
