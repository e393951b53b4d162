"""Labels that are probably wrong: the neighbors and a cross-validated linear probe disagree with them."""

from dataclasses import dataclass

import numpy as np
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.index.folds import out_of_fold
from coulomb.metrics.linear import fit_probe
from coulomb.metrics.nearest import neighbors
from coulomb.metrics.rows import check_labels, check_rows, unit_rows

NEIGHBORS = 20
PLANTED = 0.05  # share of labels that are flipped to find the cut-off
FEWEST_PLANTED = 10  # with fewer, every suspicious label is listed


@dataclass(frozen=True)
class LabelErrors:
    """Suspicious labels, the most certain first; all arrays are [n].

    Attributes:
        rows: positions of the images.
        suggested: the most probable class, never the given one.
        confidence: 1 − probability of the given label.
        agreeing: how many of the ``k`` nearest labeled images have the given label.
        probe: probability that the linear probe gives to the given label.
        k: number of neighbors.
        judged: number of labeled images that were examined.
        single: number of images left out because no other image has their label.
        cutoff: recommended least confidence; 0 if it was not asked for, or if too few images were judged to find one.
    """

    rows: np.ndarray
    suggested: np.ndarray
    confidence: np.ndarray
    agreeing: np.ndarray
    probe: np.ndarray
    k: int
    judged: int
    single: int
    cutoff: float


def find_label_errors(x: np.ndarray, labels: np.ndarray, *, seed: int = 0, recommend: bool = True) -> LabelErrors:
    """Finds labels that the features contradict.

        p_c ∝ √(probe_c · votes_c),     votes_c = (n_c + 1)/(k + C)

    ``probe`` is the out-of-fold probability of a linear probe (5 stratified folds; C is chosen anew within each training
    part), n_c the number of the k = 20 nearest other labeled images with class c of C. Images whose most probable class
    differs from their label are returned, ranked by 1 − p of the label. An image never votes on itself or trains its own
    probe. Classes of a single image cannot be judged; they are counted.

    Where classes are hard to tell apart, many correct labels are suspicious as well. The recommended ``cutoff`` is found on
    this data: 5% of the labels are flipped to random other classes and judged likewise, and the cut-off is the confidence
    with the largest F1 score of the flipped labels among the suspicious ones. Real errors count as correct labels there, so
    the cut-off is rather too high.

    Args:
        x: features [N,D]; a memory-mapped array is read in blocks by the neighbors, the probe needs them in memory.
        labels: class numbers int64 [N], −1 for none.
        seed: seed of the folds.
        recommend: whether to find the cut-off, for which the probes are fitted again.

    Raises:
        InputError: no labels, one class only, another number of labels, NaN or infinite values.
    """
    check_rows(x)
    labels = check_labels(labels, len(x))
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    usable = classes[counts >= 2]
    if len(usable) < 2:
        raise InputError(
            f"labels: {len(usable)} classes have two images or more; label-errors needs at least two such classes."
        )
    rows = np.flatnonzero(np.isin(labels, usable))
    given = np.searchsorted(usable, labels[rows])
    k = min(NEIGHBORS, len(rows) - 1)
    _, near = neighbors(x, k, rows)
    probe, votes, probability = _judged(x, rows, near, given, seed)
    own = np.arange(len(rows)), given
    suggested = probability.argmax(1)
    confidence = 1 - probability[own]
    wrong = np.flatnonzero(suggested != given)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    return LabelErrors(
        rows=rows[wrong], suggested=usable[suggested[wrong]], confidence=confidence[wrong],
        agreeing=votes[own][wrong].astype(np.int64), probe=probe[own][wrong],
        k=k, judged=len(rows), single=int((labels >= 0).sum()) - len(rows),
        cutoff=_cutoff(x, rows, near, given, seed) if recommend else 0.0,
    )  # fmt: skip


def _judged(
    x: np.ndarray, rows: np.ndarray, near: np.ndarray, given: np.ndarray, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns probabilities by the probe, votes of the ``near`` images, and both combined, each [n, C]."""
    classes = int(given.max()) + 1
    votes = np.zeros((len(rows), classes), np.float32)
    np.add.at(votes, (np.arange(len(rows))[:, None], given[near]), 1.0)
    probe = probe_probabilities(x, rows, given, seed)
    probability = np.sqrt(probe * (votes + 1) / (near.shape[1] + classes))
    return probe, votes, probability / probability.sum(1, keepdims=True)


def _cutoff(x: np.ndarray, rows: np.ndarray, near: np.ndarray, given: np.ndarray, seed: int) -> float:
    """The confidence with the largest F1 score of planted flips among suspicious labels; 0 if these would be too few."""
    count = round(PLANTED * len(given))
    if count < FEWEST_PLANTED:
        return 0.0
    generator = numpy_generator(seed, "planted label errors")
    classes, flipped = int(given.max()) + 1, generator.permutation(len(given))[:count]
    labels = given.copy()
    labels[flipped] = (labels[flipped] + generator.integers(1, classes, count)) % classes
    if np.bincount(labels, minlength=classes).min() < 2:  # a small class would be lost
        return 0.0
    probability = _judged(x, rows, near, labels, seed)[2]
    confidence = 1 - probability[np.arange(len(labels)), labels]
    wrong = np.flatnonzero(probability.argmax(1) != labels)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    found = np.cumsum(np.isin(wrong, flipped))
    if not len(wrong) or not found[-1]:
        return 0.0
    f1 = 2 * found / (np.arange(1, len(wrong) + 1) + count)
    return float(confidence[wrong[f1.argmax()]])


def probe_probabilities(x: np.ndarray, rows: np.ndarray, classes: np.ndarray, seed: int) -> np.ndarray:
    """Returns probabilities [n, C] by linear probes of the other folds; every one of the ``classes`` 0 … C−1 occurs twice."""
    features, targets = unit_rows(x, rows), torch.from_numpy(classes)

    def predict(inside: np.ndarray, outside: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        order = numpy_generator(seed, "linear probe", number).permutation(int(inside.sum()))
        fitted = fit_probe(features[inside], targets[inside], order)
        inputs = ((features[outside] - fitted.mean) / fitted.std).numpy()
        return fitted.model.classes_, fitted.model.predict_proba(inputs)

    return np.maximum(out_of_fold(classes, seed, predict), np.float32(1e-6))
