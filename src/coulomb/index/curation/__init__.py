"""What stored features say about a data set: duplicates, outliers, wrong labels, what to label next, clusters, classes.

Pure functions of features [N, D], which may be memory-mapped, and labels [N] (−1: none). They return positions and figures.
"""

from coulomb.index.curation.choose import choose
from coulomb.index.curation.cluster import Clusters, hdbscan, kmeans
from coulomb.index.curation.few_labels import Predictions, classify
from coulomb.index.curation.groups import duplicate_groups, keep_best
from coulomb.index.curation.label_errors import LabelErrors, label_errors
from coulomb.index.curation.outliers import Outliers, outliers

__all__ = [
    "Clusters",
    "LabelErrors",
    "Outliers",
    "Predictions",
    "choose",
    "classify",
    "duplicate_groups",
    "hdbscan",
    "keep_best",
    "kmeans",
    "label_errors",
    "outliers",
]
