"""How embeddings relate to classes: similarity within a class, false negatives, purity of neighborhoods."""

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import check_integers, unit_vectors
from coulomb.similarity import Similarity

ROWS = 2**16  # rows converted to fp64 at a time


def tolerance(x: Tensor, labels: Tensor) -> float | None:
    """Mean cosine of pairs i ≠ j of one class: how close similar images stay (Wang and Liu, 2021).

    ``x`` [n,D], normalized here; ``labels`` [n], −1 (unknown) is left out. Computed from sums S_c over classes in O(n·D):
    (Σ_c ‖S_c‖² − Σ_i ‖x_i‖²) / Σ_c n_c(n_c − 1). Returns None if no class has two images. Raises `InputError` for other
    shapes or values that are not finite.

    Shape:
        x: [n, D].
        labels: [n].
        output: a number.

    >>> tolerance(torch.eye(2).repeat(3, 1), torch.tensor([0, 1] * 3))
    1.0
    """
    points, classes = _labeled_points(x, labels)
    if not len(points):
        return None
    _, class_of, counts = classes.unique(return_inverse=True, return_counts=True)
    pairs = int((counts * (counts - 1)).sum())
    if not pairs:
        return None
    sums = points.new_zeros(len(counts), points.shape[1], dtype=torch.float64)
    diagonal = 0.0  # the pairs (i, i), which the squared sums include
    for start in range(0, len(points), ROWS):
        rows = points[start : start + ROWS].double()
        sums.index_add_(0, class_of[start : start + ROWS], rows)
        diagonal += float(rows.square().sum())
    return (float(sums.square().sum()) - diagonal) / pairs


def false_negative_rate(labels: Tensor) -> float | None:
    """Share of pairs i ≠ j of one class, which is the share of false negatives among random negatives.

    Σ_c n_c(n_c − 1) / (n(n − 1)) of ``labels`` [n]; −1 (unknown) is left out. None for fewer than two labeled images.

    Shape:
        labels: [n].
        output: a number.

    >>> false_negative_rate(torch.arange(10).repeat(100))
    0.099...
    """
    classes = check_integers(labels, "labels", labels)
    counts = torch.bincount(classes[classes >= 0])
    n = int(counts.sum())
    return int((counts * (counts - 1)).sum()) / (n * (n - 1)) if n > 1 else None


def neighborhood_purity(x: Tensor, labels: Tensor, k: int = 10) -> tuple[float | None, list[float | None]]:
    """Share of the ``k`` nearest neighbors (by cosine) that have the class of the image: (mean, per class [C]).

    ``x`` [n,D], normalized here; ``labels`` [n], −1 (unknown) is left out of images and neighbors. With fewer than k
    other images, all of them are neighbors. The mean is over images; a class without images has None. Memory linear in
    n. Raises `InputError` for other shapes, values that are not finite, or k below 1.

    Shape:
        x: [n, D].
        labels: [n].

    >>> neighborhood_purity(torch.eye(2).repeat(3, 1), torch.tensor([0, 1] * 3), k=2)
    (1.0, [1.0, 1.0])
    """
    if k < 1:
        raise InputError(f"k={k}: must be at least 1.")
    points, classes = _labeled_points(x, labels)
    if len(points) < 2:
        return None, []
    with torch.no_grad():
        columns = Similarity(points, unit=True).topk(min(k, len(points) - 1), "others")[1]
    shares = (classes[columns] == classes[:, None]).double().mean(1)
    counts = torch.bincount(classes)
    sums = torch.zeros(len(counts), dtype=torch.float64, device=shares.device).index_add_(0, classes, shares)
    by_class = [s / c if c else None for s, c in zip(sums.tolist(), counts.tolist(), strict=True)]
    return float(shares.mean()), by_class


def _labeled_points(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    points = unit_vectors(x, "x")
    classes = check_integers(labels, "labels", points)
    return points[classes >= 0], classes[classes >= 0]
