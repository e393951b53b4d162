"""Towers: encoder and head of a column of the table, and the views of a batch that they take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.models.encoder import Encoder
from coulomb.models.heads import projection_head


class Tower(nn.Module):
    """Encoder and head of one column: cells [B, …] → features [B, F] → embeddings [B, D].

    The encoder is what a run exports. The head, a `coulomb.models.projection_head`, is discarded after training.

    Args:
        encoder: cells [B, …] → features [B, F]; has ``feature_dim``. For images, cells are [B, C, H, W] in [0, 1].
        embedding_dim: D; with ``head_layers=0`` it is F.
        head_layers: linear layers in the head; 0 for none: embeddings are the features.
        head_hidden_dim: width between them; None is F.
        batch_norm, last_batch_norm, last_scale: see `coulomb.models.projection_head`.
        seed: seed of the head's initial weights.

    Shape:
        cells: [B, …].
        output: [B, D].

    >>> encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    >>> tower = Tower(encoder, embedding_dim=8)
    >>> tower(torch.rand(4, 1, 16, 16)).shape
    torch.Size([4, 8])
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        embedding_dim: int = 128,
        head_layers: int = 2,
        head_hidden_dim: int | None = None,
        batch_norm: bool = True,
        last_batch_norm: bool = False,
        last_scale: bool = True,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.embedding_dim = embedding_dim if head_layers else encoder.feature_dim
        self.hidden_dim = encoder.feature_dim if head_hidden_dim is None else head_hidden_dim
        self.head_options: dict[str, Any] = {
            "layers": head_layers,
            "hidden_dim": head_hidden_dim,
            "batch_norm": batch_norm,
        }
        self.head: nn.Module = projection_head(
            encoder.feature_dim,
            out_dim=self.embedding_dim,
            **self.head_options,
            last_batch_norm=last_batch_norm,
            last_scale=last_scale,
            seed=seed,
        )

    @property
    def column(self) -> str:
        """Name of the column that the encoder reads."""
        return getattr(self.encoder, "column", "image")

    @property
    def feature_dim(self) -> int:
        """F, the width of the encoder's features."""
        return self.encoder.feature_dim

    def forward(self, cells: Any) -> Tensor:
        """Returns the embeddings [B, D]; the losses normalize them to unit length."""
        embeddings: Tensor = self.head(self.encoder(cells))
        return embeddings


class Towers(nn.Module):
    """The towers of several columns; columns may share one, as the two columns of a pair of texts do.

    Args:
        by_column: the tower of each column, in the order of the columns.

    Attributes:
        columns: the columns, in order.
        names: the name of each column's tower: the first column that has it.

    >>> encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    >>> Towers({"image": Tower(encoder, embedding_dim=8)}).columns
    ('image',)
    """

    def __init__(self, by_column: Mapping[str, Tower]) -> None:
        super().__init__()
        self.columns = tuple(by_column)
        first: dict[int, str] = {}
        for name, tower in by_column.items():
            first.setdefault(id(tower), name)
        self.names = {name: first[id(tower)] for name, tower in by_column.items()}
        # Names of modules hold no dots.
        self._keys = {name: f"{place}_{name.replace('.', '_')}" for place, name in enumerate(first.values())}
        self._towers = nn.ModuleDict({key: by_column[name] for name, key in self._keys.items()})

    def __getitem__(self, column: str) -> Tower:
        tower = self._towers[self._keys[self.names[column]]]
        assert isinstance(tower, Tower)
        return tower

    def distinct(self) -> dict[str, Tower]:
        """Returns each tower once, by its name."""
        return {name: self[name] for name in self._keys}

    def forward(self, views: "ViewRows") -> dict[str, Tensor]:
        """Returns the embeddings [V·N, D] of each column."""
        return {name: self[name](views[name]) for name in self.columns}


@dataclass(frozen=True)
class ViewRows:
    """The views of a batch by column, as rows: all samples in view 0, then all in view 1, …

    One forward pass of a tower on all rows of its column gives embeddings [V·N, D] in the same order; they share the
    batch statistics.

    Attributes:
        columns: rows [V·N, …] of each column; V may differ between columns.
        instances: N, the samples of the batch.

    >>> views = ViewRows({"image": torch.rand(6, 1, 8, 8)}, instances=3)
    >>> [part.shape for part in views.split(views["image"])]
    [torch.Size([3, 1, 8, 8]), torch.Size([3, 1, 8, 8])]
    """

    columns: Mapping[str, Any]
    instances: int

    @classmethod
    def of(cls, views: Sequence[Any], column: str = "image") -> "ViewRows":
        """Returns V views [N, …] of one column, tensors or stacks of a kind, as rows."""
        return cls({column: join(views)}, len(views[0]))

    def __getitem__(self, column: str) -> Any:
        return self.columns[column]

    def tensors(self) -> dict[str, Tensor]:
        """Returns the views by name, to save them: ``view0`` … of one column, ``COLUMN0`` … of several."""
        named: dict[str, Tensor] = {}
        for column, rows in self.columns.items():
            prefix = "view" if len(self.columns) == 1 else column
            if isinstance(rows, Tensor):
                named |= {f"{prefix}{place}": view for place, view in enumerate(self.split(rows))}
            else:
                named |= {f"{prefix}.{name}": each for name, each in rows.tensors().items()}
        return named

    def split(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Splits rows [V·N, …], such as the embeddings of a column, into V views [N, …]."""
        return rows.split(max(self.instances, 1))

    def by_instance(self, rows: Tensor) -> Tensor:
        """Returns rows [V·N, D] as [N, V, D], without a copy."""
        return rows.unflatten(0, (-1, self.instances)).transpose(0, 1)


def join(views: Sequence[Any]) -> Any:
    """Returns views [N, …], tensors or stacks of one kind, as rows [V·N, …]."""
    first = views[0]
    if isinstance(first, Tensor):
        return torch.cat(list(views))
    return first if len(views) == 1 else type(first).join(views)
