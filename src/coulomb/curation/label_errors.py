"""Labels that are probably wrong: the neighbours and a cross-validated linear probe disagree with them."""

from dataclasses import dataclass

import numpy as np
import torch

from coulomb.curation.folds import out_of_fold
from coulomb.curation.neighbours import neighbours
from coulomb.curation.rows import check_labels, check_rows, unit_rows
from coulomb.errors import InputError
from coulomb.metrics.linear import fit_probe
from coulomb.randomness import numpy_generator

NEIGHBOURS = 20


@dataclass(frozen=True)
class LabelErrors:
    """Suspicious labels, the most certain first; all arrays are [n].

    Attributes:
        rows: positions of the images.
        suggested: the most probable class, never the given one.
        confidence: 1 − probability of the given label.
        agreeing: how many of the ``k`` nearest labelled images have the given label.
        probe: probability that the linear probe gives to the given label.
        k: number of neighbours.
        judged: number of labelled images that were examined.
        single: number of images left out because no other image has their label.
    """

    rows: np.ndarray
    suggested: np.ndarray
    confidence: np.ndarray
    agreeing: np.ndarray
    probe: np.ndarray
    k: int
    judged: int
    single: int


def label_errors(x: np.ndarray, labels: np.ndarray, *, seed: int = 0) -> LabelErrors:
    """Finds labels that the features contradict.

        p_c ∝ √(probe_c · votes_c),     votes_c = (n_c + 1)/(k + C)

    ``probe`` is the out-of-fold probability of a linear probe (5 stratified folds; C is chosen anew within each training
    part), n_c the number of the k = 20 nearest other labelled images with class c of C. Images whose most probable class
    differs from their label are returned, ranked by 1 − p of the label. An image never votes on itself or trains its own
    probe. Classes of a single image cannot be judged; they are counted.

    Args:
        x: features [N,D]; a memory-mapped array is read in blocks by the neighbours, the probe needs them in memory.
        labels: class numbers int64 [N], −1 for none.
        seed: of the folds.

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
    k = min(NEIGHBOURS, len(rows) - 1)
    _, near = neighbours(x, k, rows)
    votes = np.zeros((len(rows), len(usable)), np.float32)
    np.add.at(votes, (np.arange(len(rows))[:, None], given[near]), 1.0)
    own = np.arange(len(rows)), given
    probe = probe_probabilities(x, rows, given, seed)
    probability = np.sqrt(probe * (votes + 1) / (k + len(usable)))
    probability /= probability.sum(1, keepdims=True)
    suggested = probability.argmax(1)
    confidence = 1 - probability[own]
    wrong = np.flatnonzero(suggested != given)
    wrong = wrong[np.argsort(-confidence[wrong], kind="stable")]
    return LabelErrors(
        rows=rows[wrong], suggested=usable[suggested[wrong]], confidence=confidence[wrong],
        agreeing=votes[own][wrong].astype(np.int64), probe=probe[own][wrong],
        k=k, judged=len(rows), single=int((labels >= 0).sum()) - len(rows),
    )  # fmt: skip


def probe_probabilities(x: np.ndarray, rows: np.ndarray, classes: np.ndarray, seed: int) -> np.ndarray:
    """Returns probabilities [n, C] by linear probes of the other folds; every one of the ``classes`` 0 … C−1 occurs twice."""
    features, targets = unit_rows(x, rows), torch.from_numpy(classes)

    def predict(inside: np.ndarray, outside: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        order = numpy_generator(seed, "linear probe", number).permutation(int(inside.sum()))
        fitted = fit_probe(features[inside], targets[inside], order)
        inputs = ((features[outside] - fitted.mean) / fitted.std).numpy()
        return fitted.model.classes_, fitted.model.predict_proba(inputs)

    return np.maximum(out_of_fold(classes, seed, predict), np.float32(1e-6))
