"""The examples in the public docstrings of coulomb.losses run, and every public class has one."""

import doctest
import importlib
import pkgutil

import pytest
import torch

import coulomb.losses
from coulomb.similarity import guide, matrix

MODULES = [
    importlib.import_module(f"coulomb.losses.{info.name}") for info in pkgutil.iter_modules(coulomb.losses.__path__)
]


@pytest.mark.parametrize("module", [*MODULES, guide, matrix], ids=lambda m: m.__name__)
def test_docstring_examples_run(module):
    assert doctest.testmod(module, extraglobs={"torch": torch}).failed == 0


@pytest.mark.parametrize("name", coulomb.losses.__all__)
def test_every_public_class_documents_its_arguments_with_an_example(name):
    doc = getattr(coulomb.losses, name).__doc__
    assert ">>> " in doc
    assert "Args:" in doc or "Shape:" in doc or "Attributes:" in doc
