"""Every method with a partly frozen encoder: frozen tensors stay as they are, momentum encoders follow, state restores."""

import copy

import pytest
import torch

from coulomb.methods import METHODS
from coulomb.methods.options import build_method
from coulomb.models import ViewRows
from coulomb.models.tuning import Tune
from coulomb.negatives import MomentumEncoder
from method_cases import encoder, optimizer_of, state_of, views

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
FACTS = {"num_images": 20, "class_counts": torch.tensor([9, 6, 3])}
TUNES = ["last:1", "lora:2", "norm"]


def made(name, tune):
    if tune.startswith("lora"):
        pytest.importorskip("peft", reason="peft is not installed")
    own = encoder()
    Tune.parse(tune).apply(own)
    shared = {"temperature": 0.3, "embedding_dim": 5, "head_layers": 2, "head_hidden_dim": None, "seed": 0}
    return build_method(name, METHODS[name], own, shared=shared, **FACTS, own={})


def step(method, optimizer, number):
    loss = method(ViewRows.of(views(seed=number)), LABELS, torch.arange(6) + number)
    optimizer.zero_grad()
    loss.backward()
    method.after_batch()
    optimizer.step()
    method.after_update((number + 1) / 10)
    return float(loss.detach())


@pytest.mark.parametrize("tune", TUNES)
@pytest.mark.parametrize("name", METHODS)
def test_only_what_tune_allows_moves(name, tune):
    method = made(name, tune)
    before = state_of(method)
    optimizer = optimizer_of(method)
    for number in range(3):
        step(method, optimizer, number)
    after, trained = method.state_dict(), {key for key, p in method.named_parameters() if p.requires_grad}
    changed = {key for key in after if not torch.equal(before[key].nan_to_num(7), after[key].nan_to_num(7))}
    own = {key for key in changed if key.startswith("tower.encoder.")}
    statistics = {key for key in own if key.endswith(("running_mean", "running_var", "num_batches_tracked"))}
    assert own - statistics and own - statistics <= trained
    expected = {"last:1": {"layers.4"}, "norm": {"layers.1", "layers.4"}, "lora:2": set()}[tune]
    assert {".".join(key.split(".")[3:5]) for key in statistics} == expected
    for kept in (part for part in method.modules() if isinstance(part, MomentumEncoder)):
        frozen = {key for key, p in method.tower.encoder.named_parameters() if not p.requires_grad}
        follower, online = kept.module.encoder.state_dict(), method.tower.encoder.state_dict()
        assert all(torch.equal(follower[key], online[key]) for key in frozen)
        assert any(
            not torch.equal(follower[key], before[f"tower.encoder.{key}"]) for key in online if key not in frozen
        )


@pytest.mark.parametrize("tune", TUNES)
@pytest.mark.parametrize("name", METHODS)
def test_training_goes_on_from_a_state_dict(name, tune):
    method = made(name, tune)
    optimizer = optimizer_of(method)
    step(method, optimizer, 0)
    other = made(name, tune)
    other_optimizer = optimizer_of(other)
    other.load_state_dict(state_of(method))
    other_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert [step(method, optimizer, n) for n in (1, 2)] == [step(other, other_optimizer, n) for n in (1, 2)]
