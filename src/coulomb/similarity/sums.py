"""Sums of similarities need no matrix: Σ_j s_ij = q_i · (sum of the keys that count), and those sums are shared. O(N·D)."""

from typing import Any

import torch
from torch import Tensor

from coulomb.checked import transformed
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.products import full_precision, matmul


def summed(queries_ND: Tensor, keys_MD: Tensor, scale: float | Tensor, bias_M: Tensor | None, pairs: Pairs) -> Tensor:
    """Σ_j w_ij s_ij over the pairs that count, [N]."""
    queries_ND = scale * queries_ND
    if bias_M is not None:  # s_ij = (scale·q_i, 1) · (k_j, b_j)
        queries_ND = torch.cat([queries_ND, queries_ND.new_ones(len(queries_ND), 1)], 1)
        keys_MD = torch.cat([keys_MD, bias_M[:, None]], 1)
    return (queries_ND * key_sums(keys_MD, pairs)).sum(1)


def key_sums(keys_MD: Tensor, pairs: Pairs) -> Tensor:
    """Σ_j w_ij k_j, [N, D]."""
    if pairs.mask is not None:
        if transformed():
            return matmul(pairs.mask.to(keys_MD.dtype), keys_MD)
        out: Tensor = MaskedSums.apply(pairs.mask, keys_MD)
        return out
    if pairs.few:
        return matmul(pairs.equal.to(keys_MD.dtype), keys_MD)
    n = pairs.shape[0]
    everything = keys_MD.sum(0).expand(n, -1)
    if pairs.same is None:
        sums = everything
    else:
        query_class, key_class, size = pairs.classes
        by_class = keys_MD.new_zeros(size, keys_MD.shape[1]).index_add(0, key_class, keys_MD)
        same = by_class.index_select(0, query_class)  # its gradient adds rows much faster than that of indexing
        sums = same if pairs.same else everything - same
    return sums - keys_MD[:n] * pairs.holds_self[:, None] if pairs.drop_self else sums


STRIP = 512  # rows of a mask that are floats at a time


class MaskedSums(torch.autograd.Function):
    """mask [N, M] @ keys [M, D], a strip of rows at a time, so that a boolean mask is never stored as floats."""

    @staticmethod
    def forward(mask_NM: Tensor, keys_MD: Tensor) -> Tensor:
        """Mask · keys."""
        with full_precision(keys_MD):
            out = keys_MD.new_empty(len(mask_NM), keys_MD.shape[1])
            for start in range(0, len(mask_NM), STRIP):
                rows = slice(start, start + STRIP)
                out[rows] = mask_NM[rows].to(keys_MD.dtype) @ keys_MD
            return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Keep the mask alone."""
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx: Any, grad_ND: Tensor) -> tuple[None, Tensor]:
        """maskᵀ · gradient."""
        (mask_NM,) = ctx.saved_tensors
        with full_precision(grad_ND):
            total = grad_ND.new_zeros(mask_NM.shape[1], grad_ND.shape[1])
            for start in range(0, len(mask_NM), STRIP):
                rows = slice(start, start + STRIP)
                total = total + mask_NM[rows].to(grad_ND.dtype).T @ grad_ND[rows]
            return None, total
