import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.metrics.rank import effective_rank, lidar, singular_values
from metrics_oracles import normal


@pytest.mark.parametrize("n, d", [(50, 6), (6, 50), (20, 20)])
def test_effective_rank_of_known_spectra(n, d):
    left = torch.linalg.qr(normal(n, min(n, d)))[0]
    right = torch.linalg.qr(normal(d, min(n, d), 1))[0]
    for spectrum in ([1.0], [1.0, 1.0, 1.0], [3.0, 1.0], [5.0, 1.0, 0.5, 0.1, 0.01]):
        sigma = torch.zeros(min(n, d), dtype=torch.float64)
        sigma[: len(spectrum)] = torch.tensor(spectrum, dtype=torch.float64)
        p = np.array(spectrum) / sum(spectrum)
        expected = math.exp(-(p * np.log(p)).sum())
        x = left @ sigma.diag() @ right.T
        assert effective_rank(x) == pytest.approx(expected, rel=1e-6)
        assert effective_rank(1e4 * x) == pytest.approx(expected, rel=1e-6)
        assert effective_rank(x.float()) == pytest.approx(expected, rel=1e-3)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 10**6))
def test_effective_rank_matches_numpy(n, d, seed):
    x = normal(n, d, seed)
    sigma = np.linalg.svd(x.numpy(), compute_uv=False)
    p = sigma / sigma.sum()
    assert effective_rank(x) == pytest.approx(math.exp(-(p * np.log(p)).sum()), rel=1e-5)


def test_effective_rank_of_collapse():
    assert effective_rank(torch.ones(30, 8)) == pytest.approx(1.0, abs=1e-4)
    assert effective_rank(torch.zeros(30, 8)) == 0.0


@pytest.mark.parametrize(("n", "d"), [(40, 7), (7, 40), (9, 9)])
def test_singular_values_match_numpy(n, d):
    x = normal(n, d)
    sigma = np.linalg.svd(x.numpy(), compute_uv=False)
    assert singular_values(x).numpy() == pytest.approx(sigma / sigma[0], abs=1e-9)
    assert len(singular_values(x, 3)) == 3
    p = sigma / sigma.sum()
    assert effective_rank(x) == pytest.approx(math.exp(-(p * np.log(p)).sum()))


def test_singular_values_of_collapse():
    assert singular_values(torch.ones(30, 4)).tolist() == pytest.approx([1, 0, 0, 0])
    assert singular_values(torch.zeros(3, 4)).tolist() == [0, 0, 0]


def lidar_oracle(x, delta=1e-4):
    """By the paper's formulas, with square roots of matrices."""
    x = x.numpy()
    n, q, d = x.shape
    means = x.mean(1)
    between = sum(np.outer(m - means.mean(0), m - means.mean(0)) for m in means) / n
    within = sum(np.outer(v - means[i], v - means[i]) for i in range(n) for v in x[i]) / (n * q) + delta * np.eye(d)
    values, vectors = np.linalg.eigh(within)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    eigenvalues = np.clip(np.linalg.eigvalsh(root @ between @ root), 0, None)
    p = eigenvalues / eigenvalues.sum()
    return math.exp(-sum(v * math.log(v) for v in p if v > 0))


@pytest.mark.parametrize(("n", "q", "d"), [(30, 5, 6), (4, 3, 9), (2, 2, 3)])
def test_lidar_is_the_formula_of_the_paper(n, q, d):
    x = normal(n, d)[:, None] + 0.3 * normal(n * q, d, 1).view(n, q, d)
    assert lidar(x) == pytest.approx(lidar_oracle(x), rel=1e-7)
    assert lidar(x, 0.1) == pytest.approx(lidar_oracle(x, 0.1), rel=1e-7)


def test_lidar_ignores_variance_due_to_augmentation():
    images, noise = torch.zeros(300, 1, 10, dtype=torch.float64), normal(300 * 20, 10, 1).view(300, 20, 10)
    images[..., :3] = normal(300, 3)[:, None]
    noise[..., :3] *= 0.01
    x = images + noise  # ten dimensions vary, three tell images apart
    assert effective_rank(x.flatten(0, 1)) > 8
    assert lidar(x) == pytest.approx(3, abs=0.1)
    assert lidar(torch.ones(5, 3, 4)) == 0.0


def test_effective_rank_refuses_invalid_input():
    for bad in (torch.rand(4), torch.rand(0, 4), torch.rand(4, 0), torch.zeros(4, 2, dtype=torch.long)):
        with pytest.raises(InputError, match=r"\[n, D\]"):
            effective_rank(bad)
    with pytest.raises(InputError, match="diverged"):
        effective_rank(torch.tensor([[1.0, math.nan], [1.0, 2.0]]))
    assert type(effective_rank(normal(8, 3).requires_grad_())) is float


def test_lidar_refuses_invalid_input():
    for bad in (torch.rand(4, 3), torch.rand(1, 3, 2), torch.rand(3, 1, 2)):
        with pytest.raises(InputError, match=r"\[n, q, D\]"):
            lidar(bad)
    with pytest.raises(InputError, match="delta"):
        lidar(torch.rand(3, 3, 2), 0)
    with pytest.raises(InputError, match="diverged"):
        lidar(torch.full((3, 3, 2), torch.inf))
