"""Diagnosis of a run: rules turn its figures into verdicts with evidence, consequence and remedy."""

from coulomb.doctor.diagnose import RULES, diagnose
from coulomb.doctor.evidence import TRAITS, Evidence
from coulomb.doctor.live import Watcher
from coulomb.doctor.rule import Figure, Judgement, Rule
from coulomb.doctor.text import headline, render, summary, verdict_lines
from coulomb.methods.interface import Traits

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
