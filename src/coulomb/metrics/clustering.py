"""k-means clusters of features compared with the classes."""

import warnings
from typing import Any

import numpy as np
from torch.nn import functional

from coulomb.errors import InputError
from coulomb.metrics.inputs import Features, Labels, drop_unlabelled
from coulomb.randomness import derive_seed, numpy_generator

MOST = 5_000  # images; more are left out by a seeded draw, and the protocol says so
STARTS = 3  # k-means++ beginnings, of which the tightest counts


def clustering(test_x: Features, test_y: Labels, *, seed: int = 0) -> dict[str, Any]:
    """k-means on features of unit length, as many clusters as classes, compared with the classes.

    NMI = 2·I(cluster; class) / (H(cluster) + H(class)); ARI is the share of pairs on which both agree, 0 by chance, 1 at
    best; accuracy is that of the best one-to-one assignment of clusters to classes (Kuhn, 1955).

    Args:
        test_x: features [n,F]. test_y: classes [n]; −1 is left out. Labels choose nothing but the number of clusters.
        seed: of the beginnings, and of the draw of 5,000 images when there are more.

    Returns:
        ``{"nmi", "ari", "accuracy", "protocol": {...}}``.

    Raises:
        InputError: fewer than two classes, shapes that do not fit, features that are not finite.
    """
    from scipy.optimize import linear_sum_assignment
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    test = drop_unlabelled(test_x, test_y, "test")
    kept = np.sort(numpy_generator(seed, "clustering").permutation(len(test.y))[:MOST])
    x, y = functional.normalize(test.x[kept], dim=1).numpy(), test.y[kept].numpy()
    classes = len(np.unique(y))
    if classes < 2:
        raise InputError("test_y has one class only: clustering needs two.")
    model = KMeans(classes, n_init=STARTS, random_state=derive_seed(seed, "k-means") % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # fewer distinct rows than clusters: the protocol counts them
        found = model.fit_predict(x)
    shared = contingency_matrix(y, found)
    rows, columns = linear_sum_assignment(shared, maximize=True)
    return {
        "nmi": float(normalized_mutual_info_score(y, found)),
        "ari": float(adjusted_rand_score(y, found)),
        "accuracy": float(shared[rows, columns].sum() / len(y)),
        "protocol": {
            "algorithm": f"k-means, Euclidean on features of unit length, the best of {STARTS} k-means++ beginnings",
            "clusters": classes,
            "clusters_found": len(np.unique(found)),
            "images": len(y),
            "images_left_out": len(test.y) - len(kept),
            "nmi": "arithmetic mean of the entropies",
            "accuracy": "best one-to-one assignment of clusters to classes",
            "seed": seed,
        },
    }
