"""The stored figures of the guide agree with what the library computes."""

import importlib.util
import re
import sys

import numpy as np
import pytest

from page_blocks import ROOT

FOLDER = ROOT / "docs"


@pytest.fixture(scope="module")
def figures():
    spec = importlib.util.spec_from_file_location("build_figures", FOLDER / "build_figures.py")
    module = importlib.util.module_from_spec(spec)
    path = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def numbers(text):
    return np.array([float(number) for number in re.findall(r"-?\d+\.?\d*", text)])


@pytest.mark.parametrize(
    "name", ["charges", "gradient-shares", "three-losses", "counted-negatives", "temperature-limits", "optimum"]
)
def test_figures_are_up_to_date(name, figures):
    assert name in figures.FIGURES
    stored = (FOLDER / "images" / f"{name}.svg").read_text(encoding="utf-8")
    drawn = figures.FIGURES[name]()
    assert re.sub(r"-?\d+\.?\d*", "#", drawn) == re.sub(r"-?\d+\.?\d*", "#", stored), "run `make docs`"
    difference = np.abs(numbers(drawn) - numbers(stored)).max()
    assert difference <= 0.5, "run `make docs`"  # half a pixel: other processors round differently


def test_gradients_are_the_softmax_of_the_negatives(figures):
    """The gradients in the figures follow the formula ∂L/∂cos_j = P_j/τ."""
    import torch

    from coulomb.losses import InfoNCELoss

    cosines = torch.tensor([-0.5, 0.0, 0.4, 0.8], dtype=torch.float64)
    logits = torch.cat([torch.tensor([0.9], dtype=torch.float64), cosines]) / 0.2
    expected = logits.softmax(0)[1:] / 0.2
    torch.testing.assert_close(figures.pushes(InfoNCELoss(0.2), cosines, 0.9), expected)
