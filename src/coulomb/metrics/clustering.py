"""Clustering of features by k-means, compared with the classes."""

import warnings
from typing import Any

import numpy as np
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import derive_seed, numpy_generator
from coulomb.metrics.inputs import Features, Labels, drop_unlabeled

MOST = 5_000  # images; more are dropped by a seeded draw, which the protocol records
STARTS = 3  # k-means++ initializations; the one with the lowest inertia counts


def clustering(test_x: Features, test_y: Labels, *, seed: int = 0) -> dict[str, Any]:
    """Agreement of the classes with k-means clusters of features of unit length, as many clusters as classes.

    NMI = 2·I(cluster; class) / (H(cluster) + H(class)); ARI is the share of pairs on which both agree, corrected for
    chance (0 by chance, 1 at best); accuracy is computed for the best one-to-one assignment of clusters to classes (Kuhn,
    1955).

    Args:
        test_x: features [n,F].
        test_y: classes [n]; rows labeled −1 are left out. Labels determine only the number of clusters.
        seed: seed of the initializations, and of the draw of 5,000 images if there are more.

    Returns:
        ``{"nmi", "ari", "accuracy", "protocol": {...}}``.

    Raises:
        InputError: fewer than two classes, shapes that do not match, features that are not finite.

    Shape:
        test_x: [n, F].
        test_y: [n].

    >>> clustering(torch.eye(2).repeat(10, 1), torch.tensor([0, 1] * 10))["accuracy"]
    1.0
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    test = drop_unlabeled(test_x, test_y, "test")
    drawn = np.sort(numpy_generator(seed, "clustering").permutation(len(test.y))[:MOST])
    x, y = functional.normalize(test.x[drawn], dim=1).numpy(), test.y[drawn].numpy()
    classes = len(np.unique(y))
    if classes < 2:
        raise InputError("test_y has one class only: clustering needs two.")
    model = KMeans(classes, n_init=STARTS, random_state=derive_seed(seed, "k-means") % 2**32)
    with warnings.catch_warnings():
        # Fewer distinct rows than clusters: the protocol counts the clusters found.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = model.fit_predict(x)
    shared = contingency_matrix(y, clusters)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    return {
        "nmi": float(normalized_mutual_info_score(y, clusters)),
        "ari": float(adjusted_rand_score(y, clusters)),
        "accuracy": float(shared[rows, columns].sum() / len(y)),
        "protocol": {
            "algorithm": f"k-means, Euclidean on features of unit length, the best of {STARTS} k-means++ initializations",
            "clusters": classes,
            "clusters_found": len(np.unique(clusters)),
            "images": len(y),
            "images_left_out": len(test.y) - len(drawn),
            "nmi": "arithmetic mean of the entropies",
            "accuracy": "best one-to-one assignment of clusters to classes",
            "seed": seed,
        },
    }
