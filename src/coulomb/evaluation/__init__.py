"""How good an encoder is: kNN, linear probe, few-shot, retrieval, clustering, fine-tuning, each with its protocol."""

from coulomb.evaluation.by_class import by_frequency, class_table
from coulomb.evaluation.class_retrieval import class_retrieval
from coulomb.evaluation.clustering import clustering
from coulomb.evaluation.comparison import compare
from coulomb.evaluation.evaluate import evaluate_features
from coulomb.evaluation.features import extract_features, pixel_features
from coulomb.evaluation.few_shot import few_shot
from coulomb.evaluation.fine_tune import LabelledImages, fine_tune
from coulomb.evaluation.frozen import frozen
from coulomb.evaluation.knn import knn_accuracy
from coulomb.evaluation.linear import linear_probe
from coulomb.evaluation.retrieval import view_retrieval, views_retrieved
from coulomb.evaluation.verdict import verdict

__all__ = [
    "LabelledImages",
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
