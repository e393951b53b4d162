"""What every method promises, and SimCLR and SupCon in particular."""

import math
from contextlib import nullcontext

import pytest
import torch

from coulomb.errors import CoulombWarning, InputError
from coulomb.losses import NTXentLoss, SupConLoss
from coulomb.methods import METHODS, SimCLR, SupCon
from coulomb.methods.making import make_method
from method_cases import changed, encoder, state_of, views

LABELS = torch.tensor([0, 0, 1, 1, -1, 2])
INDEX = torch.tensor([3, 1, 4, 15, 9, 2])
FACTS = {"num_images": 20, "class_counts": torch.tensor([9, 6, 3]), "num_classes": 3}
CONTRAST = ["simclr", "supcon", "debiased", "hard"]


def made(name, seed=0, **own):
    shared = {"temperature": 0.3, "embedding_dim": 5, "head_layers": 2, "head_hidden_dim": None, "seed": seed}
    return make_method(name, METHODS[name], encoder(), shared=shared, facts=FACTS, own=own)


@pytest.mark.parametrize("count", [2, 3])
def test_simclr_is_ntxent_of_the_head(count):
    method = SimCLR(encoder(), temperature=0.3, embedding_dim=5).eval()
    seen = views(count)
    embeddings = torch.stack([method.head(method.encoder(view)) for view in seen], dim=1)
    torch.testing.assert_close(method(seen), NTXentLoss(temperature=0.3)(embeddings))


def test_simclr_takes_the_fast_path_of_small_batches():
    assert made("simclr")(views()).grad_fn.name() == "KnownBackward"


def test_simclr_needs_two_views():
    with pytest.raises(InputError, match="n_views=1"):
        made("simclr")(views(1))


def test_supcon_uses_labels():
    method = SupCon(encoder(), temperature=0.3, embedding_dim=5).eval()
    seen = views()
    embeddings = torch.stack([method.head(method.encoder(view)) for view in seen], dim=1)
    torch.testing.assert_close(method(seen, LABELS), SupConLoss(temperature=0.3)(embeddings, LABELS))
    assert method(seen, LABELS) != method(seen, torch.zeros(6, dtype=torch.long))


@pytest.mark.parametrize("name", CONTRAST)
def test_equal_images_give_the_value_of_no_signal(name):
    method = made(name).eval()
    loss = method([torch.full((4, 1, 8, 8), 0.5)] * 2, torch.arange(4) % 3)
    assert math.isclose(float(loss.detach()), method.no_signal(4, 2), rel_tol=1e-5)


def simplex(n):
    """n unit vectors with cosines −1/(n − 1)."""
    centred = torch.eye(n, dtype=torch.float64) - 1 / n
    return centred / centred.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("n", [2, 3, 8, 40])
@pytest.mark.parametrize("temperature", [0.07, 0.5, 2.0])
def test_the_floor_of_simclr_is_reached_by_a_simplex_and_by_nothing_random(n, temperature):
    method = SimCLR(encoder(), temperature=temperature, embedding_dim=5)
    floor, corners = method.floor(n, 2), simplex(n)
    assert floor == pytest.approx(float(method.criterion(torch.stack([corners, corners], dim=1))), rel=1e-9)
    generator = torch.Generator().manual_seed(0)
    assert float(method.criterion(torch.randn(n, 2, 5, generator=generator, dtype=torch.float64))) > floor


def test_no_floor_is_told_where_none_is_known():
    assert SimCLR(encoder()).floor(8, 4) is None and SimCLR(encoder()).floor(1, 2) is None
    assert SimCLR(encoder(), loss="hard").floor(8, 2) is None


@pytest.mark.parametrize("name", METHODS)
def test_the_seed_sets_the_head(name):
    first, again, other = (made(name, seed).head.state_dict() for seed in (1, 1, 2))
    weight = next(key for key, value in first.items() if value.ndim == 2)
    assert torch.equal(first[weight], again[weight])
    assert not torch.equal(first[weight], other[weight])


@pytest.mark.parametrize("name", METHODS)
def test_every_parameter_learns_and_state_stays(name):
    method = made(name)
    before = state_of(method)
    seen = views()
    loss = method(seen, LABELS, INDEX)
    assert changed(before, method) == set()
    assert float(method(seen, LABELS, INDEX).detach()) == float(loss.detach())
    loss.backward()
    learning = {key for key, p in method.named_parameters() if p.requires_grad}
    assert {key for key, p in method.named_parameters() if p.grad is not None} == learning


@pytest.mark.parametrize("name", [name for name, method in METHODS.items() if method.needs_labels])
def test_a_batch_without_labels_is_survived(name):
    method = made(name)
    told = pytest.warns(CoulombWarning, match="none of 6") if name == "paco" else nullcontext()
    with told:
        loss = method(views(), torch.full((6,), -1), INDEX)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    missing = [key for key, p in method.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing  # else several processes would wait for each other


@pytest.mark.parametrize("name", METHODS)
def test_bfloat16(name):
    method = made(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = method(views(), LABELS, INDEX)
    loss.backward()
    plain = float(made(name)(views(), LABELS, INDEX).detach())
    assert math.isclose(float(loss.detach()), plain, rel_tol=0.1, abs_tol=0.05)
    if hasattr(method, "after_batch"):
        method.after_batch()
