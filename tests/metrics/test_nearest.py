"""The search for nearest neighbors, compared with NumPy in float64."""

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.metrics import nearest as module
from coulomb.metrics.nearest import nearest, nearest_by_cosine, neighbors
from coulomb.metrics.rows import as_tensor
from curation_cases import cosine_table, normal


def unit(rows, width, seed=0):
    drawn = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=1)


def reference(features, queries, top):
    products = queries.double().numpy() @ features.double().numpy().T
    rows = np.argsort(-products, axis=1, kind="stable")[:, :top]
    return np.take_along_axis(products, rows, 1), rows


@pytest.fixture(params=["whole", "small strips"])
def strips(request, monkeypatch):
    """Runs a test with all keys in one strip, and with many strips, blocks and parts of the queries."""
    if request.param == "small strips":
        monkeypatch.setattr(module, "STRIP", 100)
        monkeypatch.setattr(module, "BLOCK", 40)
        monkeypatch.setattr(module, "QUERIES", 4)
        monkeypatch.setattr(module, "DEPTH", 1)


@pytest.mark.parametrize("precision", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("rows", "width", "queries", "top"),
    [(1, 3, 1, 5), (7, 5, 3, 7), (999, 16, 1, 20), (500, 8, 40, 3), (500, 8, 9, 400)],
)
def test_equals_the_complete_product(rows, width, queries, top, precision, strips):
    features, asked = unit(rows, width).to(precision), unit(queries, width, 1).float()
    values, found = nearest(features, asked, top)
    expected, places = reference(features, asked, top)
    assert np.allclose(values.numpy(), expected, atol=1e-6)
    near = np.take_along_axis(asked.double().numpy() @ features.double().numpy().T, found.numpy(), 1)
    assert np.allclose(near, expected, atol=1e-6)  # equal to rounding: either order is right
    assert (found.numpy() == places).mean() > 0.99


def test_keys_are_normalized_only_when_that_is_wanted(strips):
    lengths = torch.rand(90, 1, dtype=torch.float64) + 0.5
    keys, asked = (unit(90, 6) * lengths).float(), unit(5, 6, 1).float()
    assert nearest(keys, asked, 4, unit=True)[1].tolist() == reference(unit(90, 6), asked, 4)[1].tolist()
    assert nearest(keys, asked, 4)[1].tolist() == reference(keys, asked, 4)[1].tolist()
    assert nearest(torch.zeros(2, 6), asked, 1, unit=True)[0].tolist() == [[0.0]] * 5


def test_equal_rows_are_ordered_by_position(strips):
    features = unit(5, 4).float().repeat(40, 1)
    query = features[2:3]
    assert nearest(features, query, 40)[1].tolist() == [list(range(2, 200, 5))]
    values, rows = nearest(features, query, 45)
    assert rows[0, :40].tolist() == list(range(2, 200, 5)) and values.diff().max() <= 0


def test_nan_counts_as_the_largest(strips):
    features = unit(60, 4).float()
    features[41] = torch.nan
    values, rows = nearest(features, unit(3, 4, 1).float(), 2)
    assert values[:, 0].isnan().all() and rows[:, 0].tolist() == [41] * 3


def test_more_threads_than_rows_and_threads_are_restored():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert nearest(unit(2, 4).float(), unit(1, 4).float(), 5)[1].shape == (1, 2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_read_only_memory_is_shared(tmp_path):
    np.save(tmp_path / "x.npy", unit(4, 3).numpy())
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    shared = as_tensor(mapped)  # without a warning
    assert shared.data_ptr() == mapped.ctypes.data


class Largest(torch.overrides.TorchFunctionMode):
    """Records the size of the largest new tensor."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and out._base is None:
            self.elements = max(self.elements, out.numel())
        return out


def test_memory_does_not_grow_with_the_keys(monkeypatch):
    monkeypatch.setattr(module, "STRIP", 1000)
    monkeypatch.setattr(module, "BLOCK", 400)
    features, asked = unit(4000, 4).half(), unit(300, 4, 1).float()
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the mode sees the calling thread only
    try:
        with Largest() as seen:
            nearest(features, asked[:10], 3)
        assert 0 < seen.elements <= 1000
        with Largest() as seen:
            for _ in nearest_by_cosine(asked, features[:500].float(), 3):
                pass
        assert seen.elements <= 500 * 4  # the normalized keys
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("k", [1, 9, 500])
def test_blocks_by_cosine_are_those_of_scaled_vectors(k, strips):
    asked, keys = 3 * unit(130, 12).float(), 0.1 * unit(500, 12, 1).float()
    found = list(nearest_by_cosine(asked, keys, k))
    assert [row for rows, _, _ in found for row in range(rows.start, rows.stop)] == [*range(130)]
    expected, places = reference(unit(500, 12, 1), unit(130, 12), k)
    assert np.allclose(torch.cat([values for _, values, _ in found]).numpy(), expected, atol=1e-6)
    assert (torch.cat([columns for _, _, columns in found]).numpy() == places).mean() > 0.99


def test_neighbors_are_those_of_fp64(strips):
    x = normal(310, 9)
    table = cosine_table(x)
    np.fill_diagonal(table, -2)
    values, columns = neighbors(x, 5)
    np.testing.assert_allclose(values, -np.sort(-table, 1)[:, :5], atol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(table, columns, 1), values, atol=1e-6)


def test_neighbors_among_some_rows_are_numbered_as_these(strips):
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


def test_only_products_below_a_limit_count(strips):
    keys, asked = unit(300, 6).float(), unit(9, 6, 1).float()
    limits = torch.linspace(-0.6, 0.6, 9)
    values, rows = nearest(keys, asked, 5, below_Q=limits)
    table = asked.double().numpy() @ keys.double().numpy().T
    for query in range(9):
        below = np.flatnonzero(table[query] < float(limits[query]))
        expected = below[np.argsort(-table[query][below], kind="stable")][:5]
        assert rows[query][: len(expected)].tolist() == expected.tolist()
        assert (values[query][len(expected) :] == -torch.inf).all()
    assert (nearest(keys, asked, 2, below_Q=torch.full((9,), -1.5))[0] == -torch.inf).all()
