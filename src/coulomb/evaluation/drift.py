"""How far training moved an encoder from the weights that it started from, and what it forgot of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from coulomb.metrics.geometry import drift
from coulomb.metrics.inputs import unit_vectors
from coulomb.metrics.retention import linear_cka, recovered
from coulomb.training.plan.plan import Part

LEAST = 4  # images
Extract = Callable[[Part], tuple[Tensor, np.ndarray]]


def drift_figures(
    trained: Extract, start: Extract, untrained: Extract, part: Part, *, same_space: bool = True
) -> dict[str, Any] | None:
    """Compares the features of images by the trained and by the starting network.

    - ``distance``: 1 − mean cosine of an image's two features, which ``stay_close`` limits; None without ``same_space``;
    - ``between``: 1 − mean cosine of two different images by the starting network, the scale of ``distance``: features of
      rectified units are similar for all images;
    - ``cka``: see `coulomb.metrics.linear_cka`; rotations do not change it;
    - ``recovered``: share of the starting features that a linear map recovers from the trained ones, see
      `coulomb.metrics.recovered`; ``recovered_untrained``: the share that it recovers from the untrained network's
      features. What ``recovered`` exceeds it by was kept, and what is missing from 1 was forgotten.

    Args:
        trained, start, untrained: part of the data → features [n, F] and the indices of its readable images.
        part: held-out images; they are not augmented.
        same_space: False if the trained features passed an adapter, so that cosines with the starting ones mean nothing.

    Returns:
        The figures with ``images``, their number, and ``note``, the figures as sentences; None for fewer than 4 readable
        images.
    """
    (now, _), (before, _), (never, _) = (extract(part) for extract in (trained, start, untrained))
    n = len(before)
    if n < LEAST:
        return None
    units = unit_vectors(before, "start").double()
    between = 1 - (float(units.sum(0).square().sum()) - float(units.square().sum())) / (n * (n - 1))
    figures: dict[str, Any] = {
        "distance": drift(now, before) if same_space else None,
        "between": between,
        "cka": linear_cka(now, before),
        "recovered": recovered(now, before),
        "recovered_untrained": recovered(never, before),
        "images": n,
    }
    return figures | {"note": drift_note(figures)}


def drift_note(figures: Mapping[str, Any]) -> str:
    """Returns the figures as sentences."""
    distance, recovered, untrained = (figures[name] for name in ("distance", "recovered", "recovered_untrained"))
    sentences = []
    if distance is not None:
        sentences.append(
            f"Training moved the features of an image by {distance:.2f} (1 − cosine); the starting weights place two "
            f"different images {figures['between']:.2f} apart."
        )
    sentences.append(
        f"The linear CKA of both networks is {figures['cka']:.2f} (1: equal up to rotation, 0: unrelated)."
    )
    if recovered is not None:
        than = "" if untrained is None else f", and {untrained:.0%} from the untrained network’s"
        sentences.append(f"A linear map recovers {recovered:.0%} of the starting features from the trained ones{than}.")
    return " ".join(sentences)
