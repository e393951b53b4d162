import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from coulomb.errors import InputError
from coulomb.losses import InfoNCELoss, NTXentLoss
from coulomb.metrics.loss_floor import infonce_floor, way_gone
from metrics_oracles import normal


def simplex(n):
    """n unit vectors, all at cosine −1/(n − 1)."""
    return normalize(torch.eye(n, dtype=torch.float64) - 1 / n, dim=1)


@pytest.mark.parametrize("tau", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("n", [2, 5, 30])
def test_a_simplex_reaches_the_bound_and_nothing_gets_below(tau, n):
    floor, loss = infonce_floor(2 * n - 2, tau, n, images=n), NTXentLoss(tau)
    assert float(loss(simplex(n), simplex(n))) == pytest.approx(floor.bound, rel=1e-6, abs=1e-12)
    assert floor.even == floor.bound
    for seed in range(20):
        x = normal(n, n, seed)
        assert float(loss(x, x)) >= floor.bound


def test_keys_opposite_the_anchor_reach_the_bound_of_a_queue():
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    loss = InfoNCELoss(0.5)(x, x, -x.repeat(7, 1))
    assert float(loss) == pytest.approx(infonce_floor(7, 0.5, 2).bound)


@pytest.mark.parametrize("dim", [2, 3, 16, 128])
@pytest.mark.parametrize("tau", [0.07, 0.5, 2.0])
def test_the_mean_over_the_sphere_is_the_integral(dim, tau):
    angle = (np.arange(200_000) + 0.5) * math.pi / 200_000
    density = np.sin(angle) ** (dim - 2)
    mean = (np.exp((np.cos(angle) - 1) / tau) * density).sum() / density.sum()
    assert infonce_floor(100, tau, dim).even == pytest.approx(math.log1p(100 * mean), rel=1e-6)


def test_even_embeddings_come_to_it():
    x = normal(4000, 32).float()
    floor = infonce_floor(7998, 0.5, 32, images=4000)
    assert float(NTXentLoss(0.5)(x, x)) == pytest.approx(floor.even, rel=0.01)
    assert floor.bound < floor.even < math.log(7999)


def test_in_one_dimension_there_are_two_points():
    assert infonce_floor(10, 1.0, 1).even == pytest.approx(math.log1p(10 * (1 + math.exp(-2)) / 2))


def test_way_gone():
    assert [way_gone(loss, 6.0, 2.0) for loss in (6.0, 2.0, 3.0, 7.0)] == [0, 1, 0.75, -0.25]
    with pytest.raises(InputError, match="below"):
        way_gone(1.0, 2.0, 2.0)


@pytest.mark.parametrize("given", [(0, 0.1, 3), (5, 0, 3), (5, 0.1, 0), (5, math.inf, 2)])
def test_bad_input(given):
    with pytest.raises(InputError):
        infonce_floor(*given)
    with pytest.raises(InputError, match="images=1"):
        infonce_floor(5, 0.1, 3, images=1)
