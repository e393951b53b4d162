import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.metrics import nearest as module
from coulomb.metrics.nearest import neighbors
from curation_cases import cosine_table, normal


@pytest.mark.parametrize(("queries", "tile"), [(7, 33), (50, 300), (1024, 8192)])
def test_neighbors_are_those_of_fp64(queries, tile, monkeypatch):
    monkeypatch.setattr(module, "QUERIES", queries)
    monkeypatch.setattr(module, "TILE", tile)
    x = normal(310, 9)
    table = cosine_table(x)
    np.fill_diagonal(table, -2)
    values, columns = neighbors(x, 5)
    np.testing.assert_allclose(values, -np.sort(-table, 1)[:, :5], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(table, columns, 1), values, atol=1e-6)


def test_neighbors_among_some_rows_are_numbered_as_these():
    x = normal(20, 4)
    rows = np.array([3, 5, 11, 17])
    values, columns = neighbors(x, 2, rows)
    expected = neighbors(x[rows], 2)
    np.testing.assert_array_equal(columns, expected[1])
    np.testing.assert_array_equal(values, expected[0])


@pytest.mark.parametrize("k", [0, 20])
def test_as_many_neighbors_as_images_are_refused(k):
    with pytest.raises(InputError, match=f"k={k}"):
        neighbors(normal(20, 4), k)
