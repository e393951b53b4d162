"""Few-shot accuracy: what a handful of labels a class is worth on top of the features."""

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.errors import InputError
from coulomb.evaluation.labelled import Features, Labels, both
from coulomb.evaluation.linear import fit
from coulomb.randomness import numpy_generator

# Weak regularisation, as features have unit length. On digits, raw and learned features alike, at least as good as class
# means, the nearest neighbour or C = 1 and 10 at 1, 5 and 10 shots.
C = 100.0


def few_shot(
    train_x: Features,
    train_y: Labels,
    test_x: Features,
    test_y: Labels,
    shots: Sequence[int] = (1, 5, 10),
    draws: int = 20,
    seed: int = 0,
    correct: MutableMapping[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Accuracy on ALL test images of a classifier that saw ``k`` training images a class; mean and deviation over draws.

    The classifier is multinomial logistic regression (C = 100) on features of unit length. Draw d of a class is the
    first k of one seeded order of its images, so the shots of a draw are nested, and two encoders that are compared
    see the same images. A class with fewer than k training images gives all it has, and the protocol counts such
    classes.

    Args:
        train_x, test_x: features [n,F]. train_y, test_y: classes [n]; −1 is left out.
        shots: the values of k. draws: how often. seed: of the draws.
        correct: receives ``few_shot_k`` → whether each test image is classified correctly, bool [draws, n].

    Returns:
        ``{"shots": {"1": {"mean", "std"}, ...}, "protocol": {...}}``; std is that of the draws (n − 1; 0 for one draw).

    Raises:
        InputError: shots or draws below 1, fewer than two classes, no labels, shapes that do not fit.
    """
    if draws < 1 or not shots or min(shots) < 1:
        raise InputError(f"shots={tuple(shots)} and draws={draws} must be at least 1.")
    train, test = both(train_x, train_y, test_x, test_y)
    classes, counts = train.y.unique(return_counts=True)
    if len(classes) < 2:
        raise InputError("train_y has one class only: a classifier needs two.")
    train_unit, test_unit = functional.normalize(train.x, dim=1), functional.normalize(test.x, dim=1)
    hits: dict[int, list[Tensor]] = {int(k): [] for k in shots}
    unconverged = 0
    for draw in range(draws):
        orders = class_orders(train.y.numpy(), seed, draw)
        for k, found in hits.items():
            rows = torch.from_numpy(np.concatenate([order[:k] for order in orders]))
            predicted, converged = fit_and_predict(train_unit[rows], train.y[rows], test_unit)
            found.append(predicted == test.y)
            unconverged += not converged
    if correct is not None:
        correct.update({f"few_shot_{k}": torch.stack(found).numpy() for k, found in hits.items()})
    accuracies = {k: [float(each.float().mean()) for each in found] for k, found in hits.items()}
    return {
        "shots": {
            str(k): {"mean": float(np.mean(found)), "std": float(np.std(found, ddof=1)) if draws > 1 else 0.0}
            for k, found in accuracies.items()
        },
        "protocol": {
            "classifier": f"multinomial logistic regression, C={C:g}",
            "features": "unit length",
            "draws": draws,
            "seed": seed,
            "classes": len(classes),
            "classes_short_of_images": {str(k): int((counts < k).sum()) for k in accuracies},
            "test": len(test.y),
            "fits_not_converged": unconverged,
        },
    }


def class_orders(labels: np.ndarray, seed: int, draw: int) -> list[np.ndarray]:
    """A seeded order of each class's rows."""
    generator = numpy_generator(seed, "few shot", draw)
    return [generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def fit_and_predict(x: Tensor, y: Tensor, test_x: Tensor) -> tuple[Tensor, bool]:
    """Predicted classes of the test rows, and whether the fit converged.

    With fewer rows than features, the weights lie in the span of the rows: in an orthonormal basis of it the problem is
    the same one with as many unknowns as rows (thirty times fewer for raw pixels).
    """
    if len(x) < x.shape[1]:
        basis, _ = torch.linalg.qr(x.T)
        x, test_x = x @ basis, test_x @ basis
    model, converged = fit(x, y, C)
    return torch.from_numpy(model.predict(test_x.numpy())), converged
