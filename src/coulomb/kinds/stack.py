"""Cells of a column as tensors whose first dimension counts them."""

from dataclasses import fields
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor


class Stack:
    """Cells of a column as tensors [B, …]. Each kind derives a data class of tensors from it.

    Attributes:
        on_host: names of the tensors that stay in the host's memory, because parameters of views are computed from them;
            copying them back from a device would wait for it.

    >>> from coulomb.kinds.vector import Vectors
    >>> isinstance(Vectors(torch.zeros(2, 1, 3), torch.arange(2)), Stack)
    True
    """

    on_host: ClassVar[tuple[str, ...]] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Returns the tensors by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(next(iter(self.tensors().values())))

    def take(self, rows: np.ndarray) -> Self:
        """Returns copies of these rows.

        NumPy copies in this thread; torch's index_select would wake all threads for less than a millisecond of work.
        """
        taken = {name: np.take(each.numpy(), rows, axis=0) for name, each in self.tensors().items()}
        return type(self)(**{name: torch.from_numpy(each) for name, each in taken.items()})

    def put(self, rows: Tensor, stack: Self) -> None:
        """Overwrites these rows with the rows of another stack."""
        for name, each in self.tensors().items():
            each[rows] = getattr(stack, name)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Self:
        """Returns the stack with its tensors on ``device``, except for those in ``on_host``."""
        moved = {
            name: each if name in self.on_host else each.to(device, non_blocking=non_blocking)
            for name, each in self.tensors().items()
        }
        return type(self)(**moved)

    def pin_memory(self) -> Self:
        """Returns the stack in pinned memory."""
        return type(self)(**{name: each.pin_memory() for name, each in self.tensors().items()})
