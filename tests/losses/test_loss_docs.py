"""The examples in the public docstrings run."""

import doctest

import pytest
import torch

from coulomb.losses import infonce, ntxent, supcon, temperature
from coulomb.similarity import matrix


@pytest.mark.parametrize("module", [infonce, ntxent, supcon, temperature, matrix], ids=lambda m: m.__name__)
def test_examples(module):
    result = doctest.testmod(module, extraglobs={"torch": torch})
    assert result.attempted > 0
    assert result.failed == 0
