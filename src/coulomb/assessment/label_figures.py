"""Whether labels say anything about the images: kNN by raw pixels and by trained features, next to chance."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.data.views import ViewMaker
from coulomb.evaluation import extract_features, knn_accuracy, pixel_features
from coulomb.models import Encoder
from coulomb.runs.config import Config
from coulomb.runs.prepare import Part, Prepared

BANK, QUERIES = 2_000, 1_000  # training and held-out images
PIXELS = 2**24  # of the training images, at most


def label_figures(encoder: Encoder, prepared: Prepared, views: ViewMaker, config: Config) -> dict[str, Any] | None:
    """``{"pixels", "features", "chance", "images"}``; None where one side of the split has no labels.

    ``pixels`` and ``features`` are kNN accuracies of at most 1,000 held-out images among at most 2,000 training images,
    ``chance`` the accuracy of always answering the class that is commonest among the held-out images.
    """
    most = max(100, PIXELS // prepared.facts.image_size**2)
    bank, queries = _labelled(prepared.train, min(BANK, most), config), _labelled(prepared.test, QUERIES, config)
    if bank is None or queries is None:
        return None
    sides = [
        (part, {"pixels": _pixels(encoder, part, views), "features": found[0]}, found[1])
        for part in (bank, queries)
        for found in [extract_features(encoder, part.images, part.indices, views.plain, device=torch.device("cpu"))]
    ]
    (known, known_x, known_at), (asked, asked_x, asked_at) = sides
    assert known.labels is not None and asked.labels is not None
    labels = torch.from_numpy(known.labels[known_at]), torch.from_numpy(asked.labels[asked_at])
    k = min(config.knn_k, len(labels[0]))
    figures: dict[str, Any] = {
        name: knn_accuracy(known_x[name], labels[0], asked_x[name], labels[1], k=k, sigma=config.knn_sigma)
        for name in ("pixels", "features")
    }
    figures["chance"] = float(np.bincount(labels[1].numpy()).max()) / len(labels[1])
    return figures | {"images": len(labels[1])}


def _pixels(encoder: Encoder, part: Part, views: ViewMaker) -> Tensor:
    """Pixels [n, C·S·S], normalised as the encoder's input is."""
    return pixel_features(part.images, part.indices, lambda *given: encoder.normalise(views.plain(*given)))[0]


def _labelled(part: Part, most: int, config: Config) -> Part | None:
    if part.labels is None:
        return None
    known = Part(part.images, part.indices[part.labels[part.indices] >= 0], part.labels)
    return known.sample(most, config.seed, "doctor labels") if len(known.indices) else None
