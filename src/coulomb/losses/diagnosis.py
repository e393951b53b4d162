"""Statistics of a batch for each anchor: how similar its positives and how hard its negatives are."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coulomb.similarity import Similarity


@dataclass(frozen=True)
class Diagnosis:
    """Statistics of each anchor in one call, returned with the loss by ``diagnose=True``. They carry no gradient.

    Similarities are s/scale, which is the cosine for unit rows (``normalize=True``).

    Attributes:
        positive: mean similarity of each anchor to its positives, [anchors]; NaN if it has none.
        hardest_negative: largest similarity to a negative, [anchors]; −inf if it has none.
        effective_negatives: exponential of the entropy of the softmax over the negatives, [anchors]: from 1 (one negative
            has all the weight) to the number of negatives (equal weights, as at a high temperature); 0 if there are none.
        without_positive: number of anchors without a positive, a 0-dim integer tensor.

    >>> from coulomb.losses import NTXentLoss
    >>> loss, diagnosis = NTXentLoss(temperature=0.5, diagnose=True)(torch.eye(3), torch.eye(3))
    >>> diagnosis.positive, diagnosis.hardest_negative, diagnosis.effective_negatives  # equal views, orthogonal samples
    (tensor([1., 1., 1., 1., 1., 1.]), tensor([0., 0., 0., 0., 0., 0.]), tensor([4., 4., 4., 4., 4., 4.]))
    """

    positive: Tensor
    hardest_negative: Tensor
    effective_negatives: Tensor
    without_positive: Tensor


Result = Tensor | tuple[Tensor, Diagnosis]  # of a loss: the loss, and with ``diagnose=True`` the diagnosis as well


@torch.no_grad()
def diagnose_rows(
    similarity: Similarity,
    over: str | Tensor = "negatives",
    *,
    lse: Tensor | None = None,
    positive: Tensor | None = None,
    has_positive: Tensor | None = None,
) -> Diagnosis:
    """Computes the `Diagnosis` of a loss in one more pass over the tiles.

    Args:
        similarity: anchors × keys, without a column bias.
        over: which pairs are negatives.
        lse: log-sum-exp over the negatives, if it has already been computed.
        positive: mean s_ip over each anchor's positives, including the scale, [N]; None: computed over ``"positives"``.
        has_positive: boolean [N]; None: True for all (if ``positive`` is None, for anchors with at least one positive).

    >>> S = Similarity(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), query_ids=torch.tensor([0, 0, 1]), scale=5.0)
    >>> diagnose_rows(S).positive, diagnose_rows(S).without_positive
    (tensor([1., 1., nan]), tensor(1))
    """
    if positive is None:
        positive = similarity.mean("positives")
        has_positive = similarity.count("positives") > 0
    if has_positive is None:
        has_positive = torch.ones_like(positive, dtype=torch.bool)
    statistics = similarity.statistics(over, lse=lse)
    scale = similarity.scale.detach() if isinstance(similarity.scale, Tensor) else similarity.scale
    return Diagnosis(
        positive=(positive.detach() / scale).masked_fill(~has_positive, torch.nan),
        hardest_negative=statistics.largest / scale,
        effective_negatives=statistics.effective_count,
        without_positive=(~has_positive).sum(),
    )
