"""Stacks of texts as padded token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.kinds.stack import Stack


@dataclass
class Tokens(Stack):
    """Texts as token ids.

    Attributes:
        ids: int64 [B, L], padded on the right to the longest text of the stack.
        mask: bool [B, L], True for tokens, False for padding.

    >>> tokens = Tokens(torch.tensor([[5, 7], [9, 0]]), torch.tensor([[True, True], [True, False]]))
    >>> len(tokens)
    2
    """

    ids: Tensor
    mask: Tensor

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.ids.device

    @property
    def lengths(self) -> Tensor:
        """Number of tokens of each text, int64 [B]."""
        return self.mask.sum(dim=1)

    @classmethod
    def join(cls, parts: Sequence["Tokens"]) -> "Tokens":
        """Returns the texts of several stacks as one, padded to the longest of all; at least one stack is needed."""
        longest = max(part.ids.shape[1] for part in parts)
        return cls(
            torch.cat([functional.pad(part.ids, (0, longest - part.ids.shape[1])) for part in parts]),
            torch.cat([functional.pad(part.mask, (0, longest - part.mask.shape[1])) for part in parts]),
        )

    def take(self, rows: np.ndarray) -> Self:
        """Returns copies of these rows, padded to the longest of them."""
        taken = super().take(rows)
        return taken.trimmed()

    def rows(self, rows: Tensor) -> Self:
        """Returns these rows, int64 on the same device, padded to the longest of them."""
        return type(self)(self.ids[rows], self.mask[rows]).trimmed()

    def trimmed(self) -> Self:
        """Returns the stack without columns that are padding in all rows."""
        longest = int(self.lengths.max()) if len(self) else 0
        return type(self)(self.ids[:, :longest], self.mask[:, :longest])

    @classmethod
    def ragged(cls, ids: np.ndarray, lengths: np.ndarray, padding: int = 0) -> "Tokens":
        """Returns texts whose ids follow each other in ``ids``, of the given ``lengths`` [B]."""
        mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
        padded = np.full(mask.shape, padding, dtype=np.int64)
        padded[mask] = ids
        return cls(torch.from_numpy(padded), torch.from_numpy(mask))
