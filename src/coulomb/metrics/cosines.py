"""All cosines between two sets of vectors, or the largest of each row, computed in strips of rows."""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.errors import InputError
from coulomb.metrics.inputs import check_vectors
from coulomb.similarity import Similarity

STRIP = 2**21  # elements held at once: 8 MiB in fp32


def unit_vectors(x: Tensor, name: str, *, least: int = 1, like: Tensor | None = None) -> Tensor:
    """``x`` [n,D] checked and with rows of length 1; a row of zeros stays one."""
    return functional.normalize(check_vectors(x, name, least=least, like=like), dim=1)


@torch.no_grad()
def cosine_strips(
    queries: Tensor, keys: Tensor, query_ids: Tensor | None = None, key_ids: Tensor | None = None
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """(rows, cosines [r,M], counts [r,M] boolean) for strips of whole rows of unit ``queries`` [n,D] and ``keys`` [M,D].

    Pairs of equal ids do not count; −1 equals nobody. The tensors are the caller's to change.
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


def whole_numbers(values: Tensor | None, name: str, like: Tensor) -> Tensor | None:
    """Labels or ids of the rows of ``like``, int64 on its device; None stays None."""
    if values is None:
        return None
    if values.shape != (len(like),) or values.is_floating_point() or values.is_complex():
        raise InputError(f"{name} must be {len(like)} whole numbers, got {values.dtype} {list(values.shape)}")
    return values.to(like.device, torch.int64)


def equal_labels(first: Tensor, second: Tensor) -> Tensor:
    """Boolean [n,m]: pairs of equal labels; −1, unknown, equals nobody."""
    return (first[:, None] == second[None]) & (first >= 0)[:, None]


ELEMENTS = 2**23  # similarities held at once: 32 MB in fp32
FAISS_FROM = 2**24  # similarities in all; for fewer, loading faiss takes longer than it saves


def nearest(queries_ND: Tensor, keys_MD: Tensor, k: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """For each block of queries: its rows, and the ``k`` largest cosines with their keys, [rows, k], descending.

    Rows are normalised here; a row of zeros has cosine 0 with everything. Large searches go to faiss where it is
    installed (`search_backend`): it is exact too, so only the order of equal cosines may differ.
    """
    queries, keys = functional.normalize(queries_ND, dim=1), functional.normalize(keys_MD, dim=1)
    search = search_faiss if search_backend(len(queries), len(keys)) == "faiss" else search_torch
    rows = max(1, ELEMENTS // len(keys))
    for start in range(0, len(queries), rows):
        block = slice(start, min(start + rows, len(queries)))
        yield block, *search(queries[block], keys, k)


@torch.no_grad()
def search_torch(queries_ND: Tensor, keys_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest similarities and their keys by torch; all of the block's similarities are held."""
    return Similarity(queries_ND, keys_MD, backend="dense").topk(k)


def search_faiss(queries_ND: Tensor, keys_MD: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The same by faiss' exact search."""
    import faiss

    values, columns = faiss.knn(queries_ND.numpy(), keys_MD.numpy(), k, metric=faiss.METRIC_INNER_PRODUCT)
    return torch.from_numpy(values), torch.from_numpy(columns)


def search_backend(queries: int, keys: int) -> str:
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
