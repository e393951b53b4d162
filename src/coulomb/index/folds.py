"""Folds of cross-validation with all classes in each."""

from collections.abc import Callable

import numpy as np

from coulomb.ground.randomness import numpy_generator

FOLDS = 5


def stratified_folds(classes: np.ndarray, seed: int) -> np.ndarray:
    """Returns the fold of each image, 0 … 4: the images of a class, in a seeded order, go to the folds in turn.

    Every class starts at a fold of its own, so that rare classes do not all lie in the first ones.
    """
    fold = np.empty(len(classes), np.int64)
    for number in np.unique(classes).tolist():
        generator = numpy_generator(seed, "folds", number)
        members = generator.permutation(np.flatnonzero(classes == number))
        fold[members] = (generator.integers(FOLDS) + np.arange(len(members))) % FOLDS
    return fold


def out_of_fold(
    classes: np.ndarray, seed: int, predict: Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Returns probabilities float32 [n, C] of each image by a classifier of the other folds; 0 where there is none.

    Args:
        classes: 0 … C−1 [n].
        seed: seed of the folds.
        predict: ``predict(inside, outside, number)`` trains on the rows ``inside``, bool [n], which have two classes or more,
            and returns the classes that it knows and their probabilities for the rows ``outside``.
    """
    fold = stratified_folds(classes, seed)
    out = np.zeros((len(classes), classes.max() + 1), np.float32)
    for number in range(FOLDS):
        inside, outside = fold != number, fold == number
        if outside.any() and len(np.unique(classes[inside])) > 1:
            known, probabilities = predict(inside, outside, number)
            out[np.ix_(outside, known)] = probabilities
    return out
