import math

import pytest
import torch
from torch.nn.functional import softplus

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import DecoupledLoss, NTXentLoss
from view_cases import normal, waves


@pytest.mark.parametrize(
    ("options", "loss", "squares"),
    [  # computed by raminnakhli/Decoupled-Contrastive-Learning in fp64: the mean of both directions on unit rows
        ({}, -3.2838971523292955, (3.9615918096706726, 7.015032074124232)),
        ({"temperature": 0.5}, 0.6286322243362894, (0.10739351502730696, 0.13274333869149318)),
        ({"weighted": True}, -3.1721248956727877, (5.134912026482263, 8.864520486552083)),
        (
            {"weighted": True, "temperature": 0.5, "sigma": 0.2},
            0.6795870332555068,
            (0.23155157755722924, 0.2709282772674791),
        ),
    ],
)
def test_value_and_gradients_equal_the_reference_code(options, loss, squares):
    views = waves()
    value = DecoupledLoss(**options)(*views)
    value.backward()
    assert value.item() == pytest.approx(loss, rel=1e-13)
    assert [t.grad.square().sum().item() for t in views] == pytest.approx(squares, rel=1e-12)


def test_softplus_of_the_loss_equals_ntxent():
    x, y = normal(7, 4), normal(7, 4, seed=1)
    rows = DecoupledLoss(0.3, reduction="none")(x, y)
    torch.testing.assert_close(softplus(rows), NTXentLoss(0.3, reduction="none")(x, y), rtol=0, atol=1e-12)


def test_equally_similar_positives_have_weight_1():
    x = normal(6, 4)
    torch.testing.assert_close(DecoupledLoss(weighted=True)(x, x), DecoupledLoss()(x, x))


def test_distant_positives_have_larger_weights():
    x = torch.eye(4, dtype=torch.float64)
    y = torch.stack([x[0], x[1] + 0.5 * x[0], x[2] + 2 * x[0], x[3] + 4 * x[0]])
    cos = torch.nn.functional.cosine_similarity(x, y)
    rows = DecoupledLoss(1.0, reduction="none")(x, y) - DecoupledLoss(1.0, weighted=True, reduction="none")(x, y)
    weights = 1 + rows[:4] / cos
    assert torch.equal(weights.argsort(), torch.arange(4))
    assert weights.mean().item() == pytest.approx(1)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_single_sample_gives_no_gradient_and_warns(weighted):
    x, y = normal(1, 3).requires_grad_(), normal(1, 3, seed=1)
    with pytest.warns(CoulombWarning, match="2 of 2 anchors"):
        loss = DecoupledLoss(weighted=weighted)(x, y)
    (grad,) = torch.autograd.grad(loss, x)
    assert loss.item() == 0
    assert not grad.any()


def test_the_loss_can_be_negative():
    x = 3 * torch.eye(5)
    assert DecoupledLoss(0.1)(x, x).item() == pytest.approx(math.log(8) - 10, rel=1e-6)
