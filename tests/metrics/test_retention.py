"""Linear CKA against Gram matrices, and the recovered share against least squares."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.metrics.retention import linear_cka, recovered
from metrics_oracles import normal


def hsic(k, m):
    """Song et al. (2012), equation 5, up to n(n − 3)."""
    n = len(k)
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    one = np.ones(n)
    return np.trace(k @ m) + one @ k @ one * (one @ m @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ k @ m @ one)


@settings(deadline=None, max_examples=30)
@given(st.integers(4, 30), st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6))
def test_cka_matches_gram_matrices(n, d, e, seed):
    x = normal(n, d, seed) + 3
    y = x[:, :1] * normal(1, e, seed + 1) + normal(n, e, seed + 2)
    k, m = (each.numpy() @ each.numpy().T for each in (x, y))
    own = hsic(k, k) * hsic(m, m)
    if own > 1e-3:
        assert linear_cka(x, y) == pytest.approx(hsic(k, m) / np.sqrt(own), rel=1e-6, abs=1e-6)


def test_cka_ignores_rotation_scale_and_shift():
    x = normal(40, 10)
    rotation = torch.linalg.qr(normal(10, 10, 1))[0]
    assert linear_cka(x, 5 * x @ rotation + 2) == pytest.approx(1)
    assert linear_cka(x.float(), x.float()) == pytest.approx(1)
    assert linear_cka(x, x * torch.arange(1, 11)) < 0.95  # another metric


def test_cka_of_unrelated_features_is_zero_even_for_few_images():
    values = [linear_cka(normal(20, 500, seed), normal(20, 500, seed + 1)) for seed in range(0, 40, 2)]
    assert abs(np.mean(values)) < 0.05  # the biased estimate is above .9
    assert linear_cka(torch.ones(9, 3), normal(9, 3)) == 0.0


def low_rank(n=200, rank=8, d=30, seed=0):
    return normal(n, rank, seed) @ normal(rank, d, seed + 1)


def test_features_in_any_linear_form_are_recovered():
    y = low_rank()
    assert recovered(y, y) == pytest.approx(1, abs=1e-9)
    assert recovered(y @ torch.linalg.qr(normal(30, 30, 3))[0], y) == pytest.approx(1, abs=1e-6)
    assert recovered(torch.cat([y, 0.1 * normal(200, 5, 4)], dim=1), y) > 0.8  # whatever else it has
    assert recovered(normal(200, 30, 5), y) < 0.05
    assert recovered(torch.ones(200, 3), y) == 0.0


def test_recovered_share_matches_least_squares():
    """Half of eight equally strong directions are kept: without noise the penalty hardly matters."""
    z = torch.nn.functional.normalize(normal(400, 8), dim=1)
    x = torch.nn.functional.normalize(z[:, :4], dim=1).numpy()
    fit, test = slice(0, None, 2), slice(1, None, 2)
    design = np.c_[x, np.ones(len(x))]
    weights = np.linalg.lstsq(design[fit], z.numpy()[fit], rcond=None)[0]
    residual = z.numpy()[test] - design[test] @ weights
    share = 1 - (residual**2).sum() / ((z.numpy()[test] - z.numpy()[fit].mean(0)) ** 2).sum()
    assert recovered(z[:, :4], z) == pytest.approx(share, abs=0.02)
    assert 0.3 < share < 0.5


def test_fewer_directions_recover_less():
    y = low_rank(rank=12)
    shares = [recovered(y @ normal(30, k, 7), y) for k in (1, 4, 8, 12)]
    assert shares == sorted(shares) and shares[0] < 0.3 and shares[-1] > 0.9


def test_too_few_or_constant_images_have_no_share():
    assert recovered(normal(31, 4), normal(31, 4)) is None
    assert recovered(normal(32, 4), normal(32, 4)) is not None
    assert recovered(normal(50, 4), torch.ones(50, 4)) is None


@pytest.mark.parametrize("metric", [linear_cka, recovered])
def test_invalid_features_are_refused(metric):
    with pytest.raises(InputError, match="same images"):
        metric(normal(50, 3), normal(49, 3))
    with pytest.raises(InputError, match="1 of 50 rows with NaN"):
        metric(normal(50, 3), normal(50, 3).index_fill(0, torch.tensor([2]), torch.nan))
    with pytest.raises(InputError, match="floating-point vectors"):
        metric(torch.ones(50, 3, dtype=torch.int64), normal(50, 3))
