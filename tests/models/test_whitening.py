import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from coulomb.ground.errors import InputError
from coulomb.models.whitening import Moments, whitening


def draw(rows, dim, seed=0, offset=5.0):
    """Correlated features with a large mean, as those after a ReLU."""
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    return torch.randn(rows, dim, generator=generator, dtype=torch.float64) @ mix + offset


def moments_of(*batches):
    moments = Moments(batches[0].shape[1])
    for batch in batches:
        moments.add(batch)
    return moments


@pytest.mark.parametrize("sizes", [(200,), (1, 199), (64, 64, 72), (0, 200)])
def test_moments_are_those_of_numpy_however_rows_are_divided(sizes):
    x = draw(200, 7)
    moments = moments_of(*x.split(list(sizes)))
    assert moments.count == 200
    np.testing.assert_allclose(moments.mean.numpy(), x.numpy().mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.scatter.numpy() / 199, np.cov(x.numpy().T), rtol=1e-10, atol=1e-10)


def test_a_mean_far_from_zero_costs_no_precision():
    x = draw(500, 5, offset=1e6)
    moments = moments_of(*x.split(50))
    np.testing.assert_allclose(moments.scatter.numpy() / 499, np.cov(x.numpy().T), rtol=1e-6)


@pytest.mark.parametrize(("rows", "dim", "k"), [(300, 12, 12), (300, 12, 5), (9, 12, 8)])
def test_whitening_is_that_of_scikit_learn(rows, dim, k):
    x = draw(rows, dim)
    weight, bias = whitening(moments_of(*x.split(100)), k)
    expected = PCA(k, whiten=True, svd_solver="full").fit(x.numpy()).transform(x.numpy())
    np.testing.assert_allclose((x @ weight.T + bias).numpy(), expected, atol=1e-6)


def test_float32_features_give_the_same_map_up_to_their_rounding():
    x = draw(300, 8).float()
    weight, bias = whitening(moments_of(x), 8)
    expected = PCA(8, whiten=True, svd_solver="full").fit_transform(x.double().numpy())
    assert weight.dtype == torch.float64
    np.testing.assert_allclose((x.double() @ weight.T + bias).numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "k"),
    [
        (draw(6, 12), 5),  # fewer rows than features: rank N − 1
        (torch.cat([draw(50, 4), torch.ones(50, 3, dtype=torch.float64)], 1), 4),  # constant features
        (draw(50, 4)[:, [0, 1, 2, 3, 0, 1]], 4),  # repeated features
        (draw(50, 4)[:, [0, 1, 2, 3, 0, 1]].float(), 4),
    ],
)
def test_the_rank_limits_the_dimension(x, k):
    weight, bias = whitening(moments_of(x), 256)
    outputs = x.double() @ weight.T + bias
    assert outputs.shape[1] == k
    torch.testing.assert_close(torch.cov(outputs.T), torch.eye(k, dtype=torch.float64), atol=1e-6, rtol=0)
    torch.testing.assert_close(outputs.mean(0), torch.zeros(k, dtype=torch.float64), atol=1e-6, rtol=0)


def test_the_power_goes_from_pca_to_whitening():
    x = draw(400, 6)
    values = torch.linalg.eigvalsh(torch.cov(x.T)).flip(0)
    for power in (0.0, 0.3, 1.0):
        weight, bias = whitening(moments_of(x), 6, power)
        variances = torch.cov((x @ weight.T + bias).T)
        torch.testing.assert_close(variances, torch.diag(values ** (1 - power)), atol=1e-8, rtol=0)


def test_the_result_does_not_depend_on_the_sign_of_the_eigenvectors():
    weight, _ = whitening(moments_of(draw(100, 5)), 5)
    largest = weight.gather(1, weight.abs().argmax(1, keepdim=True))
    assert bool((largest > 0).all())


@pytest.mark.parametrize(
    ("moments", "dim", "power", "message"),
    [
        (moments_of(torch.ones(5, 3)), 2, 0.0, "all 5 images have equal features"),
        (moments_of(torch.zeros(5, 3)), 2, 0.0, "all 5 images have equal features"),
        (moments_of(draw(1, 3)), 2, 0.0, "all 1 images have equal features"),
        (Moments(3), 2, 0.0, "all 0 images have equal features"),
        (moments_of(draw(9, 3)), 0, 0.0, "dim=0"),
        (moments_of(draw(9, 3)), 2, 1.5, "power=1.5"),
        (moments_of(draw(9, 3)), 2, float("nan"), "power=nan"),
    ],
)
def test_impossible_requests_are_refused(moments, dim, power, message):
    with pytest.raises(InputError, match=message):
        whitening(moments, dim, power)


def test_features_that_are_not_finite_are_refused():
    x = draw(10, 3)
    x[3, 1] = float("nan")
    with pytest.raises(InputError, match="1 of 10 rows"):
        moments_of(x)
