"""Floors: the time that a case's matrix products take alone, without exponentials and sums."""

from collections.abc import Callable

import torch
from torch import Tensor

from coulomb.bench.cases import Case
from coulomb.similarity import products
from coulomb.similarity.problem import tile_for

Product = Callable[[Tensor, Tensor, Tensor], Tensor]
LARGEST = 2.5e11  # flops that are really done; a larger floor is scaled up from these


def torch_mm(queries: Tensor, keys: Tensor, buffer: Tensor) -> Tensor:
    """Q·Kᵀ by torch.mm, into ``buffer``."""
    out = buffer[: len(queries) * len(keys)].view(len(queries), len(keys))
    return torch.mm(queries, keys.T, out=out)


def onednn(queries: Tensor, keys: Tensor, buffer: Tensor) -> Tensor:
    """Q·Kᵀ by oneDNN, which allocates its result."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(queries, keys, None, "none", [], "")
    return out


# The kernels that the engine chooses from. The floor that targets refer to is the faster one.
KERNELS: dict[str, Product] = {"torch.mm": torch_mm}
if products.find_linear() is not None:
    KERNELS["oneDNN"] = onednn


class Floor:
    """``products``·n·m·dim flops, tile after tile (to the nearest of the engine's tiles); call it to do them.

    ``share``: the part of them that is done; seconds / share is the floor.
    """

    def __init__(self, case: Case, product: Product, device: str = "cpu", tile: int | None = None) -> None:
        tile = tile or tile_for(case.dim)
        rows, cols = min(tile, case.n), min(tile, case.m)
        self.product = product
        self.queries = torch.full((rows, case.dim), 0.5, dtype=case.torch_dtype, device=device)
        self.keys = torch.full((cols, case.dim), 0.5, dtype=case.torch_dtype, device=device)
        self.buffer = torch.empty(rows * cols, dtype=case.torch_dtype, device=device)
        one = 2 * rows * cols * case.dim
        self.tiles = max(1, round(min(case.flops, LARGEST) / one))
        self.share = self.tiles * one / case.flops

    def __call__(self) -> None:
        """Do the products."""
        for _ in range(self.tiles):
            self.product(self.queries, self.keys, self.buffer)
