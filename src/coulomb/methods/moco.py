"""MoCo: queries against a queue of keys from a slowly moving encoder."""

import math

import torch
from torch import Tensor, nn

from coulomb.errors import InputError
from coulomb.losses import InfoNCELoss
from coulomb.models import Encoder, projection_head
from coulomb.negatives import MomentumEncoder, Queue
from coulomb.randomness import generator


class MoCo(nn.Module):
    """Momentum contrast (He et al., 2020; v2: Chen et al., 2020).

        q = head(encoder(view 0))       k = the same by the momentum encoder, of the other view, without gradient
        loss = InfoNCE(q, k, queue)     the queue's K keys are the negatives; the batch's own are not
        after the batch, k goes into the queue; after the update, the momentum encoder follows: θ′ ← m·θ′ + (1−m)·θ

    v1: ``head_layers=1``, τ .07. v2: two layers without batch norm, τ .2. ``symmetric=True``: each view is query once and
    key once, as in the authors' CIFAR-10 demo; all keys go into the queue. With n views, each other view is a key.

    Batch norm can betray which key is of the query's own batch: all share its statistics, and the queue's keys do not. The
    authors shuffle the keys between GPUs. Here, in each process, the keys are computed in ``key_groups`` random groups,
    each with statistics of its own, which no query shares; nothing is exchanged between processes. 1 switches it off.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        temperature: τ; .07 in v1, .2 in v2, .1 in the CIFAR-10 demo.
        embedding_dim: output width of the head (paper: 128).
        head_layers: linear layers in the head: 1 for v1, 2 for v2.
        head_hidden_dim: width between them; None means the feature width, as in v2.
        queue_size: K; 65536 on ImageNet, 4096 in the CIFAR-10 demo.
        queue_fill: ``"random"`` directions at first, as in the authors' code, or ``"empty"``: K grows from 0.
        momentum: m; .999 on ImageNet, .99 in the CIFAR-10 demo.
        momentum_schedule: ``"constant"``, or ``"cosine"`` from m to 1.
        symmetric: see above.
        exclude_own: keys of the query's own image, from epochs before, are no negatives for it. The authors keep them:
            few among a million images, but many where the queue is as long as the data.
        key_groups: see above; 8 in the CIFAR-10 demo (at batch 512).
        seed: of the head's first weights, the queue's first keys, and the groups.
    """

    needs_labels = False
    batches: Tensor

    def __init__(
        self,
        encoder: Encoder,
        *,
        temperature: float = 0.2,
        embedding_dim: int = 128,
        head_layers: int = 2,
        head_hidden_dim: int | None = None,
        queue_size: int = 4096,
        queue_fill: str = "random",
        momentum: float = 0.99,
        momentum_schedule: str = "constant",
        symmetric: bool = False,
        exclude_own: bool = False,
        key_groups: int = 4,
        seed: int = 0,
    ):
        super().__init__()
        if key_groups < 1:
            raise InputError(f"key_groups={key_groups} must be at least 1")
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim,
            hidden_dim=head_hidden_dim,
            out_dim=embedding_dim,
            layers=head_layers,
            batch_norm=False,
            seed=seed,
        )
        self.momentum_encoder = MomentumEncoder(self._network(), momentum, schedule=momentum_schedule)
        self.queue = Queue(queue_size, embedding_dim, fill=queue_fill, seed=seed)
        self.criterion = InfoNCELoss(temperature)
        self.symmetric, self.exclude_own, self.key_groups, self.seed = symmetric, exclude_own, key_groups, seed
        self.register_buffer("batches", torch.tensor(0))
        self.pending: tuple[Tensor, Tensor | None] | None = None

    def _network(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.head)

    def forward(self, views: list[Tensor], labels: Tensor | None = None, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: n views [B, C, H, W] each, and which images they show, [B]; returns a scalar."""
        if len(views) < 2:
            raise InputError(f"n_views={len(views)}: MoCo needs 2, one for the queries and one for the keys")
        if self.exclude_own and index is None:
            raise InputError("exclude_own=True: forward needs the index of each image")
        asked, keyed = (views, views) if self.symmetric else (views[:1], views[1:])
        queries = self.head(self.encoder(torch.cat(asked))).chunk(len(asked))
        keys = self._keys(torch.cat(keyed))
        self.pending = keys, None if index is None else index.repeat(len(keyed))
        pairs = [
            (query, key)
            for i, query in enumerate(queries)
            for j, key in enumerate(keys.chunk(len(keyed)))
            if i != j or not self.symmetric
        ]
        query, key = (torch.cat(side) for side in zip(*pairs, strict=True))
        ids = {}
        if self.exclude_own and index is not None:
            ids = {"query_ids": index.repeat(len(pairs)), "negative_ids": self.queue.ids()}
        loss: Tensor = self.criterion(query, key, self.queue.keys(), **ids)
        return loss

    def _keys(self, images: Tensor) -> Tensor:
        """Keys by the momentum encoder, in random groups; the same ones until `after_batch`."""
        groups = max(1, min(self.key_groups, len(images) // 2))
        if groups == 1:
            return self.momentum_encoder(images)
        shuffled = torch.randperm(len(images), generator=generator(self.seed, "key groups", int(self.batches)))
        shuffled = shuffled.to(images.device)
        keys = torch.cat([self.momentum_encoder(images[group]) for group in shuffled.tensor_split(groups)])
        return keys[shuffled.argsort()]

    def after_batch(self) -> None:
        """The batch's keys become negatives of the next ones."""
        if self.pending is not None:
            keys, index = self.pending
            self.queue.enqueue(keys, ids=index)
            self.pending = None
        self.batches += 1

    def after_update(self, progress: float) -> None:
        """The momentum encoder follows."""
        self.momentum_encoder.update(self._network(), progress)

    def figures(self) -> dict[str, float]:
        """How many keys there are, and how many enqueues ago they were made."""
        mean, most = self.queue.staleness()
        return {"queue_keys": len(self.queue), "queue_age_mean": mean, "queue_age_max": most}

    def no_signal(self, batch: int, views: int) -> float | None:
        """The loss when all embeddings are alike, ln(1 + K); None for an empty queue."""
        return math.log1p(len(self.queue)) or None
