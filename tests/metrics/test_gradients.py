import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.losses import InfoNCELoss
from coulomb.metrics.gradients import class_gradient_norms, frequency_exponent, gradient_balance
from metrics_oracles import cosines, normal, two_views


@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0])
def test_infonce_is_balanced_and_matches_numpy(tau, strip):
    x, y = two_views(20, 6)
    found = gradient_balance(x, y, tau)
    table = cosines(x, y) / tau
    p = np.exp(table - table.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    assert found.pull == pytest.approx(((1 - np.diag(p)) / tau).mean(), rel=1e-9)
    assert found.push == pytest.approx(found.pull, rel=1e-9)
    assert (found.ratio, found.worst) == pytest.approx((1, 0), abs=1e-9)


def test_balance_with_a_queue():
    x, y = two_views(20, 6)
    assert gradient_balance(x, y, 0.2, normal(100, 6, 3)).worst < 1e-9


def test_pull_is_that_of_infonce_loss():
    """The same pull, from the loss itself: its derivative by 1/τ·s⁺ shows in the gradient along a free positive."""
    x, y = (torch.nn.functional.normalize(each, dim=1) for each in two_views(12, 5))
    scores = (x * y).sum(1)
    tau, step = 0.3, 1e-6
    keys = torch.nn.functional.normalize(normal(40, 5, 9), dim=1)
    loss = InfoNCELoss(tau, normalize=False, reduction="none")
    up, down = (loss(x, y + sign * step * x, keys) for sign in (1, -1))  # x·x = 1: s⁺ moves by the step
    assert gradient_balance(x, y, tau, keys).pull == pytest.approx(float(((down - up) / (2 * step)).mean()), rel=1e-5)
    assert scores.shape == (12,)


def test_simple_loss_is_not_balanced():
    def simple(positive, negatives):
        return 0.5 * negatives.masked_fill(negatives == -torch.inf, 0).sum(1) - positive

    x, y = two_views(9, 4)
    assert gradient_balance(x, y, 0.2, loss=simple).ratio == pytest.approx(0.5 * 8)


def test_gradient_balance_refuses_invalid_input():
    x = normal(4, 3)
    with pytest.raises(InputError, match="temperature"):
        gradient_balance(x, x, 0)
    with pytest.raises(InputError, match="other view"):
        gradient_balance(x, normal(5, 3), 1)
    with pytest.raises(InputError, match="n ≥ 2"):
        gradient_balance(x[:1], x[:1], 1)
    with pytest.raises(InputError, match="no positive has a gradient"):
        gradient_balance(x, x, 1, loss=lambda positive, negatives: 0 * positive + 0 * negatives[:, :1].exp().sum(1))


@given(st.integers(0, 30), st.integers(1, 6), st.integers(1, 5), st.integers(0, 10**6))
def test_class_gradient_norms_are_the_loop(n, dim, classes, seed):
    draw = torch.Generator().manual_seed(seed)
    gradients = torch.randn(max(n, 1), dim, generator=draw)
    labels = torch.randint(-1, classes, (max(n, 1),), generator=draw)
    sums, counts = class_gradient_norms(gradients, labels, classes)
    for label in range(classes):
        own = [
            math.sqrt(sum(float(g) ** 2 for g in row)) for row, y in zip(gradients, labels, strict=True) if y == label
        ]
        assert counts[label] == len(own)
        assert float(sums[label]) == pytest.approx(sum(own), abs=1e-5)


def test_class_gradient_norms_refuses_invalid_input():
    rows = torch.ones(3, 2)
    for labels in (
        torch.tensor([0, 1]),
        torch.tensor([0.0, 1.0, 1.0]),
        torch.tensor([0, 1, 2]),
        torch.tensor([0, -2, 1]),
    ):
        with pytest.raises(InputError, match="labels"):
            class_gradient_norms(rows, labels, 2)
    with pytest.raises(InputError, match="gradients has 3 of 3 rows with NaN"):
        class_gradient_norms(rows * math.nan, torch.tensor([0, 1, 1]), 2)


@given(st.floats(-1.5, 1.5), st.floats(0.1, 10))
def test_exponent_of_a_power_law(exponent, factor):
    counts = torch.tensor([1000, 300, 50, 4, 0])
    norms = factor * counts.double().clamp_min(1) ** exponent
    assert frequency_exponent(norms, counts) == pytest.approx(exponent, abs=1e-9)


def test_no_exponent_without_two_frequencies():
    assert frequency_exponent(torch.ones(3), torch.tensor([5, 5, 5])) is None
    assert frequency_exponent(torch.tensor([1.0, 0.0]), torch.tensor([5, 50])) is None
    assert frequency_exponent(torch.tensor([1.0, math.nan]), torch.tensor([5, 50])) is None
