"""Fixtures for all tests: processes, small real images, options of a run of seconds."""

import gc
import logging
import os
import warnings

import hypothesis
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from coulomb.tables.workers import cores
from processes import Processes
from summary import pytest_terminal_summary  # noqa: F401

# An example is slow when other work takes the cores, which says nothing about the code.
hypothesis.settings.register_profile("coulomb", deadline=None)
hypothesis.settings.load_profile("coulomb")

os.fsync = lambda file: None  # waits for the disk, up to 15 ms per file, in case the power fails, which no test does


def pytest_xdist_auto_num_workers():
    """Returns one process more than there are cores: many tests wait for other processes or a browser."""
    return cores() + 1


def pytest_collection_finish():
    """Excludes the objects of imported modules and collected tests, which stay alive, from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def processes(tmp_path_factory):
    return Processes(tmp_path_factory.mktemp("processes"))


@pytest.fixture(scope="session")
def digit_tree(tmp_path_factory):
    """60 handwritten digits as PNG files, one folder per class (0 to 4)."""
    root = tmp_path_factory.mktemp("digit-tree")
    digits = load_digits()
    for label in range(5):
        (root / f"digit-{label}").mkdir()
        for number, index in enumerate(np.flatnonzero(digits.target == label)[:12]):
            Image.fromarray((digits.images[index] * 15.9).astype(np.uint8)).resize((24, 24)).save(
                root / f"digit-{label}" / f"{number:02}.png"
            )
    return root


@pytest.fixture
def quick():
    """Options of a run that takes a few seconds."""
    return {
        "epochs": 3,
        "batch_size": 8,
        "encoder": "convnet",
        "encoder_width": 8,
        "image_size": 16,
        "embedding_dim": 8,
    }


@pytest.fixture
def own_console():
    """Restores the logger and warnings that `coulomb.cli.main` configures for its process."""
    logger, show = logging.getLogger("coulomb"), warnings.showwarning
    level, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(level)
    logger.handlers, warnings.showwarning = handlers, show
