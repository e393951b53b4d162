import numpy as np
import pytest
import torch

from coulomb.errors import InputError
from coulomb.metrics.retrieval import view_retrieval


def test_is_the_double_loop(monkeypatch):
    generator = np.random.default_rng(0)
    first = generator.normal(size=(60, 5))
    second = first + 0.8 * generator.normal(size=(60, 5))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second)]
    expected = np.mean([np.argmax([a @ b for b in unit[1]]) == i for i, a in enumerate(unit[0])])
    backwards = np.mean([np.argmax([b @ a for a in unit[0]]) == i for i, b in enumerate(unit[1])])
    assert 0.1 < expected < 0.9 and expected != backwards
    assert view_retrieval(first, second) == pytest.approx(expected)
    assert view_retrieval(second, first) == pytest.approx(backwards)
    monkeypatch.setattr("coulomb.metrics.cosines.BLOCK", 60 * 7)
    assert view_retrieval(first, second) == pytest.approx(expected)


def test_perfect_and_collapsed():
    x = torch.randn(50, 8, generator=torch.Generator().manual_seed(0))
    assert view_retrieval(x, 3 * x) == 1.0
    assert view_retrieval(torch.ones(50, 8), torch.ones(50, 8)) == 1 / 50


@pytest.mark.parametrize("shape", [(1, 4), (50, 5), (49, 8)])
def test_bad_shapes(shape):
    with pytest.raises(InputError, match="same n ≥ 2"):
        view_retrieval(torch.rand(1 if shape[0] == 1 else 50, 4 if shape[0] == 1 else 8), torch.rand(*shape))
