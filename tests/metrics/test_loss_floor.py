import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from coulomb.ground.errors import InputError
from coulomb.losses import InfoNCELoss, NTXentLoss, PaCoLoss, SupConLoss
from coulomb.metrics.loss_floor import fraction_of_floor_reached, free_logits, infonce_floor, pull_optimum
from metrics_oracles import normal


def simplex(n):
    """n unit vectors, all at cosine −1/(n − 1)."""
    return normalize(torch.eye(n, dtype=torch.float64) - 1 / n, dim=1)


@pytest.mark.parametrize("tau", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("n", [2, 5, 30])
def test_a_simplex_attains_the_bound(tau, n):
    floor, loss = infonce_floor(2 * n - 2, tau, n, images=n), NTXentLoss(tau)
    assert float(loss(simplex(n), simplex(n))) == pytest.approx(floor.bound, rel=1e-6, abs=1e-12)
    assert floor.even == floor.bound
    for seed in range(20):
        x = normal(n, n, seed)
        assert float(loss(x, x)) >= floor.bound


def test_opposite_keys_attain_the_bound_of_a_queue():
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    loss = InfoNCELoss(0.5)(x, x, -x.repeat(7, 1))
    assert float(loss) == pytest.approx(infonce_floor(7, 0.5, 2).bound)


@pytest.mark.parametrize("dim", [2, 3, 16, 128])
@pytest.mark.parametrize("tau", [0.07, 0.5, 2.0])
def test_mean_over_the_sphere_is_the_integral(dim, tau):
    angle = (np.arange(200_000) + 0.5) * math.pi / 200_000
    density = np.sin(angle) ** (dim - 2)
    mean = (np.exp((np.cos(angle) - 1) / tau) * density).sum() / density.sum()
    assert infonce_floor(100, tau, dim).even == pytest.approx(math.log1p(100 * mean), rel=1e-6)


def test_uniform_embeddings_attain_the_even_value():
    x = normal(4000, 32).float()
    floor = infonce_floor(7998, 0.5, 32, images=4000)
    assert float(NTXentLoss(0.5)(x, x)) == pytest.approx(floor.even, rel=0.01)
    assert floor.bound < floor.even < math.log(7999)


def test_floor_in_one_dimension():
    assert infonce_floor(10, 1.0, 1).even == pytest.approx(math.log1p(10 * (1 + math.exp(-2)) / 2))


def test_fraction_of_floor_reached():
    assert [fraction_of_floor_reached(loss, 6.0, 2.0) for loss in (6.0, 2.0, 3.0, 7.0)] == [0, 1, 0.75, -0.25]
    with pytest.raises(InputError, match="below"):
        fraction_of_floor_reached(1.0, 2.0, 2.0)


@pytest.mark.parametrize("given", [(0, 0.1, 3), (5, 0, 3), (5, 0.1, 0), (5, math.inf, 2)])
def test_floor_refuses_invalid_input(given):
    with pytest.raises(InputError):
        infonce_floor(*given)
    with pytest.raises(InputError, match="images=1"):
        infonce_floor(5, 0.1, 3, images=1)


def free_keys(query, keys):
    """Rows for a loss: the query's similarity to key j is its j-th number, so that every logit is free."""
    return torch.cat([query[None], torch.eye(keys, dtype=query.dtype)])


@pytest.mark.parametrize("own", [1, 4, 20])
def test_optimum_of_supcon(own):
    labels = torch.tensor([0] * (own + 1) + [1] * 10)
    loss = SupConLoss(temperature=1.0, normalize=False, reduction="none")
    logits = free_logits(lambda x: loss(free_keys(x, own + 10), labels)[0], own + 10)
    assert torch.allclose(logits.softmax(0)[:own], torch.tensor(1 / own, dtype=torch.float64), rtol=0.01)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("alpha", "own"), [(0.05, 8), (0.05, 40), (0.01, 100), (1.0, 3)])
def test_optimum_of_paco(alpha, own, normalized):
    others, classes = 10, 5
    labels = torch.tensor([0] * (own + 1) + [1, 2, 3, 4, 1] * 2)
    loss = PaCoLoss(alpha=alpha, temperature=1.0, normalize=False, normalized=normalized)

    def of(x):
        return loss(free_keys(x[classes:], own + others), labels, x[None, :classes])

    share = free_logits(of, classes + own + others).softmax(0)
    assert float(share[0]) == pytest.approx(1 / (1 + alpha * own), rel=0.01)
    assert share[classes : classes + own].tolist() == pytest.approx([alpha / (1 + alpha * own)] * own, rel=0.01)


@pytest.mark.parametrize("weight", [0.41, 0.05, 3.0])
def test_pull_optimum_is_analytic(weight):
    assert pull_optimum(weight) == pytest.approx(1 / (1 + weight), rel=1e-3)


def test_pull_optimum_matches_the_paper():
    assert round(pull_optimum(0.41), 3) == 0.709
    assert 0.05 * round(pull_optimum(0.41), 3) == pytest.approx(0.0355, abs=1e-4)


def test_optimum_refuses_invalid_input():
    with pytest.raises(InputError, match="depends on them"):
        free_logits(lambda x: torch.tensor(1.0), 3)
    with pytest.raises(InputError, match="finite scalar"):
        free_logits(lambda x: x.sum() * torch.nan, 3)
    with pytest.raises(InputError, match="weight=-1"):
        pull_optimum(-1)
    with pytest.raises(InputError, match="size=0"):
        free_logits(lambda x: x.sum(), 0)
