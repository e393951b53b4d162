"""Logistic regression on frozen features: linear probe and few-shot accuracy."""

import warnings
from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.errors import InputError
from coulomb.metrics.inputs import Features, Labelled, Labels, labelled_split
from coulomb.randomness import numpy_generator

GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
MOST_ROWS = 100_000  # training images beyond this are left out, by a seeded draw, and the protocol says so
MOST_ROWS_TO_CHOOSE = 10_000  # of these, for choosing C
HELD_OUT = 0.2
ITERATIONS = 100  # encoder features of 50,000 images converge or nearly so; raw pixels do not, and the protocol says so


def linear_probe(train_x: Features, train_y: Labels, test_x: Features, test_y: Labels, seed: int = 0) -> dict[str, Any]:
    """Accuracy of multinomial logistic regression on features standardised by the training set's mean and deviation.

    L-BFGS on C·Σ cross-entropy + ‖W‖²/2. C comes from a grid of 1e-4…1 by accuracy on a seeded 20% of the
    TRAINING images (the smaller C when equal); then the classifier is fitted again on all of them. Test images are only
    predicted. Fewer than 10 training images: C = 1, as nothing can be held out.

    Args:
        train_x, test_x: features [n,F] before the head. train_y, test_y: classes [n]; −1 is left out.
        seed: of the draws.

    Returns:
        ``{"accuracy": float, "protocol": {...}}`` with C, the grid's accuracies, iterations and whether they converged.

    Raises:
        InputError: fewer than two classes to train on, no labels, shapes that do not fit, features that are not finite.
    """
    train, test = labelled_split(train_x, train_y, test_x, test_y)
    predicted, protocol = probe(train, test, seed)
    return {"accuracy": float((predicted == test.y).double().mean()), "protocol": protocol}


def probe(train: Labelled, test: Labelled, seed: int) -> tuple[Tensor, dict[str, Any]]:
    """The class predicted for each test image, [n], and the protocol."""
    if len(train.y.unique()) < 2:
        raise InputError("train_y has one class only: a classifier needs two.")
    order = numpy_generator(seed, "linear probe").permutation(len(train.y))
    rows = torch.from_numpy(np.sort(order[:MOST_ROWS]))
    mean, std = train.x[rows].mean(dim=0), train.x[rows].std(dim=0, correction=0)
    std = torch.where(std > 1e-6 * std.max().clamp_min(1e-12), std, 1.0)  # constant features stay as they are, at zero
    x, y = (train.x - mean) / std, train.y
    chosen, tried = choose_c(x, y, torch.from_numpy(order[:MOST_ROWS_TO_CHOOSE]))
    model, converged = fit_logistic(x[rows], y[rows], chosen)
    protocol = {
        "classifier": "multinomial logistic regression, L-BFGS",
        "features": "frozen, before the head, standardised by the training set",
        "C": chosen,
        "C_chosen_on": f"{HELD_OUT:.0%} of the training set" if tried else "nothing: too few training images",
        "C_accuracies": {f"{C:g}": round(accuracy, 4) for C, accuracy in tried.items()},
        "train": len(rows),
        "train_left_out": len(train.y) - len(rows),
        "test": len(test.y),
        "iterations": int(model.n_iter_.max()),
        "converged": converged,
        "seed": seed,
    }
    return torch.from_numpy(model.predict(((test.x - mean) / std).numpy())), protocol


def choose_c(x: Tensor, y: Tensor, order: Tensor) -> tuple[float, dict[float, float]]:
    """The best C of the grid on the first fifth of ``order`` after fitting on the rest, and each one's accuracy."""
    held_out, rest = order.tensor_split([round(len(order) * HELD_OUT)])
    if len(order) < 10 or len(y[rest].unique()) < 2:
        return 1.0, {}
    accuracies: dict[float, float] = {}
    start = None
    for C in GRID:
        start, _ = fit_logistic(x[rest], y[rest], C, start)
        accuracies[C] = score(start, x[held_out], y[held_out])
    return max(GRID, key=lambda C: (accuracies[C], -C)), accuracies


def fit_logistic(x: Tensor, y: Tensor, C: float, start: Any = None) -> tuple[Any, bool]:
    """A fitted classifier, from the weights of ``start`` if given, and whether L-BFGS converged."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=C, max_iter=ITERATIONS, warm_start=start is not None)
    if start is not None:
        model.coef_, model.intercept_, model.classes_ = start.coef_.copy(), start.intercept_.copy(), start.classes_
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x.numpy(), y.numpy())
    for warning in caught:  # only what is reported as "converged" may be kept from the user
        if not issubclass(warning.category, ConvergenceWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return model, not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def score(model: Any, x: Tensor, y: Tensor) -> float:
    """Share of rows whose class is predicted."""
    return float((model.predict(x.numpy()) == y.numpy()).mean())


# Weak regularisation, as features have unit length. On digits, raw and learned features alike, at least as good as class
# means, the nearest neighbour or FEW_SHOT_C = 1 and 10 at 1, 5 and 10 shots.
FEW_SHOT_C = 100.0


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

    The classifier is multinomial logistic regression (FEW_SHOT_C = 100) on features of unit length. Draw d of a class is the
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
    train, test = labelled_split(train_x, train_y, test_x, test_y)
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
            predicted, converged = predict_from_few(train_unit[rows], train.y[rows], test_unit)
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
            "classifier": f"multinomial logistic regression, C={FEW_SHOT_C:g}",
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


def predict_from_few(x: Tensor, y: Tensor, test_x: Tensor) -> tuple[Tensor, bool]:
    """Predicted classes of the test rows, and whether the fit converged.

    With fewer rows than features, the weights lie in the span of the rows: in an orthonormal basis of it the problem is
    the same one with as many unknowns as rows (thirty times fewer for raw pixels).
    """
    if len(x) < x.shape[1]:
        basis, _ = torch.linalg.qr(x.T)
        x, test_x = x @ basis, test_x @ basis
    model, converged = fit_logistic(x, y, FEW_SHOT_C)
    return torch.from_numpy(model.predict(test_x.numpy())), converged
