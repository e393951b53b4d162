"""The geometry of features: alignment, uniformity, effective rank, spread; and what a loss asks for and of whom."""

from coulomb.diagnostics.alignment import alignment
from coulomb.diagnostics.class_gradients import class_gradient_norms, frequency_exponent
from coulomb.diagnostics.optimum import free_logits, pull_optimum
from coulomb.diagnostics.rank import effective_rank
from coulomb.diagnostics.spread import feature_std
from coulomb.diagnostics.uniformity import uniformity

__all__ = [
    "alignment",
    "class_gradient_norms",
    "effective_rank",
    "feature_std",
    "free_logits",
    "frequency_exponent",
    "pull_optimum",
    "uniformity",
]
