"""Diagnosis of a run: rules turn its figures into verdicts with evidence, consequence and remedy."""

from coulomb.doctor.diagnose import RULES, diagnose
from coulomb.doctor.evidence import TRAITS, Evidence, Traits
from coulomb.doctor.live import Watcher
from coulomb.doctor.rule import Figure, Judgement, Rule
from coulomb.doctor.text import headline, render, summary, verdict_lines

__all__ = [
    "RULES",
    "TRAITS",
    "Evidence",
    "Figure",
    "Judgement",
    "Rule",
    "Traits",
    "Watcher",
    "diagnose",
    "headline",
    "render",
    "summary",
    "verdict_lines",
]
