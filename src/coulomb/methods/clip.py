"""CLIP: a picture finds its caption among all captions of the batch, and a caption its picture."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from coulomb.losses import InfoNCELoss, LearnableTemperature, MatryoshkaLoss
from coulomb.losses.negatives import rank, world_size
from coulomb.methods.interface import Traits
from coulomb.methods.several import SeveralColumns
from coulomb.models import Towers, ViewRows
from coulomb.negatives import MomentumEncoder, Queue
from coulomb.similarity.collectives import gather_group


class PairQueue(nn.Module):
    """Keys of the first column and of another one, each with the ids of both cells of its row.

    A queue has one label and one id per key: the label is the first column's id.
    """

    def __init__(self, size: int, first: int, other: int) -> None:
        super().__init__()
        self.first, self.other = Queue(size, first), Queue(size, other)

    def enqueue(self, first: Tensor, other: Tensor, ids: Tensor | None) -> None:
        """Appends the keys [N, D] of both columns of rows with ids [N, 2]."""
        both = {} if ids is None else {"labels": ids[:, 0], "ids": ids[:, 1]}
        self.first.enqueue(first, **both)
        self.other.enqueue(other, **both)


class CLIP(SeveralColumns):
    """InfoNCE in both directions with a learned temperature (Radford et al., 2021).

        loss = ½ (InfoNCE(z₀ → z₁) + InfoNCE(z₁ → z₀))      mean over the N rows; over the columns, if there are more

    Pairs of rows that share a cell are left out of the negatives; ``same_cells="negative"`` is the paper's loss, in which
    they repel. Columns of negatives are further keys of the direction from the first to the second column.

    With ``queue_size`` = K, cells of past batches are further negatives in both directions, so that a small batch has many:
    a momentum encoder of each tower computes their keys (He et al., 2020), the last K of each column are kept, and those that
    share a cell with a row are none of its negatives.

    Args:
        towers, cell_ids, negatives: see `coulomb.methods.several.SeveralColumns`.
        temperature: the initial τ; .07 in the paper.
        learn_temperature: learn log(1/τ), as in the paper.
        least_temperature: lower limit of τ; .01 in the paper.
        same_cells: ``"left_out"`` or ``"negative"``.
        queue_size: K; 0 for none, as in the paper. More than the training rows is of no use.
        momentum: of the momentum encoders, which are copies of the towers and take their memory.
        matryoshka: lengths of prefixes with commas between them, such as ``"64,128,256"``: the loss is then the mean over
            these prefixes and all dimensions, so that embeddings can be cut after them (`coulomb.losses.MatryoshkaLoss`).
    """

    # Its temperature is learned: rules about a constant one do not apply.
    traits = Traits(negatives=False, momentum=True, queue=True)

    def __init__(
        self,
        towers: Towers,
        cell_ids: Tensor | None,
        negatives: tuple[str, ...] = (),
        *,
        temperature: float = 0.07,
        learn_temperature: bool = True,
        least_temperature: float = 0.01,
        same_cells: str = "left_out",
        queue_size: int = 0,
        momentum: float = 0.99,
        matryoshka: str | int | None = None,
    ) -> None:
        self.require_options(
            {"same_cells": same_cells, "queue_size": queue_size, "momentum": momentum, "matryoshka": matryoshka}
        )
        super().__init__(towers, None if same_cells == "negative" else cell_ids, negatives)
        tau = LearnableTemperature(temperature, minimum=least_temperature) if learn_temperature else temperature
        queued = queue_size > 0
        loss = InfoNCELoss(temperature=tau, symmetric=not queued, in_batch=bool(negatives) or queued)
        self.criterion = loss
        if matryoshka is not None:
            dims = prefix_lengths(matryoshka, self.tower.embedding_dim)
            self.criterion = MatryoshkaLoss(loss, dims, [1 / len(dims)] * len(dims))
        self.queues = nn.ModuleList()  # one for each column but the first
        self.momentum_towers: MomentumEncoder | None = None
        self.pending: tuple[Mapping[str, Tensor], dict[str, Tensor] | None] | None = None
        if queued:
            self.momentum_towers = MomentumEncoder(self._contrasted(), momentum)
            first, *others = (towers[name].embedding_dim for name in self.columns)
            self.queues.extend(PairQueue(queue_size, first, other) for other in others)

    @classmethod
    def require_options(cls, options: Mapping[str, Any], negatives: tuple[str, ...] = ()) -> None:
        """Raises ValueError for an option that is refused whatever the towers are."""
        if (same := options["same_cells"]) not in ("left_out", "negative"):
            raise ValueError(f"same_cells={same!r}: must be 'left_out' or 'negative'")
        if (size := options["queue_size"]) < 0:
            raise ValueError(f"queue_size={size}: must be at least 0")
        if not 0 <= (momentum := options["momentum"]) <= 1:
            raise ValueError(f"momentum={momentum}: must be from 0 to 1")
        if options["matryoshka"] is not None:
            prefix_lengths(options["matryoshka"])

    @property
    def pair_queues(self) -> list[PairQueue]:
        """The queues of the columns but the first; empty without ``queue_size``."""
        return [each for each in self.queues if isinstance(each, PairQueue)]

    def _contrasted(self) -> Towers:
        """Returns the towers of the columns that are contrasted, without those of hard negatives alone."""
        return Towers({name: self.towers[name] for name in self.columns})

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar."""
        loss = super().forward(views, labels, train_row)
        if self.momentum_towers is not None:
            keys: Mapping[str, Tensor] = self.momentum_towers(views)
            self.pending = keys, self.ids(train_row)
        return loss

    def contrast(self, embeddings: Mapping[str, Tensor], other: str, named: dict[str, Tensor]) -> Tensor:
        """Returns the loss of the first column with another one."""
        if not self.pair_queues:
            return super().contrast(embeddings, other, named)
        first, queue = self.columns[0], self.pair_queues[self.columns.index(other) - 1]
        there = self.criterion(embeddings[first], embeddings[other], **with_keys(queue.other, named))
        own = {
            name: value for name, value in named.items() if name == "ids"
        }  # hard negatives are keys of one direction
        back = self.criterion(embeddings[other], embeddings[first], **with_keys(queue.first, own))
        loss: Tensor = (there + back) / 2
        return loss

    def after_batch(self) -> None:
        """Enqueues the keys of the batch, as negatives of the next ones."""
        if self.pending is None:
            return
        keys, ids = self.pending
        first, *others = self.columns
        for other, queue in zip(others, self.pair_queues, strict=True):
            both = None if ids is None else torch.stack([ids[first], ids[other]], dim=1)
            queue.enqueue(keys[first], keys[other], both)
        self.pending = None

    def after_update(self, progress: float) -> None:
        """Updates the momentum encoders."""
        if self.momentum_towers is not None:
            self.momentum_towers.update(self._contrasted(), progress)

    def no_signal(self, batch: int, views: int) -> float:
        """Returns ln(N + K), the loss when all embeddings are equal and no rows share a cell; K: keys in the queue."""
        keys = max((len(queue.first) for queue in self.pair_queues), default=0)
        return math.log(max(batch + keys, 1))

    def figures(self) -> dict[str, float]:
        """Returns the temperature; with a queue, the number of its keys and the mean and largest number of steps since."""
        loss: Any = self.criterion.loss if isinstance(self.criterion, MatryoshkaLoss) else self.criterion
        tau = loss.temperature
        found = {"temperature": float(tau().detach()) if isinstance(tau, LearnableTemperature) else float(tau)}
        for queue in self.pair_queues[:1]:
            mean, most = queue.first.staleness()
            found |= {"queue_keys": len(queue.first), "queue_age_mean": mean, "queue_age_max": most}
        return found


def with_keys(queue: Queue, named: dict[str, Tensor]) -> dict[str, Tensor]:
    """Adds the keys of a queue to the negatives of a criterion, which gathers them.

    All processes have the same keys, so each adds its share.
    """
    group = gather_group("auto")
    place, world = rank(group), world_size(group)
    share = slice(len(queue) * place // world, len(queue) * (place + 1) // world)
    keys, others = queue.keys()[share], named.get("negatives")
    added = {"negatives": keys if others is None else torch.cat([others, keys.to(others.dtype)])}
    if "ids" in named:
        ids = torch.stack([queue.labels(), queue.ids()], dim=1)[share]
        known = named.get("negative_ids")
        added["negative_ids"] = ids if known is None else torch.cat([known, ids])
    return named | added


def prefix_lengths(text: str | int, width: int | None = None) -> list[int]:
    """Returns the lengths in ``text`` and ``width``, the number of all dimensions, ascending; None: as yet unknown.

    Raises:
        ValueError: not whole numbers from 1 to ``width``.
    """
    try:
        lengths = {int(part) for part in str(text).split(",")}
    except ValueError:
        raise ValueError(
            f"matryoshka={text!r}: must be whole numbers with commas between them, such as 64,128"
        ) from None
    if min(lengths) < 1 or (width is not None and max(lengths) > width):
        most = "the number of" if width is None else f"the {width}"
        raise ValueError(f"matryoshka={text!r}: must be from 1 to {most} dimensions of the embeddings")
    return sorted(lengths if width is None else lengths | {width})
