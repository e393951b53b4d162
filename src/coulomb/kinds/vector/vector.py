"""Vectors as a kind of column: a cell holds V stored views of a sample, and views are chosen among them."""

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.kinds.kind import Cell, Share, UnreadableCell
from coulomb.kinds.stack import Stack

SHOWN = 4  # values in a preview


@dataclass
class Vectors(Stack):
    """Stored views of samples.

    Attributes:
        values: floats [B, V, F].
        row: the place of each in the stored rows, int64 [B].

    >>> len(Vectors(torch.zeros(2, 1, 3), torch.arange(2)))
    2
    """

    on_host = ("row",)

    values: Tensor
    row: Tensor


class VectorCell(NamedTuple):
    """Stored views [V, F] and their place in the stored rows."""

    values: npt.NDArray[Any]
    row: int


@dataclass(frozen=True)
class StoredViews:
    """Views that are chosen among the V stored ones, different ones of each sample.

    Attributes:
        rows: the stored rows [N, V, F]; needed with ``neighbors`` only.
        neighbors: int [N, K]. All views but the first are then views of one of the K neighbors, drawn anew for each.

    >>> Vector(StoredViews()).views.neighbors is None
    True
    """

    rows: npt.NDArray[Any] | None = None
    neighbors: Tensor | None = None

    by_row = True

    def __call__(
        self, stack: Vectors, generator: torch.Generator, n: int = 2, share: Share | None = None
    ) -> list[Tensor]:
        """Returns ``n`` views [B, F]; raises `InputError` if fewer are stored."""
        values, stored = stack.values, stack.values.shape[1]
        if stored < n:
            raise InputError(f"n={n} views: {stored} are stored for each sample; store more, or use fewer")
        total, mine = (len(stack), slice(None)) if share is None else (share.total, share.rows)
        chosen = torch.rand(total, stored, generator=generator)[mine].argsort(dim=1)[:, :n].T
        place = torch.arange(len(stack))
        first, *others = (
            [values[place, each] for each in chosen] if self.neighbors is None else [values[place, chosen[0]]]
        )
        if self.neighbors is not None and self.rows is not None:
            drawn = torch.randint(self.neighbors.shape[1], (n - 1, total), generator=generator)[:, mine]
            for neighbor, each in zip(drawn, chosen[1:], strict=True):
                row = self.neighbors[stack.row, neighbor]
                others.append(torch.from_numpy(self.rows[row.numpy(), each.numpy()]).to(values.device))
        return [first, *others]

    def plain(self, stack: Vectors) -> Tensor:
        """Returns the first stored view [B, F]."""
        return stack.values[:, 0]


@dataclass(frozen=True)
class StoredRows:
    """Cells of a column whose samples are not in the order of the stored rows, or do not all have one.

    Attributes:
        rows: finite values [N, V, F]; they are not checked again.
        at: the row of each sample, int64; −1 for samples without one.

    >>> StoredRows(np.zeros((2, 1, 3), np.float32), np.array([0, -1, 1])).at
    array([ 0, -1,  1])
    """

    rows: npt.NDArray[Any]
    at: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at)


@dataclass(frozen=True)
class Vector:
    """Rows of an array or memory map [N, F], or [N, V, F] with V stored views of each sample.

    Args:
        views: how views are chosen, `StoredViews`, or made, such as `coulomb.kinds.vector.MarginalViews`.
        reason: why a sample is left out that has no row, or values that are not finite.
    """

    views: Any = field(default_factory=StoredViews)
    reason: str = "has values that are NaN or infinite"
    nbytes: None = None  # the rows are in memory or mapped to it already

    def read(self, cells: npt.NDArray[Any] | StoredRows, row: int) -> Cell:
        """Returns the stored views of a sample; raises `UnreadableCell` if it has none, or values that are not finite."""
        rows, place = (cells.rows, int(cells.at[row])) if isinstance(cells, StoredRows) else (cells, row)
        if rows.ndim not in (2, 3) or not rows.shape[-1]:
            raise InputError(f"a column of vectors has shape {list(rows.shape)}; it must be [N, F] or [N, V, F]")
        values = rows[place] if rows.ndim == 3 else rows[place, None]
        if place < 0 or (rows is cells and not np.isfinite(values).all()):
            raise UnreadableCell(str(row), self.reason)
        return Cell(VectorCell(values, place))

    def stack(self, values: Sequence[VectorCell]) -> Vectors:
        """Returns the views [B, V, F]."""
        rows = torch.tensor([value.row for value in values], dtype=torch.int64)
        if not values:
            return Vectors(torch.empty(0, 1, 0), rows)
        return Vectors(torch.from_numpy(np.stack([value.values for value in values])), rows)

    def blank(self, count: int) -> Vectors:
        """Vectors are not cached."""
        raise NotImplementedError

    def preview(self, value: VectorCell) -> str:
        """Returns the number of values, and the first of them."""
        first = ", ".join(f"{each:.3g}" for each in value.values[0, :SHOWN])
        more = ", …" if value.values.shape[1] > SHOWN else ""
        return html.escape(f"{value.values.shape[1]} values: {first}{more}")
