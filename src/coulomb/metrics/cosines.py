"""Cosines of all pairs, or each row's largest, strip by strip: the whole matrix is never stored."""

from collections.abc import Iterator
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground import workers
from coulomb.ground.workers import Task
from coulomb.similarity import Similarity

STRIP = 2**21  # elements per strip of `cosine_strips`: 8 MiB in fp32
BLOCK = 2**23  # elements per block of `nearest`: 32 MiB in fp32; top-k needs taller blocks to be fast
FAISS_FROM = 2**24  # similarities; for a smaller search, loading faiss takes longer than it saves


@torch.no_grad()
def cosine_strips(
    queries: Tensor, keys: Tensor, query_ids: Tensor | None = None, key_ids: Tensor | None = None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yields (rows, cosines [r,M], counts [r,M]) for strips of whole rows of unit ``queries`` [n,D] and ``keys`` [M,D].

    ``counts`` is False for pairs of equal ids; the id −1 equals none. Callers may modify the tensors in place.
    """
    height = max(1, STRIP // max(len(keys), 1))
    for start in range(0, len(queries), height):
        rows = slice(start, min(start + height, len(queries)))
        ids = None if query_ids is None else query_ids[rows]
        strip = Similarity(queries[rows], keys, query_ids=ids, key_ids=key_ids, unit=True, backend="dense")
        over = strip.pairs("all" if ids is None else "negatives")
        hidden = over.hidden(*over.everything)
        cosines = strip.matrix
        yield rows, cosines, torch.ones_like(cosines, dtype=torch.bool) if hidden is None else ~hidden


def nearest(queries_ND: Tensor, keys_MD: Tensor, k: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yields (rows, cosines [r,k], columns [r,k]), the ``k`` largest cosines of each query in descending order.

    Rows are normalized here; a row of zeros has cosine 0 with every key. Large searches use faiss if it is installed
    (`search_backend`). Its search is exact, so that only the order of equal cosines may differ.
    """
    queries, keys = functional.normalize(queries_ND, dim=1), functional.normalize(keys_MD, dim=1)
    search = search_faiss if search_backend(len(queries), len(keys)) == "faiss" else search_torch
    height = max(1, BLOCK // len(keys))
    for start in range(0, len(queries), height):
        rows = slice(start, min(start + height, len(queries)))
        yield rows, *search(queries[rows], keys, k)


@torch.no_grad()
def search_torch(queries_ND: Tensor, keys_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the k largest similarities of each query and their columns, from blocks that are stored, one per thread."""
    parts = queries_ND.tensor_split(max(1, min(torch.get_num_threads(), len(queries_ND))))
    found = [(queries_ND, queries_ND)] * len(parts)

    def search(place: int) -> None:
        found[place] = Similarity(parts[place], keys_MD, backend="dense").topk(k)

    at_once = len(parts) if queries_ND.device.type == "cpu" else 1
    workers.run((Task(partial(search, place), ()) for place in range(len(parts))), at_once)
    values, columns = zip(*found, strict=True)
    return torch.cat(values), torch.cat(columns)


def search_faiss(queries_ND: Tensor, keys_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`search_torch` by the exact search of faiss."""
    import faiss

    values, columns = faiss.knn(queries_ND.numpy(), keys_MD.numpy(), k, metric=faiss.METRIC_INNER_PRODUCT)
    return torch.from_numpy(values), torch.from_numpy(columns)


def search_backend(queries: int, keys: int) -> str:
    """Returns "faiss" for large searches if it is installed, else "torch"; protocols record it."""
    return "faiss" if queries * keys >= FAISS_FROM and faiss_installed() else "torch"


@cache
def faiss_installed() -> bool:
    """True if faiss can be imported and has ``knn`` (a directory named faiss can be imported as well)."""
    try:
        import faiss
    except ImportError:
        return False
    return hasattr(faiss, "knn")
