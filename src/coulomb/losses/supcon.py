"""SupCon: all samples of an anchor's class are its positives."""

from dataclasses import KW_ONLY
from typing import Annotated, Any

from torch import Tensor

from coulomb.ground.checked import check_shape, choice, number, optional, readable
from coulomb.losses.diagnosis import Result, diagnose_rows
from coulomb.losses.inputs import normalized, warn_counted
from coulomb.losses.multi_label import OVERLAPS, negative_pairs, overlap_matrix, overlap_mean, positive_pairs, relations
from coulomb.losses.negatives import NONE, ContrastiveLoss, counted_over, reduced_over
from coulomb.losses.options import Tau
from coulomb.losses.temperature import check_base, scale_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_group


class SupConLoss(ContrastiveLoss):
    """L_i = LSE_{a≠i} s_ia − mean_{p∈P(i)} s_ip,  s = cos/τ   (Khosla et al., 2020, their L_out)

    P(i): the other views of i and every view of samples with the same label. ``positives="in"`` is their weaker L_in,
    LSE_{a≠i} s_ia − LSE_{p∈P(i)} s_ip + log|P(i)|. Without labels and mask this is NT-Xent. With several labels per
    sample, P(i) is every sample that shares one, optionally weighted by how many they share (``overlap``).
    The mean over positives is computed from class sums in O(N·D); no N×N matrix is stored.

    When to use: all or some samples are labeled (−1: unknown), with one or several labels each, or you define the positives
    by a mask.
    Needs: positives in the batch: two samples of a class, or two views of each. The minimum is log|P(i)|, not 0.
    Temperature: positives and negatives share one softmax, which weights the push; the pull is the same for all positives.
    A low τ concentrates on the hardest negatives and on positives that are still far. Gradients scale with 1/τ; τ_base
    cancels this.
    Cost: 4u with u = (B·V)²·D (``contrast_mode="one"``: 8u with u = B²·V·D; ``positives="in"``: twice). Memory is linear in
    B·V.
    Reference: Khosla et al., Supervised Contrastive Learning, NeurIPS 2020, arXiv:2004.11362.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.07 as in the authors' code.
        base_temperature: None for no extra factor; a number gives the authors' factor τ/τ_base.
        contrast_mode: ``"all"``: every view is an anchor; ``"one"``: only view 0.
        positives: ``"out"``, the mean outside the logarithm, or ``"in"``.
        no_positive: an anchor without positives counts as a loss of 0 (``"zero"``, as in the authors' newer code), is left
            out of the mean (``"exclude"``), or is an error (``"raise"``). The first two count them in a `CoulombWarning`.
        overlap: weight of a positive for multi-hot labels, with A and B the classes of the two samples: ``"any"``, 1 if they
            share one; ``"count"``, |A∩B|; ``"jaccard"``, |A∩B|/|A∪B|. Weights are divided by their sum.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([anchors]: all of view 0, then all of view 1, …).
        diagnose: return (loss, `Diagnosis`), at the cost of up to two more passes.
        gather: compare with the samples of all processes, by label: True, False, or ``"auto"``, if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention. A mask covers the samples of this process only: samples of other processes are never positives and
            are not part of the diagnosis. Multi-hot labels need ``positives="out"`` and no diagnosis.

    Shape:
        features: [B, V, D] or [B, D].
        labels: [B] or [B, 1]; or [B, C] with C ≥ 2 (multi-hot).
        mask: [B, B].
        scale: a number or a 0-dim tensor.
        output: scalar, or [anchors] with ``reduction="none"``.

    Memory: multi-hot labels with ``positives="out"`` need a strip of the B×B overlaps at a time (``"count"``: none); with
    ``positives="in"`` or ``diagnose=True`` the mask of all N×N pairs is stored.
    In a compiled graph values are not read: there is no error for no_positive="raise" and no warning; the loss is the same.

    Deviation: the authors subtract a row maximum that includes self, so that other terms underflow at small τ; not here.
    Degenerate input: ``no_positive`` defines the loss of anchors without positives; if no anchor has one, the loss is 0.
    With a single other sample the loss is 0 up to rounding, and a `CoulombWarning` is given.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> SupConLoss(temperature=1.0)(features, torch.tensor([0, 0, 1, 1]))  # log(e + 2) − 1
    tensor(0.5514)
    >>> multi_hot = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1]])
    >>> SupConLoss(temperature=1.0, overlap="count", reduction="none")(features, multi_hot)
    tensor([1.0514, 0.5514, 0.5514, 1.0514])
    """

    temperature: Tau = 0.07
    base_temperature: Annotated[float | None, optional(number(above=0))] = None
    contrast_mode: Annotated[str, choice("all", "one")] = "all"
    positives: Annotated[str, choice("out", "in")] = "out"
    no_positive: Annotated[str, choice("zero", "exclude", "raise")] = "zero"
    _: KW_ONLY
    overlap: Annotated[str, choice(*OVERLAPS)] = "any"

    def __post_init__(self) -> None:
        check_base(self.base_temperature, self.temperature)

    def forward(
        self,
        features: Tensor,
        labels: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        scale: float | Tensor | None = None,
    ) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            features: embeddings of V views of each sample, or of one.
            labels: class of each sample; −1 for unknown, whose only positives are its other views. Or multi-hot, boolean
                or 0 and 1; a row of zeros is unknown.
            mask: instead of labels: mask[i, j] is True, or a weight above 0, if j is a positive of i; it may be
                asymmetric. Without labels and mask only the other views are positives.
            scale: 1/τ of this call in place of ``temperature``; a tensor gets its gradient.
        """
        if scale is not None and self.base_temperature is not None:
            raise ValueError(
                "scale with base_temperature: the factor τ/τ_base would change with the scale of each call; use "
                "base_temperature=None"
            )
        check_shape("features", features, ndim=(2, 3))
        rows, group = normalized(("features",), features, normalize=self.normalize), gather_group(self.gather)
        batch, views = len(rows), rows[..., 0].numel() // len(rows)
        keys = rows.reshape(batch, views, -1).transpose(0, 1).reshape(batch * views, -1)
        ids, mask, multi_hot = relations(labels, mask, batch, views, keys, group)
        everything = self.contrast_mode == "all" or views == 1
        anchors, others = (keys, None) if everything else (keys[:batch], keys)
        options: dict[str, Any] = {"scale": scale_of(self.temperature, scale), "half": features.dtype}
        options["queries_lead_keys"] = True
        if ids is None:
            options["instances"] = batch
        else:
            options["query_ids"], options["key_ids"] = ids[: len(anchors)], None if everything else ids
        lengths = self._factors("features", keys)
        factors = (lengths, None) if lengths is None or everything else (lengths[:, :batch], lengths)
        similarity = self._similarity(anchors, others, factors, group=group, **options)
        if multi_hot is not None:
            if self.positives == "out" and not self.diagnose:
                return self._reduced(similarity, *overlap_mean(similarity, rows, multi_hot, self.overlap))
            mask = overlap_matrix(multi_hot, self.overlap, group)
        local = similarity
        positive: str | Tensor = "positives"
        if mask is not None:  # covers the samples of this process
            local = similarity if group is None else self._similarity(anchors, others, NONE, **options)
            positive = positive_pairs(mask, similarity.shape)
        alone = (count := local.count(positive)) == 0
        if self.positives == "out":
            attraction = local.sum(positive) / count.masked_fill(alone, 1)
        else:
            attraction = local.lse(positive).masked_fill(alone, 0) - count.masked_fill(alone, 1).to(keys.dtype).log()
        loss = self._reduced(similarity, attraction, alone)
        if not self.diagnose:
            return loss
        negative: str | Tensor = "negatives" if isinstance(positive, str) else negative_pairs(positive)
        return loss, diagnose_rows(local, negative, positive=local.mean(positive), has_positive=~alone)

    def _reduced(self, similarity: Similarity, attraction: Tensor, alone: Tensor) -> Tensor:
        """LSE − attraction of the anchors that have a positive, reduced; the others are ``alone``."""
        losses = (similarity.lse("others") - attraction).masked_fill(alone, 0)
        if self.base_temperature is not None:
            losses = losses / (similarity.scale * self.base_temperature)
        if readable(alone) and (missing := int(alone.sum())):
            if self.no_positive == "raise":
                raise ValueError(f"{missing} of {len(alone)} anchors have no positive (no_positive='raise')")
            effect = "count as a loss of 0" if self.no_positive == "zero" else "are left out of the mean"
            warn_counted(missing, len(alone), f"anchors have no positive and {effect}")
        counted: int | Tensor = similarity.number_of_keys * similarity.shape[0] // similarity.shape[1]
        if similarity.number_of_keys == 2:
            warn_counted(len(alone), len(alone), "anchors have a single other sample: the loss gives no gradient")
        if self.no_positive == "exclude":
            counted = counted_over(similarity.group, ~alone)
        return reduced_over(similarity.group, self._weighted(losses), self.reduction, counted)
