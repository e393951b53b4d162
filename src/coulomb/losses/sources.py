"""Where the negatives of (query, positive) pairs come from: the positives of the other samples, or a tensor of their own."""

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from coulomb.losses import at_once
from coulomb.losses.arguments import check_pair, check_shape, embeddings, paired_embeddings, warn_counted
from coulomb.losses.gathering import reduced_in
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import Gather, group_of


@dataclass(frozen=True)
class Negatives:
    """The negatives of N anchors.

    Attributes:
        similarity: anchors × keys.
        over: which of those pairs are negatives.
        count: how many each anchor has.
        positives: s⁺ of each anchor, [N].
        anchors: how many there are, over all processes of the group.
        group: the processes whose positives are negatives of others; None for this one alone.
    """

    similarity: Similarity
    over: str
    count: int
    positives: Tensor
    anchors: int
    group: dist.ProcessGroup | None

    def reduced(self, loss_N: Tensor, reduction: str) -> Tensor:
        """The mean over all anchors of the group, the sum, or the values themselves."""
        return reduced_in(self.group, loss_N, reduction, self.anchors)

    def fewer(self, top_k: int) -> int | None:
        """``top_k``; None when that is all of them."""
        return top_k if top_k < self.count else None


def fit_at_once(
    query: Tensor, positive: Tensor, negatives: Tensor | None, *, gather: Gather, reduction: str, plainly: bool
) -> bool:
    """`at_once.fits`, of arguments that are checked here."""
    check_pair(("query", "positive"), query, positive)
    if negatives is not None:
        check_shape("negatives", negatives, like=query)
        keys = len(negatives)
    else:
        keys = len(query) if len(query) > 1 and group_of(gather) is None else 0
    return at_once.fits(len(query), keys, query, reduction=reduction, plainly=plainly)


def negatives_of(
    query: Tensor,
    positive: Tensor,
    negatives: Tensor | None,
    *,
    scale: float | Tensor,
    normalize: bool,
    gather: Gather,
) -> Negatives:
    """The checked arguments (query [N, D], positive [N, D], negatives [K, D] or None) of a loss as similarities.

    Without any negative (N = 1 in-batch, K = 0) a `CoulombWarning` says so.
    """
    both = paired_embeddings(("query", "positive"), query, positive, normalize=normalize)
    n = len(query)
    query, positive = both.view(2, n, -1).unbind()
    group = group_of(gather) if negatives is None else None
    in_batch = Similarity(query, positive, scale=scale, instances=n, unit=normalize, group=group)
    anchors = in_batch.number_of_keys
    similarity, over, count = in_batch, "negatives", anchors - 1
    if negatives is not None:
        keys = embeddings("negatives", negatives, normalize=normalize, like=query)
        similarity, over, count = Similarity(query, keys, scale=scale, unit=normalize), "all", len(keys)
    if count == 0:
        warn_counted(n, n, "anchors have no negative: nothing keeps them apart")
    return Negatives(similarity, over, count, in_batch.positives(), anchors, group)
