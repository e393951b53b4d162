"""Properties of every method."""

import math
from contextlib import nullcontext

import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.methods import METHODS
from coulomb.methods.options import build_method
from coulomb.models import ViewRows
from method_cases import changed, encoder, state_of, views

LABELS = torch.tensor([0, 0, 1, 1, -1, 2])
INDEX = torch.tensor([3, 1, 4, 15, 9, 2])
FACTS = {"num_images": 20, "class_counts": torch.tensor([9, 6, 3])}
CONTRAST = ["simclr", "supcon", "debiased", "hard", "dcl", "vicreg", "barlow"]


def made(name, seed=0, **own):
    shared = {"temperature": 0.3, "embedding_dim": 5, "head_layers": 2, "head_hidden_dim": None, "seed": seed}
    return build_method(name, METHODS[name], encoder(), shared=shared, **FACTS, own=own)


@pytest.mark.parametrize("name", CONTRAST)
def test_equal_images_give_the_value_of_no_signal(name):
    method = made(name).eval()
    loss = method(ViewRows.of([torch.full((4, 1, 8, 8), 0.5)] * 2), torch.arange(4) % 3)
    assert math.isclose(float(loss.detach()), method.no_signal(4, 2), rel_tol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_the_seed_sets_the_head(name):
    first, again, other = (made(name, seed).tower.head.state_dict() for seed in (1, 1, 2))
    weight = next(key for key, value in first.items() if value.ndim == 2)
    assert torch.equal(first[weight], again[weight])
    assert not torch.equal(first[weight], other[weight])


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_learns_and_state_stays(name):
    method = made(name)
    before = state_of(method)
    seen = views()
    loss = method(ViewRows.of(seen), LABELS, INDEX)
    assert changed(before, method) == set()
    assert float(method(ViewRows.of(seen), LABELS, INDEX).detach()) == float(loss.detach())
    loss.backward()
    learning = {key for key, p in method.named_parameters() if p.requires_grad}
    assert {key for key, p in method.named_parameters() if p.grad is not None} == learning


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_labels])
def test_a_batch_without_labels_has_a_finite_loss_and_all_gradients(name):
    method = made(name)
    told = pytest.warns(CoulombWarning, match="0 of 12 rows .*without labels") if name == "paco" else nullcontext()
    with told:
        loss = method(ViewRows.of(views()), torch.full((6,), -1), INDEX)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    missing = [key for key, p in method.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing  # else several processes would wait for each other


@pytest.mark.parametrize("name", METHODS)
def test_bfloat16(name):
    method = made(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = method(ViewRows.of(views()), LABELS, INDEX)
    loss.backward()
    plain = float(made(name)(ViewRows.of(views()), LABELS, INDEX).detach())
    assert math.isclose(float(loss.detach()), plain, rel_tol=0.1, abs_tol=0.05)
    method.after_batch()
