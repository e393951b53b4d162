import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.index.outliers import find_outliers
from curation_cases import classes_of, cosine_table, normal


def test_figures_follow_the_definition():
    x, _ = classes_of(60, 3)
    found = find_outliers(x, k=4)
    table = cosine_table(x)
    np.fill_diagonal(table, -2)
    order = np.argsort(-table, 1)[:, :4]
    nearest = np.take_along_axis(table, order, 1)
    far = np.sqrt(2 - 2 * nearest).mean(1)
    np.testing.assert_allclose(found.similarity, nearest.mean(1), atol=1e-6)
    np.testing.assert_allclose(found.local, (far + 1e-3) / (far[order].mean(1) + 1e-3), atol=1e-4)
    assert found.score[found.order].tolist() == sorted(found.score.tolist(), reverse=True)
    np.testing.assert_array_equal(found.neighbor, order[:, 0])


def test_planted_outliers_come_first():
    x, _ = classes_of(500, 4)
    x[:6] = normal(6, 16, seed=9)
    found = find_outliers(x)
    assert set(found.order[:6].tolist()) == set(range(6))
    assert all("mean similarity" in found.reason(row) or "times as far" in found.reason(row) for row in range(6))


def test_a_sparse_image_beside_a_dense_group_is_found_by_its_density():
    random = np.random.default_rng(0)
    center = np.eye(16)[0]
    dense = center + 0.01 * random.normal(size=(100, 16))
    loose = np.eye(16)[1] + 0.15 * random.normal(size=(100, 16))
    beside = center + 0.1 * random.normal(size=(1, 16))
    found = find_outliers(np.concatenate([loose, dense, beside]).astype(np.float32))
    assert found.order[0] == 200
    assert "times as far" in found.reason(200)


def test_an_outlier_with_copies_of_itself_is_found():
    x, _ = classes_of(300, 3)
    x[:4] = normal(1, 16, seed=9)
    assert set(find_outliers(x).order[:4].tolist()) == {0, 1, 2, 3}


def test_copies_and_zeros_give_finite_scores():
    for x in (np.ones((12, 4), np.float32), np.zeros((12, 4), np.float32)):
        assert np.isfinite(find_outliers(x).score).all()
        assert find_outliers(x).score.max() == 0


def test_few_images():
    assert find_outliers(normal(3, 4)).k == 2
    with pytest.raises(InputError, match="at least 3"):
        find_outliers(normal(2, 4))
    with pytest.raises(InputError, match="k=3"):
        find_outliers(normal(3, 4), k=3)
