import pytest
import torch
from torch.nn.functional import cosine_similarity, normalize

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import NegativeCosineLoss


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


def test_the_target_gets_a_gradient_only_without_stop_gradient():
    p, z = normal(5, 3), normal(5, 3, seed=1)
    NegativeCosineLoss()(p, z).backward()
    assert z.grad is None
    assert (p.grad != 0).any()
    NegativeCosineLoss(stop_gradient=False)(p, z).backward()
    assert (z.grad != 0).any()


def test_simsiam_and_byol_are_sums_of_the_loss():
    p1, p2, z1, z2 = (normal(5, 3, seed=seed) for seed in range(4))
    loss = NegativeCosineLoss()
    simsiam = -(cosine_similarity(p1, z2).mean() + cosine_similarity(p2, z1).mean()) / 2
    torch.testing.assert_close((loss(p1, z2) + loss(p2, z1)) / 2, simsiam)
    byol = (normalize(p1) - normalize(z2)).square().sum(1).mean()
    torch.testing.assert_close(2 + 2 * loss(p1, z2), byol)


def test_zero_rows_are_counted():
    with pytest.warns(CoulombWarning, match="1 of 2 rows of target"):
        loss = NegativeCosineLoss(reduction="none")(torch.ones(2, 3), torch.tensor([[0.0, 0, 0], [1, 1, 1]]))
    torch.testing.assert_close(loss, torch.tensor([0.0, -1.0]))


def test_invalid_arguments_raise():
    with pytest.raises(TypeError, match="^target .*NoneType"):
        NegativeCosineLoss()(torch.ones(2, 3), None)
    with pytest.raises(ValueError, match="^target "):
        NegativeCosineLoss()(torch.ones(2, 3), torch.ones(3, 3))


@pytest.mark.parametrize("dim", [1, 2])
def test_rows_whose_product_overflows_raise(dim):
    large = torch.full((1, dim), 1e20)
    loss = NegativeCosineLoss(normalize=False)
    for given, name in [((large, large), "prediction"), ((torch.ones(1, dim), large), "target")]:
        with pytest.raises(ValueError, match=f"^{name} has 1 of 1 rows with NaN, infinite or too large values"):
            loss(*given)
    assert loss(large / 1e5, large / 1e5).item() == pytest.approx(-dim * 1e30)
    assert NegativeCosineLoss()(large[:, :1], large[:, :1]) == -1  # normalized rows have no such limit
