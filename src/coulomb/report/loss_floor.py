"""The least value that a run's loss can take, where it is known."""

import math
from typing import Any

from coulomb.diagnostics.loss_floor import infonce_at
from coulomb.report.collect import finite

NEGATIVE_COSINE = {"byol": 0.0, "simsiam": -1.0}  # losses of cosines alone: every prediction on its target


def loss_floor(config: dict[str, Any], no_signal: float | None) -> float | None:
    """The loss that no embeddings of any dimension get below; None where no useful bound is known.

    For SimCLR with two views of N images, ln(1 + (2N − 2)·exp(−(1 + 1/(N−1))/τ)): the views of an image coincide, and the
    images form a regular simplex, cos = −1/(N−1). It is the least by the convexity of log Σ exp and Σᵢⱼ zᵢ·zⱼ ≥ 0. N is
    read from the recorded ``no_signal`` = ln(2N − 1), which counts the images of all processes.
    """
    method, temperature = str(config.get("method")), finite(config.get("temperature"))
    if method in NEGATIVE_COSINE:
        return NEGATIVE_COSINE[method]
    options = config.get("method_options")
    if isinstance(options, dict) and options.get("loss", "contrastive") != "contrastive":
        return None
    if method != "simclr" or finite(config.get("n_views", 2)) != 2 or not temperature or no_signal is None:
        return None
    if temperature < 0 or not math.log(2) <= no_signal <= 50:
        return None
    images = (math.exp(no_signal) + 1) / 2
    return infonce_at(2 * images - 2, temperature, -1 / (images - 1))
