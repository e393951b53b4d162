"""Measurements of features and losses: accuracy of kNN and probes, retrieval, clustering, geometry, hardness, duplicates."""

from coulomb.metrics.bm25 import bm25_ranks, bm25_scores
from coulomb.metrics.class_accuracy import by_frequency, class_table
from coulomb.metrics.class_structure import false_negative_rate, neighborhood_purity, tolerance
from coulomb.metrics.clustering import clustering
from coulomb.metrics.duplicates import Duplicates, near_duplicates
from coulomb.metrics.evaluate import evaluate_features
from coulomb.metrics.geometry import alignment, drift, feature_std, modality_gap, uniformity
from coulomb.metrics.gradients import GradientBalance, class_gradient_norms, frequency_exponent, gradient_balance
from coulomb.metrics.hardness import Hardness, TemperatureSweep, hardness, hardness_at, hardness_of, temperature_sweep
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.linear import few_shot, linear_probe
from coulomb.metrics.linear_map import LinearMap, fit_linear_map
from coulomb.metrics.loss_floor import LossFloor, fraction_of_floor_reached, free_logits, infonce_floor, pull_optimum
from coulomb.metrics.matching import distinct_pairs, match_ranks, pair_retrieval, score_ranks
from coulomb.metrics.mining import HardNegatives, hard_negatives
from coulomb.metrics.rank import effective_rank, lidar, singular_values
from coulomb.metrics.retention import linear_cka, recovered
from coulomb.metrics.retrieval import class_retrieval, view_retrieval, views_retrieved
from coulomb.metrics.scored_pairs import scored_pairs
from coulomb.metrics.similarities import (
    SimilarityHistogram,
    ViewSimilarities,
    separation,
    similarity_histogram,
    view_similarities,
)
from coulomb.metrics.zero_shot import class_embeddings, class_prompts, zero_shot

__all__ = [
    "Duplicates",
    "GradientBalance",
    "HardNegatives",
    "Hardness",
    "LinearMap",
    "LossFloor",
    "SimilarityHistogram",
    "TemperatureSweep",
    "ViewSimilarities",
    "alignment",
    "bm25_ranks",
    "bm25_scores",
    "by_frequency",
    "class_embeddings",
    "class_gradient_norms",
    "class_prompts",
    "class_retrieval",
    "class_table",
    "clustering",
    "distinct_pairs",
    "drift",
    "effective_rank",
    "evaluate_features",
    "false_negative_rate",
    "feature_std",
    "few_shot",
    "fit_linear_map",
    "fraction_of_floor_reached",
    "free_logits",
    "frequency_exponent",
    "gradient_balance",
    "hard_negatives",
    "hardness",
    "hardness_at",
    "hardness_of",
    "infonce_floor",
    "knn_accuracy",
    "lidar",
    "linear_cka",
    "linear_probe",
    "match_ranks",
    "modality_gap",
    "near_duplicates",
    "neighborhood_purity",
    "pair_retrieval",
    "pull_optimum",
    "recovered",
    "score_ranks",
    "scored_pairs",
    "separation",
    "similarity_histogram",
    "singular_values",
    "temperature_sweep",
    "tolerance",
    "uniformity",
    "view_retrieval",
    "view_similarities",
    "views_retrieved",
    "zero_shot",
]
