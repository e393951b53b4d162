"""Logistic regression on frozen features: linear probe and few-shot accuracy."""

import warnings
from collections.abc import MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.inputs import Features, Labeled, Labels, labeled_split

GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
MOST_ROWS = 100_000  # training images; more are dropped by a seeded draw, which the protocol records
MOST_ROWS_TO_CHOOSE = 10_000  # training images for choosing C
HELD_OUT = 0.2
ITERATIONS = 100  # enough or nearly enough for encoder features of 50,000 images, not for raw pixels; see the protocol
# Weak regularization, because features have unit length. On digits, with raw and learned features and 1, 5 and 10 shots,
# at least as accurate as class means, the nearest neighbor, C = 1 and C = 10.
FEW_SHOT_C = 100.0
FEW_PER_CLASS = "The number of unique classes is greater than 50%"  # a warning of scikit-learn


class Probe(NamedTuple):
    """A linear probe: a scikit-learn ``model`` of (x − mean)/std, and how it was fitted.

    ``accuracies`` is empty if there were too few images to choose C. ``rows`` counts the images of the final fit.
    """

    model: Any
    mean: Tensor
    std: Tensor
    C: float
    accuracies: dict[float, float]
    rows: int
    converged: bool

    def predict(self, x: Tensor) -> Tensor:
        """Returns the predicted classes [n] of features [n,F]."""
        return torch.from_numpy(self.model.predict(((x - self.mean) / self.std).numpy()))


def linear_probe(train_x: Features, train_y: Labels, test_x: Features, test_y: Labels, seed: int = 0) -> dict[str, Any]:
    """Accuracy of multinomial logistic regression on features standardized by the training set's mean and deviation.

    L-BFGS on C·Σ cross-entropy + ‖W‖²/2. C is chosen from a grid of 1e-4…1 by the accuracy on a seeded 20% of the
    TRAINING images (of equal accuracies, the smaller C); then the classifier is fitted again on all of them. Test images
    are only predicted. With fewer than 10 training images none can be held out and C = 1.

    Args:
        train_x, test_x: features [n,F] before the head.
        train_y, test_y: classes [n]; rows labeled −1 are left out.
        seed: seed of the draws.

    Returns:
        ``{"accuracy": float, "protocol": {...}}`` with C, the accuracies of the grid, the iterations and ``converged``.

    Raises:
        InputError: fewer than two training classes, no labels, shapes that do not match, features that are not finite.

    Shape:
        train_x: [n, F].
        train_y: [n].
        test_x: [m, F].
        test_y: [m].

    >>> x, y = torch.eye(2).repeat(10, 1), torch.tensor([0, 1] * 10)
    >>> linear_probe(x, y, x, y)["accuracy"]
    1.0
    """
    train, test = labeled_split(train_x, train_y, test_x, test_y)
    predicted, protocol = probe(train, test, seed)
    return {"accuracy": float((predicted == test.y).double().mean()), "protocol": protocol}


def probe(train: Labeled, test: Labeled, seed: int) -> tuple[Tensor, dict[str, Any]]:
    """Returns the predicted class of each test image, [n], and the protocol."""
    if len(train.y.unique()) < 2:
        raise InputError("train_y has one class only: a classifier needs two.")
    fitted = fit_probe(train.x, train.y, numpy_generator(seed, "linear probe").permutation(len(train.y)))
    tried = fitted.accuracies
    protocol = {
        "classifier": "multinomial logistic regression, L-BFGS",
        "features": "frozen, before the head, standardized by the training set",
        "C": fitted.C,
        "C_chosen_on": f"{HELD_OUT:.0%} of the training set" if tried else "nothing: too few training images",
        "C_accuracies": {f"{C:g}": round(accuracy, 4) for C, accuracy in tried.items()},
        "train": fitted.rows,
        "train_left_out": len(train.y) - fitted.rows,
        "test": len(test.y),
        "iterations": int(fitted.model.n_iter_.max()),
        "converged": fitted.converged,
        "seed": seed,
    }
    return fitted.predict(test.x), protocol


def fit_probe(x: Tensor, y: Tensor, order: np.ndarray) -> Probe:
    """Fits a `Probe` to features [n,F] of classes [n]; ``order`` is a permutation of the rows, which decides the draws."""
    rows = torch.from_numpy(np.sort(order[:MOST_ROWS]))
    mean, std = x[rows].mean(dim=0), x[rows].std(dim=0, correction=0)
    std = torch.where(std > 1e-6 * std.max().clamp_min(1e-12), std, 1.0)  # constant features are only centered
    x = (x - mean) / std
    best, accuracies = choose_c(x, y, torch.from_numpy(order[:MOST_ROWS_TO_CHOOSE]))
    model, converged = fit_logistic(x[rows], y[rows], best)
    return Probe(model, mean, std, best, accuracies, len(rows), converged)


def choose_c(x: Tensor, y: Tensor, order: Tensor) -> tuple[float, dict[float, float]]:
    """Returns the best C of the grid on the first fifth of ``order``, fitted on the rest, and the accuracy of each C."""
    held_out, rest = order.tensor_split([round(len(order) * HELD_OUT)])
    if len(order) < 10 or len(y[rest].unique()) < 2:
        return 1.0, {}
    accuracies: dict[float, float] = {}
    model = None
    for C in GRID:
        model, _ = fit_logistic(x[rest], y[rest], C, model)
        accuracies[C] = score(model, x[held_out], y[held_out])
    return max(GRID, key=lambda C: (accuracies[C], -C)), accuracies


def fit_logistic(x: Tensor, y: Tensor, C: float, start: Any = None) -> tuple[Any, bool]:
    """Returns a fitted classifier and whether L-BFGS converged; ``start`` is a classifier whose weights it starts from."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=C, max_iter=ITERATIONS, warm_start=start is not None)
    if start is not None:
        model.coef_, model.intercept_, model.classes_ = start.coef_.copy(), start.intercept_.copy(), start.classes_
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x.numpy(), y.numpy())
    for warning in caught:  # a ConvergenceWarning is returned as ``converged``; others reach the user
        few = str(warning.message).startswith(FEW_PER_CLASS)  # of one label per class, which is meant
        if not issubclass(warning.category, ConvergenceWarning) and not few:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return model, not any(issubclass(warning.category, ConvergenceWarning) for warning in caught)


def score(model: Any, x: Tensor, y: Tensor) -> float:
    """Returns the accuracy of a fitted classifier."""
    return float((model.predict(x.numpy()) == y.numpy()).mean())


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
    """Accuracy on ALL test images of a classifier trained on ``k`` images per class; mean and deviation over draws.

    The classifier is multinomial logistic regression (C = 100) on features of unit length. Draw d of a class is the
    first k of one seeded order of its images, so that the shots of a draw are nested and two encoders are compared on
    the same images. A class with fewer than k training images contributes all it has; the protocol counts such classes.

    Args:
        train_x, test_x: features [n,F].
        train_y, test_y: classes [n]; rows labeled −1 are left out.
        shots: the values of k.
        draws: number of draws.
        seed: seed of the draws.
        correct: filled with ``few_shot_k`` → whether each test image is classified correctly, bool [draws, n].

    Returns:
        ``{"shots": {"1": {"mean", "std"}, ...}, "protocol": {...}}``; std over draws (n − 1; 0 for one draw).

    Raises:
        InputError: shots or draws below 1, fewer than two classes, no labels, shapes that do not match.

    Shape:
        train_x: [n, F].
        train_y: [n].
        test_x: [m, F].
        test_y: [m].

    >>> x, y = torch.eye(2).repeat(5, 1), torch.tensor([0, 1] * 5)
    >>> few_shot(x, y, x, y, shots=(1,), draws=2)["shots"]
    {'1': {'mean': 1.0, 'std': 0.0}}
    """
    if draws < 1 or not shots or min(shots) < 1:
        raise InputError(f"shots={tuple(shots)} and draws={draws} must be at least 1.")
    train, test = labeled_split(train_x, train_y, test_x, test_y)
    classes, counts = train.y.unique(return_counts=True)
    if len(classes) < 2:
        raise InputError("train_y has one class only: a classifier needs two.")
    train_unit, test_unit = functional.normalize(train.x, dim=1), functional.normalize(test.x, dim=1)
    hits: dict[int, list[Tensor]] = {int(k): [] for k in shots}
    unconverged = 0
    for draw in range(draws):
        orders = class_orders(train.y.numpy(), seed, draw)
        for k, draws_of_k in hits.items():
            rows = torch.from_numpy(np.concatenate([order[:k] for order in orders]))
            predicted, converged = predict_from_few(train_unit[rows], train.y[rows], test_unit)
            draws_of_k.append(predicted == test.y)
            unconverged += not converged
    if correct is not None:
        correct.update({f"few_shot_{k}": torch.stack(rows).numpy() for k, rows in hits.items()})
    accuracies = {k: [float(row.float().mean()) for row in rows] for k, rows in hits.items()}
    return {
        "shots": {
            str(k): {"mean": float(np.mean(row)), "std": float(np.std(row, ddof=1)) if draws > 1 else 0.0}
            for k, row in accuracies.items()
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
    """Returns a seeded order of the rows of each class."""
    generator = numpy_generator(seed, "few shot", draw)
    return [generator.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]


def predict_from_few(x: Tensor, y: Tensor, test_x: Tensor) -> tuple[Tensor, bool]:
    """Returns the predicted classes of the test rows and whether the fit converged.

    With fewer rows than features the weights lie in the span of the rows. In an orthonormal basis of it the problem is
    the same with as many unknowns as rows (thirty times fewer for raw pixels).
    """
    if len(x) < x.shape[1]:
        basis, _ = torch.linalg.qr(x.T)
        x, test_x = x @ basis, test_x @ basis
    classes, codes = y.unique(return_inverse=True)
    weights, bias, converged = fit_few(x.numpy(), codes.numpy(), FEW_SHOT_C)
    return classes[torch.from_numpy(test_x.numpy() @ weights + bias).argmax(dim=1)], converged


def fit_few(x: np.ndarray, y: np.ndarray, C: float) -> tuple[np.ndarray, np.ndarray, bool]:
    """Returns weights [F,C], biases [C] and whether L-BFGS converged, of the classifier that `fit_logistic` fits.

    With few rows, checks of scikit-learn take most of its time.

    Args:
        x: features [n,F].
        y: classes 0, 1, …, [n].
        C: weight of Σ cross-entropy beside ‖W‖²/2.
    """
    from scipy.optimize import minimize

    rows, classes = np.arange(len(x)), int(y.max()) + 1
    # Of two classes scikit-learn fits the difference w of the weights, with the penalty ‖w‖²/2: twice that of ±w/2.
    decay = (2 if classes == 2 else 1) / (C * len(x))
    x = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        """The mean over rows of the cross-entropy and the penalty, and its gradient."""
        weights = flat.reshape(-1, classes).astype(x.dtype)
        logits = x @ weights
        logits -= logits.max(axis=1, keepdims=True)
        own = logits[rows, y]
        shares = np.exp(logits, out=logits)
        sums = shares.sum(axis=1, keepdims=True)
        shares /= sums
        shares[rows, y] -= 1
        gradient = x.T @ shares / len(x)
        weights[-1] = 0  # biases are not penalized
        gradient += decay * weights
        value = np.log(sums).mean(dtype=float) - own.mean(dtype=float) + decay / 2 * float(np.vdot(weights, weights))
        return float(value), gradient.ravel().astype(float)

    options = {"maxiter": ITERATIONS, "maxls": 50, "gtol": 1e-4, "ftol": 64 * np.finfo(float).eps}
    found = minimize(objective, np.zeros(x.shape[1] * classes), method="L-BFGS-B", jac=True, options=options)
    weights = found.x.reshape(-1, classes).astype(x.dtype)
    return weights[:-1], weights[-1], found.status == 0
