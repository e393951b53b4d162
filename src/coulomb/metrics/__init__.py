"""Measurements of embeddings and losses: geometry, similarities, hardness, duplicates, retention."""

from coulomb.metrics.class_structure import false_negative_rate, neighborhood_purity, tolerance
from coulomb.metrics.duplicates import Duplicates, near_duplicates
from coulomb.metrics.geometry import alignment, drift, feature_std, uniformity
from coulomb.metrics.gradients import GradientBalance, class_gradient_norms, frequency_exponent, gradient_balance
from coulomb.metrics.hardness import Hardness, TemperatureSweep, hardness, hardness_at, hardness_of, temperature_sweep
from coulomb.metrics.loss_floor import LossFloor, fraction_of_floor_reached, free_logits, infonce_floor, pull_optimum
from coulomb.metrics.rank import effective_rank, lidar, singular_values
from coulomb.metrics.retention import linear_cka, recovered
from coulomb.metrics.similarities import (
    SimilarityHistogram,
    ViewSimilarities,
    separation,
    similarity_histogram,
    view_similarities,
)

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
    "fraction_of_floor_reached",
    "free_logits",
    "frequency_exponent",
    "gradient_balance",
    "hardness",
    "hardness_at",
    "hardness_of",
    "infonce_floor",
    "lidar",
    "linear_cka",
    "near_duplicates",
    "neighborhood_purity",
    "pull_optimum",
    "recovered",
    "separation",
    "similarity_histogram",
    "singular_values",
    "temperature_sweep",
    "tolerance",
    "uniformity",
    "view_similarities",
]
