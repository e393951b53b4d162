"""Diagnosis of a run: rules turn its figures into verdicts with evidence, consequence and remedy."""

from coulomb.evaluation.doctor.diagnose import RULES, diagnose
from coulomb.evaluation.doctor.evidence import TRAITS, Evidence
from coulomb.evaluation.doctor.live import Watcher
from coulomb.evaluation.doctor.rule import Figure, Judgment, Rule
from coulomb.evaluation.doctor.text import headline, render, summary, verdict_lines
from coulomb.methods.interface import Traits

__all__ = [
    "RULES",
    "TRAITS",
    "Evidence",
    "Figure",
    "Judgment",
    "Rule",
    "Traits",
    "Watcher",
    "diagnose",
    "headline",
    "render",
    "summary",
    "verdict_lines",
]
