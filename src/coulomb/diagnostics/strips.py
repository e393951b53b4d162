"""All cosines between two sets of vectors, a strip of rows at a time: memory is a strip, whatever their number."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional

from coulomb.diagnostics.vectors import matrix
from coulomb.errors import InputError
from coulomb.similarity import Similarity

STRIP = 2**21  # elements held at once: 8 MiB in fp32


def unit(x: Tensor, name: str, *, least: int = 1, like: Tensor | None = None) -> Tensor:
    """``x`` [n,D] checked and with rows of length 1; a row of zeros stays one."""
    return functional.normalize(matrix(x, name, least=least, like=like), dim=1)


@torch.no_grad()
def strips(
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


def same(first: Tensor, second: Tensor) -> Tensor:
    """Boolean [n,m]: pairs of equal labels; −1, unknown, equals nobody."""
    return (first[:, None] == second[None]) & (first >= 0)[:, None]
