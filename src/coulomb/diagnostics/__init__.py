"""What training does to features: their geometry, whom a loss pulls and pushes, and how far it can still go."""

from coulomb.diagnostics.alignment import alignment
from coulomb.diagnostics.by_label import false_negative_rate, neighbourhood_purity, tolerance
from coulomb.diagnostics.class_gradients import class_gradient_norms, frequency_exponent
from coulomb.diagnostics.drift import drift
from coulomb.diagnostics.hardness import Hardness, hardness, hardness_at, hardness_of
from coulomb.diagnostics.optimum import free_logits, pull_optimum
from coulomb.diagnostics.rank import effective_rank
from coulomb.diagnostics.separation import separation
from coulomb.diagnostics.similarities import (
    SimilarityHistogram,
    ViewSimilarities,
    similarity_histogram,
    view_similarities,
)
from coulomb.diagnostics.spectrum import singular_values
from coulomb.diagnostics.spread import feature_std
from coulomb.diagnostics.uniformity import uniformity

__all__ = [
    "Hardness",
    "SimilarityHistogram",
    "ViewSimilarities",
    "alignment",
    "class_gradient_norms",
    "drift",
    "effective_rank",
    "false_negative_rate",
    "feature_std",
    "free_logits",
    "frequency_exponent",
    "hardness",
    "hardness_at",
    "hardness_of",
    "neighbourhood_purity",
    "pull_optimum",
    "separation",
    "similarity_histogram",
    "singular_values",
    "tolerance",
    "uniformity",
    "view_similarities",
]
