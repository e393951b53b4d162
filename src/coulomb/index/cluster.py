"""Clusters of features, by scikit-learn: k-means for a given number, HDBSCAN to find the number."""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import derive_seed, numpy_generator
from coulomb.metrics.rows import blocks, check_rows, unit_rows

FITTED_ROWS = 50_000  # rows of k-means; more are drawn, and the others assigned to the nearest center
MOST_HDBSCAN = 50_000  # rows; its time grows with their square
HDBSCAN_DIMENSIONS = 32  # principal components: distances in hundreds of dimensions are too alike for densities


@dataclass(frozen=True)
class Clusters:
    """Clusters, largest first.

    Attributes:
        cluster: number of each row's cluster, int64 [N]; −1 for rows in none (HDBSCAN).
        similarity: cosine of each row with the center of its cluster, float32 [N]; 0 for rows in none.
        centers: unit centers, float32 [K,D].
    """

    cluster: np.ndarray
    similarity: np.ndarray
    centers: np.ndarray

    def typical(self, number: int, count: int) -> np.ndarray:
        """Returns the ``count`` rows of a cluster that are nearest to its center, nearest first."""
        rows = np.flatnonzero(self.cluster == number)
        return rows[np.argsort(-self.similarity[rows], kind="stable")[:count]]


def kmeans(x: np.ndarray, number: int | None = None, *, seed: int = 0) -> Clusters:
    """Clusters of features [N,D] by k-means on the sphere (scikit-learn, k-means++, one start).

    ``number`` is √(N/2) by default, 27 for 1,500 rows. Fitted on at most 50,000 rows, drawn by ``seed``; then every row
    belongs to the center with the largest cosine. There are fewer than ``number`` clusters if there are fewer different
    rows.

    Raises:
        InputError: ``number`` is not from 1 to N, NaN or infinite values.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    check_rows(x)
    number = max(1, round((len(x) / 2) ** 0.5)) if number is None else number
    if not 1 <= number <= len(x):
        raise InputError(f"number={number}: must be from 1 to {len(x)}, the number of images.")
    fitted = max(FITTED_ROWS, number)
    drawn = np.sort(numpy_generator(seed, "k-means rows").permutation(len(x))[:fitted])
    model = KMeans(number, n_init=1, random_state=derive_seed(seed, "k-means") % 2**32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than clusters, see above
        model.fit(unit_rows(x, drawn).numpy())
    return _nearest_center(x, model.cluster_centers_)


def _nearest_center(x: np.ndarray, centers: np.ndarray) -> Clusters:
    directions = functional.normalize(torch.from_numpy(centers).float(), dim=1)
    cluster, similarity = np.empty(len(x), np.int64), np.empty(len(x), np.float32)
    for block in blocks(len(x)):
        best = (unit_rows(x, block) @ directions.T).max(1)
        cluster[block], similarity[block] = best.indices.numpy(), best.values.numpy()
    used, counts = np.unique(cluster, return_counts=True)
    ranked = used[np.lexsort((used, -counts))]
    number = np.full(len(centers), -1)
    number[ranked] = np.arange(len(ranked))
    return Clusters(number[cluster], similarity, directions.numpy()[ranked])


def hdbscan(x: np.ndarray, least: int = 10, *, seed: int = 0) -> Clusters:
    """Clusters of features [N,D] by HDBSCAN (scikit-learn) of their first 32 principal components.

    The number of clusters follows from the density; rows that belong to none have −1.

    Args:
        x: features; at most 50,000 rows.
        least: smallest size of a cluster, 2 or more.
        seed: seed of the principal components.

    Raises:
        InputError: too many or too few rows, ``least`` out of range, NaN or infinite values.
    """
    from sklearn.cluster import HDBSCAN
    from sklearn.decomposition import PCA

    check_rows(x)
    if len(x) > MOST_HDBSCAN:
        raise InputError(
            f"least={least}: HDBSCAN takes too long for {len(x)} images (at most {MOST_HDBSCAN}); "
            "give a number of clusters instead, for k-means."
        )
    if not 2 <= least <= len(x):
        raise InputError(f"least={least}: must be from 2 to {len(x)}, the number of images.")
    units = unit_rows(x, slice(0, len(x))).numpy()
    if min(units.shape) > HDBSCAN_DIMENSIONS:
        units = PCA(HDBSCAN_DIMENSIONS, random_state=derive_seed(seed, "pca") % 2**32).fit_transform(units)
    found = HDBSCAN(min_cluster_size=least, copy=True).fit(units).labels_
    used, counts = np.unique(found[found >= 0], return_counts=True)
    ranked = used[np.lexsort((used, -counts))]
    cluster, similarity = np.full(len(x), -1, np.int64), np.zeros(len(x), np.float32)
    centers = np.empty((len(ranked), x.shape[1]), np.float32)
    for number, old in enumerate(ranked):
        rows = np.flatnonzero(found == old)
        members = unit_rows(x, rows)
        center = functional.normalize(members.mean(0), dim=0)
        cluster[rows], similarity[rows], centers[number] = number, (members @ center).numpy(), center.numpy()
    return Clusters(cluster, similarity, centers)
