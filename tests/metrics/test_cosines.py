import sys

import pytest
import torch

from coulomb.metrics.cosines import faiss_installed, nearest, search_backend, search_faiss, search_torch


def unit(n, seed):
    return torch.nn.functional.normalize(torch.randn(n, 12, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.skipif(not faiss_installed(), reason="faiss is not installed")
def test_faiss_returns_what_torch_returns():
    queries, keys = unit(130, 0), unit(700, 1)
    values, columns = search_faiss(queries, keys, 9)
    known, wanted = search_torch(queries, keys, 9)
    torch.testing.assert_close(values, known)
    assert torch.equal(columns, wanted)


def test_search_backend_by_size(monkeypatch):
    monkeypatch.setattr("coulomb.metrics.cosines.faiss_installed", lambda: True)
    assert search_backend(2**12, 2**12) == "faiss" and search_backend(2**12, 2**12 - 1) == "torch"
    monkeypatch.setattr("coulomb.metrics.cosines.faiss_installed", lambda: False)
    assert search_backend(2**20, 2**20) == "torch"


def test_directory_named_faiss_is_not_faiss(monkeypatch):
    faiss_installed.cache_clear()
    monkeypatch.setitem(sys.modules, "faiss", sys)
    assert not faiss_installed()
    faiss_installed.cache_clear()


def test_large_searches_use_faiss_block_by_block(monkeypatch):
    seen = []
    monkeypatch.setattr("coulomb.metrics.cosines.search_backend", lambda *_: "faiss")
    monkeypatch.setattr(
        "coulomb.metrics.cosines.search_faiss", lambda q, k, n: seen.append(len(q)) or search_torch(q, k, n)
    )
    monkeypatch.setattr("coulomb.metrics.cosines.BLOCK", 700 * 50)
    found = torch.cat([columns for _, _, columns in nearest(unit(130, 0), unit(700, 1), 9)])
    assert seen == [50, 50, 30]
    assert torch.equal(found, search_torch(unit(130, 0), unit(700, 1), 9)[1])


def test_whole_matrix_is_never_stored(monkeypatch):
    """Of 300 × 500 similarities, no more than 2,000 at once (the keys themselves are 12 × 500)."""
    monkeypatch.setattr("coulomb.metrics.cosines.BLOCK", 2_000)
    largest = []

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.ndim == 2 and out.shape[1] == 500 and out.shape[0] != 12:
                largest.append(out.numel())
            return out

    with Watching():
        list(nearest(unit(300, 0), unit(500, 1), 3))
    assert largest and max(largest) <= 2_000
