"""The nearest training images of each training image, whose views are the positives behind a frozen backbone."""

import numpy as np
import torch
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.metrics.nearest import neighbors
from coulomb.metrics.rows import blocks


def nearest_images(rows: np.ndarray, k: int) -> np.ndarray:
    """Returns the ``k`` nearest other images of each image by the mean of its unit features over views, int32 [N, k].

    Similarity is the cosine, in float32, of all pairs. Rows of NaN are images that could not be read: they are nobody's
    neighbors, and have row 0 as theirs.

    Args:
        rows: features [N, V, F] of V views.
        k: at most the number of readable images minus 1.

    Raises:
        InputError: ``k`` is larger.
    """
    means = np.empty((len(rows), rows.shape[2]), np.float32)
    for block in blocks(len(rows)):
        means[block] = functional.normalize(torch.from_numpy(np.array(rows[block])), dim=2).mean(1).numpy()
    readable = np.flatnonzero(~np.isnan(means[:, 0]))
    if k >= len(readable):
        raise InputError(f"neighbors={k}: there are {len(readable)} readable training images; use fewer neighbors")
    found = np.zeros((len(rows), k), np.int32)
    found[readable] = readable[neighbors(means, k, readable)[1]]
    return found
