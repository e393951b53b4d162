"""Exact nearest neighbors, compared with NumPy in float64."""

import sys

import numpy as np
import pytest
import torch

from coulomb.index.nearest import as_tensor, nearest

module = sys.modules[nearest.__module__]


def unit(rows, width, seed=0):
    drawn = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=1)


def reference(features, queries, top):
    products = queries.double().numpy() @ features.double().numpy().T
    rows = np.argsort(-products, axis=1, kind="stable")[:, :top]
    return np.take_along_axis(products, rows, 1), rows


@pytest.mark.parametrize("precision", [torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("rows", "width", "queries", "top"), [(1, 3, 1, 5), (7, 5, 3, 7), (999, 16, 1, 20), (500, 8, 40, 3)]
)
def test_equals_the_complete_product(rows, width, queries, top, precision):
    features, asked = unit(rows, width).to(precision), unit(queries, width, 1).float()
    values, found = nearest(features, asked, top)
    expected, places = reference(features, asked, top)
    assert found.numpy().tolist() == places.tolist()
    assert np.allclose(values.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("queries", [1, 6])
def test_strips_and_blocks_do_not_change_the_result(queries, monkeypatch):
    features, asked = unit(1000, 8).half(), unit(queries, 8, 1).float()
    whole = nearest(features, asked, 11)
    monkeypatch.setattr(module, "STRIP", 100)
    monkeypatch.setattr(module, "BLOCK", 40)
    monkeypatch.setattr(module, "QUERIES", 4)
    values, rows = nearest(features, asked, 11)
    assert torch.equal(rows, whole[1]) and torch.allclose(values, whole[0], atol=1e-6)


def test_equal_rows_are_ordered_by_position(monkeypatch):
    features = unit(5, 4).float().repeat(40, 1)
    query = features[2:3]
    assert nearest(features, query, 40)[1].tolist() == [list(range(2, 200, 5))]
    monkeypatch.setattr(module, "STRIP", 50)
    values, rows = nearest(features, query, 45)
    assert rows[0, :40].tolist() == list(range(2, 200, 5)) and values.diff().max() <= 0


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


def test_memory_does_not_grow_with_the_features(tmp_path):
    sizes = []
    empty = torch.empty
    features = unit(4000, 4).half()
    try:
        module.torch.empty = lambda *shape, **options: (sizes.append(np.prod(shape)), empty(*shape, **options))[1]
        module.STRIP, before = 1000, module.STRIP
        nearest(features, unit(10, 4, 1).float(), 3)
    finally:
        module.torch.empty, module.STRIP = empty, before
    assert max(sizes) <= 1000
