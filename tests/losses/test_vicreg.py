import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import VICRegLoss
from view_cases import normal, waves


@pytest.mark.parametrize(
    ("weights", "loss", "squares"),
    [  # computed by facebookresearch/vicreg in fp64
        ((), 8.343501075986314, (12.6461167921156, 11.01823881594068)),
        ((1, 2, 3), 1.3879275527639217, (0.16840118103355045, 0.7368300635954603)),
    ],
)
def test_value_and_gradients_equal_the_authors(weights, loss, squares):
    views = waves()
    value = VICRegLoss(*weights)(*views)
    value.backward()
    assert value.item() == pytest.approx(loss, rel=1e-13)
    assert [t.grad.square().sum().item() for t in views] == pytest.approx(squares, rel=1e-12)


def test_the_optimum_has_zero_loss():
    x = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])  # standard deviations above 1, covariance 0
    assert VICRegLoss()(x, x).item() == 0


def test_is_invariant_to_translation():
    x, y = normal(9, 4), normal(9, 4, seed=1)
    torch.testing.assert_close(VICRegLoss()(x + 1000, y + 1000), VICRegLoss()(x, y), rtol=1e-9, atol=0)


def test_reductions_are_over_dimensions():
    x, y = normal(9, 4), normal(9, 4, seed=1)
    values = VICRegLoss(reduction="none")(x, y)
    assert values.shape == (4,)
    torch.testing.assert_close(VICRegLoss()(x, y), values.mean())
    torch.testing.assert_close(VICRegLoss(reduction="sum")(x, y), values.sum())


def test_a_single_sample_warns():
    with pytest.warns(CoulombWarning, match="1 of 1 samples"):
        loss = VICRegLoss()(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
    assert loss.item() == pytest.approx(25 * 0.5 + 25 * 0.99)


def test_rows_whose_fourth_power_overflows_raise():
    x = normal(6, 4).float()
    assert torch.isfinite(VICRegLoss()(1e7 * x, x))
    with pytest.raises(ValueError, match="^view0 has . of 6 rows with NaN, infinite or too large values"):
        VICRegLoss()(1e10 * x, x)


def test_training_decorrelates():
    x = (normal(32, 3) @ normal(3, 3, seed=1) * 0.1).requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        VICRegLoss()(x, x).backward()
        optimizer.step()
    assert (x.std(0) > 0.95).all()
    assert (torch.corrcoef(x.detach().T) - torch.eye(3)).abs().max() < 0.05
