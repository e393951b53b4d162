"""Comparison of contestants, verdict and fine-tuning. Measurements of features are in `coulomb.metrics`."""

from coulomb.evaluation.comparison import compare
from coulomb.evaluation.fine_tuning import LabeledImages, fine_tune
from coulomb.evaluation.pair_verdict import pair_verdict
from coulomb.evaluation.pairs import Embedded, PairAssessment, PairInputs, assess_pairs
from coulomb.evaluation.verdict import verdict

__all__ = [
    "Embedded",
    "LabeledImages",
    "PairAssessment",
    "PairInputs",
    "assess_pairs",
    "compare",
    "fine_tune",
    "pair_verdict",
    "verdict",
]
