import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.metrics.class_structure import false_negative_rate, neighborhood_purity, tolerance
from metrics_oracles import cosines, normal, random_labels

CASES = [(5, 3, 0), (40, 4, 1), (90, 9, 2)]


def pairs_of(labels):
    """Boolean [n,n]: pairs of one class; and pairs whose labels are both known."""
    labels = labels.numpy()
    known = (labels >= 0)[:, None] & (labels >= 0) & ~np.eye(len(labels), dtype=bool)
    return (labels[:, None] == labels) & known, known


@pytest.mark.parametrize(("n", "d", "seed"), CASES)
def test_tolerance_and_false_negative_rate_are_the_loop(n, d, seed):
    x, labels = normal(n, d, seed), random_labels(n, 3, seed)
    alike, known = pairs_of(labels)
    assert tolerance(x, labels) == pytest.approx(cosines(x, x)[alike].mean(), abs=1e-12)
    assert tolerance(x.float(), labels) == pytest.approx(cosines(x, x)[alike].mean(), abs=1e-6)
    assert false_negative_rate(labels) == pytest.approx(alike.sum() / known.sum())


@pytest.mark.parametrize(("n", "d", "seed"), CASES)
@pytest.mark.parametrize("k", [1, 10])
def test_purity_is_the_loop(n, d, seed, k):
    x, labels = normal(n, d, seed), random_labels(n, 3, seed)
    kept = labels.numpy() >= 0
    table, classes = cosines(x, x)[kept][:, kept], labels.numpy()[kept]
    np.fill_diagonal(table, -9)
    nearest = np.argsort(-table, axis=1)[:, : min(k, len(classes) - 1)]
    shares = (classes[nearest] == classes[:, None]).mean(1)
    mean, by_class = neighborhood_purity(x, labels, k)
    assert mean == pytest.approx(shares.mean())
    assert len(by_class) == max(classes) + 1
    for c, found in enumerate(by_class):
        assert found == (pytest.approx(shares[classes == c].mean()) if c in classes else None)


def test_separate_classes():
    x, labels = torch.eye(3, dtype=torch.float64).repeat(5, 1), torch.arange(3).repeat(5)
    assert tolerance(x, labels) == 1.0
    assert neighborhood_purity(x, labels, 4) == (1.0, [1.0, 1.0, 1.0])
    assert neighborhood_purity(x, torch.where(labels == 1, 3, labels), 4)[1] == [1.0, None, 1.0, 1.0]


def test_none_without_pairs_of_one_class():
    x = normal(4, 3)
    for labels in (torch.full((4,), -1), torch.tensor([0, 1, 2, -1])):
        assert tolerance(x, labels) is None
    assert false_negative_rate(torch.tensor([-1, 2])) is None
    assert neighborhood_purity(x, torch.tensor([0, -1, -1, -1])) == (None, [])


def test_bad_input():
    with pytest.raises(InputError, match="labels must be 4 integers"):
        tolerance(normal(4, 3), torch.tensor([1, 2]))
    with pytest.raises(InputError, match="k=0"):
        neighborhood_purity(normal(4, 3), torch.zeros(4, dtype=torch.long), 0)
