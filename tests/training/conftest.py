"""Data of tests of training."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """60 random images with four labels."""
    path = tmp_path_factory.mktemp("photos") / "photos.npz"
    images = np.random.default_rng(0).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    np.savez(path, images=images, labels=np.arange(60) % 4)
    return path
