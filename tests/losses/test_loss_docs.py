"""The examples in the public docstrings run: every module of coulomb.losses is looked at, and every loss has one."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import coulomb.losses
from coulomb.similarity import matrix

MODULES = [
    importlib.import_module(f"coulomb.losses.{found.name}") for found in pkgutil.iter_modules(coulomb.losses.__path__)
]


@pytest.mark.parametrize("module", [*MODULES, matrix], ids=lambda m: m.__name__)
def test_examples(module):
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0


@pytest.mark.parametrize("name", coulomb.losses.__all__)
def test_every_public_class_has_an_example_and_says_what_it_needs(name):
    doc = getattr(coulomb.losses, name).__doc__
    assert ">>> " in doc
    assert "Args:" in doc or "Call with" in doc or "Attributes:" in doc
