"""Stored features, read in blocks: rows of unit length in fp32 for products, cosines of single pairs in fp64."""

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError

BLOCK = 4096  # rows of queries per product
TILE = 1024  # rows of keys per product: 16 MiB of similarities in fp32
CHUNK = 2**21  # elements of each operand at a time in `cosines`: 16 MiB in fp64


def check_rows(x: np.ndarray, name: str = "features", *, like: np.ndarray | None = None) -> None:
    """Checks that ``x`` is a matrix [N,D] of finite floats, N ≥ 1, with the width of ``like``; reads it once, in blocks.

    Raises:
        InputError: another shape or type, no rows, NaN or infinite values.
    """
    if x.ndim != 2 or not len(x) or not x.shape[1] or x.dtype.kind != "f":
        raise InputError(f"{name}={x.dtype}{list(x.shape)}: must be floating-point rows [N, D], N ≥ 1.")
    if like is not None and x.shape[1] != like.shape[1]:
        raise InputError(f"{name}: {x.shape[1]} dimensions instead of {like.shape[1]}; use features of one encoder.")
    bad = sum(int((~np.isfinite(x[rows]).all(1)).sum()) for rows in blocks(len(x)))
    if bad:
        raise InputError(f"{name}: {bad} of {len(x)} rows have NaN or infinite values; build the index again.")


def check_labels(labels: np.ndarray, count: int) -> np.ndarray:
    """Returns ``labels`` as an array; raises `InputError` unless they are ``count`` integers."""
    labels = np.asarray(labels)
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        raise InputError(f"labels={labels.dtype}{list(labels.shape)}: must be {count} integers, −1 for none.")
    return labels


def blocks(count: int, size: int = BLOCK) -> Iterator[slice]:
    """Yields slices of at most ``size`` that cover ``range(count)``."""
    for start in range(0, count, size):
        yield slice(start, min(start + size, count))


def as_tensor(x: np.ndarray) -> Tensor:
    """Returns a tensor that shares the memory of read-only ``x``, and must not be written to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(x)


def unit_rows(x: np.ndarray, rows: slice | np.ndarray) -> Tensor:
    """Returns rows of ``x`` as float32 of length 1; a row of zeros stays zero."""
    return functional.normalize(torch.from_numpy(np.array(x[rows])).float(), dim=1)


def cosines(x: np.ndarray, rows: np.ndarray, keys: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Returns the cosines in fp64 of the pairs (x[rows[p]], keys[columns[p]]), [P]; 0 for a row of zeros."""
    out = np.empty(len(rows))
    for part in blocks(len(rows), max(1, CHUNK // x.shape[1])):
        a, b = x[rows[part]].astype(np.float64), keys[columns[part]].astype(np.float64)
        lengths = np.sqrt(np.einsum("pd,pd->p", a, a) * np.einsum("pd,pd->p", b, b))
        out[part] = np.einsum("pd,pd->p", a, b) / np.maximum(lengths, np.finfo(np.float64).tiny)
    return out
