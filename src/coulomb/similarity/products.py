"""The three matrix products of a tile, each by the faster of two exact kernels.

`torch.mm` goes to MKL for fp32 on CPUs, and MKL leaves half of an AMD processor's AVX-512 unused. oneDNN, which CPU builds
of torch carry, does not (measured on Zen 5: 460 against 230 GFLOP/s on these shapes, in the same fp32 arithmetic). torch
offers it for plain tensors as an inference operator only; where that is missing, and everywhere else, `torch.mm` serves.
The choice depends on the build and the processor alone, so that a resumed run repeats its bits.
"""

import torch
from torch import Tensor

SMALL = 16  # below this many rows, columns or dimensions there is nothing to gain


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


LINEAR = _find_linear()  # linear(a, b) = a·bᵀ; None: use torch.mm


def scores(queries_RD: Tensor, keys_CD: Tensor, buffer: Tensor) -> Tensor:
    """Q·Kᵀ [R, C]; in ``buffer`` (flat) where the kernel can write into it."""
    if LINEAR is not None and _suits(queries_RD, keys_CD):
        return LINEAR(queries_RD, keys_CD, None, "none", [], "")
    out = buffer[: len(queries_RD) * len(keys_CD)].view(len(queries_RD), len(keys_CD))
    return torch.mm(queries_RD, keys_CD.T, out=out)


def add_product(out_RD: Tensor, tile_RC: Tensor, keys_CD: Tensor) -> None:
    """out += tile · K."""
    if LINEAR is not None and _suits(tile_RC, keys_CD):
        out_RD.add_(LINEAR(tile_RC, keys_CD.T, None, "none", [], ""))
    else:
        out_RD.addmm_(tile_RC, keys_CD)


def add_transposed_product(out_CD: Tensor, tile_RC: Tensor, queries_RD: Tensor) -> None:
    """out += tileᵀ · Q, as (Qᵀ · tile)ᵀ: oneDNN reads the tile fast in this order only."""
    if LINEAR is not None and _suits(tile_RC, queries_RD):
        out_CD.add_(LINEAR(queries_RD.T, tile_RC.T, None, "none", [], "").T)
    else:
        out_CD.addmm_(tile_RC.T, queries_RD)


def _suits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == torch.float32 and a.device.type == "cpu" and min(*a.shape, *b.shape) >= SMALL
