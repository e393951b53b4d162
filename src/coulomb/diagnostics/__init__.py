"""The geometry of features: alignment, uniformity, effective rank, spread."""

from coulomb.diagnostics.alignment import alignment
from coulomb.diagnostics.rank import effective_rank
from coulomb.diagnostics.spread import feature_std
from coulomb.diagnostics.uniformity import uniformity

__all__ = ["alignment", "effective_rank", "feature_std", "uniformity"]
