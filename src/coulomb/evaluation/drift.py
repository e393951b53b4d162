"""How far training moved an encoder from the weights that it started from, and what it forgot of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from coulomb.metrics.geometry import drift
from coulomb.metrics.inputs import unit_vectors
from coulomb.metrics.retention import linear_cka, recovered
from coulomb.runs.prepare import Part, Prepared

MOST = 1_000  # held-out images
LEAST = 4
Extract = Callable[[Part], tuple[Tensor, np.ndarray]]


def drift_figures(trained: Extract, start: Extract, prepared: Prepared, seed: int) -> dict[str, Any] | None:
    """Compares the features of at most 1,000 held-out images, without augmentation, by the trained and the starting network.

    - ``distance``: 1 − mean cosine of an image's two features, which ``stay_close`` limits; None if their widths differ;
    - ``between``: 1 − mean cosine of two different images by the starting network, the scale of ``distance``: features of
      rectified units are similar for all images;
    - ``cka``: see `coulomb.diagnostics.linear_cka`; rotations do not change it;
    - ``recovered``: share of the starting features that a linear map recovers from the trained ones, see
      `coulomb.diagnostics.recovered`; what is lacking was forgotten.

    Args:
        trained, start: part of the data → features [n, F] and the indices of its readable images.
        prepared: the images.
        seed: seed of the draw of images.

    Returns:
        The figures with ``images``, their number; None for fewer than 4 readable images.
    """
    part = prepared.unseen.sample(MOST, seed, "drift")
    (now, _), (before, _) = trained(part), start(part)
    n = len(before)
    if n < LEAST:
        return None
    units = unit_vectors(before, "start").double()
    between = 1 - (float(units.sum(0).square().sum()) - float(units.square().sum())) / (n * (n - 1))
    return {
        "distance": drift(now, before) if now.shape == before.shape else None,
        "between": between,
        "cka": linear_cka(now, before),
        "recovered": recovered(now, before),
        "images": n,
    }
