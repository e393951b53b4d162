"""PaCo: supervised contrast with a learnable center for each class, for long-tailed data."""

import torch
from torch import Tensor

from coulomb.ground.randomness import seeded_initialization
from coulomb.losses import PaCoLoss, ParametricCenters
from coulomb.methods.interface import OneColumn, Traits, for_rows, positive_counts
from coulomb.models import Tower, ViewRows
from coulomb.models.classifier import Classifier
from coulomb.negatives import MomentumEncoder, Queue


class PaCo(OneColumn):
    """Parametric contrastive learning (Cui et al., 2021), or its generalized variant (Cui et al., 2022).

        q = head(encoder(view 0))       k = the same by the momentum encoder, of the other views
        loss = PaCo([q; k; queue], labels, W·encoder(view 0) + b + log π)
        after the batch, k and its labels enter the queue; after the update, the momentum encoder is updated

    ``generalized``: no momentum encoder; all views are anchors and carry gradient, and their embeddings enter the queue, if
    there is one. With several processes, q and k of all of them are contrasted, and the queues are identical.

    An image without a label (−1) is no anchor, but it is a key for the other anchors, like any image of another class.
    W and b are saved with the run as its classifier, which predicts without log π. The authors use RandAugment for q; here
    all views are drawn from the same distribution.

    Args:
        tower: encoder and head, Linear-BN-ReLU-Linear; it ends in 128, as on ImageNet-LT (CIFAR-100-LT: 32).
        class_counts: training images of each class as the sampler draws them, [C]; a class without images counts as one.
        temperature: τ of the features; .2 on ImageNet-LT, .05 on CIFAR-100-LT.
        alpha, beta, gamma, supervised_temperature: see `PaCoLoss`; α .05 on ImageNet-LT, .01 on CIFAR-100-LT.
        balanced: add log π; False for balanced data.
        label_smoothing: ε on the center's target (generalized PaCo).
        queue_size: number of keys; 8192 on ImageNet-LT, 1024 on CIFAR-100-LT; 0 for none.
        momentum: momentum of the momentum encoder, .999.
        generalized: the generalized variant.
        seed: seed of the centers' initial weights.
    """

    traits = Traits(negatives=True, momentum=True, queue=True, floor="classes")
    local_mean = False

    needs_labels = True

    def __init__(
        self,
        tower: Tower,
        *,
        class_counts: Tensor,
        temperature: float = 0.2,
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
        super().__init__(tower)
        with seeded_initialization(seed, "centres"):
            self.centers = ParametricCenters(tower.feature_dim, len(class_counts))
        self.momentum_encoder = None if generalized else MomentumEncoder(tower, momentum)
        self.queue = Queue(queue_size, tower.embedding_dim) if queue_size else None
        self.criterion = PaCoLoss(
            positive_counts(class_counts) if balanced else None,
            alpha,
            beta,
            gamma,
            supervised_temperature,
            temperature,
            label_smoothing=label_smoothing,
        )
        self.pending: tuple[Tensor, Tensor] | None = None

    def forward(self, views: ViewRows, labels: Tensor, train_row: Tensor | None = None) -> Tensor:  # type: ignore[override]
        """Returns the loss of a batch, a scalar: labels [N] (−1: unknown)."""
        rows = self.rows(views)
        anchors = len(rows) if self.momentum_encoder is None else views.instances
        features = self.tower.encoder(rows[:anchors])
        queries, query_labels = self.tower.head(features), for_rows(labels, features)
        if self.momentum_encoder is None:
            keys, key_labels = queries[:0], labels[:0]
            self.pending = queries.detach(), query_labels
        else:
            keys = self.momentum_encoder(rows[anchors:])
            key_labels = for_rows(labels, keys)
            self.pending = keys, key_labels
        known = query_labels >= 0  # the anchors
        embeddings = torch.cat([queries[known].float(), queries[~known].float(), keys.float()])
        embedding_labels = torch.cat([query_labels[known], query_labels[~known], key_labels])
        stored = () if self.queue is None else (self.queue.keys(), self.queue.labels())
        loss: Tensor = self.criterion(embeddings, embedding_labels, self.centers(features)[known], *stored)
        return loss

    def after_batch(self) -> None:
        """Enqueues the keys of the batch, for later anchors."""
        if self.queue is not None and self.pending is not None:
            self.queue.enqueue(*self.pending)
        self.pending = None

    def after_update(self, progress: float) -> None:
        """Updates the momentum encoder."""
        if self.momentum_encoder is not None:
            self.momentum_encoder.update(self.tower, progress)

    def figures(self) -> dict[str, float]:
        """Returns the number of keys in the queue, and their mean age in batches."""
        if self.queue is None:
            return {}
        return {"queue_keys": float(len(self.queue)), "queue_age": self.queue.staleness()[0]}

    def classifier(self) -> Classifier:
        """Returns the centers as a classifier: plain logits, without log π."""
        return Classifier(
            self.centers.weight, self.centers.bias, how="linear: PaCo's centers, trained with the encoder"
        )

    # no_signal stays None: the loss of equal embeddings depends on the labels in batch and queue.
