"""The three matrix products of a tile, each by the faster of two exact kernels.

`torch.mm` goes to MKL for fp32 on CPUs, and MKL leaves half of an AMD processor's AVX-512 unused. oneDNN, which CPU builds
of torch carry, does not (measured on Zen 5: 460 against 230 GFLOP/s on these shapes, in the same fp32 arithmetic). torch
offers it for plain tensors as an inference operator only; where that is missing, and everywhere else, `torch.mm` serves.
The choice depends on the build and the processor alone, so that a resumed run repeats its bits.
"""

import torch
from torch import Tensor

SMALL = 16  # below this many rows, columns or dimensions there is nothing to gain
WORTHWHILE = 2**22  # below this many multiplications a single product gains nothing either


def _find_linear() -> torch._ops.OpOverload | None:
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    try:
        linear = torch.ops.mkldnn._linear_pointwise.default
        probe = torch.arange(12.0).view(3, 4) / 7
        ok = torch.allclose(linear(probe, probe, None, "none", [], ""), probe @ probe.T, rtol=1e-5)
    except (AttributeError, RuntimeError, TypeError):  # another build of torch
        return None
    return linear if ok else None


def _find_fast_bfloat16() -> bool:
    try:
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    except AttributeError:  # another build of torch
        return False


def _free_a_large_block() -> None:
    """glibc returns each freed block of a few MB to the system, and the next one is faulted in page by page, until a larger
    one was freed once. oneDNN allots each tile anew: a queue's loss takes twice as long in a process where none was yet.
    """
    torch.empty(31 * 2**18)  # its pages are never touched


LINEAR = _find_linear()  # linear(a, b) = a·bᵀ; None: use torch.mm
if LINEAR is not None:
    _free_a_large_block()
FAST_BFLOAT16 = _find_fast_bfloat16()  # the CPU multiplies bfloat16 faster than float32


def gains(dtype: torch.dtype, device: torch.device) -> bool:
    """Are products of operands in this half precision faster here than in fp32?"""
    if device.type == "cpu":
        return dtype == torch.bfloat16 and FAST_BFLOAT16
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def scores(queries_RD: Tensor, keys_CD: Tensor, buffer: Tensor) -> Tensor:
    """Q·Kᵀ [R, C] in the buffer's precision; in ``buffer`` (flat) where the kernel can write into it."""
    out = buffer[: len(queries_RD) * len(keys_CD)].view(len(queries_RD), len(keys_CD))
    if queries_RD.dtype != buffer.dtype:  # half precision: CPUs offer sums in fp32 but no result in it
        if queries_RD.device.type == "cuda":
            return torch.mm(queries_RD, keys_CD.T, out_dtype=buffer.dtype)
        return out.copy_(torch.mm(queries_RD, keys_CD.T))
    if LINEAR is not None and _suits(queries_RD, keys_CD):
        return LINEAR(queries_RD, keys_CD, None, "none", [], "")
    return torch.mm(queries_RD, keys_CD.T, out=out)


def product(a_RD: Tensor, b_CD: Tensor) -> Tensor:
    """A·Bᵀ [R, C]."""
    if LINEAR is not None and len(a_RD) * b_CD.numel() >= WORTHWHILE and _suits(a_RD, b_CD):
        return LINEAR(a_RD, b_CD, None, "none", [], "")
    return torch.mm(a_RD, b_CD.T)


def transposed_product(a_RC: Tensor, b_RD: Tensor) -> Tensor:
    """Aᵀ·B [C, D], as (Bᵀ·A)ᵀ: oneDNN reads A fast in this order only."""
    if LINEAR is not None and a_RC.numel() * b_RD.shape[1] >= WORTHWHILE and _suits(a_RC, b_RD):
        return LINEAR(b_RD.T.contiguous(), a_RC.T, None, "none", [], "").T
    return torch.mm(a_RC.T, b_RD)


def add_product(out_RD: Tensor, tile_RC: Tensor, keys_CD: Tensor) -> None:
    """out += tile · K."""
    if tile_RC.dtype != out_RD.dtype:
        out_RD.add_(_half_product(tile_RC, keys_CD, out_RD.dtype))
    elif LINEAR is not None and _suits(tile_RC, keys_CD):
        out_RD.add_(LINEAR(tile_RC, keys_CD.T, None, "none", [], ""))
    else:
        out_RD.addmm_(tile_RC, keys_CD)


def add_transposed_product(out_CD: Tensor, tile_RC: Tensor, queries_DR: Tensor) -> None:
    """out += tileᵀ · Q, as (Qᵀ · tile)ᵀ: oneDNN reads the tile fast in this order only. Qᵀ should be contiguous."""
    if tile_RC.dtype != out_CD.dtype:
        out_CD.add_(_half_product(queries_DR, tile_RC, out_CD.dtype).T)
    elif LINEAR is not None and _suits(tile_RC, queries_DR):
        out_CD.add_(LINEAR(queries_DR, tile_RC.T, None, "none", [], "").T)
    else:
        out_CD.addmm_(tile_RC.T, queries_DR.T)


def _half_product(a: Tensor, b: Tensor, wide: torch.dtype) -> Tensor:
    return torch.mm(a, b, out_dtype=wide) if a.device.type == "cuda" else torch.mm(a, b)


def _suits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == torch.float32 and a.device.type == "cpu" and min(*a.shape, *b.shape) >= SMALL
