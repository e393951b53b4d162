"""The nearest training images of each training image, whose views are the positives behind a frozen backbone."""

import numpy as np
import torch
from torch.nn import functional

from coulomb.errors import InputError
from coulomb.metrics.cosines import nearest

BLOCK = 1024  # images


def nearest_images(rows: np.ndarray, k: int) -> np.ndarray:
    """Returns the ``k`` nearest other images of each image by the mean of its unit features over views, int32 [N, k].

    Similarity is the cosine, in float32, of all pairs. Rows of NaN are images that could not be read: they are nobody's
    neighbours, and have row 0 as theirs.

    Args:
        rows: features [N, V, F] of V views.
        k: at most the number of readable images minus 1.

    Raises:
        InputError: ``k`` is larger.
    """
    means = torch.empty(len(rows), rows.shape[2])
    for start in range(0, len(rows), BLOCK):
        block = torch.from_numpy(np.array(rows[start : start + BLOCK]))
        means[start : start + BLOCK] = functional.normalize(block, dim=2).mean(1)
    readable = torch.where(~means[:, 0].isnan())[0]
    if k >= len(readable):
        raise InputError(f"neighbours={k}: there are {len(readable)} readable training images; use fewer neighbours")
    found = np.zeros((len(rows), k), np.int32)
    means = means[readable]
    for part, _, columns in nearest(means, means, k + 1):
        own = torch.arange(part.start, part.start + len(columns))[:, None]
        # The image itself goes to the end; of copies of it, some may come first, and it may not be among the k + 1.
        others = columns.gather(1, (columns == own).long().argsort(dim=1, stable=True))[:, :k]
        found[readable[part].numpy()] = readable[others].numpy()
    return found
