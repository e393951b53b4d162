"""The part of a batch that a process has, for random draws that do not depend on the number of processes."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Share:
    """The part of a larger batch that a process has.

    Attributes:
        rows: positions of its samples in the whole batch, int64 [b], ascending.
        total: samples in the whole batch.

    >>> Share(torch.tensor([0, 1]), total=4).total
    4
    """

    rows: Tensor
    total: int
