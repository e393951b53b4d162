"""Folds of cross-validation with all classes in each."""

import numpy as np

from coulomb.randomness import numpy_generator

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
