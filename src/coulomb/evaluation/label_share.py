"""A share of the labels: the few that a fine-tuning may see."""

import numpy as np

from coulomb.errors import InputError
from coulomb.randomness import numpy_generator


def label_share(labels: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """Rows of a stratified share of the labelled images, sorted: of each class ``fraction`` rounded, at least one image.

    Shares are nested: each class's images come in one seeded order, of which a share is the beginning.

    Args:
        labels: classes [n]; −1 is never drawn. fraction: above 0, at most 1. seed: of the order.

    Raises:
        InputError: ``fraction`` out of range, or no label.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction={fraction!r} of the labels must be above 0 and at most 1.")
    classes = np.unique(labels[labels >= 0])
    if not len(classes):
        raise InputError("there is no label other than −1: nothing to fine-tune by.")
    draw = numpy_generator(seed, "label share")
    orders = [draw.permutation(np.flatnonzero(labels == label)) for label in classes]
    return np.sort(np.concatenate([order[: max(1, round(fraction * len(order)))] for order in orders]))
