"""Positives of SupCon: from labels, a mask, or multi-hot labels weighted by the overlap of their classes."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.ground.checked import check_tensor, readable, transformed
from coulomb.losses.inputs import class_ids, flat_labels
from coulomb.losses.negatives import local_rows, unique_ids
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import gather_rows
from coulomb.similarity.products import full_precision, matmul

OVERLAPS = ("any", "count", "jaccard")
STRIP = 2**22  # elements of the overlaps [B, B] computed at a time


def relations(
    labels: Tensor | None, mask: Tensor | None, batch: int, views: int, like: Tensor, group: dist.ProcessGroup | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Returns (ids [V·B], mask [B, B], multi-hot labels [B, C]) for SupCon's arguments; at most one is not None."""
    labels = None if labels is None else flat_labels(labels)
    if mask is not None:
        if labels is not None:
            raise ValueError("pass labels or mask, not both: the mask replaces labels")
        check_tensor("mask", mask, "a boolean or real", (batch, batch), like)
        return None, mask, None
    if labels is None:
        return None, None, None
    if isinstance(labels, Tensor) and labels.ndim == 2:
        return None, None, checked_multi_hot(labels, batch, like)
    # Each unknown sample is a class by itself, so that its other views are positives.
    return unique_ids(group, class_ids(labels, batch, like)).repeat(views), None, None


def checked_multi_hot(labels: Tensor, batch: int, like: Tensor) -> Tensor:
    """Checks multi-hot labels [B, C] and returns them in the dtype of ``like``. Values are checked only if `readable`."""
    check_tensor("labels", labels, "a boolean or real", (batch, labels.shape[1]), like, f" or [{batch}]")
    if readable(labels) and not ((labels == 0) | (labels == 1)).all():
        raise ValueError("labels [B, C] must be 0 or 1 (multi-hot): 1 for each class of the sample")
    return labels.to(like.dtype)


def overlaps(first_RC: Tensor, second_BC: Tensor, overlap: str) -> Tensor:
    """Returns w_ij for two sets of multi-hot rows, [R, B]: 1 if they share a class, |A∩B|, or |A∩B|/|A∪B|."""
    common = first_RC @ second_BC.T
    if overlap == "any":
        return (common > 0).to(common.dtype)
    if overlap == "jaccard":
        return common / (first_RC.sum(1, keepdim=True) + second_BC.sum(1) - common).clamp_min(1)
    return common


def positive_pairs(mask_BB: Tensor, shape: tuple[int, int]) -> Tensor:
    """Returns the positives of each anchor among all views, [anchors, V·B], from a mask of samples; never itself."""
    anchors, keys = shape
    views = keys // len(mask_BB)
    pairs = mask_BB.repeat(views, views)[:anchors]
    pairs.diagonal().zero_()
    return pairs


def negative_pairs(positive: Tensor) -> Tensor:
    """Returns the other samples of each anchor, [anchors, V·B]; never itself."""
    return (positive == 0).fill_diagonal_(False)


def overlap_matrix(multi_hot_BC: Tensor, overlap: str, group: dist.ProcessGroup | None = None) -> Tensor:
    """Returns w_ij of all pairs, [B, B], boolean for ``"any"``. A sample without classes has weight 1 with itself only."""
    if group is not None:
        raise ValueError("labels [B, C] in several processes need positives='out', no diagnosis or gather=False")
    with full_precision(multi_hot_BC):
        matrix = overlaps(multi_hot_BC, multi_hot_BC, overlap) + (multi_hot_BC.sum(1) == 0).diag()
    return matrix > 0 if overlap == "any" else matrix


def overlap_mean(similarity: Similarity, features: Tensor, multi_hot: Tensor, overlap: str) -> tuple[Tensor, Tensor]:
    """Returns the mean of s over each anchor's positives, weighted by `overlap_matrix`, and which anchors have none.

    Both have shape [anchors]. No matrix of all pairs is stored.

    Args:
        similarity: anchors (all samples of one view, then of the next) × keys of all processes of its group.
        features: unit rows [B, D] or [B, V, D] of this process.
        multi_hot: their classes [B, C].
    """
    batch, group = len(multi_hot), similarity.group
    views = features.reshape(batch, -1, features.shape[-1])
    # Σ_j w_ij (z_j, 1) over the views of all samples, less the term j = i.
    summands = torch.cat([views.sum(1), features.new_full((batch, 1), views.shape[1])], 1)
    local = local_rows(group, batch, summands)
    sums = overlap_sums(gather_rows(group, multi_hot), gather_rows(group, summands), overlap)[local]
    with_itself = multi_hot.sum(1).clamp_min(1) if overlap == "count" else torch.ones_like(multi_hot[:, 0])
    anchor_views = similarity.shape[0] // batch
    sums, with_itself = sums.repeat(anchor_views, 1), with_itself.repeat(anchor_views)
    weight = sums[:, -1] - with_itself
    alone = weight <= 0
    total = (similarity.queries_ND * (sums[:, :-1] - with_itself[:, None] * similarity.queries_ND)).sum(1)
    return similarity.scale * total / weight.masked_fill(alone, 1), alone


def overlap_sums(multi_hot_BC: Tensor, values_BD: Tensor, overlap: str) -> Tensor:
    """Returns Σ_j w_ij v_j, [B, D]: `overlap_matrix` times the values. Only the values get a gradient."""
    unknown = (multi_hot_BC.sum(1, keepdim=True) == 0).to(values_BD.dtype)
    if overlap == "count":  # M·(Mᵀ·V): O(B·C·D)
        sums = matmul(multi_hot_BC, matmul(multi_hot_BC.T, values_BD))
    elif transformed():
        sums = matmul(overlaps(multi_hot_BC, multi_hot_BC, overlap), values_BD)
    else:
        sums = OverlapSums.apply(multi_hot_BC, values_BD, overlap)
    return sums + unknown * values_BD


class OverlapSums(torch.autograd.Function):
    """overlaps(M, M) @ values, computed in chunks of rows. The overlaps are symmetric: the backward pass is the same sum."""

    @staticmethod
    def forward(ctx: Any, multi_hot_BC: Tensor, values_BD: Tensor, overlap: str) -> Tensor:
        """Returns the sums."""
        ctx.overlap = overlap
        ctx.save_for_backward(multi_hot_BC)
        height = max(1, STRIP // max(1, len(values_BD)))
        with full_precision(values_BD):
            parts = [overlaps(rows, multi_hot_BC, overlap) @ values_BD for rows in multi_hot_BC.split(height)]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, grad_BD: Tensor) -> tuple[None, Tensor, None]:
        """Returns the gradient of the values."""
        (multi_hot_BC,) = ctx.saved_tensors
        return None, OverlapSums.apply(multi_hot_BC, grad_BD, ctx.overlap), None
