"""Every public name has an example that runs, and says the shapes of its tensors."""

import doctest
import importlib
import inspect
import math
import re
import types

import numpy as np
import pytest
import torch

import coulomb
from page_blocks import ROOT

DOCS = ROOT / "docs"
INNER = "losses similarity negatives metrics evaluation tables models methods training laws"
KINDS = "kinds kinds.image kinds.image.views kinds.text kinds.vector"
ROOMS = ["coulomb", *(f"coulomb.{room}" for room in f"{INNER} {KINDS}".split())]
RUN_ELSEWHERE = {"coulomb.losses", "coulomb.negatives"}
UNTRIED = {"coulomb.models.build_pair"}  # needs the files of a model of both kinds, which the tests of it make
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public(room):
    """Returns the classes and functions of a room by name."""
    module = importlib.import_module(room)
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: each for name, each in found.items() if inspect.isclass(each) or inspect.isfunction(each)}


NAMES = {f"{room}.{name}": thing for room in ROOMS for name, thing in public(room).items()}


def code_of_the_pages():
    """Returns the code of the pages that the tests execute."""
    pages = [*(DOCS / "guide").glob("*.md"), *(DOCS / "losses").glob("*.md"), *(DOCS / "notebooks").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return "\n".join(re.findall(r"^```(?:python|\{code-cell\})\n(.*?)^```", text, flags=re.S | re.M))


CODE = code_of_the_pages()


def is_described_elsewhere(thing):
    """Returns True for protocols and errors, and for methods, whose common interface `Method` and the guide describe."""
    return inspect.isclass(thing) and (
        getattr(thing, "_is_protocol", False)
        or issubclass(thing, Exception)
        or thing.__module__.startswith("coulomb.methods.")
    )


NAMES = {name: thing for name, thing in NAMES.items() if not is_described_elsewhere(thing)}


def takes_tensors(thing):
    """Returns True if a function, or the forward pass of a module, has tensors or features among its arguments."""
    call = thing if inspect.isfunction(thing) else vars(thing).get("forward")
    if call is None:
        return False
    written = [str(each.annotation) for each in inspect.signature(call).parameters.values()]
    return any("Tensor" in each and "Callable" not in each for each in written)


@pytest.mark.parametrize("name", sorted(set(NAMES) - UNTRIED))
def test_it_has_an_example(name):
    written = ">>> " in (inspect.getdoc(NAMES[name]) or "")
    assert written or re.search(rf"\b{name.rpartition('.')[2]}\b", CODE), "give its docstring an example (>>> …)"


@pytest.mark.parametrize("name", [name for name, thing in NAMES.items() if takes_tensors(thing)])
def test_it_says_the_shapes_of_its_tensors(name):
    documented = inspect.getdoc(NAMES[name]) or ""
    assert re.search(r"^Shape:$", documented, flags=re.M), "give its docstring a section Shape"


# The first one trains; tests/losses and tests/negatives run theirs.
@pytest.mark.slow
@pytest.mark.parametrize(
    "room", [pytest.param("coulomb", marks=pytest.mark.slow), *sorted({*ROOMS[1:]} - RUN_ELSEWHERE)]
)
def test_examples_run(room, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"coulomb": coulomb, "math": math, "np": np, "torch": torch} | public(room)
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    for name, thing in public(room).items():
        for test in doctest.DocTestFinder(recurse=False, exclude_empty=True).find(
            thing, name, module=False, globs=dict(names)
        ):
            runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_names_without_example_or_shapes_are_found():
    def bare(x: torch.Tensor) -> torch.Tensor:
        """Returns x [N]."""

    assert takes_tensors(bare) and not takes_tensors(len.__class__)
    assert isinstance(bare, types.FunctionType) and not re.search(r"\bbare\b", CODE)
