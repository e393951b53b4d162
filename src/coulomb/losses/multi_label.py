"""Samples with several classes each: which share one, and sums over those, without a matrix of all pairs."""

from typing import Any

import torch
from torch import Tensor

from coulomb.checked import readable
from coulomb.losses.arguments import require_dense
from coulomb.similarity.exact import matmul
from coulomb.similarity.problem import full_precision, transformed

OVERLAPS = ("any", "count", "jaccard")
STRIP = 2**22  # elements of a strip of the overlaps [B, B]


def checked_multi_hot(labels: Tensor, length: int, like: Tensor) -> Tensor:
    """[B, C] of zeros and ones, in the type of ``like`` (values are checked only where they are `readable`)."""
    if labels.is_complex():
        raise TypeError(f"labels must be boolean or real, got {labels.dtype}")
    require_dense("labels", labels)
    if labels.shape[0] != length:
        raise ValueError(f"labels must have shape [{length}] or [{length}, C], got {tuple(labels.shape)}")
    if labels.device != like.device:
        raise ValueError(f"labels is on {labels.device}, features on {like.device}")
    if readable(labels) and not ((labels == 0) | (labels == 1)).all():
        raise ValueError("labels [B, C] must be 0 or 1 (multi-hot): class c is, or is not, one of the sample's classes")
    return labels.to(like.dtype)


def overlaps(first_RC: Tensor, second_BC: Tensor, overlap: str) -> Tensor:
    """w_ij between two sets of multi-hot rows, [R, B]: 1 if they share a class, |A∩B|, or |A∩B|/|A∪B|."""
    common = first_RC @ second_BC.T
    if overlap == "any":
        return (common > 0).to(common.dtype)
    if overlap == "jaccard":
        return common / (first_RC.sum(1, keepdim=True) + second_BC.sum(1) - common).clamp_min(1)
    return common


def overlap_matrix(multi_hot_BC: Tensor, overlap: str) -> Tensor:
    """w_ij of all pairs, [B, B], boolean for ``"any"``; a sample without classes has weight 1 with itself alone."""
    with full_precision(multi_hot_BC):
        matrix = overlaps(multi_hot_BC, multi_hot_BC, overlap) + (multi_hot_BC.sum(1) == 0).diag()
    return matrix > 0 if overlap == "any" else matrix


def overlap_sums(multi_hot_BC: Tensor, values_BD: Tensor, overlap: str) -> Tensor:
    """Σ_j w_ij v_j, [B, D], as `overlap_matrix` times the values, which are the only ones to get a gradient."""
    unknown = (multi_hot_BC.sum(1, keepdim=True) == 0).to(values_BD.dtype)
    if overlap == "count":  # M·Mᵀ·V from the right: O(B·C·D)
        sums = matmul(multi_hot_BC, matmul(multi_hot_BC.T, values_BD))
    elif transformed():
        sums = matmul(overlaps(multi_hot_BC, multi_hot_BC, overlap), values_BD)
    else:
        sums = OverlapSums.apply(multi_hot_BC, values_BD, overlap)
    return sums + unknown * values_BD


class OverlapSums(torch.autograd.Function):
    """overlaps(M, M) @ values, a strip of rows at a time; the overlaps are symmetric, so the derivative is the same sum."""

    generate_vmap_rule = False

    @staticmethod
    def forward(multi_hot_BC: Tensor, values_BD: Tensor, overlap: str) -> Tensor:
        """The sums."""
        height = max(1, STRIP // max(1, len(values_BD)))
        with full_precision(values_BD):
            parts = [overlaps(rows, multi_hot_BC, overlap) @ values_BD for rows in multi_hot_BC.split(height)]
        return torch.cat(parts)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the labels alone."""
        multi_hot_BC, _, ctx.overlap = inputs
        ctx.save_for_backward(multi_hot_BC)

    @staticmethod
    def backward(ctx: Any, grad_BD: Tensor) -> tuple[None, Tensor, None]:
        """Gradient for the values."""
        (multi_hot_BC,) = ctx.saved_tensors
        return None, OverlapSums.apply(multi_hot_BC, grad_BD, ctx.overlap), None
