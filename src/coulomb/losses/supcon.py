"""SupCon: everything of your class is your positive."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from coulomb.checked import checked_number, readable
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    check_shape,
    checked_choice,
    checked_labels,
    embeddings,
    flat_labels,
    require_batch,
    require_dense,
    warn_counted,
)
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.gathering import ids_in, own_rows, processes_in, reduced_in, summed_in
from coulomb.losses.multi_label import OVERLAPS, checked_multi_hot, overlap_matrix, overlap_sums
from coulomb.losses.options import Loss, optional
from coulomb.losses.temperature import (
    LearnableTemperature,
    Temperature,
    checked_temperature,
    describe_temperature,
    scale_of,
)
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import Gather, group_of, rows_in
from coulomb.similarity.products import product


class SupConLoss(Loss):
    """L_i = LSE_{a≠i} s_ia − mean_{p∈P(i)} s_ip,  s = cos/τ   (Khosla et al., 2020, their L_out)

    P(i): the other views of i and every view of samples with the same label. ``positives="in"`` is their weaker L_in,
    LSE_{a≠i} s_ia − LSE_{p∈P(i)} s_ip + log|P(i)|. Without labels and mask this is NT-Xent. With several labels a
    sample, P(i) is every sample that shares one, and the mean over it may be weighted by how many (``overlap``).
    The mean over positives costs O(N·D) by class sums; no N×N matrix is formed.

    When to use: labels for all samples or for some (−1), one or several each, or a relation of your own (a mask).
    Needs: positives in the batch: two samples of a class, or two views of each. Its least value is log|P(i)|, not 0.
    Temperature: positives and negatives share one softmax, which weighs the push; positives share the pull evenly. A
    low τ turns to the hardest negatives and to the positives that are still far. With another τ gradients scale by 1/τ;
    τ_base undoes this.
    Cost: 4u, u = (B·V)²·D (``contrast_mode="one"``: 8u, u = B²·V·D; ``positives="in"``: twice); memory linear.
    Reference: Khosla et al., Supervised Contrastive Learning, NeurIPS 2020, arXiv:2004.11362.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.07 as in the authors' code.
        base_temperature: None for no extra factor; a number gives the authors' factor τ/τ_base.
        contrast_mode: ``"all"`` anchors every view, ``"one"`` view 0 only.
        positives: ``"out"``, the mean outside the logarithm, or ``"in"``.
        no_positive: an anchor without positives counts as a loss of 0 (``"zero"``, as in the authors' newer code), is left
            out of the mean (``"exclude"``), or is an error (``"raise"``). The first two count them in a `CoulombWarning`.
        overlap: weight of a positive where labels are multi-hot, A and B being the classes of the two samples: ``"any"``,
            1 if they share one; ``"count"``, |A∩B|; ``"jaccard"``, |A∩B|/|A∪B|. Weights are divided by their sum.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([anchors]: all of view 0, then all of view 1, …).
        diagnose: return (loss, `Diagnosis`), for up to two more passes.
        gather: samples of all processes' batches, whose labels are compared: True, False, or ``"auto"``, when
            torch.distributed is initialised with several processes, which must then all call the loss. See
            `coulomb.losses.gathering` for the convention. A mask is about this process's own samples: those of others are
            nobody's positives, and its diagnosis leaves them out. Multi-hot labels need ``positives="out"``, no diagnosis.

    Call with features [B, V, D] or [B, D], and one of: labels [B] or [B, 1] (−1: unknown, only its own views are
    positive); labels [B, C] with C ≥ 2, multi-hot: boolean, or 0 and 1 (a row of zeros: unknown); a mask [B, B] (mask[i,
    j]: j is a positive of i; may be asymmetric, boolean or non-negative weights); or neither, and only an anchor's other
    views are positive.

    Memory: multi-hot labels with ``positives="out"`` take a strip of the B×B overlaps at a time (``"count"``: none); with
    ``positives="in"`` or ``diagnose=True`` the mask of their N×N pairs is formed.
    In a compiled graph values are not looked at: no error for no_positive="raise", no counted warnings; the loss is the same.

    Deviation: the authors subtract a row maximum that includes self, by which other terms underflow at small τ; not here.
    Degenerate input: anchors without positives go by ``no_positive``; if no anchor has any, the loss is 0. With a single
    other sample the loss is 0 to rounding, and a `CoulombWarning` says so.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> SupConLoss(temperature=1.0)(features, torch.tensor([0, 0, 1, 1]))  # log(e + 2) − 1
    tensor(0.5514)
    >>> multi_hot = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]])
    >>> SupConLoss(temperature=1.0, overlap="count", reduction="none")(features, multi_hot)
    tensor([1.0514, 0.5514, 0.5514, 1.0514])
    """

    checks: ClassVar = {
        "temperature": checked_temperature,
        "base_temperature": optional(partial(checked_number, above=0)),
        "contrast_mode": partial(checked_choice, choices=("all", "one")),
        "positives": partial(checked_choice, choices=("out", "in")),
        "no_positive": partial(checked_choice, choices=("zero", "exclude", "raise")),
        "overlap": partial(checked_choice, choices=OVERLAPS),
    }

    def __init__(
        self,
        temperature: Temperature = 0.07,
        base_temperature: float | None = None,
        contrast_mode: str = "all",
        positives: str = "out",
        no_positive: str = "zero",
        *,
        overlap: str = "any",
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.temperature = temperature
        if base_temperature is not None and isinstance(temperature, LearnableTemperature):
            raise ValueError("base_temperature with a learned temperature: the factor τ/τ_base could be learned to 0")
        self.base_temperature = base_temperature
        self.contrast_mode = contrast_mode
        self.positives = positives
        self.no_positive = no_positive
        self.overlap = overlap
        self.normalize = normalize
        self.reduction = reduction
        self.diagnose = diagnose
        self.gather = gather

    def forward(
        self, features: Tensor, labels: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        check_shape("features", features, ndim=(2, 3))
        require_batch("features", features)
        scale, labels = scale_of(self.temperature), None if labels is None else flat_labels(labels)
        rows = features[..., 0].numel()
        plainly = mask is None and (not isinstance(labels, Tensor) or labels.ndim == 1) and rows > 2
        plainly = plainly and self.positives == "out" and self.contrast_mode == "all" and not self.diagnose
        plainly = plainly and group_of(self.gather) is None
        if at_once.fits(rows, rows, features, reduction=self.reduction, plainly=plainly):
            ids = torch.arange(len(features), device=features.device)
            if labels is not None:
                ids = checked_labels(labels, len(features), features)
            if at_once.numbers(ids):
                find = partial(self._at_once, features, ids, scale)
                loss = at_once.attempted(find, partial(self._streamed, labels, None), features, scale)
                if loss is not None:
                    return loss
        return self._streamed(labels, mask, features, scale)

    def _at_once(self, features: Tensor, ids: Tensor, scale: float | Tensor, learning: bool) -> at_once.Found | None:
        """None where an anchor has no positive: that is to be said."""
        given = features.reshape(-1, features.shape[-1])
        ids = ids.repeat_interleave(len(given) // len(ids))
        same = at_once.same(ids, ids, given.dtype).fill_diagonal_(0)
        count = same.sum(1)
        if float(count.min()) == 0:  # before the rows, which would be warned of twice
            return None
        rows = at_once.Rows(("features",), (given,), normalize=self.normalize)
        unit, t = rows.unit, at_once.exponents(rows.unit, rows.unit, scale)
        within = at_once.within_range(t, scale, rows)
        attraction = (t * same).sum(1).div_(count)
        t.fill_diagonal_(at_once.HIDDEN)
        total, lse = at_once.softmax_(t, within=within)
        factor = at_once.factor_of(self.reduction, len(unit))
        if self.base_temperature is not None:
            factor = factor / (float(scale) * self.base_temperature)
        loss = lse.sub_(attraction, alpha=at_once.LN2).sum().mul_(factor)
        if not learning:
            return loss, ()
        pull = at_once.weighted_(same, count.reciprocal_(), within=within)
        gradient = at_once.weighted_(t, total.reciprocal_(), within=within).sub_(pull)
        grad = product(gradient, unit.T)
        grad_scale = (unit * grad).sum().mul_(factor / 2) if isinstance(scale, Tensor) else None
        return loss, (rows.back(grad, scale * factor)[0].view_as(features), grad_scale)

    def _streamed(
        self, labels: Tensor | None, mask: Tensor | None, features: Tensor, scale: float | Tensor
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        given = features.dtype
        features = embeddings("features", features, normalize=self.normalize, ndim=(2, 3))
        if features.ndim == 2:
            features = features[:, None]
        batch, views = features.shape[:2]
        keys = features.transpose(0, 1).reshape(batch * views, -1)
        anchors = batch if self.contrast_mode == "one" else len(keys)
        multi_hot, ids, group = None, None, group_of(self.gather)
        if mask is not None:
            _check_mask(mask, batch, labels, keys)
        elif isinstance(labels, Tensor) and labels.ndim == 2:
            multi_hot = checked_multi_hot(labels, batch, keys)
        elif labels is not None:
            # An unknown sample is a class of its own, so that its own views stay positives.
            ids = ids_in(group, checked_labels(labels, batch, keys)).repeat(views)
        make = partial(
            Similarity,
            keys[:anchors],
            None if anchors == len(keys) else keys,
            scale=scale,
            query_ids=None if ids is None else ids[:anchors],
            key_ids=None if anchors == len(keys) else ids,
            instances=batch if ids is None else None,
            queries_lead_keys=True,
            unit=self.normalize,
            half=given,
        )
        similarity = make(group=group)
        positive: str | Tensor = "positives"
        if multi_hot is not None:
            if self.positives == "out" and not self.diagnose:
                return self._loss(similarity, *self._shared_classes(similarity, features, multi_hot))
            if group is not None:
                raise ValueError(
                    "labels [B, C] in several processes take positives='out' and diagnose=False, or gather=False"
                )
            mask = overlap_matrix(multi_hot, self.overlap)
        if mask is not None:
            positive = mask.repeat(views, views)[:anchors]
            positive.diagonal().zero_()
        here = similarity if mask is None or group is None else make()  # a mask knows no other process
        count = here.count(positive)
        has = count > 0
        if self.positives == "out":
            mean = here.mean(positive)
        else:
            mean = here.lse(positive).masked_fill(~has, 0) - count.masked_fill(~has, 1).to(keys.dtype).log()
        loss = self._loss(similarity, mean, has)
        if not self.diagnose:
            return loss
        negative = "negatives" if isinstance(positive, str) else (positive == 0).fill_diagonal_(False)
        return loss, diagnose_rows(here, negative, positive=here.mean(positive), has_positive=has)

    def _shared_classes(self, similarity: Similarity, features: Tensor, multi_hot: Tensor) -> tuple[Tensor, Tensor]:
        """(weighted mean of s over the samples that share a class, which anchors have any), without the N×N weights."""
        batch, views = features.shape[:2]
        anchor_views = similarity.shape[0] // batch
        weighed = torch.cat([features.sum(1), features.new_full((batch, 1), views)], 1)
        group, here = similarity.group, own_rows(similarity.group, batch, weighed)
        everyone = rows_in(group, multi_hot), rows_in(group, weighed)
        sums = overlap_sums(*everyone, self.overlap)[here].repeat(anchor_views, 1)
        own = multi_hot.sum(1).clamp_min(1) if self.overlap == "count" else torch.ones_like(multi_hot[:, 0])
        own = own.repeat(anchor_views)
        queries, weight = similarity.queries_ND, sums[:, -1] - own  # without the pair of an anchor with itself
        has = weight > 0
        total = (queries * (sums[:, :-1] - own[:, None] * queries)).sum(1)
        return similarity.scale * total / weight.masked_fill(~has, 1), has

    def _loss(self, similarity: Similarity, attraction: Tensor, has: Tensor) -> Tensor:
        loss = (similarity.lse("others") - attraction).masked_fill(~has, 0)
        if readable(has):
            self._look_for_missing(int((~has).sum()), len(has))
        if similarity.number_of_keys == 2:
            warn_counted(len(has), len(has), "anchors have a single other sample: the loss teaches nothing")
        if self.base_temperature is not None:
            loss = loss / (similarity.scale * self.base_temperature)
        group, anchors = similarity.group, similarity.number_of_keys * similarity.shape[0] // similarity.shape[1]
        if self.no_positive == "exclude" and self.reduction == "mean":
            return loss.sum() * processes_in(group) / summed_in(group, has.sum()).clamp_min(1)
        return reduced_in(group, loss, self.reduction, anchors)

    def _look_for_missing(self, missing: int, anchors: int) -> None:
        if missing and self.no_positive == "raise":
            raise ValueError(f"{missing} of {anchors} anchors have no positive (no_positive='raise')")
        if missing:
            verb = "count as a loss of 0" if self.no_positive == "zero" else "are left out of the mean"
            warn_counted(missing, anchors, f"anchors have no positive and {verb}")

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"{describe_temperature(self.temperature)}, base_temperature={self.base_temperature}, "
            f"contrast_mode={self.contrast_mode!r}, positives={self.positives!r}, no_positive={self.no_positive!r}, "
            f"overlap={self.overlap!r}, normalize={self.normalize}, reduction={self.reduction!r}, "
            f"gather={self.gather!r}"
        )


def _check_mask(mask: Tensor, batch: int, labels: Tensor | None, like: Tensor) -> None:
    if labels is not None:
        raise ValueError("give labels or mask, not both: the mask replaces labels")
    if not isinstance(mask, Tensor) or mask.is_complex():
        raise TypeError(
            f"mask must be a boolean or real tensor [B, B], got {getattr(mask, 'dtype', type(mask).__name__)}"
        )
    require_dense("mask", mask)
    if mask.shape != (batch, batch):
        raise ValueError(f"mask must have shape [{batch}, {batch}], got {tuple(mask.shape)}")
    if mask.device != like.device:
        raise ValueError(f"mask is on {mask.device}, features on {like.device}")
