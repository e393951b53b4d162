import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.metrics.geometry import alignment, drift, feature_std, modality_gap, uniformity
from metrics_oracles import normal, unit


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 40), st.integers(1, 9), st.sampled_from([0.5, 1.0, 2.0, 5.0]), st.integers(0, 10**6))
def test_uniformity_is_the_double_loop(n, d, t, seed):
    x = normal(n, d, seed)
    u = unit(x)
    pairs = [np.exp(-t * np.sum((u[i] - u[j]) ** 2)) for i in range(n) for j in range(n) if i < j]
    assert uniformity(x, t=t) == pytest.approx(math.log(np.mean(pairs)), abs=1e-9)
    assert uniformity(x.float(), t=t) == pytest.approx(math.log(np.mean(pairs)), abs=1e-4)


def test_uniformity_of_the_sphere_and_of_collapse():
    assert uniformity(normal(6000, 128).float()) == pytest.approx(-3.94, abs=0.01)
    assert uniformity(torch.ones(2000, 8)) == pytest.approx(0.0, abs=1e-5)
    assert uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])) == pytest.approx(-8.0, abs=1e-5)


def test_uniformity_in_linear_memory():
    from torch.profiler import ProfilerActivity, profile

    x = normal(3000, 16).float()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        uniformity(x)
    largest = max(event.self_cpu_memory_usage for event in seen.events())
    assert largest < 3000 * 3000 * 4 / 4


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from([1.0, 2.0, 3.0]), st.integers(0, 10**6))
def test_alignment_is_the_loop(n, d, alpha, seed):
    x, y = normal(n, d, seed), normal(n, d, seed + 1)
    expected = np.mean([np.linalg.norm(a - b) ** alpha for a, b in zip(unit(x), unit(y), strict=True)])
    assert alignment(x, y, alpha=alpha) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_alignment_of_known_pairs():
    x = normal(500, 64)
    assert alignment(x, 3 * x) == pytest.approx(0.0, abs=1e-12)
    assert alignment(x, -x) == pytest.approx(4.0)
    assert alignment(normal(4000, 64), normal(4000, 64, 1)) == pytest.approx(2.0, abs=0.02)


def test_feature_std():
    x = normal(300, 32)
    assert feature_std(x) == pytest.approx(unit(x).std(axis=0).mean() * math.sqrt(32))
    assert feature_std(normal(20_000, 32)) == pytest.approx(1.0, abs=0.01)
    assert feature_std(torch.ones(30, 8)) == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("diagnostic", [uniformity, feature_std, lambda x: alignment(x, x)])
def test_bad_input(diagnostic):
    for bad in (torch.rand(4), torch.rand(0, 4), torch.rand(4, 0), torch.zeros(4, 2, dtype=torch.long)):
        with pytest.raises(InputError, match=r"\[n, D\]"):
            diagnostic(bad)
    with pytest.raises(InputError, match="diverged"):
        diagnostic(torch.tensor([[1.0, math.nan], [1.0, 2.0]]))


def test_drift():
    x, y = normal(30, 5), normal(30, 5, 1)
    assert drift(x, y) == pytest.approx(1 - (unit(x) * unit(y)).sum(1).mean(), abs=1e-12)
    assert drift(x, 2 * x) == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="other view"):
        drift(x, y[:5])


def test_mismatched_shapes():
    with pytest.raises(InputError, match="other view"):
        alignment(torch.rand(4, 3), torch.rand(3, 3))
    with pytest.raises(InputError, match="n ≥ 2"):
        uniformity(torch.rand(1, 3))


def test_results_are_python_floats():
    x = normal(8, 3).requires_grad_()
    assert all(type(f) is float for f in (uniformity(x), feature_std(x), alignment(x, x)))


def test_modality_gap_of_separate_and_of_mixed_towers():
    draw = torch.Generator().manual_seed(0)
    first, second = (torch.randn(400, 8, generator=draw, dtype=torch.float64) for _ in range(2))
    mixed = modality_gap(first, second)
    unit = [x / x.norm(dim=1, keepdim=True) for x in (first, second)]
    assert mixed["modality_gap"] == pytest.approx(float((unit[0].mean(0) - unit[1].mean(0)).norm()))
    assert mixed["modality_gap"] < 0.2 and mixed["towers_told_apart"] < 0.15
    shift = torch.zeros(8, dtype=torch.float64)
    shift[0] = 20
    apart = modality_gap(first + shift, 7 * (second - shift))
    assert 1.8 < apart["modality_gap"] <= 2 and apart["towers_told_apart"] == 1
    assert modality_gap(first[:3], second)["towers_told_apart"] is None
    uneven = modality_gap(first, second[:20])["towers_told_apart"]
    assert uneven < 0.15  # the share of the larger tower is chance
    with pytest.raises(InputError, match="8 dimensions and second 7"):
        modality_gap(first, second[:, :7])
