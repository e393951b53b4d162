"""PaCo: parametric contrastive learning, supervised contrast with a learnable centre for each class (long tails)."""

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from coulomb.checked import checked_flag, checked_number, readable
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    check_shape,
    embeddings,
    require_batch,
    warn_counted,
)
from coulomb.losses.classes import (
    checked_counts,
    checked_smoothing,
    class_labels,
    log_frequencies,
    own_and_rest,
    reduced_over,
)
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.options import Loss, optional
from coulomb.losses.temperature import (
    LearnableTemperature,
    Temperature,
    checked_temperature,
    describe_temperature,
    scale_of,
)
from coulomb.losses.unit_rows import rows_of
from coulomb.similarity import Similarity
from coulomb.similarity.problem import LOG2E
from coulomb.similarity.products import product, transposed_product


class ParametricCenters(nn.Linear):
    """W h + b, [B, C]: the class centres of `PaCoLoss`, an ordinary linear layer on the encoder's features h.

    When to use: with `PaCoLoss`.
    Needs: the encoder's own features, not those of the projection head, and its parameters in the optimizer.
    Reference: Cui et al., Parametric Contrastive Learning, ICCV 2021, arXiv:2107.12028.

    Args:
        dim: of the encoder's features (not of the projection head's).
        num_classes: C.

    Call with h [B, dim]. Predictions are the largest of these logits: without log π, which the loss alone adds.

    >>> ParametricCenters(16, 10)(torch.zeros(4, 16)).shape
    torch.Size([4, 10])
    """

    def __init__(self, dim: int, num_classes: int) -> None:
        super().__init__(dim, num_classes)


class PaCoLoss(Loss):
    """L_i = −Σ_k w_ik log p_ik / Σ_k w_ik  over the own centre (w = β) and the same-label features (w = α)

    log p_ik = logit_ik − log(Σ_c e^{c_ic} + γ Σ_{j≠i} e^{s_ij}), with logits c_ic = (center_logits_ic + log π_c)/τ_sup of
    the C centres and s_ij = z_i·z_j/τ of the features (PaCo, Cui et al., 2021). At the optimum with free logits the own
    centre has p = β/(β+αK) and each of the K positives α/(β+αK): α rebalances contrast between frequent and rare classes.

    When to use: labels with a long tail, where contrast alone serves the frequent classes and a classifier alone
    forgets the rare ones.
    Needs: labels, `ParametricCenters` on the encoder's features, the training images of each class, and keys: second
    views and a queue by a momentum encoder, or (generalised PaCo) both views as anchors.
    Temperature: τ is of the features alone: the lower, the wider their logits beside those of the centres, and the more
    the nearest features count. τ_sup does the same for the centres.
    Cost: 8u, u = B·(B+M)·D; 4u where every row is an anchor; memory linear.
    Reference: Cui et al., Parametric Contrastive Learning, ICCV 2021, arXiv:2107.12028; Cui et al., Generalized
    Parametric Contrastive Learning, 2022, arXiv:2209.12400.

    Args:
        class_counts: training images of each class, [C], for π_c = n_c/Σn (balanced softmax); None for balanced data.
        alpha: weight of a same-label feature; 0.05 as on ImageNet-LT and by default in the authors' code (CIFAR-LT: 0.01).
        beta: weight of the own centre, 1.
        gamma: weight of the features in the denominator, 1.
        supervised_temperature: τ_sup of the centres, 1.
        temperature: τ, or a `LearnableTemperature`; 0.2 as on ImageNet-LT (CIFAR-LT: 0.05).
        normalized: divide by Σw = β + αK, as the authors' code does; False is the plain sum of the paper.
        base_temperature: None for no extra factor; a number gives a factor τ/τ_base (the authors set τ_base = τ).
        label_smoothing: ε on the centre's target (generalised PaCo): the own centre has weight β(1−ε), each of the C−1
            others βε/(C−1), as in the authors' code. `torch.nn.functional.cross_entropy` spreads ε over all C instead.
        normalize: scale features to unit length.
        reduction: ``"mean"`` over anchors with a target, ``"sum"``, or ``"none"`` ([B]).
        diagnose: return (loss, `Diagnosis`) of the anchors' features (one more pass).

    Call with features [B+M, D], labels [B+M] (−1: unknown), center_logits [B, C]: the first B rows are the anchors, the
    M others are keys: the same images' second views, then a queue. Where both views are anchors (generalised PaCo), give
    2B rows of center_logits. The image's own second view is a positive by its label.

    Deviation: a queue that is not filled yet has label −1 (the authors start with random labels): such a key is nobody's
    positive and stays in the denominator.
    Several processes: each contrasts with its own batch and queue (there is no ``gather``): a queue is filled with the keys
    of all processes and the same on each, so that gathering would count every key of it W times.
    Degenerate input: an anchor without any target (label −1, or β = 0 and no positive) has loss 0 and is left out of the
    mean; a `CoulombWarning` counts them (not in a compiled graph).

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> features, labels = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    >>> PaCoLoss(temperature=1.0, supervised_temperature=1.0)(features, labels, torch.ones(2, 2))  # all alike: ln(2 + 3)
    tensor(1.6094)
    """

    class_counts: Tensor | None

    checks: ClassVar = {
        "class_counts": optional(checked_counts),
        **dict.fromkeys(("alpha", "beta", "gamma"), partial(checked_number, at_least=0)),
        "supervised_temperature": partial(checked_number, above=0),
        "temperature": checked_temperature,
        "normalized": checked_flag,
        "base_temperature": optional(partial(checked_number, above=0)),
        "label_smoothing": checked_smoothing,
    }

    def __init__(
        self,
        class_counts: Tensor | Sequence[float] | None = None,
        alpha: float = 0.05,
        beta: float = 1.0,
        gamma: float = 1.0,
        supervised_temperature: float = 1.0,
        temperature: Temperature = 0.2,
        normalized: bool = True,
        *,
        base_temperature: float | None = None,
        label_smoothing: float = 0.0,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
    ) -> None:
        super().__init__()
        if base_temperature is not None and isinstance(temperature, LearnableTemperature):
            raise ValueError("base_temperature with a learned temperature: the factor τ/τ_base could be learned to 0")
        self.alpha, self.beta, self.gamma = alpha, beta, gamma
        if self.alpha == self.beta == 0:
            raise ValueError("alpha and beta are both 0: there is nothing to attract an anchor")
        self.supervised_temperature = supervised_temperature
        self.temperature = temperature
        self.normalized = normalized
        self.base_temperature = base_temperature
        self.label_smoothing = label_smoothing
        self.normalize = normalize
        self.reduction = reduction
        self.diagnose = diagnose
        counts = None if class_counts is None else checked_counts("class_counts", class_counts)
        self.register_buffer("class_counts", counts)

    def forward(self, features: Tensor, labels: Tensor, center_logits: Tensor) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        check_shape("features", features)
        require_batch("features", features)
        self._check_center_logits(center_logits, features)
        labels, all_known = class_labels(labels, len(features), center_logits.shape[1], features)
        features, center_logits = at_once.alike(features, center_logits)
        scale, general = scale_of(self.temperature), partial(self._streamed, labels)
        plainly = bool(self.beta and self.gamma) and not (self.diagnose or self.label_smoothing)
        plainly = plainly and all_known and 1 < center_logits.shape[1] < at_once.EXACT
        if at_once.fits(len(center_logits), len(features), features, reduction=self.reduction, plainly=plainly):
            find = partial(self._at_once, features, center_logits, scale, labels)
            return at_once.known(find, general, features, center_logits, scale)
        return general(features, center_logits, scale)

    def _at_once(
        self, features: Tensor, center_logits: Tensor, scale: float | Tensor, labels: Tensor, learning: bool
    ) -> at_once.Found:
        anchors = len(center_logits)
        rows = at_once.Rows(("features",), (features,), normalize=self.normalize)
        centers = at_once.Rows(("center_logits",), (center_logits,), normalize=False)
        first, unit = rows.unit[:anchors], rows.unit
        t, of_centers = at_once.exponents(first, unit, scale), self._logits(centers.unit) * LOG2E
        within = at_once.within_range(t, scale, rows) & at_once.within_range(of_centers, 1.0, centers)
        same, place = at_once.same(labels[:anchors], labels, t.dtype).fill_diagonal_(0), labels[:anchors, None]
        count, own = same.sum(1), of_centers.gather(1, place).squeeze(1)
        positive = torch.mul(t, same).sum(1)
        of_centers.scatter_(1, place, at_once.HIDDEN)
        t.fill_diagonal_(at_once.HIDDEN)
        if self.gamma != 1:
            t += math.log2(self.gamma)
        largest = None if within else torch.maximum(t.amax(1), of_centers.amax(1))
        if largest is not None:
            t -= largest[:, None]
            of_centers -= largest[:, None]
        total = t.exp2_().sum(1).add_(of_centers.exp2_().sum(1))
        lse = total.log() if largest is None else total.log().add_(largest, alpha=at_once.LN2)
        margin, weight = torch.sub(lse, own, alpha=at_once.LN2), count * self.alpha + self.beta
        factor = at_once.factor_of(self.reduction, anchors)
        if self.base_temperature is not None:
            factor = factor / (float(scale) * self.base_temperature)
        share = self.alpha * factor
        toward, away = (share / weight, factor) if self.normalized else (share, weight * factor)
        loss = (softplus(margin, threshold=50) * away).sum()
        loss += ((count * own).sub_(positive) * toward).sum().mul_(at_once.LN2)
        if not learning:
            return loss, ()
        pull = margin.sigmoid_().mul_(away)
        push = (pull / total)[:, None]
        gradient = t.mul_(push).sub_(same.mul_(toward[:, None] if isinstance(toward, Tensor) else toward))
        of_centers.mul_(push).scatter_(1, place, (count * toward).sub_(pull)[:, None])
        grad, attended = transposed_product(gradient, first), product(gradient, unit.T)
        grad_scale = (first * attended).sum() if isinstance(scale, Tensor) else None
        grad[:anchors] += attended
        (grad_features,) = rows.back(grad, scale)
        (grad_centers,) = centers.back(of_centers, 1 / self.supervised_temperature)
        return loss, (grad_features, grad_centers, grad_scale)

    def _streamed(
        self, labels: Tensor, features: Tensor, center_logits: Tensor, scale: float | Tensor
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        features = embeddings("features", features, normalize=self.normalize)
        centers = rows_of(("center_logits",), center_logits, normalize=False, products=False)
        centers = self._logits(centers.to(torch.promote_types(centers.dtype, features.dtype)))
        anchors, classes = centers.shape
        similarity = Similarity(
            features[:anchors],
            None if anchors == len(features) else features,
            scale=scale,
            query_ids=labels[:anchors],
            key_ids=None if anchors == len(features) else labels,
            queries_lead_keys=True,
            unit=self.normalize,
        )
        labels = labels[:anchors]
        known = labels >= 0
        # rest: log Σ over everything but the own centre; then lse − own = softplus(rest − own) does not cancel.
        own, rest = own_and_rest(centers, labels.clamp_min(0))
        if self.gamma:
            rest = torch.stack([rest, similarity.lse("others") + math.log(self.gamma)]).logsumexp(0)
        count = similarity.count("positives").to(own.dtype)
        weight = self.beta * known.to(own.dtype) + self.alpha * count
        loss = weight * softplus(rest - own, threshold=50)
        loss = loss + self.alpha * (count * own - similarity.sum("positives"))
        if self.label_smoothing and classes > 1:  # own − mean over the other centres
            smoothing = self.beta * self.label_smoothing * classes / (classes - 1)
            loss = loss + smoothing * (own - centers.mean(1))
        has_target = weight > 0
        if self.normalized:
            loss = loss / weight.masked_fill(~has_target, 1)
        if self.base_temperature is not None:
            loss = loss / (scale * self.base_temperature)
        self._warn(has_target, classes, len(features))
        loss = reduced_over(loss, has_target, self.reduction)
        return (loss, diagnose_rows(similarity)) if self.diagnose else loss

    def _check_center_logits(self, center_logits: Tensor, features: Tensor) -> None:
        check_shape("center_logits", center_logits)
        if center_logits.device != features.device:
            raise ValueError(f"center_logits is on {center_logits.device}, features on {features.device}")
        if not 1 <= len(center_logits) <= len(features):
            raise ValueError(
                f"center_logits must have a row for each anchor, at most features' {len(features)}; "
                f"got shape {tuple(center_logits.shape)}"
            )

    def _logits(self, centers: Tensor) -> Tensor:
        """(W h + b + log π)/τ_sup, [B, C]."""
        if self.class_counts is not None:
            centers = centers + log_frequencies(self.class_counts, centers, centers.shape[1], "center_logits")
        return centers if self.supervised_temperature == 1 else centers / self.supervised_temperature

    def _warn(self, has_target: Tensor, classes: int, keys: int) -> None:
        if not readable(has_target):
            return
        without = int((~has_target).sum())
        if without:
            warn_counted(
                without,
                len(has_target),
                "anchors have neither centre nor positive: left out of the mean, with a loss of 0",
            )
        if classes == 1 and (keys == 1 or self.gamma == 0):
            warn_counted(
                len(has_target), len(has_target), "anchors have nothing to be told from: the loss teaches nothing"
            )

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        counts = None if self.class_counts is None else f"[{len(self.class_counts)}]"
        return (
            f"class_counts={counts}, alpha={self.alpha:g}, beta={self.beta:g}, gamma={self.gamma:g}, "
            f"supervised_temperature={self.supervised_temperature:g}, {describe_temperature(self.temperature)}, "
            f"normalized={self.normalized}, base_temperature={self.base_temperature}, "
            f"label_smoothing={self.label_smoothing:g}, normalize={self.normalize}, reduction={self.reduction!r}"
        )
