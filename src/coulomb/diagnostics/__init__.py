"""What training does to features: their geometry, whom a loss pulls and pushes, and how far it can still go."""

from coulomb.diagnostics.alignment import alignment
from coulomb.diagnostics.by_label import false_negative_rate, neighbourhood_purity, tolerance
from coulomb.diagnostics.class_gradients import class_gradient_norms, frequency_exponent
from coulomb.diagnostics.drift import drift
from coulomb.diagnostics.duplicates import Duplicates, near_duplicates
from coulomb.diagnostics.gradient_balance import GradientBalance, gradient_balance
from coulomb.diagnostics.hardness import hardness, hardness_at, hardness_of
from coulomb.diagnostics.lidar import lidar
from coulomb.diagnostics.loss_floor import LossFloor, infonce_floor, way_gone
from coulomb.diagnostics.optimum import free_logits, pull_optimum
from coulomb.diagnostics.penalties import Hardness
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
from coulomb.diagnostics.temperature_sweep import TemperatureSweep, temperature_sweep
from coulomb.diagnostics.uniformity import uniformity

__all__ = [
    "Duplicates",
    "GradientBalance",
    "Hardness",
    "LossFloor",
    "SimilarityHistogram",
    "TemperatureSweep",
    "ViewSimilarities",
    "alignment",
    "class_gradient_norms",
    "drift",
    "effective_rank",
    "false_negative_rate",
    "feature_std",
    "free_logits",
    "frequency_exponent",
    "gradient_balance",
    "hardness",
    "hardness_at",
    "hardness_of",
    "infonce_floor",
    "lidar",
    "near_duplicates",
    "neighbourhood_purity",
    "pull_optimum",
    "separation",
    "similarity_histogram",
    "singular_values",
    "temperature_sweep",
    "tolerance",
    "uniformity",
    "view_similarities",
    "way_gone",
]
