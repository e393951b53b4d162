"""What labels say about negatives and neighbours."""

import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.metrics.cosines import unit_vectors, whole_numbers
from coulomb.similarity import Similarity

ROWS = 2**16  # in fp64 at once


def tolerance(x: Tensor, labels: Tensor) -> float | None:
    """Mean cosine of pairs of one class, i ≠ j: how near alike things stay together (Wang and Liu, 2021).

    ``x`` [n,D], normalised here; ``labels`` [n], −1 (unknown) left out. By sums S_c over classes, in O(n·D):
    (Σ_c ‖S_c‖² − Σ_i ‖x_i‖²) / Σ_c n_c(n_c − 1). None where no class has two images. Raises `InputError` for other shapes
    or values that are not finite.
    """
    points, known = _labelled(x, labels)
    if not len(points):
        return None
    classes, place, counts = known.unique(return_inverse=True, return_counts=True)
    pairs = int((counts * (counts - 1)).sum())
    if not pairs:
        return None
    sums = points.new_zeros(len(classes), points.shape[1], dtype=torch.float64)
    own = 0.0  # pairs (i, i), which the squares of the sums hold
    for start in range(0, len(points), ROWS):
        some = points[start : start + ROWS].double()
        sums.index_add_(0, place[start : start + ROWS], some)
        own += float(some.square().sum())
    return (float(sums.square().sum()) - own) / pairs


def false_negative_rate(labels: Tensor) -> float | None:
    """Share of pairs i ≠ j that are of one class: what of random negatives is false. −1 (unknown) is left out.

    Σ_c n_c(n_c − 1) / (n(n − 1)); None for fewer than two labelled images.
    """
    known = whole_numbers(labels, "labels", labels)
    assert known is not None
    counts = torch.bincount(known[known >= 0])
    n = int(counts.sum())
    return int((counts * (counts - 1)).sum()) / (n * (n - 1)) if n > 1 else None


def neighbourhood_purity(x: Tensor, labels: Tensor, k: int = 10) -> tuple[float | None, list[float | None]]:
    """(mean, class by class [C]): share of an image's ``k`` nearest neighbours, by cosine, that are of its class.

    ``x`` [n,D], normalised here; ``labels`` [n], −1 (unknown) left out on both sides. Fewer than k others: all of them.
    The mean is over images; a class without images has None. The k largest are kept while tiles stream by. Raises
    `InputError` for other shapes, values that are not finite, or k below 1.
    """
    if k < 1:
        raise InputError(f"k={k}: must be at least 1")
    points, known = _labelled(x, labels)
    if len(points) < 2:
        return None, []
    with torch.no_grad():
        columns = Similarity(points, unit=True).topk(min(k, len(points) - 1), "others")[1]
    shares = (known[columns] == known[:, None]).double().mean(1)
    counts = torch.bincount(known)
    sums = torch.zeros(len(counts), dtype=torch.float64, device=shares.device).index_add_(0, known, shares)
    by_class = [s / c if c else None for s, c in zip(sums.tolist(), counts.tolist(), strict=True)]
    return float(shares.mean()), by_class


def _labelled(x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    points = unit_vectors(x, "x")
    known = whole_numbers(labels, "labels", points)
    assert known is not None
    return points[known >= 0], known[known >= 0]
