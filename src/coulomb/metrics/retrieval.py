"""Retrieval by cosine: other images of the same class, or the other view of the same image."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.inputs import Features, Labels, check_features, drop_unlabeled, labeled_split
from coulomb.metrics.nearest import nearest_by_cosine

MOST = 10_000  # queries; more are dropped by a seeded draw, which the protocol records


def class_retrieval(
    test_x: Features,
    test_y: Labels,
    gallery_x: Features | None = None,
    gallery_y: Labels | None = None,
    *,
    ks: Sequence[int] = (1, 5, 10),
    seed: int = 0,
) -> dict[str, Any]:
    """R@k, MAP@R and R-precision by cosine (Musgrave et al., 2020), averaged over queries.

    With R the number of gallery images of the query's class and P(i) the share of them among the i nearest:

        R@k = any of the k nearest is of the class · R-precision = P(R) · MAP@R = 1/R Σ_{i ≤ R} P(i)·[i-th is of the class]

    Queries whose class has no other image are left out and counted. Memory: one block of 2²³ similarities at a time.

    Args:
        test_x: features [n,F] of the queries.
        test_y: classes [n]; rows labeled −1 are left out.
        gallery_x, gallery_y: the images to search; default: every query searches all other queries.
        ks: the values of k in R@k.
        seed: seed of the draw of 10,000 queries if there are more (without a gallery, only these are searched).

    Returns:
        ``{"recall_at": {"1": …}, "map_at_r", "r_precision", "protocol": {...}}``.

    Raises:
        InputError: no class with two images, a k below 1, shapes that do not match, features that are not finite.

    Shape:
        test_x: [n, F].
        test_y: [n].
        gallery_x: [m, F].
        gallery_y: [m].

    >>> class_retrieval(torch.eye(2).repeat(2, 1), torch.tensor([0, 1, 0, 1]), ks=(1,))["recall_at"]
    {'1': 1.0}
    """
    if not ks or min(ks) < 1:
        raise InputError(f"ks={tuple(ks)} must be at least 1.")
    among_queries = gallery_x is None or gallery_y is None
    if among_queries:
        test = gallery = drop_unlabeled(test_x, test_y, "test")
    else:
        gallery, test = labeled_split(gallery_x, gallery_y, test_x, test_y)  # type: ignore[arg-type]
    drawn = np.sort(numpy_generator(seed, "class retrieval").permutation(len(test.y))[:MOST])
    x, y = test.x[drawn], test.y[drawn]
    keys, key_y = (x, y) if among_queries else (gallery.x, gallery.y)
    relevant = count_matches(y, key_y) - int(among_queries)
    alone = relevant < 1
    if bool(alone.all()):
        raise InputError("test_y: no class has an image to find; retrieval needs two images of a class.")
    depth = min(max(int(relevant.max()), *ks), len(keys) - int(among_queries))
    scores = torch.zeros(len(x), len(ks) + 2, dtype=torch.float64)
    for rows, _, columns in nearest_by_cosine(x, keys, depth + int(among_queries)):
        others = without_self(columns, torch.arange(rows.start, rows.stop)) if among_queries else columns
        scores[rows] = retrieval_scores(key_y[others] == y[rows, None], relevant[rows], ks)
    means = scores[~alone].mean(dim=0).tolist()
    return {
        "recall_at": {str(k): mean for k, mean in zip(ks, means, strict=False)},
        "map_at_r": means[-2],
        "r_precision": means[-1],
        "protocol": {
            "queries": int((~alone).sum()),
            "queries_left_out": len(test.y) - len(drawn),
            "queries_without_another_image": int(alone.sum()),
            "searched": "all other queries" if among_queries else f"{len(keys)} gallery images",
            "similarity": "cosine",
            "search": "torch",
            "seed": seed,
        },
    }


def retrieval_scores(right: Tensor, relevant: Tensor, ks: Sequence[int]) -> Tensor:
    """Returns [b, len(ks) + 2]: R@k for each k, MAP@R and R-precision.

    ``right`` [b, depth]: which of the nearest images are of the query's class; ``relevant`` [b]: R of each query.
    """
    rank = torch.arange(1, right.shape[1] + 1)
    within_r = right & (rank <= relevant[:, None])
    precision = right.cumsum(1) / rank
    r = relevant.clamp_min(1)  # rows with R = 0 are left out of the mean
    recalls = [right[:, :k].any(1).double() for k in ks]
    return torch.stack([*recalls, (precision * within_r).sum(1) / r, within_r.sum(1) / r], dim=1)


def count_matches(values: Tensor, among: Tensor) -> Tensor:
    """Returns how often each of ``values`` [n] occurs in ``among``, [n]."""
    distinct, index = torch.cat([values, among]).unique(return_inverse=True)
    return index[len(values) :].bincount(minlength=len(distinct))[index[: len(values)]]


def without_self(columns: Tensor, query: Tensor) -> Tensor:
    """Removes the query from its neighbors: [b, k + 1] → [b, k]. If copies rank higher and hide it, removes the last."""
    itself = columns == query[:, None]
    last = columns.shape[1] - 1
    dropped = torch.where(itself.any(1), itself.int().argmax(1), last)
    remaining = torch.arange(last + 1) != dropped[:, None]
    return columns[remaining].view(len(columns), last)


def view_retrieval(view0_x: Features, view1_x: Features) -> float:
    """R@1 of views: the share of images whose view 0 is nearest to their view 1, among view 1 of ALL n images.

    Chance level is 1/n, so report n with it. Takes features [n,F], n ≥ 2, of the same images; raises InputError otherwise.

    Shape:
        view0_x, view1_x: [n, F].
        output: a number.

    >>> view_retrieval(torch.eye(4), torch.eye(4) + 0.1)
    1.0
    """
    return float(views_retrieved(view0_x, view1_x).double().mean())


def views_retrieved(view0_x: Features, view1_x: Features) -> Tensor:
    """Returns whether view 0 of each image is nearest to view 1 of the same image, bool [n]; see `view_retrieval`.

    Shape:
        view0_x, view1_x: [n, F].
        output: [n].

    >>> views_retrieved(torch.eye(3), torch.eye(3)[[0, 2, 1]])
    tensor([ True, False, False])
    """
    first, second = check_features(view0_x, "view0_x"), check_features(view1_x, "view1_x")
    if first.shape != second.shape or len(first) < 2:
        raise InputError(
            f"view0_x {list(first.shape)} and view1_x {list(second.shape)} must be features [n, F] of the same n ≥ 2 "
            "images."
        )
    partner = torch.arange(len(first))
    return torch.cat([columns[:, 0] == partner[rows] for rows, _, columns in nearest_by_cosine(first, second, 1)])
