"""Cosines of positive pairs, negative pairs and the hardest negatives: means, histograms, and how far they separate."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.cosines import cosine_strips
from coulomb.metrics.inputs import check_integers, equal_labels, unit_vectors
from coulomb.similarity import Similarity

TIE = 1e-6  # cosines that differ by less count as equal, so that rounding in fp32 does not decide


@dataclass(frozen=True)
class ViewSimilarities:
    """Mean cosines: ``positive`` of the two views of an image, ``negative`` of views of different images, ``hardest`` of
    each view with the most similar view of another image.

    >>> view_similarities(torch.eye(3), torch.eye(3)).hardest
    0.0
    """

    positive: float
    negative: float
    hardest: float


def view_similarities(x: Tensor, y: Tensor) -> ViewSimilarities:
    """Mean cosines between two views ``x`` and ``y`` [n,D] of the same n ≥ 2 images; see `ViewSimilarities`.

    ``negative`` is computed from sums, (Σx·Σy − Σ x_i·y_i)/(n(n−1)); ``hardest`` streams over tiles. Raises `InputError`
    for other shapes or values that are not finite.

    Shape:
        x, y: [n, D].

    >>> seen = view_similarities(torch.eye(4), torch.eye(4))
    >>> seen.positive, seen.negative
    (1.0, 0.0)
    """
    first, second = unit_vectors(x, "x", least=2), unit_vectors(y, "y", like=x)
    n, ids = len(first), torch.arange(len(first), device=first.device)
    positives = (first.double() * second.double()).sum()
    everything = first.double().sum(0) @ second.double().sum(0)
    with torch.no_grad():
        hardest = Similarity(first, second, query_ids=ids, key_ids=ids, unit=True).max("negatives")
    negative = float(everything - positives) / (n * (n - 1))
    return ViewSimilarities(float(positives) / n, negative, float(hardest.double().mean()))


@dataclass(frozen=True)
class SimilarityHistogram:
    """Counts of cosines in equal bins of −1 … 1, ``edges`` [bins + 1]; the last bin includes 1.

    ``positive``: the two views of an image; ``negative``: views of different images; ``hardest``: the largest negative of
    each row; ``same_class``: the negatives with the label of the row, None without labels.

    >>> similarity_histogram(torch.eye(3), torch.eye(3), bins=2).positive
    [0, 3]
    """

    edges: list[float]
    positive: list[int]
    negative: list[int]
    hardest: list[int]
    same_class: list[int] | None

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict for JSON."""
        return asdict(self)


def similarity_histogram(x: Tensor, y: Tensor, labels: Tensor | None = None, *, bins: int = 40) -> SimilarityHistogram:
    """The `SimilarityHistogram` of two views ``x``, ``y`` [n,D] of the same n ≥ 2 images with labels [n] (−1: unknown).

    Counts all n² cosines strip by strip: O(n²·D) time, memory linear in n. For a million images, pass a sample. Raises
    `InputError` for other shapes, values that are not finite, or ``bins`` below 1.

    Shape:
        x, y: [n, D].
        labels: [n].

    >>> counts = similarity_histogram(torch.eye(3), torch.eye(3), bins=2)
    >>> counts.edges, counts.positive, counts.negative
    ([-1.0, 0.0, 1.0], [0, 3], [0, 6])
    """
    first, second = unit_vectors(x, "x", least=2), unit_vectors(y, "y", like=x)
    if bins < 1:
        raise InputError(f"bins={bins}: must be at least 1.")
    classes = None if labels is None else check_integers(labels, "labels", first)
    ids = torch.arange(len(first), device=first.device)
    negative, hardest, same_class = (torch.zeros(bins, dtype=torch.int64) for _ in range(3))
    for rows, cosines, counts in cosine_strips(first, second, ids, ids):
        negative += _bin_counts(cosines[counts], bins)
        if classes is not None:
            same_class += _bin_counts(cosines[counts & equal_labels(classes[rows], classes)], bins)
        hardest += _bin_counts(cosines.masked_fill_(~counts, -torch.inf).amax(1), bins)
    return SimilarityHistogram(
        edges=[round(2 * i / bins - 1, 12) for i in range(bins + 1)],
        positive=_bin_counts((first * second).sum(1), bins).tolist(),
        negative=negative.tolist(),
        hardest=hardest.tolist(),
        same_class=None if classes is None else same_class.tolist(),
    )


def _bin_counts(cosines: Tensor, bins: int) -> Tensor:
    # float32 counts are exact up to 2^24, more than a strip has elements.
    return torch.histc(cosines.clamp(-1, 1).cpu(), bins, -1, 1).long()


def separation(x: Tensor, y: Tensor, *, tie: float = TIE) -> float:
    """P(cosine of a positive pair > cosine of a negative pair), ties counting ½: the area under the ROC curve.

    ``x``, ``y`` [n,D], n ≥ 2, are two views of the same images; positives are the n pairs (i, i), negatives the n(n−1)
    others. 1: every positive is more similar than every negative; ½: no signal. Exact for any n, without thresholds or
    bins: the rank of each negative among the sorted positives, strip by strip; O(n²·(D + log n)) time, memory linear in
    n. Raises `InputError` for other shapes or values that are not finite.

    Shape:
        x, y: [n, D].
        output: a number.

    >>> separation(torch.eye(4), torch.eye(4)), separation(torch.ones(4, 2), torch.ones(4, 2))
    (1.0, 0.5)
    """
    first, second = unit_vectors(x, "x", least=2), unit_vectors(y, "y", like=x)
    positives = (first * second).sum(1).sort().values
    ids = torch.arange(len(first), device=first.device)
    n, wins = len(first), 0
    for _, cosines, counts in cosine_strips(first, second, ids, ids):
        negatives = cosines[counts]
        below = torch.searchsorted(positives, negatives - tie)  # positives that lose
        not_above = torch.searchsorted(positives, negatives + tie, right=True)  # positives that lose or tie
        wins += 2 * n * len(negatives) - int(below.sum()) - int(not_above.sum())
    return wins / (2 * n * n * (n - 1))
