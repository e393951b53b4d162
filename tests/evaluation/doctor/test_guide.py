"""The guide explains every verdict, and no others."""

import re
from pathlib import Path

from coulomb.evaluation.doctor import RULES
from coulomb_lab.doctor import END, START

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "doctor.md").read_text(encoding="utf-8")


def test_guide_has_a_section_per_verdict():
    assert sorted(re.findall(r"^### (.+)$", GUIDE, re.MULTILINE)) == sorted(rule.name for rule in RULES)


def test_guide_has_the_confusion_table():
    shown = GUIDE.partition(START)[2].partition(END)[0]
    for rule in RULES:
        assert rule.name in shown
