"""The guide explains every verdict, and no others."""

import re
from pathlib import Path

from coulomb.evaluation.doctor import RULES
from coulomb.evaluation.doctor.pair_rules import PAIR_RULES
from coulomb_lab.doctor import END, START

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "doctor.md").read_text(encoding="utf-8")


def test_guide_has_a_section_per_verdict():
    assert sorted(re.findall(r"^### (.+)$", GUIDE, re.MULTILINE)) == sorted(rule.name for rule in RULES)


def test_guide_has_the_confusion_table():
    shown = GUIDE.partition(START)[2].partition(END)[0]
    of_columns = {rule.name for rule in PAIR_RULES}  # the runs of the table are on images
    for rule in RULES:
        assert (rule.name in shown) is (rule.name not in of_columns)
