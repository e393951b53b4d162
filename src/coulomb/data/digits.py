"""scikit-learn's handwritten digits: 1,797 grey images of 8×8, inside the package, so that a demo needs no download."""

import numpy as np

from coulomb.data.arrays import ArraySource


def open_digits() -> ArraySource:
    """The digits as uint8: their values 0…16 become 0…255."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.round(found.images * (255 / 16)).astype(np.uint8)
    source = ArraySource(images, found.target, name="digits", class_names=[str(digit) for digit in range(10)])
    source.kind = "digits"
    source.prefix = "digit-"
    return source
