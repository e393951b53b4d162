"""Sigmoid: every pair of a query and a key is classified independently as positive or negative."""

import math
from dataclasses import KW_ONLY
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from coulomb.ground.checked import check_shape, checked_number
from coulomb.losses.diagnosis import Result
from coulomb.losses.inputs import pair_ids
from coulomb.losses.negatives import ContrastiveLoss, unique_ids
from coulomb.losses.options import Flag, Positive, SameId
from coulomb.losses.temperature import checked_parameter
from coulomb.similarity.collectives import gather_group


class SigmoidLoss(ContrastiveLoss):
    """L_i = −Σ_j log σ(z_ij·s_ij),  s = scale·cos + bias,  z = 1 for positives, else −1   (SigLIP, Zhai et al., 2023)

    Logistic regression on every pair. There is no softmax, so no pair depends on the others of its row. Computed as
    softplus(−s_i⁺) + Σ_{k≠i} softplus(s_ik).

    When to use: pairs from two modalities, such as image and text, in place of `InfoNCELoss` with ``symmetric=True``, which
    it outperforms in the paper at batches below 16,384.
    Needs: one positive per query; the negatives are the positives of the other queries. With ``ids`` a query may have
    several positives, or keys that are neither (``same_id``). No labels. If ``learnable``, ``loss.parameters()`` in the
    optimizer.
    Temperature: 1/scale takes its place. A pair is pushed or pulled in proportion to σ(∓s), so only pairs on the wrong side
    of the threshold cos = −bias/scale, or near it, count. The bias balances one positive against N − 1 negatives at the
    start of training.
    Cost: 8u with u = N²·D. Memory is linear in N. ``ids`` add at most 8u.
    Reference: Zhai et al., Sigmoid Loss for Language Image Pre-Training, ICCV 2023, arXiv:2303.15343.

    Args:
        scale: positive; 10 as in the paper. If ``learnable``, the initial value.
        bias: −10 as in the paper. If ``learnable``, the initial value.
        learnable: learn log(scale) and the bias, the parameters ``log_scale`` and ``learned_bias``. Cannot be changed
            after construction.
        same_id: what ``ids`` say about a key that has an id of the query: ``"positive"``, it is one more positive, or
            ``"left_out"``, it is neither positive nor negative, as for `InfoNCELoss`.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over queries, ``"sum"``, or ``"none"`` ([N]).
        diagnose: return (loss, `Diagnosis`) instead of the loss, at the cost of one more pass over the similarities.
        gather: use the samples of all processes as negatives. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention.

    Shape:
        query, positive: [N, D].
        ids: [N], or [N, C].
        scale, bias: a number or a 0-dim tensor.
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none in value. As in the authors' code, the scale has no upper limit; the training script of open_clip limits
    it to 100.
    Degenerate input: N = 1 has no negatives, and a `CoulombWarning` is issued; so it is, with their number, for queries all
    of whose keys have their id.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> SigmoidLoss(scale=2.0, bias=-1.0, learnable=False)(torch.eye(2), torch.eye(2))  # 2 log(1 + 1/e)
    tensor(0.6265)
    """

    scale: Positive = 10.0
    bias: Annotated[float, checked_number] = -10.0
    learnable: Flag = True
    _: KW_ONLY
    same_id: SameId = "positive"

    def __post_init__(self) -> None:
        initial = {"log_scale": math.log(self.scale), "learned_bias": self.bias}
        for name, value in initial.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(value)) if self.learnable else None)

    def forward(
        self,
        query: Tensor,
        positive: Tensor,
        ids: Tensor | None = None,
        *,
        scale: float | Tensor | None = None,
        bias: float | Tensor | None = None,
    ) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            query: embeddings of the anchors.
            positive: positive[i] is the key that query[i] should find.
            ids: integers that identify each pair, −1 for unknown: one id, or C of them, such as the picture's and the
                caption's. The pairs (i, j) of which any id is equal are positives, or are left out, see ``same_id``. The
                pair (i, i) always is a positive.
            scale, bias: those of this call, such as ``model.logit_scale.exp()`` and ``model.logit_bias``; a tensor gets its
                gradient. The loss must not learn its own (``learnable=False``).
        """
        scale, bias = self._of_call(scale, bias)
        if ids is not None:
            check_shape("query", query)
            ids = unique_ids(gather_group(self.gather), pair_ids("ids", ids, len(query), query))
        contrast = self._pairs(query, positive, None, scale, None if ids is None else (ids, ids))
        if isinstance(bias, Tensor):
            bias = bias.to(contrast.positives.dtype)  # once, so that its gradient is rounded once
        if ids is None or self.same_id == "left_out":
            attraction = softplus(-(contrast.positives + bias), threshold=50)
        else:
            attraction = contrast.similarity.softplus("positives", sign=-1, bias=bias)
        loss_N = contrast.similarity.softplus("negatives", bias=bias) + attraction
        return self._result(contrast, loss_N)

    def _of_call(
        self, scale: float | Tensor | None, bias: float | Tensor | None
    ) -> tuple[float | Tensor, float | Tensor]:
        """Returns scale and bias: those given with a call, or those of the loss."""
        given = {name: value for name, value in (("scale", scale), ("bias", bias)) if value is not None}
        log_scale: Any = self.log_scale
        learned: Any = self.learned_bias
        if given and log_scale is not None:
            raise ValueError(
                f"{' and '.join(given)} with learnable=True: the loss learns its own, which would get no gradient; use "
                "SigmoidLoss(learnable=False)"
            )
        own_scale = self.scale if log_scale is None else log_scale.exp()
        own_bias = self.bias if learned is None else learned
        return (
            own_scale if scale is None else checked_parameter("scale", scale, above=0),
            own_bias if bias is None else checked_parameter("bias", bias),
        )
