"""Retrieval by cosine: other images of the class, or the other view of the image."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.metrics.cosines import nearest, search_backend
from coulomb.metrics.inputs import Features, Labels, check_features, drop_unlabelled, labelled_split
from coulomb.randomness import numpy_generator

MOST = 10_000  # queries; more are left out by a seeded draw, and the protocol says so


def class_retrieval(
    test_x: Features,
    test_y: Labels,
    gallery_x: Features | None = None,
    gallery_y: Labels | None = None,
    *,
    ks: Sequence[int] = (1, 5, 10),
    seed: int = 0,
) -> dict[str, Any]:
    """R@k, MAP@R and R-precision by cosine, as in Musgrave et al. (2020); the mean over queries.

    With R the number of gallery images of the query's class and P(i) the share of them among the i nearest:

        R@k = any of the k nearest is of the class · R-precision = P(R) · MAP@R = 1/R Σ_{i ≤ R} P(i)·[i-th is of the class]

    Args:
        test_x: features [n,F] of the queries. test_y: classes [n]; −1 is left out.
        gallery_x, gallery_y: what is searched; without them every query searches all other queries.
        ks: of R@k.
        seed: of the draw of 10,000 queries when there are more (without a gallery, these are then all that is searched).

    Queries whose class has no other image are left out and counted. Memory: one block of 2²³ similarities at a time.

    Returns:
        ``{"recall_at": {"1": …}, "map_at_r", "r_precision", "protocol": {...}}``.

    Raises:
        InputError: no query has an image to find, a k below 1, shapes that do not fit, features that are not finite.
    """
    if not ks or min(ks) < 1:
        raise InputError(f"ks={tuple(ks)} must be at least 1.")
    own = gallery_x is None or gallery_y is None
    if own:
        test = gallery = drop_unlabelled(test_x, test_y, "test")
    else:
        gallery, test = labelled_split(gallery_x, gallery_y, test_x, test_y)  # type: ignore[arg-type]
    asked = np.sort(numpy_generator(seed, "class retrieval").permutation(len(test.y))[:MOST])
    x, y = test.x[asked], test.y[asked]
    keys, key_y = (x, y) if own else (gallery.x, gallery.y)
    relevant = count_matches(y, key_y) - int(own)
    alone = relevant < 1
    if bool(alone.all()):
        raise InputError("no class has an image to find: retrieval needs two images of a class.")
    depth = min(max(int(relevant.max()), *ks), len(keys) - int(own))
    hits = torch.zeros(len(x), len(ks) + 2, dtype=torch.float64)
    for rows, _, columns in nearest(x, keys, depth + int(own)):
        found = without_own(columns, torch.arange(rows.start, rows.stop)) if own else columns
        hits[rows] = retrieval_figures(key_y[found] == y[rows, None], relevant[rows], ks)
    means = hits[~alone].mean(dim=0).tolist()
    return {
        "recall_at": {str(k): mean for k, mean in zip(ks, means, strict=False)},
        "map_at_r": means[-2],
        "r_precision": means[-1],
        "protocol": {
            "queries": int((~alone).sum()),
            "queries_left_out": len(test.y) - len(asked),
            "queries_without_another_image": int(alone.sum()),
            "searched": "all other queries" if own else f"{len(keys)} gallery images",
            "similarity": "cosine",
            "search": search_backend(len(x), len(keys)),
            "seed": seed,
        },
    }


def retrieval_figures(right: Tensor, relevant: Tensor, ks: Sequence[int]) -> Tensor:
    """[b, len(ks) + 2]: R@k for each k, MAP@R, R-precision, from which of the nearest [b, depth] are of the class."""
    place = torch.arange(1, right.shape[1] + 1)
    counted = right & (place <= relevant[:, None])
    precision = right.cumsum(1) / place
    most = relevant.clamp_min(1)  # those without any are left out later
    recalls = [right[:, :k].any(1).double() for k in ks]
    return torch.stack([*recalls, (precision * counted).sum(1) / most, counted.sum(1) / most], dim=1)


def count_matches(wanted: Tensor, among: Tensor) -> Tensor:
    """How often each of ``wanted`` occurs in ``among``, [n]."""
    classes, place = torch.cat([wanted, among]).unique(return_inverse=True)
    return place[len(wanted) :].bincount(minlength=len(classes))[place[: len(wanted)]]


def without_own(columns: Tensor, own: Tensor) -> Tensor:
    """Columns [b, k + 1] → [b, k]: without the query itself; where copies of it kept it out, without the last."""
    itself = columns == own[:, None]
    last = columns.shape[1] - 1
    dropped = torch.where(itself.any(1), itself.int().argmax(1), last)
    kept = torch.arange(last + 1) != dropped[:, None]
    return columns[kept].view(len(columns), last)


def view_retrieval(view0_x: Features, view1_x: Features) -> float:
    """R@1: share of images whose view 0 has, among view 1 of ALL images, its own as the nearest by cosine.

    Chance is 1/n, so n belongs with the figure. Raises `InputError` unless both are [n,F] with n ≥ 2.
    """
    return float(views_retrieved(view0_x, view1_x).double().mean())


def views_retrieved(view0_x: Features, view1_x: Features) -> Tensor:
    """Whether view 0 of each image has its own view 1 as the nearest, bool [n]; see `view_retrieval`."""
    first, second = check_features(view0_x, "view0_x"), check_features(view1_x, "view1_x")
    if first.shape != second.shape or len(first) < 2:
        raise InputError(
            f"view0_x {list(first.shape)} and view1_x {list(second.shape)} must be features [n, F] of the same n ≥ 2 "
            "images."
        )
    own = torch.arange(len(first))
    return torch.cat([columns[:, 0] == own[rows] for rows, _, columns in nearest(first, second, 1)])
