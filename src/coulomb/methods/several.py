"""The interface of methods that contrast several columns, such as a picture and its caption."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from coulomb.ground.checked import UNKNOWN
from coulomb.methods.interface import Method
from coulomb.models import Tower, Towers, ViewRows


class SeveralColumns(Method):
    """A method with a tower for each column: the first column is contrasted with each of the others.

        loss = mean over columns c ≥ 1 of criterion(z₀, z_c)          z_c [N, D]: embeddings of column c

    Every two cells of a row are a positive pair. Rows of a batch that share a cell are not negatives of each other: the same
    caption or picture twice would repel itself.

    ``__init__(self, towers, cell_ids, negatives, *, …)`` also receives, by name, the options of every run that it declares
    (``temperature``, ``seed``) and its own options. A subclass sets ``criterion``, called with (query, positive, negatives,
    ids=[N, 2], negative_ids=[N, 2]).

    Args:
        towers: the towers by column. Embeddings are the features of the encoders, in one space: no head is discarded.
        cell_ids: int64 [n, C], for each training row and each column of ``towers``; equal cells of columns of one kind have
            equal ids. None: rows that share a cell are negatives, too.
        negatives: columns that hold hard negatives of the second column.

    Attributes:
        columns: names of the columns that are contrasted, in order.
    """

    default_head: ClassVar[dict[str, Any] | None] = None
    local_mean = False
    criterion: Any

    def __init__(self, towers: Towers, cell_ids: Tensor | None, negatives: tuple[str, ...] = ()) -> None:
        super().__init__()
        self.towers = towers
        self.columns = [name for name in towers.columns if name not in negatives]
        self.negatives = negatives
        self.register_buffer("cell_ids", cell_ids, persistent=False)

    @classmethod
    def require_options(cls, options: Mapping[str, Any], negatives: tuple[str, ...] = ()) -> None:
        """Raises ValueError for options that the constructor would refuse: before features are computed for hours."""

    @property
    def tower(self) -> Tower:  # type: ignore[override]
        """The tower of the first column, which the figures of each update describe."""
        return self.towers[self.columns[0]]

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar; ``train_row`` [N] are the places of the samples among the training rows."""
        embeddings = self.towers(views)
        ids = self.ids(train_row)
        first, *others = self.columns
        losses = []
        for other in others:
            named: dict[str, Tensor] = {}
            if ids is not None:
                named["ids"] = torch.stack([ids[first], ids[other]], dim=1)
            if self.negatives and other == others[0]:
                named["negatives"] = torch.cat([embeddings[name] for name in self.negatives])
                if (
                    ids is not None
                ):  # in place of the first column's id, an unknown one: a negative has no partner there
                    cells = torch.cat([ids[name] for name in self.negatives])
                    named["negative_ids"] = torch.stack([torch.full_like(cells, UNKNOWN), cells], dim=1)
            losses.append(self.contrast(embeddings, other, named))
        return torch.stack(losses).mean()

    def contrast(self, embeddings: Mapping[str, Tensor], other: str, named: dict[str, Tensor]) -> Tensor:
        """Returns the loss of the first column with another one; ``named``: ids and hard negatives for the criterion."""
        loss: Tensor = self.criterion(embeddings[self.columns[0]], embeddings[other], **named)
        return loss

    def ids(self, train_row: Tensor | None) -> dict[str, Tensor] | None:
        """Returns the ids [N] of the cells of a batch by column; None if they do not count."""
        if self.cell_ids is None or train_row is None:
            return None
        assert isinstance(self.cell_ids, Tensor)
        return dict(zip(self.towers.columns, self.cell_ids[train_row].T, strict=True))
