"""Negatives of a loss: other samples of the batch (of all processes with ``gather``), or a tensor such as a queue.

With ``gather`` each process returns the mean over its anchors against the keys of all W processes, weighted by
W·(its anchors)/(all anchors), which is 1 for batches of equal size. The gradients that other processes compute for its
embeddings are added. Averaging over processes, as DistributedDataParallel does, then gives exactly the loss and the
gradient of one process with the whole batch.
"""

from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.ground.checked import readable
from coulomb.losses.diagnosis import Result, diagnose_rows
from coulomb.losses.inputs import check_norms, paired_products, paired_rows, reduced, unit_rows, warn_counted
from coulomb.losses.options import Flag, Gather, Loss, Reduction
from coulomb.similarity import Guide, Similarity
from coulomb.similarity.collectives import announced, gather_group, gather_rows
from coulomb.similarity.prefixes import PrefixSimilarity, factors_of, paired_cosines

Factors = tuple[Tensor | None, Tensor | None]  # of anchors and of keys, see `coulomb.similarity.prefixes`
NONE: Factors = (None, None)
NO_NEGATIVE = "anchors have no negative: the loss does not separate them"


@dataclass(frozen=True)
class Contrast:
    """Anchors with their positives and negatives.

    Attributes:
        similarity: anchors × keys.
        over: which pairs are negatives.
        positives: s⁺ of each anchor, [N].
        count: number of negatives per anchor.
        anchors: number of anchors in all processes of the group.
        group: the processes that share their keys; None: this process only.
    """

    similarity: Similarity
    over: str
    positives: Tensor
    count: int
    anchors: int
    group: dist.ProcessGroup | None

    @property
    def factors(self) -> "Factors":
        """1/‖prefix‖ of anchors and keys, [m, N] and [m, M], if the similarities are those of prefixes."""
        similarity = self.similarity
        return (similarity.query_factors, similarity.key_factors) if isinstance(similarity, PrefixSimilarity) else NONE


@dataclass(frozen=True)
class Prefixes:
    """Lengths of prefixes of the dimensions, ascending, and the weights of their losses."""

    dims: tuple[int, ...]
    weights: tuple[float, ...]


class ContrastiveLoss(Loss):
    """Parent of the losses with in-batch negatives; declares their common options."""

    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"
    diagnose: Flag = False
    gather: Gather = "auto"

    @property
    def prefixes(self) -> Prefixes | None:
        """Set in a copy of the loss that `with_prefixes` makes; else None."""
        return self.__dict__.get("_prefixes")

    def with_prefixes(self, prefixes: Prefixes) -> Self:
        """Returns the same loss, with the same parameters, for prefixes of the dimensions in one pass over the tiles.

        The values of its `Contrast` have a row per prefix, [m, N], and its result is the weighted sum of their losses.
        """
        loss = copy(self)
        loss._prefixes = prefixes
        return loss

    def _views(self, view0: Tensor, view1: Tensor, scale: float | Tensor) -> Contrast:
        """Contrasts two views [N, D] of each sample: 2N anchors, whose negatives are the 2N − 2 views of other samples."""
        n, group = len(view0), gather_group(self.gather)
        rows = paired_rows(("view0", "view1"), view0, view1, normalize=self.normalize)
        products, factors = self._paired_products(("view0", "view1"), rows.view(2, n, -1))
        lengths = (None if factors is None else factors.flatten(1)), None
        similarity = self._similarity(rows, None, lengths, scale=scale, instances=n, half=view0.dtype, group=group)
        anchors = similarity.number_of_keys
        if anchors == 2:
            warn_counted(2, 2, "anchors have no negative (N = 1): the loss gives no gradient")
        positives = similarity.scale * products
        return Contrast(similarity, "negatives", torch.cat([positives, positives], -1), anchors - 2, anchors, group)

    def _pairs(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None,
        scale: float | Tensor,
        ids: tuple[Tensor, Tensor] | None = None,
        in_batch: bool = False,
        guide: Guide | None = None,
    ) -> Contrast:
        """Contrasts pairs [N, D]. A query's negatives are the positives of the other samples, or ``negatives`` [K, D].

        Args:
            query, positive, negatives, scale: as in the losses.
            ids: of queries and keys, [N] and [M], or several per row: only keys without an equal id are negatives. If the
                keys contain the positives, a query and its positive need an equal id (see `unique_ids`).
            in_batch: the keys are the positives and then the ``negatives``, both of all processes.
            guide: of queries and keys: only keys below its limits are negatives.
        """
        rows = paired_rows(("query", "positive"), query, positive, normalize=self.normalize)
        n, dtype, replaced = len(query), query.dtype, negatives is not None and not in_batch
        group = None if replaced else gather_group(self.gather)
        products, factors = self._paired_products(("query", "positive"), rows.view(2, n, -1))
        lengths = NONE if factors is None else (factors[:, 0], factors[:, 1])
        query, keys = rows.view(2, n, -1).unbind()
        if negatives is not None:
            negatives = unit_rows("negatives", negatives, normalize=self.normalize, like=query, least=0)
            keys = negatives if replaced else torch.cat([keys, negatives])
            lengths = lengths[0], with_factors(None if replaced else lengths[1], self._factors("negatives", negatives))
        over = "all" if replaced and ids is None and guide is None else "negatives"
        similarity = self._similarity(
            query,
            keys,
            lengths,
            scale=scale,
            query_ids=None if ids is None else ids[0],
            key_ids=None if ids is None else ids[1],
            instances=None if replaced or ids is not None else len(keys),
            guide=guide,
            half=dtype,
            group=group,
        )
        count = similarity.number_of_keys - (not replaced)
        anchors = n if negatives is not None else similarity.number_of_keys
        if negatives is not None and group is not None:
            anchors = int(summed_over(group, torch.tensor(n, device=rows.device)))
        if count == 0:
            warn_counted(n, n, NO_NEGATIVE)
        elif ids is not None and not replaced and guide is None:
            warn_alone(similarity)
        return Contrast(similarity, over, similarity.scale * products, count, anchors, group)

    def _similarity(self, queries: Tensor, keys: Tensor | None, factors: Factors, **options: Any) -> Similarity:
        """Returns the similarities of the anchors and the keys, of all dimensions or, given their factors, of each prefix."""
        options["unit"] = self.normalize
        if self.prefixes is None or factors[0] is None:
            return Similarity(queries, keys, **options)
        lengths: dict[str, Any] = dict(zip(("query_factors", "key_factors"), factors, strict=True))
        return PrefixSimilarity(queries, keys, dims=self.prefixes.dims, **lengths, **options)

    def _paired_products(self, names: tuple[str, str], rows_2ND: Tensor) -> tuple[Tensor, Tensor | None]:
        """Returns (x_i · y_i of two stacked arguments [N], None), or of each prefix ([m, N], 1/‖prefix‖ [m, 2, N])."""
        if self.prefixes is None:
            return paired_products(rows_2ND), None
        cosines, factors = paired_cosines(rows_2ND, self.prefixes.dims)
        warn_zero_prefixes(names, factors.flatten(1))
        return cosines, factors

    def _factors(self, name: str, rows: Tensor) -> Tensor | None:
        """Returns 1/‖prefix‖ of each row, [m, N]; None without prefixes."""
        if self.prefixes is None:
            return None
        factors = factors_of(rows, self.prefixes.dims)
        warn_zero_prefixes((name,), factors)
        return factors

    def _weighted(self, loss_N: Tensor) -> Tensor:
        """Returns the loss of each anchor, the weighted sum over prefixes of [m, N]; unchanged without prefixes."""
        if self.prefixes is None:
            return loss_N
        return (loss_N.new_tensor(self.prefixes.weights)[:, None] * loss_N).sum(0)

    def _result(self, contrast: Contrast, loss_N: Tensor) -> Result:
        """Returns the reduced loss, with its `Diagnosis` if ``diagnose``."""
        loss = reduced_over(contrast.group, self._weighted(loss_N), self.reduction, contrast.anchors)
        if not self.diagnose:
            return loss
        return loss, diagnose_rows(contrast.similarity, contrast.over, positive=contrast.positives)


def with_factors(first_mN: Tensor | None, others_mK: Tensor | None) -> Tensor | None:
    """Returns the factors of some rows and then of others; None if both are."""
    both = [one for one in (first_mN, others_mK) if one is not None]
    return torch.cat(both, 1) if both else None


def warn_zero_prefixes(names: tuple[str, ...], factors_mN: Tensor) -> None:
    """Counts the rows of each prefix but the longest that are zero vectors, whose factor is 0, in a `CoulombWarning`."""
    for zero in factors_mN[:-1].detach() == 0:
        check_norms((~zero).to(factors_mN.dtype), names, True)


def warn_alone(similarity: Similarity) -> None:
    """Counts the anchors all of whose keys have their id, in a `CoulombWarning`, if the ids are `readable`."""
    if readable(alone := similarity.count("negatives") == 0) and (count := int(alone.sum())):
        warn_counted(count, len(alone), NO_NEGATIVE)


def warn_unguided(contrast: Contrast, loss_N: Tensor, symmetric: bool) -> None:
    """Counts the anchors all of whose keys the guide leaves out, in a `CoulombWarning`, if the losses are `readable`.

    Only a loss of 0 can be of such an anchor, so that pairs are counted, which takes one more pass, if there is one.
    """
    if not readable(zero := loss_N == 0) or not int(summed_over(contrast.group, zero.sum())):
        return
    directions = [contrast.similarity, contrast.similarity.back] if symmetric else [contrast.similarity]
    alone = torch.stack([one.count("negatives") == 0 for one in directions]).all(0)
    if count := int(alone.sum()):
        warn_counted(count, len(alone), NO_NEGATIVE)


def reduced_over(group: dist.ProcessGroup | None, loss_N: Tensor, reduction: str, anchors: int | Tensor) -> Tensor:
    """Reduces the losses so that the mean over the processes of ``group`` is the mean over all their ``anchors``.

    ``"sum"`` and ``"none"`` cover only the anchors of this process.
    """
    if reduction != "mean":
        return reduced(loss_N, reduction)
    return (loss_N if group is None else loss_N * world_size(group)).sum() / anchors


def world_size(group: dist.ProcessGroup | None) -> int:
    """Returns the number of processes in ``group``; 1 for None."""
    return 1 if group is None else dist.get_world_size(group)


def rank(group: dist.ProcessGroup | None) -> int:
    """Returns the rank of this process in ``group``; 0 for None."""
    return 0 if group is None else dist.get_rank(group)


def summed_over(group: dist.ProcessGroup | None, value: Tensor) -> Tensor:
    """Returns the sum over processes, without gradient."""
    return value.detach() if group is None else gather_rows(group, value.detach()[None]).sum(0)


def counted_over(group: dist.ProcessGroup | None, counted_N: Tensor) -> Tensor:
    """Returns the number of anchors of all processes that count, at least 1, from a mask of this process's anchors."""
    return summed_over(group, counted_N.sum()).clamp_min(1)


def unique_ids(group: dist.ProcessGroup | None, labels_N: Tensor) -> Tensor:
    """Returns labels as ids. Each unknown label (−1) becomes an id that no other sample of any process has.

    Of several labels per sample, [N, C], this applies to the first.
    """
    if labels_N.ndim == 2:
        return torch.cat([unique_ids(group, labels_N[:, 0])[:, None], labels_N[:, 1:]], 1)
    if group is None and readable(labels_N) and int(labels_N.min()) >= 0:
        return labels_N
    first = labels_N.max().clamp_min(0) + 1
    if group is not None:
        table = announced(group, "ids", torch.stack([first, first.new_tensor(len(labels_N))])).to(first.device)
        first = table[:, 0].max() + table[: dist.get_rank(group), 1].sum()
    return torch.where(labels_N >= 0, labels_N, first + torch.arange(len(labels_N), device=labels_N.device))


def local_rows(group: dist.ProcessGroup | None, rows: int, like: Tensor) -> slice:
    """Returns the slice of this process's rows in the rows gathered from all processes."""
    if group is None:
        return slice(0, rows)
    sizes = announced(group, "sizes", torch.tensor([rows], device=like.device))
    start = int(sizes[: dist.get_rank(group)].sum())
    return slice(start, start + rows)
