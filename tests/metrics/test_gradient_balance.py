import numpy as np
import pytest
import torch

from coulomb.errors import InputError
from coulomb.losses import InfoNCELoss
from coulomb.metrics.gradients import gradient_balance
from metrics_oracles import cosines, normal, two_views


@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0])
@pytest.mark.parametrize("strip", [2**21, 40])
def test_infonce_is_balanced_and_as_numpy_says(tau, strip, monkeypatch):
    monkeypatch.setattr("coulomb.metrics.cosines.STRIP", strip)
    x, y = two_views(20, 6)
    found = gradient_balance(x, y, tau)
    table = cosines(x, y) / tau
    p = np.exp(table - table.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    assert found.pull == pytest.approx(((1 - np.diag(p)) / tau).mean(), rel=1e-9)
    assert found.push == pytest.approx(found.pull, rel=1e-9)
    assert (found.ratio, found.worst) == pytest.approx((1, 0), abs=1e-9)


def test_with_a_queue():
    x, y = two_views(20, 6)
    assert gradient_balance(x, y, 0.2, normal(100, 6, 3)).worst < 1e-9


def test_it_is_the_librarys_loss():
    """The same pull, from the loss itself: its derivative by 1/τ·s⁺ shows in the gradient along a free positive."""
    x, y = (torch.nn.functional.normalize(each, dim=1) for each in two_views(12, 5))
    scores = (x * y).sum(1)
    tau, step = 0.3, 1e-6
    keys = torch.nn.functional.normalize(normal(40, 5, 9), dim=1)
    loss = InfoNCELoss(tau, normalize=False, reduction="none")
    up, down = (loss(x, y + sign * step * x, keys) for sign in (1, -1))  # x·x = 1: s⁺ moves by the step
    assert gradient_balance(x, y, tau, keys).pull == pytest.approx(float(((down - up) / (2 * step)).mean()), rel=1e-5)
    assert scores.shape == (12,)


def test_a_loss_that_is_not_balanced_shows():
    def simple(positive, negatives):
        return 0.5 * negatives.masked_fill(negatives == -torch.inf, 0).sum(1) - positive

    x, y = two_views(9, 4)
    assert gradient_balance(x, y, 0.2, loss=simple).ratio == pytest.approx(0.5 * 8)


def test_bad_input():
    x = normal(4, 3)
    with pytest.raises(InputError, match="temperature"):
        gradient_balance(x, x, 0)
    with pytest.raises(InputError, match="other view"):
        gradient_balance(x, normal(5, 3), 1)
    with pytest.raises(InputError, match="n ≥ 2"):
        gradient_balance(x[:1], x[:1], 1)
    with pytest.raises(InputError, match="no positive has a gradient"):
        gradient_balance(x, x, 1, loss=lambda positive, negatives: 0 * positive + 0 * negatives[:, :1].exp().sum(1))
