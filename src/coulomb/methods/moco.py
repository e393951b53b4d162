"""MoCo: queries against a queue of keys from a momentum encoder."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.losses import InfoNCELoss
from coulomb.methods.interface import OneColumn, Traits, for_rows, pair_views
from coulomb.models import Tower, ViewRows
from coulomb.negatives import MomentumEncoder, Queue


class MoCo(OneColumn):
    """Momentum contrast (He et al., 2020; v2: Chen et al., 2020).

        q = head(encoder(view 0))       k = the same by the momentum encoder, of the other view, without gradient
        loss = InfoNCE(q, k, queue)     the queue's K keys are the negatives, the other keys of the batch are not
        after the batch, k enters the queue; after the update, the momentum encoder: θ′ ← m·θ′ + (1−m)·θ

    v1: ``head_layers=1``, τ .07. v2: two layers without batch norm, τ .2. ``symmetric=True``: each view is query once and
    key once, as in the authors' CIFAR-10 demo; all keys enter the queue. With V views, each other view is a key.

    Batch norm can reveal which key comes from the query's own batch, because they share batch statistics and the queue's keys
    do not. The authors shuffle the keys between GPUs. Here, in each process, the keys are computed in ``key_groups`` random
    groups with separate statistics, which no query shares; nothing is exchanged between processes. 1 disables this.

    Args:
        tower: encoder and head; the head has 2 layers without batch norm and ends in 128, as in v2.
        temperature: τ; .07 in v1, .2 in v2, .1 in the CIFAR-10 demo.
        queue_size: K; 65536 on ImageNet, 4096 in the CIFAR-10 demo.
        queue_fill: initial keys: ``"random"`` directions, as in the authors' code, or ``"empty"``: K grows from 0.
        momentum: m; .999 on ImageNet, .99 in the CIFAR-10 demo.
        momentum_schedule: ``"constant"``, or ``"cosine"`` from m to 1.
        symmetric: see above.
        exclude_own: exclude keys of the query's own image, from previous epochs, from its negatives. The authors keep them:
            they are rare among a million images, but frequent where the queue is as long as the data.
        key_groups: see above; 8 in the CIFAR-10 demo (at batch 512).
        seed: seed of the initial keys, and of the groups.
    """

    default_head: ClassVar = {"batch_norm": False}
    traits = Traits(negatives=True, momentum=True, queue=True)
    local_mean = True

    batches: Tensor

    def __init__(
        self,
        tower: Tower,
        *,
        temperature: float = 0.2,
        queue_size: int = 4096,
        queue_fill: str = "random",
        momentum: float = 0.99,
        momentum_schedule: str = "constant",
        symmetric: bool = False,
        exclude_own: bool = False,
        key_groups: int = 4,
        seed: int = 0,
    ):
        if key_groups < 1:
            raise InputError(f"key_groups={key_groups}: must be at least 1")
        super().__init__(tower)
        self.momentum_encoder = MomentumEncoder(tower, momentum, schedule=momentum_schedule)
        self.queue = Queue(queue_size, tower.embedding_dim, fill=queue_fill, seed=seed)
        self.criterion = InfoNCELoss(temperature)
        self.symmetric, self.exclude_own, self.key_groups, self.seed = symmetric, exclude_own, key_groups, seed
        self.register_buffer("batches", torch.tensor(0))
        self.pending: tuple[Tensor, Tensor | None] | None = None

    def forward(self, views: ViewRows, labels: Tensor | None = None, train_row: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch, a scalar; the train rows [N] are the ids of the keys in the queue."""
        rows, first = self.rows(views), views.instances
        if self.exclude_own and train_row is None:
            raise InputError("exclude_own=True: forward needs the train_row of each sample")
        if self.symmetric:
            keys = self._keys(rows)
            query, key = pair_views(views.split(self.tower(rows)), views.split(keys))
        else:
            key = keys = self._keys(rows[first:])
            query = self.tower(rows[:first]).repeat(len(keys) // max(first, 1), 1)
        self.pending = keys, None if train_row is None else for_rows(train_row, keys)
        ids = {}
        if self.exclude_own and train_row is not None:
            ids = {"ids": for_rows(train_row, query), "negative_ids": self.queue.ids()}
        loss: Tensor = self.criterion(query, key, self.queue.keys(), **ids)
        return loss

    def _keys(self, rows: Tensor) -> Tensor:
        """Returns keys by the momentum encoder, computed in random groups that are fixed until `after_batch`."""
        groups = max(1, min(self.key_groups, len(rows) // 2))
        if groups == 1:
            return self.momentum_encoder(rows)
        shuffled = torch.randperm(len(rows), generator=generator(self.seed, "key groups", int(self.batches)))
        shuffled = shuffled.to(rows.device)
        keys = torch.cat([self.momentum_encoder(rows[group]) for group in shuffled.tensor_split(groups)])
        return keys[shuffled.argsort()]

    def after_batch(self) -> None:
        """Enqueues the keys of the batch, as negatives of the next ones."""
        if self.pending is not None:
            self.queue.enqueue(self.pending[0], ids=self.pending[1])
            self.pending = None
        self.batches += 1

    def after_update(self, progress: float) -> None:
        """Updates the momentum encoder."""
        self.momentum_encoder.update(self.tower, progress)

    def figures(self) -> dict[str, float]:
        """Returns the number of keys, and the mean and largest number of enqueues since they were added."""
        mean, most = self.queue.staleness()
        return {"queue_keys": len(self.queue), "queue_age_mean": mean, "queue_age_max": most}

    def no_signal(self, batch: int, views: int) -> float | None:
        """Returns the loss when all embeddings are equal, ln(1 + K); None for an empty queue."""
        return math.log1p(len(self.queue)) or None
