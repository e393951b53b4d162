"""How good an encoder is: kNN, linear probe, few-shot and label-free retrieval, each with its protocol."""

from coulomb.evaluation.by_class import by_frequency, class_table
from coulomb.evaluation.evaluate import evaluate_features
from coulomb.evaluation.features import extract_features, pixel_features
from coulomb.evaluation.few_shot import few_shot
from coulomb.evaluation.knn import knn_accuracy
from coulomb.evaluation.linear import linear_probe
from coulomb.evaluation.retrieval import view_retrieval

__all__ = [
    "by_frequency",
    "class_table",
    "evaluate_features",
    "extract_features",
    "few_shot",
    "knn_accuracy",
    "linear_probe",
    "pixel_features",
    "view_retrieval",
]
