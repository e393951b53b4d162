"""A classifier from a few labels: a linear probe of stored features, with a threshold below which it is unsure."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.index.folds import out_of_fold
from coulomb.metrics.linear import FEW_SHOT_C, fit_logistic
from coulomb.metrics.rows import blocks, check_labels, check_rows, unit_rows

GRID = (FEW_SHOT_C, 10.0, 1.0)  # of equal held-out accuracies, the first
LEAST_TO_VALIDATE = 20  # labels; with fewer, held-out accuracies say little
UNVALIDATED = 0.5  # threshold in that case
HIGHEST_TARGET = 0.95  # by default


@dataclass(frozen=True)
class Predictions:
    """Classes of N images.

    Attributes:
        classes: the C class numbers that occur among the labels, ascending.
        probabilities: probabilities of these classes, float32 [N,C].
        threshold: margin (largest minus second largest probability) below which a prediction counts as unsure.
        target: accuracy wanted of those that reach the threshold; None if it was not measured.
        accuracy: held-out accuracy of all predictions; None if too few labels were given to measure it.
        sure_accuracy: held-out accuracy of those that reach the threshold; None likewise, or if none does.
        C: inverse regularization of the classifier; None if nothing was trained.
    """

    classes: np.ndarray
    probabilities: np.ndarray
    threshold: float
    target: float | None
    accuracy: float | None
    sure_accuracy: float | None
    C: float | None

    @property
    def predicted(self) -> np.ndarray:
        """The most probable class number of each image, int64 [N]."""
        return self.classes[self.probabilities.argmax(1)]

    @property
    def margin(self) -> np.ndarray:
        """Largest minus second largest probability, float32 [N]."""
        return _margin(self.probabilities)

    @property
    def unsure(self) -> np.ndarray:
        """True where the margin is below the threshold, bool [N]."""
        return self.margin < self.threshold


def classify_rows(x: np.ndarray, labels: np.ndarray, *, target: float | None = None, seed: int = 0) -> Predictions:
    """Classifies all images by logistic regression on the unit features of those with a label.

    The regularization (C = 100, 10 or 1) is the one with the highest accuracy in 5-fold cross-validation on the labels.
    The threshold is the smallest margin at which the held-out predictions that reach it are right in ``target`` of the
    cases; if no margin does, it is above 1 and all are unsure. By default their error rate is half the error rate of all
    held-out predictions, and their accuracy 95% at most: where classes are hard to tell apart, 95% would leave almost all
    images unsure. With fewer than 20 labels nothing can be held out: C = 100 and the threshold is .5. Probabilities are
    not calibrated otherwise.

    Args:
        x: features [N,D]; a memory-mapped array is read in blocks, the labeled rows are kept in memory.
        labels: class numbers int64 [N], −1 for none.
        target: accuracy wanted of the predictions that are not unsure, in (0, 1]; default: see above.
        seed: seed of the folds.

    Raises:
        InputError: fewer than two classes, another number of labels, ``target`` out of range, NaN or infinite values.
    """
    check_rows(x)
    labels = check_labels(labels, len(x))
    if target is not None and not 0 < target <= 1:
        raise InputError(f"target={target}: must be an accuracy in (0, 1].")
    rows = np.flatnonzero(labels >= 0)
    classes, given = np.unique(labels[rows], return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"labels: {len(classes)} different classes; a classifier needs two or more.")
    features, C, held_out = unit_rows(x, rows), FEW_SHOT_C, None
    if len(rows) >= LEAST_TO_VALIDATE:
        tried = {C: _held_out(features, given, C, seed) for C in GRID}
        C = max(GRID, key=lambda C: (tried[C].argmax(1) == given).mean())
        held_out = tried[C]
    model, _ = fit_logistic(features, torch.from_numpy(given), C)
    probabilities = np.empty((len(x), len(classes)), np.float32)
    for block in blocks(len(x)):
        probabilities[block] = model.predict_proba(unit_rows(x, block).numpy())
    if held_out is None:
        return Predictions(classes, probabilities, UNVALIDATED, None, None, None, C)
    right, margin = held_out.argmax(1) == given, _margin(held_out)
    target = min(HIGHEST_TARGET, (1 + float(right.mean())) / 2) if target is None else target
    threshold = _threshold(margin, right, target)
    sure = margin >= threshold
    sure_accuracy = float(right[sure].mean()) if sure.any() else None
    return Predictions(classes, probabilities, threshold, target, float(right.mean()), sure_accuracy, C)


def _held_out(features: Tensor, classes: np.ndarray, C: float, seed: int) -> np.ndarray:
    def predict(inside: np.ndarray, outside: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        model, _ = fit_logistic(features[inside], torch.from_numpy(classes[inside]), C)
        return model.classes_, model.predict_proba(features[outside].numpy())

    return out_of_fold(classes, seed, predict)


def _margin(probabilities: np.ndarray) -> np.ndarray:
    best = np.partition(probabilities, -2, axis=1)
    return best[:, -1] - best[:, -2]


def _threshold(margin: np.ndarray, right: np.ndarray, target: float) -> float:
    """The smallest margin at which the predictions that reach it have the accuracy ``target``; 2 if there is none."""
    order = np.argsort(-margin, kind="stable")
    share = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    last = np.append(margin[order][1:] < margin[order][:-1], True)  # equal margins are on one side together
    enough = np.flatnonzero(last & (share >= target))
    return float(margin[order[enough[-1]]]) if len(enough) else 2.0
