"""PaCo: parametric contrastive learning, supervised contrast with a learnable center per class (for long tails)."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from coulomb.ground.checked import UNKNOWN, check_shape, checked_whole, number, optional
from coulomb.losses.classes import checked_counts, log_frequencies, target_and_rest
from coulomb.losses.diagnosis import Result, diagnose_rows
from coulomb.losses.inputs import class_ids, normalized, unless_all, warn_counted
from coulomb.losses.negatives import counted_over, rank, reduced_over, world_size
from coulomb.losses.options import Flag, Gather, Loss, NonNegative, Positive, Reduction, Share, Tau
from coulomb.losses.temperature import check_base, scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_group


class ParametricCenters(nn.Linear):
    """W h + b, [B, C]: the class centers of `PaCoLoss`, an ordinary linear layer on the encoder's features h.

    When to use: with `PaCoLoss`.
    Needs: the features of the encoder, not the embeddings of the projection head; its parameters must be in the optimizer.
    Reference: Cui et al., Parametric Contrastive Learning, ICCV 2021, arXiv:2107.12028.

    Args:
        dim: dimension of the encoder's features.
        num_classes: C.

    Shape:
        h: [B, dim].
        output: [B, C].

    The prediction is the class with the largest logit, without log π, which only the loss adds.

    >>> ParametricCenters(16, 10)(torch.zeros(4, 16)).shape
    torch.Size([4, 10])
    """

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(checked_whole("dim", dim), checked_whole("num_classes", num_classes))


class PaCoLoss(Loss):
    """L_i = −Σ_k w_ik log p_ik / Σ_k w_ik  over the class center (w = β) and the same-label features (w = α)

    log p_ik = logit_ik − log(Σ_c e^{c_ic} + γ Σ_{j≠i} e^{s_ij}), with logits c_ic = (center_logits_ic + log π_c)/τ_sup of
    the C centers and s_ij = z_i·z_j/τ of the features (PaCo, Cui et al., 2021). At the optimum with free logits the class
    center has p = β/(β+αK) and each of the K positives α/(β+αK): α rebalances contrast between frequent and rare classes.

    When to use: labels with a long tail, where pure contrast favors the frequent classes and a pure classifier neglects
    the rare ones.
    Needs: labels, `ParametricCenters` on the encoder's features, the number of training images per class, and keys: second
    views and a queue from a momentum encoder, or (generalized PaCo) both views as anchors.
    Temperature: τ applies to the features only: the lower it is, the wider their logits are relative to the centers'
    logits, and the more the nearest features count. τ_sup does the same for the centers.
    Cost: 8u with u = B·(B+M)·D; 4u if every row is an anchor. Memory is linear in B + M.
    Reference: Cui et al., Parametric Contrastive Learning, ICCV 2021, arXiv:2107.12028; Cui et al., Generalized
    Parametric Contrastive Learning, 2022, arXiv:2209.12400.

    Args:
        class_counts: training images per class, [C], for π_c = n_c/Σn (balanced softmax); None for balanced data.
        alpha: weight of a same-label feature; 0.05 as on ImageNet-LT and by default in the authors' code (CIFAR-LT: 0.01).
        beta: weight of the center of the anchor's class, 1.
        gamma: weight of the features in the denominator, 1.
        supervised_temperature: τ_sup of the centers, 1.
        temperature: τ, or a `LearnableTemperature`; 0.2 as on ImageNet-LT (CIFAR-LT: 0.05).
        normalized: divide by Σw = β + αK, as the authors' code does; False is the plain sum of the paper.
        base_temperature: None for no extra factor; a number gives a factor τ/τ_base (the authors set τ_base = τ).
        label_smoothing: ε on the center's target (generalized PaCo): the class center has weight β(1−ε), each of the
            C−1 others βε/(C−1), as in the authors' code. `torch.nn.functional.cross_entropy` spreads ε over all C instead.
        normalize: scale features to unit length.
        reduction: ``"mean"`` over anchors with a target, ``"sum"``, or ``"none"`` ([B]).
        diagnose: return (loss, `Diagnosis`) of the anchors' features (one more pass).
        gather: contrast with the features of all processes: True, False, or ``"auto"``, if torch.distributed is initialized
            with several processes, which must then all call the loss. The queue is the same in all processes and counts
            once. See `coulomb.losses.negatives` for the convention.

    Shape:
        features: [B+M, D].
        labels: [B+M].
        center_logits: [B, C].
        queue: [Q, D].
        queue_labels: [Q].
        output: scalar, or [B] with ``reduction="none"``.

    Deviation: unfilled slots of a queue have label −1 (the authors start with random labels): such a key is never a positive
    but stays in the denominator.
    Degenerate input: an anchor without any target (label −1, or β = 0 and no positive) has a loss of 0 and is left out of
    the mean; a `CoulombWarning` counts them (not in a compiled graph). B may be 0: the loss is then 0, with a warning.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> features, labels = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    >>> PaCoLoss(temperature=1.0, supervised_temperature=1.0)(features, labels, torch.ones(2, 2))  # equal: ln(2 + 3)
    tensor(1.6094)
    """

    class_counts: InitVar[Annotated[Tensor | Sequence[float] | None, optional(checked_counts)]] = None
    alpha: NonNegative = 0.05
    beta: NonNegative = 1.0
    gamma: NonNegative = 1.0
    supervised_temperature: Positive = 1.0
    temperature: Tau = 0.2
    normalized: Flag = True
    _: KW_ONLY
    base_temperature: Annotated[float | None, optional(number(above=0))] = None
    label_smoothing: Share = 0.0
    normalize: Flag = True
    reduction: Reduction = "mean"
    diagnose: Flag = False
    gather: Gather = "auto"

    def __post_init__(self, class_counts: Tensor | Sequence[float] | None) -> None:
        self.register_buffer("class_counts", optional(checked_counts)("class_counts", class_counts))
        check_base(self.base_temperature, self.temperature)
        if self.alpha == self.beta == 0:
            raise ValueError("alpha and beta are both 0: nothing would attract an anchor; set one above 0")

    def forward(
        self,
        features: Tensor,
        labels: Tensor,
        center_logits: Tensor,
        queue: Tensor | None = None,
        queue_labels: Tensor | None = None,
    ) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            features: embeddings of the B anchors, then of M keys: the second views of the same images. If both views are
                anchors (generalized PaCo), there are no keys.
            labels: class of each row, −1 for unknown. The second view of an image is a positive because it has the same
                label.
            center_logits: output of `ParametricCenters` for the anchors.
            queue: more keys, the same in all processes; given together with ``queue_labels``.
            queue_labels: class of each key, −1 for unknown.
        """
        centers = self._checked_logits(features, center_logits)
        (anchors, classes), group, scale = centers.shape, gather_group(self.gather), scale_of(self.temperature)
        labels = class_ids(labels, len(features), features, classes=classes)
        if (queue is None) != (queue_labels is None):
            raise ValueError("queue and queue_labels: pass both or neither")
        if queue is not None and queue_labels is not None:
            # The queue is the same in all processes, each of which contributes a share.
            check_shape("queue", queue, like=features, least=0)
            queue_labels = class_ids(queue_labels, len(queue), features, classes=classes, name="queue_labels")
            share = slice(rank(group), None, world_size(group))
            features, labels = torch.cat([features, queue[share]]), torch.cat([labels, queue_labels[share]])
        features = normalized(("features",), features, normalize=self.normalize)
        symmetric, ids = group is None and anchors == len(features), labels[:anchors]
        similarity = Similarity(
            features if symmetric else features[:anchors],
            None if symmetric else features,
            scale=scale,
            query_ids=ids,
            key_ids=None if symmetric else labels,
            queries_lead_keys=True,
            unit=self.normalize,
            group=group,
        )
        center, rest = target_and_rest(centers, ids)
        if self.gamma:
            rest = torch.logaddexp(rest, similarity.lse("others") + math.log(self.gamma))
        count, attraction = similarity.count("positives").to(center.dtype), similarity.sum("positives")
        weight = self.beta * (ids != UNKNOWN).to(center.dtype) + self.alpha * count
        # −log p is softplus(rest − center) for the class center, without cancellation, and center − s_ip more for a positive.
        losses = weight * softplus(rest - center, threshold=50) + self.alpha * (count * center - attraction)
        if self.label_smoothing and classes > 1:
            smoothing = self.beta * self.label_smoothing * classes / (classes - 1)
            losses = losses + smoothing * (center - centers.mean(1))
        if anchors == 0:
            warn_counted(
                0, len(features), "rows are anchors (center_logits is empty, as without labels): loss 0, no gradient"
            )
        elif classes == 1 and (similarity.number_of_keys == 1 or self.gamma == 0):
            warn_counted(
                anchors, anchors, "anchors have no other class and no other sample: the loss gives no gradient"
            )
        counted = unless_all(weight > 0, "anchors have neither center nor positive: loss 0, left out of the mean")
        if self.normalized:
            losses = losses / (weight if counted is None else weight.masked_fill(~counted, 1))
        if self.base_temperature is not None:
            losses = losses / (scale * self.base_temperature)
        losses = losses if counted is None else losses.masked_fill(~counted, 0)
        loss = reduced_over(group, losses, self.reduction, counted_over(group, weight > 0))
        return (loss, diagnose_rows(similarity)) if self.diagnose else loss

    def _checked_logits(self, features: Tensor, center_logits: Tensor) -> Tensor:
        """(W h + b + log π)/τ_sup, [B, C]."""
        check_shape("features", features)
        check_shape("center_logits", center_logits, least=0)
        if center_logits.device != features.device:
            raise ValueError(f"center_logits is on {center_logits.device}, features on {features.device}")
        if len(center_logits) > len(features):
            most, given = len(features), tuple(center_logits.shape)
            raise ValueError(f"center_logits must have one row per anchor, at most {most} rows; got shape {given}")
        logits = normalized(("center_logits",), center_logits, normalize=False, degree=0)
        counts = self.get_buffer("class_counts")
        if counts is not None:
            logits = logits + log_frequencies(counts, logits.shape[1], logits, "center_logits")
        return logits if self.supervised_temperature == 1 else logits / self.supervised_temperature
