"""Nearest neighbours by cosine, a block of queries at a time: the whole matrix of similarities is never held."""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.similarity import Similarity

ELEMENTS = 2**23  # similarities held at once: 32 MB in fp32
FAISS_FROM = 2**24  # similarities in all; for fewer, loading faiss takes longer than it saves


def nearest(queries_ND: Tensor, keys_MD: Tensor, k: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """For each block of queries: its rows, and the ``k`` largest cosines with their keys, [rows, k], descending.

    Rows are normalised here; a row of zeros has cosine 0 with everything. Large searches go to faiss where it is
    installed (`searched_by`): it is exact too, so only the order of equal cosines may differ.
    """
    queries, keys = functional.normalize(queries_ND, dim=1), functional.normalize(keys_MD, dim=1)
    search = by_faiss if searched_by(len(queries), len(keys)) == "faiss" else by_blocks
    rows = max(1, ELEMENTS // len(keys))
    for start in range(0, len(queries), rows):
        block = slice(start, min(start + rows, len(queries)))
        yield block, *search(queries[block], keys, k)


@torch.no_grad()
def by_blocks(queries_ND: Tensor, keys_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest similarities and their keys by torch; all of the block's similarities are held."""
    return Similarity(queries_ND, keys_MD, backend="dense").topk(k)


def by_faiss(queries_ND: Tensor, keys_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same by faiss' exact search."""
    import faiss

    values, columns = faiss.knn(queries_ND.numpy(), keys_MD.numpy(), k, metric=faiss.METRIC_INNER_PRODUCT)
    return torch.from_numpy(values), torch.from_numpy(columns)


def searched_by(queries: int, keys: int) -> str:
    """ "faiss" for large searches where it is installed, else "torch"; for protocols."""
    return "faiss" if queries * keys >= FAISS_FROM and faiss_installed() else "torch"


@cache
def faiss_installed() -> bool:
    """Whether faiss can be imported and has what is asked of it (a folder of that name would be imported too)."""
    try:
        import faiss
    except ImportError:
        return False
    return hasattr(faiss, "knn")
