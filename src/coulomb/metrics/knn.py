"""Weighted k-nearest-neighbor classification of features: no training."""

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import Features, Labeled, Labels, labeled_split
from coulomb.metrics.nearest import nearest_by_cosine


def knn_accuracy(
    train_x: Features, train_y: Labels, test_x: Features, test_y: Labels, k: int = 200, sigma: float = 0.1
) -> float:
    """Accuracy of weighted kNN on the test images (Wu et al., 2018).

        score_c = Σ over the k nearest training images of exp(cos/σ)·1[y = c]

    The class with the largest score is predicted; of equal scores, the smaller class number. Memory: one block of 2²³
    similarities at a time.

    Args:
        train_x, test_x: features [n,F]; normalized here.
        train_y, test_y: classes [n]; rows labeled −1 are left out.
        k: number of neighbors, at most the number of labeled training images; 200 in Wu et al. (2018).
        sigma: σ; .1 is usual on CIFAR, .07 on ImageNet.

    Raises:
        InputError: ``k`` or ``sigma`` out of range, no labels, shapes that do not match, features that are not finite.

    Shape:
        train_x: [n, F].
        train_y: [n].
        test_x: [m, F].
        test_y: [m].
        output: a number.

    >>> knn_accuracy(torch.eye(2), torch.tensor([0, 1]), torch.eye(2) + 0.1, torch.tensor([0, 1]), k=1)
    1.0
    """
    train, test = labeled_split(train_x, train_y, test_x, test_y)
    return float((knn_predict(train, test, k, sigma) == test.y).double().mean())


def default_neighbors(images: int) -> int:
    """Returns the number of neighbors for this number of training images: 200, or 20 for fewer than 10,000."""
    return 200 if images >= 10_000 else 20


def knn_predict(train: Labeled, test: Labeled, k: int, sigma: float) -> Tensor:
    """Returns the predicted class of each test image, [n]."""
    if not 1 <= k <= len(train.y):
        raise InputError(f"k={k} must be from 1 to the {len(train.y)} labeled training images.")
    if not sigma > 0:
        raise InputError(f"sigma={sigma} must be positive.")
    classes, train_class = train.y.unique(return_inverse=True)
    winners = torch.empty(len(test.y), dtype=torch.long)
    for rows, cosines, columns in nearest_by_cosine(test.x, train.x, k):
        # Relative to the nearest, so that a small σ does not overflow; in fp64, so that the order of summation is irrelevant.
        votes = ((cosines - cosines[:, :1]).double() / sigma).exp()
        scores = torch.zeros(len(votes), len(classes), dtype=votes.dtype)
        scores.scatter_add_(1, train_class[columns], votes)
        winners[rows] = scores.argmax(dim=1)
    return classes[winners]
