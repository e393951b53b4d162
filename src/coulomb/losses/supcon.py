"""SupCon: everything of your class is your positive."""

import torch
from torch import Tensor, nn

from coulomb.losses.arguments import (
    REDUCTIONS,
    checked_choice,
    checked_labels,
    embeddings,
    reduced,
    require_batch,
    warn_counted,
)
from coulomb.losses.temperature import (
    LearnableTemperature,
    Temperature,
    checked_temperature,
    describe_temperature,
    scale_of,
)
from coulomb.similarity import Similarity


class SupConLoss(nn.Module):
    """L_i = LSE_{a≠i} s_ia − mean_{p∈P(i)} s_ip,  s = cos/τ   (Khosla et al., 2020, their L_out)

    P(i): the other views of i and every view of samples with the same label. ``positives="in"`` is their weaker L_in,
    LSE_{a≠i} s_ia − LSE_{p∈P(i)} s_ip + log|P(i)|. Without labels and mask this is NT-Xent.
    The mean over positives costs O(N·D) by class sums; no N×N matrix is formed.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.07 as in the authors' code.
        base_temperature: None for no extra factor; a number gives the authors' factor τ/τ_base.
        contrast_mode: ``"all"`` anchors every view, ``"one"`` view 0 only.
        positives: ``"out"``, the mean outside the logarithm, or ``"in"``.
        no_positive: an anchor without positives counts as a loss of 0 (``"zero"``, as in the authors' newer code), is left
            out of the mean (``"exclude"``), or is an error (``"raise"``). The first two count them in a `CoulombWarning`.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([anchors]: all of view 0, then all of view 1, …).

    Call with features [B, V, D] or [B, D], and labels [B] (−1: unknown, only its own views are positive) or a mask
    [B, B] (mask[i, j]: j is a positive of i; may be asymmetric, boolean or non-negative weights) or neither.

    Deviation: the authors subtract a row maximum that includes self, by which other terms underflow at small τ; not here.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> SupConLoss(temperature=1.0)(features, torch.tensor([0, 0, 1, 1]))  # log(e + 2) − 1
    tensor(0.5514)
    """

    def __init__(
        self,
        temperature: Temperature = 0.07,
        base_temperature: float | None = None,
        contrast_mode: str = "all",
        positives: str = "out",
        no_positive: str = "zero",
        *,
        normalize: bool = True,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.temperature = checked_temperature(temperature)
        if base_temperature is not None:
            checked_temperature(base_temperature)
            if isinstance(temperature, LearnableTemperature):
                raise ValueError(
                    "base_temperature with a learned temperature: the factor τ/τ_base could be learned to 0"
                )
        self.base_temperature = base_temperature
        self.contrast_mode = checked_choice("contrast_mode", contrast_mode, ("all", "one"))
        self.positives = checked_choice("positives", positives, ("out", "in"))
        self.no_positive = checked_choice("no_positive", no_positive, ("zero", "exclude", "raise"))
        self.normalize = normalize
        self.reduction = checked_choice("reduction", reduction, REDUCTIONS)

    def forward(self, features: Tensor, labels: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """The loss; see the class."""
        features = embeddings("features", features, normalize=self.normalize, ndim=(2, 3))
        require_batch("features", features)
        if features.ndim == 2:
            features = features[:, None]
        batch, views = features.shape[:2]
        keys = torch.cat(features.unbind(1))
        anchors = batch if self.contrast_mode == "one" else len(keys)
        ids = self._ids(batch, labels, mask, keys).repeat(views)
        similarity = Similarity(
            keys[:anchors],
            None if anchors == len(keys) else keys,
            scale=scale_of(self.temperature),
            query_ids=ids[:anchors],
            key_ids=None if anchors == len(keys) else ids,
            queries_lead_keys=True,
        )
        positive: str | Tensor = "positives"
        if mask is not None:
            positive = mask.repeat(views, views)[:anchors]
            positive.diagonal().zero_()
        return self._loss(similarity, positive)

    def _loss(self, similarity: Similarity, positive: str | Tensor) -> Tensor:
        count = similarity.count(positive)
        has = count > 0
        lse = similarity.lse("others")
        if self.positives == "out":
            loss = lse - similarity.mean(positive)
        else:
            attraction = similarity.lse(positive).masked_fill(~has, 0)
            loss = lse - attraction + count.masked_fill(~has, 1).to(lse.dtype).log()
        missing = int((~has).sum())
        if missing and self.no_positive == "raise":
            raise ValueError(f"{missing} of {len(has)} anchors have no positive (no_positive='raise')")
        if missing:
            verb = "count as a loss of 0" if self.no_positive == "zero" else "are left out of the mean"
            warn_counted(missing, len(has), f"anchors have no positive and {verb}")
        if similarity.shape[1] == 2:
            warn_counted(len(has), len(has), "anchors have a single other sample: the loss teaches nothing")
        loss = loss.masked_fill(~has, 0)
        if self.base_temperature is not None:
            loss = loss / (float(scale_of(self.temperature)) * self.base_temperature)
        if self.no_positive == "exclude" and self.reduction == "mean":
            return loss.sum() / max(1, len(has) - missing)
        return reduced(loss, self.reduction)

    def _ids(self, batch: int, labels: Tensor | None, mask: Tensor | None, like: Tensor) -> Tensor:
        own = torch.arange(batch, device=like.device)
        if mask is not None:
            if labels is not None:
                raise ValueError("give labels or mask, not both: the mask replaces labels")
            if mask.shape != (batch, batch):
                raise ValueError(f"mask must have shape [{batch}, {batch}], got {tuple(mask.shape)}")
            if mask.device != like.device:
                raise ValueError(f"mask is on {mask.device}, features on {like.device}")
        if labels is None:
            return own
        labels = checked_labels(labels, batch, like)
        # An unknown sample is a class of its own, so that its own views stay positives.
        return torch.where(labels >= 0, labels, labels.max().clamp_min(0) + 1 + own)

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"{describe_temperature(self.temperature)}, base_temperature={self.base_temperature}, "
            f"contrast_mode={self.contrast_mode!r}, positives={self.positives!r}, no_positive={self.no_positive!r}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}"
        )
