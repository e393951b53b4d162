"""The figures of a live evaluation: embeddings of two views of held-out images."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.metrics.class_structure import false_negative_rate, neighbourhood_purity, tolerance
from coulomb.metrics.geometry import alignment, feature_std, uniformity
from coulomb.metrics.rank import effective_rank, lidar, singular_values
from coulomb.metrics.retrieval import view_retrieval
from coulomb.metrics.similarities import separation, similarity_histogram, view_similarities

SPECTRUM = 64  # singular values that are kept
NEIGHBOURS = 10


def view_geometry(x: Tensor, y: Tensor, labels: Tensor | None) -> dict[str, Any]:
    """Everything that is measured of two views ``x``, ``y`` [n,D] of the same images, as the head gives them.

    - ``alignment``, ``uniformity``, ``embedding_rank``, ``embedding_std``, ``view_retrieval``;
    - ``lidar``: LiDAR of the head's outputs with q = 2 views an image and δ = 1e-4; the paper's protocol has 50 views of 1000
      images, so that it compares within a run and between runs of the same settings, not with published figures;
    - ``positive_similarity``, ``negative_similarity``, ``hardest_similarity``: mean cosines;
    - ``separation``: P(a positive's cosine > a negative's), ties ½;
    - ``spectrum``: at most 64 singular values of the unit embeddings over the largest;
    - ``similarity_histogram``: ``edges`` (41), ``positive``, ``negative``, ``hardest``, ``same_class`` or null (40 counts);
    - ``embedding_norm``: mean norm before normalisation;
    - with labels [n] (−1: unknown), where some class has two images: ``tolerance``, ``purity`` (of the 10 nearest),
      ``false_negative_rate``.

    Nothing for fewer than two images.
    """
    if len(x) < 2:
        return {}
    norm = (float(x.double().norm(dim=1).mean()) + float(y.double().norm(dim=1).mean())) / 2
    first, second = normalize(x, dim=1), normalize(y, dim=1)
    near = view_similarities(first, second)
    found: dict[str, Any] = {
        "alignment": alignment(first, second),
        "uniformity": uniformity(first),
        "embedding_rank": effective_rank(first),
        "embedding_std": feature_std(first),
        "embedding_norm": norm,
        "lidar": lidar(torch.stack([x, y], dim=1)),
        "view_retrieval": view_retrieval(first, second),
        "positive_similarity": near.positive,
        "negative_similarity": near.negative,
        "hardest_similarity": near.hardest,
        "separation": separation(first, second),
        "spectrum": [round(value, 6) for value in singular_values(first, SPECTRUM).tolist()],
        "similarity_histogram": similarity_histogram(first, second, labels).as_dict(),
    }
    if labels is not None and (alike := tolerance(first, labels)) is not None:
        found["tolerance"] = alike
        found["purity"] = neighbourhood_purity(first, labels, NEIGHBOURS)[0]
        found["false_negative_rate"] = false_negative_rate(labels)
    return found
