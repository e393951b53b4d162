"""Doctests of the docstrings."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import coulomb.negatives

MODULES = [f"coulomb.negatives.{module.name}" for module in pkgutil.iter_modules(coulomb.negatives.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    assert (
        doctest.testmod(importlib.import_module(name), extraglobs={"torch": torch, **vars(coulomb.negatives)}).failed
        == 0
    )


def test_queue_and_memory_bank_have_an_example():
    assert ">>> " in coulomb.negatives.Queue.__doc__ and ">>> " in coulomb.negatives.MemoryBank.__doc__
