"""Views of vectors in which random values are replaced by those of other rows (SCARF)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.kinds.kind import Share
from coulomb.kinds.vector.vector import Vectors

REPLACED = 0.6  # of the values of a view, as in the paper


@dataclass(frozen=True)
class MarginalViews:
    """The vector itself, and corrupted copies of it (SCARF; Bahri et al., 2022).

    In each copy the same number of values, at places drawn anew for each sample, are replaced by values that random rows have
    at these places: each value is drawn from the empirical marginal of its column.

    Args:
        rows: vectors [M, F] from which values are drawn, such as the training rows.
        replaced: share of the values that are replaced, rounded down, but at least one; 0.6 in the paper.

    Raises:
        InputError: ``rows`` are no vectors of at least 2 values, or ``replaced`` is not between 0 and 1.

    >>> MarginalViews(np.eye(4, dtype=np.float32)).replaced
    0.6
    """

    rows: npt.NDArray[np.floating]
    replaced: float = REPLACED

    by_row = True

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or not len(self.rows) or self.rows.shape[1] < 2:
            raise InputError(
                f"rows of shape {list(self.rows.shape)}: must be vectors [M, F] of at least 2 values, so that some remain"
            )
        if not 0 < self.replaced < 1:
            raise InputError(f"replaced={self.replaced}: must be between 0 and 1")

    @property
    def count(self) -> int:
        """Values that are replaced in each copy."""
        return max(1, int(self.replaced * self.rows.shape[1]))

    def __call__(
        self, stack: Vectors, generator: torch.Generator, n: int = 2, share: Share | None = None
    ) -> list[Tensor]:
        """Returns ``n`` views [B, F]: the vectors, then ``n`` − 1 corrupted copies."""
        plain = self.plain(stack)
        views = [plain]
        for _ in range(n - 1):
            replaced, drawn = self.replacement(len(stack), generator, share)
            views.append(torch.where(replaced.to(plain.device), drawn.to(plain), plain))
        return views

    def replacement(self, count: int, generator: torch.Generator, share: Share | None = None) -> tuple[Tensor, Tensor]:
        """Returns which values of ``count`` vectors are replaced, bool [B, F], and values of other rows at all places."""
        width = self.rows.shape[1]
        total, mine = (count, slice(None)) if share is None else (share.total, share.rows)
        replaced = (torch.rand(total, width, generator=generator).argsort(dim=1) < self.count)[mine]
        source = torch.randint(len(self.rows), (total, width), generator=generator)[mine]
        return replaced, torch.from_numpy(self.rows[source.numpy(), np.arange(width)])

    def plain(self, stack: Vectors) -> Tensor:
        """Returns the vectors [B, F]."""
        return stack.values[:, 0]
