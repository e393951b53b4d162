"""Comparison of contestants, verdict and fine-tuning. Measurements of features are in `coulomb.metrics`."""

from coulomb.evaluation.comparison import compare
from coulomb.evaluation.fine_tuning import LabeledImages, fine_tune
from coulomb.evaluation.verdict import verdict

__all__ = ["LabeledImages", "compare", "fine_tune", "verdict"]
