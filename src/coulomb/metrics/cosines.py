"""Cosines of all pairs, strip by strip: the whole matrix is never stored."""

from collections.abc import Iterator

import torch
from torch import Tensor

from coulomb.similarity import Similarity

STRIP = 2**21  # elements per strip of `cosine_strips`: 8 MiB in fp32


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
