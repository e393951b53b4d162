"""Evaluation of encoders: kNN, linear probe, few-shot, retrieval, clustering, fine-tuning, each with its protocol."""

from coulomb.evaluation.comparison import compare
from coulomb.evaluation.fine_tuning import LabeledImages, fine_tune
from coulomb.evaluation.verdict import verdict
from coulomb.metrics.class_accuracy import by_frequency, class_table
from coulomb.metrics.clustering import clustering
from coulomb.metrics.evaluate import evaluate_features
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.linear import few_shot, linear_probe
from coulomb.metrics.retrieval import class_retrieval, view_retrieval, views_retrieved
from coulomb.models.features import extract_features, frozen, pixel_features

__all__ = [
    "LabeledImages",
    "by_frequency",
    "class_retrieval",
    "class_table",
    "clustering",
    "compare",
    "evaluate_features",
    "extract_features",
    "few_shot",
    "fine_tune",
    "frozen",
    "knn_accuracy",
    "linear_probe",
    "pixel_features",
    "verdict",
    "view_retrieval",
    "views_retrieved",
]
