"""What a loss sees in its batch, anchor by anchor: how near its positives are, how hard its negatives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from coulomb.similarity import Similarity


@dataclass(frozen=True)
class Diagnosis:
    """Row statistics of one call, given beside the loss with ``diagnose=True``. No gradients.

    Similarities are s/scale, which is the cosine for unit rows (``normalize=True``).

    Attributes:
        positive: mean similarity of each anchor with its positives, [anchors]; NaN where it has none.
        hardest_negative: largest similarity with a negative, [anchors]; −inf where it has none.
        effective_negatives: exp(entropy of the softmax over the negatives), [anchors]: from 1 (one negative has all
            the weight) to their number (all alike; a high temperature); 0 where there is none.
        without_positive: how many anchors have no positive, a 0-dim integer.

    >>> from coulomb.losses import NTXentLoss
    >>> loss, seen = NTXentLoss(temperature=0.5, diagnose=True)(torch.eye(3), torch.eye(3))
    >>> seen.positive, seen.hardest_negative, seen.effective_negatives  # two views alike, all else at right angles
    (tensor([1., 1., 1., 1., 1., 1.]), tensor([0., 0., 0., 0., 0., 0.]), tensor([4., 4., 4., 4., 4., 4.]))
    """

    positive: Tensor
    hardest_negative: Tensor
    effective_negatives: Tensor
    without_positive: Tensor


@torch.no_grad()
def diagnose_rows(
    similarity: Similarity,
    over: str | Tensor = "negatives",
    *,
    lse: Tensor | None = None,
    positive: Tensor | None = None,
    has_positive: Tensor | None = None,
) -> Diagnosis:
    """The `Diagnosis` of a loss, at the cost of one more pass over the tiles.

    Args:
        similarity: anchors × keys, without a column bias.
        over: the negatives.
        lse: the log-sum-exp over them, where it is known already.
        positive: mean s_ip over each anchor's positives, in the engine's scale, [N]; None: over ``"positives"``.
        has_positive: boolean [N]; None: all have one (or, with ``positive`` None, those that count one).

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
