"""PaCo: supervised contrast with a learnable centre for each class, for long tails."""

import torch
from torch import Tensor, nn

from coulomb.checked import warn
from coulomb.errors import InputError
from coulomb.losses import PaCoLoss, ParametricCenters
from coulomb.losses.negatives import own_rows, summed_over, world_size
from coulomb.methods.labelled import present
from coulomb.models import Encoder, projection_head
from coulomb.models.classifier import Classifier
from coulomb.negatives import MomentumEncoder, Queue
from coulomb.randomness import seeded_initialisation
from coulomb.similarity.collectives import gather_group, gather_rows


class PaCo(nn.Module):
    """Parametric contrastive learning (Cui et al., 2021), or its generalised variant (Cui et al., 2022).

        q = head(encoder(view 0))       k = the same by the momentum encoder, of the other views
        loss = PaCo([q; k; queue], labels, W·encoder(view 0) + b + log π)
        after the batch, k and its labels go into the queue; after the update, the momentum encoder follows

    ``generalized``: no momentum encoder; all views are anchors and carry gradient; the queue, if any, takes their
    embeddings. On several processes q and k of all of them are contrasted, and all queues are alike.

    An image without a label (−1) is no anchor, but a key of the others like any whose class is not the anchor's.
    W and b are kept with the run as its classifier; it predicts without log π. Unlike the authors', who take RandAugment
    for q, here all views are drawn alike.

    Args:
        encoder: images [B, C, H, W] in [0, 1] → features [B, F]; has ``feature_dim``.
        class_counts: training images of each class as they are drawn, [C]; a class without any counts as one.
        temperature: τ of the features; .2 on ImageNet-LT, .05 on CIFAR-100-LT.
        embedding_dim: output width of the head; 128 on ImageNet-LT, 32 on CIFAR-100-LT.
        head_layers, head_hidden_dim: of the head, Linear-BN-ReLU-Linear.
        alpha, beta, gamma, supervised_temperature: see `PaCoLoss`; α .05 on ImageNet-LT, .01 on CIFAR-100-LT.
        balanced: add log π; False for balanced data.
        label_smoothing: ε on the centre's target (generalised PaCo).
        queue_size: keys kept; 8192 on ImageNet-LT, 1024 on CIFAR-100-LT; 0 for none.
        momentum: of the momentum encoder, .999.
        generalized: the generalised variant.
        seed: of the first weights.
    """

    needs_labels = True

    def __init__(
        self,
        encoder: Encoder,
        *,
        class_counts: Tensor,
        temperature: float = 0.2,
        embedding_dim: int = 128,
        head_layers: int = 2,
        head_hidden_dim: int | None = None,
        alpha: float = 0.05,
        beta: float = 1.0,
        gamma: float = 1.0,
        supervised_temperature: float = 1.0,
        balanced: bool = True,
        label_smoothing: float = 0.0,
        queue_size: int = 8192,
        momentum: float = 0.999,
        generalized: bool = False,
        seed: int = 0,
    ):
        super().__init__()
        self.encoder = encoder
        self.head = projection_head(
            encoder.feature_dim, hidden_dim=head_hidden_dim, out_dim=embedding_dim, layers=head_layers, seed=seed
        )
        with seeded_initialisation(seed, "centres"):
            self.centers = ParametricCenters(encoder.feature_dim, len(class_counts))
        self.momentum_encoder = None if generalized else MomentumEncoder(self._network(), momentum)
        self.queue = Queue(queue_size, embedding_dim) if queue_size else None
        self.criterion = PaCoLoss(
            present(class_counts) if balanced else None,
            alpha,
            beta,
            gamma,
            supervised_temperature,
            temperature,
            label_smoothing=label_smoothing,
        )
        self.pending: tuple[Tensor, Tensor] | None = None

    def _network(self) -> nn.Sequential:
        return nn.Sequential(self.encoder, self.head)

    def forward(self, views: list[Tensor], labels: Tensor, index: Tensor | None = None) -> Tensor:
        """Loss of one batch: n views [B, C, H, W] each and labels [B] (−1 unknown); returns a scalar."""
        if len(views) < 2:
            raise InputError(f"n_views={len(views)}: PaCo needs 2, one for the anchors and one for the keys")
        anchored = views if self.momentum_encoder is None else views[:1]
        features = self.encoder(torch.cat(anchored))
        queries, queries_of = self.head(features), labels.repeat(len(anchored))
        if self.momentum_encoder is None:
            keys, keys_of = queries[:0].detach(), labels[:0]
            self.pending = queries.detach(), queries_of
        else:
            keys, keys_of = self.momentum_encoder(torch.cat(views[1:])), labels.repeat(len(views) - 1)
            self.pending = keys, keys_of
        return self._loss(queries, queries_of, self.centers(features), keys, keys_of)

    def _loss(self, queries: Tensor, queries_of: Tensor, logits: Tensor, keys: Tensor, keys_of: Tensor) -> Tensor:
        """Own anchors first, then own images that are none, then the queries of others, the keys of all, the queue."""
        group, anchors = gather_group("auto"), queries_of >= 0
        all_queries, all_of = gather_rows(group, queries), gather_rows(group, queries_of)
        mine = own_rows(group, len(queries), queries)
        rows = [queries[anchors], queries[~anchors], all_queries[: mine.start], all_queries[mine.stop :]]
        ids = [queries_of[anchors], queries_of[~anchors], all_of[: mine.start], all_of[mine.stop :]]
        rows, ids = [*rows, gather_rows(group, keys)], [*ids, gather_rows(group, keys_of)]
        if self.queue is not None:
            rows, ids = [*rows, self.queue.keys()], [*ids, self.queue.labels()]
        count = summed_over(group, anchors.sum())
        if not anchors.any():
            warn(f"none of {len(queries_of)} rows of a batch has a label: PaCo learns nothing from them")
            return 0 * (all_queries.sum() + logits.sum())
        loss = self.criterion(torch.cat([part.float() for part in rows]), torch.cat(ids), logits[anchors])
        return loss * (anchors.sum() * world_size(group) / count)

    def after_batch(self) -> None:
        """Keep this batch's keys for later anchors."""
        if self.queue is not None and self.pending is not None:
            self.queue.enqueue(*self.pending)
        self.pending = None

    def after_update(self, progress: float) -> None:
        """The momentum encoder follows."""
        if self.momentum_encoder is not None:
            self.momentum_encoder.update(self._network(), progress)

    def no_signal(self, batch: int, views: int) -> float | None:
        """None: what equal embeddings cost depends on the labels in batch and queue."""
        return None

    def figures(self) -> dict[str, float]:
        """Keys in the queue, and how many batches old they are on average."""
        if self.queue is None:
            return {}
        return {"queue_keys": float(len(self.queue)), "queue_age": self.queue.staleness()[0]}

    def classifier(self) -> Classifier:
        """The centres as they are now: plain logits, without log π."""
        return Classifier(
            self.centers.weight, self.centers.bias, how="linear: PaCo's centres, trained with the encoder"
        )
