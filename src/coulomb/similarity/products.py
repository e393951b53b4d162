"""The three matrix products of a tile, by the faster of two exact fp32 kernels: `torch.mm` (MKL on x86) and oneDNN's.

Which is faster depends on the processor. MKL does not use all of AVX-512 on AMD; oneDNN, which the CPU builds of torch
contain, does. Measured on tiles of these sizes, two threads, GFLOP/s:

    AMD Zen 5                oneDNN 460    torch.mm 230
    AMD Zen 4                oneDNN 185    torch.mm 157
    Intel Cascade Lake       oneDNN 122    torch.mm 146     (from the products of NT-Xent 8192×128: 282 and 236 ms)

So oneDNN is used on AMD with AVX-512 and `torch.mm` everywhere else. The environment variable ``COULOMB_PRODUCTS``
(``torch.mm`` or ``oneDNN``) overrides this. The choice depends on the build, the processor and that variable only, so that
a resumed run repeats its bits; `KERNEL` is its name, and is recorded in a run's ``environment.json`` and in benchmarks.
"""

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

SMALL = 16  # with fewer rows, columns or dimensions oneDNN gains nothing
WORTHWHILE = 2**22  # likewise with fewer multiplications in a single product


def processor() -> str:
    """The processor's model, vendor and family, as the system reports them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    if "vendor_id" not in facts:  # not x86
        return facts.get("model name") or platform.machine()
    return f"{facts['model name']} ({facts['vendor_id']} family {facts['cpu family']} model {facts['model']})"


def preferred(processor: str, capability: str, override: str | None = None) -> str:
    """``"oneDNN"`` or ``"torch.mm"``: the faster kernel on this processor, unless overridden.

    Raises ValueError for an unknown override.
    """
    if override:
        if override not in ("torch.mm", "oneDNN"):
            raise ValueError(f"COULOMB_PRODUCTS={override!r}: must be 'torch.mm' or 'oneDNN'")
        return override
    return "oneDNN" if "AuthenticAMD" in processor and capability == "AVX512" else "torch.mm"


def find_linear() -> torch._ops.OpOverload | None:
    """oneDNN's linear(a, b) = a·bᵀ; None if this build of torch lacks it."""
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        linear = (
            torch.ops.mkldnn._linear_pointwise.default
        )  # for plain tensors torch has it as an inference operator only
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
    """Makes glibc keep freed blocks of a few MB, which it otherwise returns to the system until a larger one was freed.

    Tiles are allocated anew in every step. Without this, NT-Xent 8192×128 causes 13,900 page faults per step in a fresh
    process instead of 300 and takes up to 6% longer (Zen 4); InfoNCE with a queue takes twice as long (Zen 5).
    """
    torch.empty(31 * 2**18)  # its pages are never touched


_wanted = preferred(processor(), torch.backends.cpu.get_cpu_capability(), os.environ.get("COULOMB_PRODUCTS"))
LINEAR = find_linear() if _wanted == "oneDNN" else None  # None: use torch.mm
KERNEL = "torch.mm" if LINEAR is None else "oneDNN"
_free_a_large_block()
FAST_BFLOAT16 = _find_fast_bfloat16()  # the CPU multiplies bfloat16 faster than float32


def gains(dtype: torch.dtype, device: torch.device) -> bool:
    """True if products of operands in this half precision are faster on this machine than in fp32."""
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


def full_precision(like: Tensor) -> AbstractContextManager[object]:
    """Autocast off, since the operands are already in the precision that they need."""
    kind = like.device.type
    on = kind != "meta" and torch.is_autocast_enabled(kind)  # torch has no autocast for meta tensors
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def matmul(first: Tensor, second: Tensor) -> Tensor:
    """first @ second, for two matrices or two equal batches of them.

    torch's own operators are rounded in a backward pass that runs inside autocast, even where autocast was off in the
    forward pass. Where it is on, the product is therefore an autograd function that turns it off in both passes.
    """
    if not _autocasting(first):
        return first @ second
    out: Tensor = MatMul.apply(first, second)
    return out


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """rows @ weightᵀ + bias."""
    if not _autocasting(rows):
        return functional.linear(rows, weight, bias)
    out = matmul(rows, weight.T)
    return out if bias is None else out + bias


def _autocasting(like: Tensor) -> bool:
    kind = like.device.type
    return kind != "meta" and torch.is_autocast_enabled(kind) and not torch.compiler.is_compiling()


class MatMul(torch.autograd.Function):
    """A·B without autocast; its derivatives are such products again."""

    generate_vmap_rule = True

    @staticmethod
    def forward(first: Tensor, second: Tensor) -> Tensor:
        """The product."""
        with full_precision(first):
            return first @ second

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Keep both operands."""
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """G·Bᵀ and Aᵀ·G."""
        first, second = ctx.saved_tensors
        need_first, need_second = ctx.needs_input_grad
        return matmul(grad, second.mT) if need_first else None, matmul(first.mT, grad) if need_second else None

    @staticmethod
    def jvp(ctx: Any, first_tangent: Tensor | None, second_tangent: Tensor | None) -> Tensor | None:
        """dA·B + A·dB."""
        first, second = ctx.saved_tensors
        parts = []
        if first_tangent is not None:
            parts.append(matmul(first_tangent, second))
        if second_tangent is not None:
            parts.append(matmul(first, second_tangent))
        return sum(parts[1:], parts[0]) if parts else None
