import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import BarlowTwinsLoss
from view_cases import normal, waves


@pytest.mark.parametrize(
    ("weights", "loss", "squares"),
    [  # computed by facebookresearch/barlowtwins in fp64
        ((), 0.03329358850277663, (0.006545645079087121, 0.006763435370630933)),
        ((0.3,), 0.5430075622485225, (0.11077618798808453, 0.1339288360384289)),
    ],
)
def test_value_and_gradients_equal_the_authors(weights, loss, squares):
    views = waves()
    value = BarlowTwinsLoss(*weights)(*views)
    value.backward()
    assert value.item() == pytest.approx(loss, rel=1e-12)
    assert [t.grad.square().sum().item() for t in views] == pytest.approx(squares, rel=1e-10)


def test_equals_numpys_correlations():
    x, y = normal(9, 3), normal(9, 3, seed=1)
    correlation = torch.corrcoef(torch.cat([x, y], 1).T)[:3, 3:]
    own = correlation.diagonal()
    truth = (1 - own).square().sum() + 0.1 * (correlation.square().sum() - own.square().sum())
    torch.testing.assert_close(
        BarlowTwinsLoss(0.1)(x, y), truth, rtol=1e-4, atol=0
    )  # the loss adds 1e-5 to the variance


def test_invariant_to_scale_and_origin_of_each_dimension():
    x, y = normal(9, 4), normal(9, 4, seed=1)
    moved = x * torch.tensor([10.0, 2.0, 3.0, 100.0]) + 50
    torch.testing.assert_close(BarlowTwinsLoss()(moved, y), BarlowTwinsLoss()(x, y), rtol=1e-4, atol=0)


def test_reductions_are_over_dimensions():
    x, y = normal(9, 4), normal(9, 4, seed=1)
    values = BarlowTwinsLoss(reduction="none")(x, y)
    assert values.shape == (4,)
    torch.testing.assert_close(BarlowTwinsLoss()(x, y), values.sum())
    torch.testing.assert_close(BarlowTwinsLoss(reduction="mean")(x, y), values.mean())


def test_constant_dimensions_have_zero_correlation_and_gradient():
    x, y = normal(6, 3), normal(6, 3, seed=1)
    x[:, 0] = 2.0
    x.requires_grad_()
    values = BarlowTwinsLoss(reduction="none")(x, y)
    (grad,) = torch.autograd.grad(values[0], x)
    assert values[0].item() == pytest.approx(1)
    assert torch.isfinite(grad).all()


def test_a_single_sample_warns():
    x = normal(1, 3).requires_grad_()
    with pytest.warns(CoulombWarning, match="1 of 1 samples"):
        loss = BarlowTwinsLoss()(x, x)
    (grad,) = torch.autograd.grad(loss, x)
    assert loss.item() == 3
    assert not grad.any()
