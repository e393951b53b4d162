"""Everything that labels can say about features, with the protocol beside the figures."""

from collections.abc import Sequence
from typing import Any

import torch

from coulomb.evaluation.few_shot import few_shot
from coulomb.evaluation.knn import knn_accuracy
from coulomb.evaluation.labelled import Features, Labels, both
from coulomb.evaluation.linear import linear_probe


def evaluate_features(
    train_x: Features,
    train_y: Labels,
    test_x: Features,
    test_y: Labels,
    *,
    k: int = 200,
    sigma: float = 0.1,
    seed: int = 0,
    shots: Sequence[int] = (1, 5, 10),
    draws: int = 20,
) -> dict[str, Any]:
    """Weighted kNN, linear probe and few-shot accuracy of frozen features; a dict for JSON.

    Args:
        train_x, test_x: features [n,F] before the head, or raw pixels. train_y, test_y: classes [n]; rows labelled −1
            are left out and counted.
        k, sigma: of the kNN; a ``k`` above the labelled training images is lowered to their number, and both stand in
            the protocol.
        seed, shots, draws: see `linear_probe` and `few_shot`.

    Returns:
        ``{"knn": float, "linear": float, "few_shot": {"1": {"mean", "std"}, ...}, "protocol": {...}}``. With a single
        class to train on, linear and few_shot are None and the protocol says why.

    Raises:
        InputError: no labels, shapes that do not fit, features that are not finite, an option out of range.
    """
    train, test = both(train_x, train_y, test_x, test_y)
    known = (train.x, train.y, test.x, test.y)
    classes = train.y.unique()
    used = min(k, len(train.y))
    result: dict[str, Any] = {
        "knn": knn_accuracy(*known, k=used, sigma=sigma),
        "linear": None,
        "few_shot": None,
        "protocol": {
            "train": len(train.y),
            "test": len(test.y),
            "train_unlabelled": train.unlabelled,
            "test_unlabelled": test.unlabelled,
            "classes": len(classes),
            "test_of_classes_not_in_train": int((~torch.isin(test.y, classes)).sum()),
            "features": train.x.shape[1],
            "seed": seed,
            "knn": {
                "k": used,
                "k_asked": k,
                "sigma": sigma,
                "similarity": "cosine",
                "weights": "exp(cosine / sigma)",
            },
        },
    }
    if len(classes) < 2:
        reason = "not measured: the training images have one class only"
        result["protocol"] |= {"linear": reason, "few_shot": reason}
        return result
    linear = linear_probe(*known, seed=seed)
    few = few_shot(*known, shots=shots, draws=draws, seed=seed)
    result |= {"linear": linear["accuracy"], "few_shot": few["shots"]}
    result["protocol"] |= {"linear": linear["protocol"], "few_shot": few["protocol"]}
    return result
