import math

import pytest
import torch
from torch import nn

from coulomb.negatives import MomentumEncoder


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def moved(online):
    """Changes parameters, running statistics and counters, as a training step does."""
    with torch.no_grad():
        for parameter in online.parameters():
            parameter.add_(1)
    online(torch.rand(8, 3) + 5)


@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.999, 1.0])
def test_parameters_are_exponential_averages(momentum):
    online = network()
    slow = MomentumEncoder(online, momentum)
    old = [parameter.clone() for parameter in slow.parameters()]
    moved(online)
    slow.update(online)
    for mine, was, theirs in zip(slow.parameters(), old, online.parameters(), strict=True):
        torch.testing.assert_close(mine, momentum * was + (1 - momentum) * theirs)
        assert momentum > 0 or torch.equal(mine, theirs)
        assert momentum < 1 or torch.equal(mine, was)


@pytest.mark.parametrize("rule", ["copy", "average"])
def test_buffers_follow_the_option(rule):
    online = network()
    slow = MomentumEncoder(online, 0.9, buffers=rule)
    old = slow.module[1].running_mean.clone()
    moved(online)
    slow.update(online)
    theirs = online[1].running_mean
    torch.testing.assert_close(slow.module[1].running_mean, theirs if rule == "copy" else 0.9 * old + 0.1 * theirs)
    assert slow.module[1].num_batches_tracked == online[1].num_batches_tracked == 1


def test_cosine_schedule_goes_from_m_to_one():
    slow = MomentumEncoder(network(), 0.996, schedule="cosine")
    for progress in (0.0, 0.25, 0.5, 1.0):
        expected = 1 - 0.004 * (math.cos(math.pi * progress) + 1) / 2
        assert slow.momentum_at(progress) == pytest.approx(expected, abs=1e-15)
    assert MomentumEncoder(network(), 0.9).momentum_at(0.7) == 0.9


def test_forward_changes_no_state_and_records_no_gradient():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x

    online = nn.Sequential(network(), Counting())
    slow = MomentumEncoder(online)
    before = {name: value.clone() for name, value in slow.state_dict().items()}
    x = torch.rand(8, 3, requires_grad=True)
    out = slow(x)
    assert not out.requires_grad
    torch.testing.assert_close(out, online(x))  # training mode: statistics of the batch
    assert all(torch.equal(value, before[name]) for name, value in slow.state_dict().items())
    assert not any(parameter.requires_grad for parameter in slow.parameters())


def test_eval_mode_uses_the_running_statistics():
    online = network()
    moved(online)
    slow = MomentumEncoder(online)
    x = torch.rand(5, 3)
    assert torch.equal(slow.eval()(x), online.eval()(x))


def test_the_state_dict_contains_the_copy():
    online = network()
    slow = MomentumEncoder(online, 0.5)
    moved(online)
    slow.update(online)
    other = MomentumEncoder(network(), 0.5)
    other.load_state_dict(slow.state_dict())
    x = torch.rand(5, 3)
    assert torch.equal(other(x), slow(x)) and torch.equal(other.eval()(x), slow.eval()(x))


@pytest.mark.parametrize(
    "bad", [{"momentum": 1.1}, {"schedule": "linear"}, {"buffers": "own"}, {"momentum": -0.1}], ids=str
)
def test_bad_options(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        MomentumEncoder(network(), **bad)


def test_another_network_is_refused():
    with pytest.raises(ValueError, match="zip"):
        MomentumEncoder(network()).update(nn.Linear(3, 4))
