"""The processor: which of two exact fp32 matrix products is faster, `torch.mm` (MKL on x86) or oneDNN; and the allocator.

MKL does not use all of AVX-512 on AMD; oneDNN, which the CPU builds of torch contain, does. The choice affects products that
are split over several threads, such as a stored matrix or blocks of features. With one thread, as in tiles, both are equally
fast (99 to 103 and 101 to 110 GFLOP/s on Zen 4). Measured with two threads, GFLOP/s:

    AMD Zen 5                oneDNN 460    torch.mm 230
    AMD Zen 4                oneDNN 185    torch.mm 157
    Intel Cascade Lake       oneDNN 122    torch.mm 146     (from the products of NT-Xent 8192×128: 282 and 236 ms)

So oneDNN is used on AMD with AVX-512 and `torch.mm` everywhere else. The environment variable ``COULOMB_PRODUCTS``
(``torch.mm`` or ``oneDNN``) overrides this. The choice depends only on the build, the processor and that variable, so that
a resumed run repeats its bits; `KERNEL` is the name of the kernel, recorded in a run's ``environment.json`` and in benchmarks.

`exclude_` masks a tile by operations that are fast on a CPU. `keep_freed_memory` configures the allocator.
"""

import ctypes
import functools
import math
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor


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


def preferred_kernel(processor: str, capability: str, override: str | None = None) -> str:
    """``"oneDNN"`` or ``"torch.mm"``: the faster kernel on this processor, unless overridden.

    Raises ValueError for an unknown override.
    """
    if override:
        if override not in ("torch.mm", "oneDNN"):
            raise ValueError(f"COULOMB_PRODUCTS={override!r}: must be 'torch.mm' or 'oneDNN'")
        return override
    return "oneDNN" if "AuthenticAMD" in processor and capability == "AVX512" else "torch.mm"


def fast_bf16() -> bool:
    """Returns True if this machine multiplies bfloat16 in hardware; emulation is slower than float32."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return FAST_BFLOAT16


def exclude_(
    tile_RC: Tensor, which: Callable[..., Tensor], first: Tensor, second: Tensor, out: Tensor | None = None
) -> Tensor:
    """Fills the tile with −∞ in place where the comparison ``which`` holds, for example `torch.lt`.

    ``out``: a tile to overwrite, which may be ``first``; None: a new one.
    On a CPU this is done by arithmetic, in 18 to 45% of the time (`benchmarks.masks`, AMD Zen 4): torch vectorizes
    comparisons that write floats, but neither comparisons that write booleans nor `masked_fill_`.
    """
    if tile_RC.device.type != "cpu":
        return tile_RC.masked_fill_(which(first, second), -torch.inf)
    hidden = which(first, second, out=torch.empty_like(tile_RC) if out is None else out)
    return tile_RC.sub_(hidden.mul_(torch.finfo(hidden.dtype).max).mul_(2))  # 0 or ∞


def find_linear() -> torch._ops.OpOverload | None:
    """oneDNN's linear(a, b) = a·bᵀ, which torch has as an inference operator only; None if this build of torch lacks it."""
    if not torch.backends.mkldnn.is_available():
        return None
    try:
        linear = torch.ops.mkldnn._linear_pointwise.default
        probe = torch.arange(12.0).view(3, 4) / 7
        ok = torch.allclose(linear(probe, probe, None, "none", [], ""), probe @ probe.T, rtol=1e-5)
    except (AttributeError, RuntimeError, TypeError):  # another build of torch
        return None
    return linear if ok else None


def has_fast_bfloat16() -> bool:
    """True if this processor multiplies bfloat16 faster than float32."""
    try:
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    except AttributeError:  # another build of torch
        return False


M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # glibc's malloc.h


@functools.cache
def keep_freed_memory() -> bool:
    """Makes glibc's malloc keep the memory of freed tensors for the next ones, in this process; returns whether it does.

    By default malloc maps each block above 32 MiB anew, and the kernel clears its pages, which takes half of the time of a
    network with activations that large. Called when a training begins and before features are computed, not at import. Blocks
    above 2 GiB are still mapped. The process may hold up to a third more memory. The environment variable
    ``COULOMB_KEEP_MEMORY=0`` leaves malloc as it is; other C libraries have no such setting.

    Measured by ``python -m benchmarks.memory`` with lite0, 96 pixels, two threads, interleaved (AMD Zen 4): inference
    of 256 images is 3.3 times as fast, training with 128 images 2.0 times.
    """
    if os.environ.get("COULOMB_KEEP_MEMORY") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library
        return False
    settings = {M_MMAP_THRESHOLD: 2**31 - 1, M_TRIM_THRESHOLD: 2**31 - 1, M_TOP_PAD: 2**26}
    return all(mallopt(parameter, value) == 1 for parameter, value in settings.items())


TILE_SHARE = 1 / 64  # share of a GPU's free memory for one tile in fp32; a reduction holds a handful of tiles
# Rows of a tile; estimated, not measured: from 4,096 rows on the products take longer than launching their kernels.
SMALLEST_GPU_TILE, LARGEST_GPU_TILE = 1024, 8192


def gpu_tile(free: int) -> int:
    """Rows and columns of a tile on a GPU with ``free`` bytes of memory: a power of two from 1,024 to 8,192."""
    side = math.isqrt(int(free * TILE_SHARE / 4))
    return min(LARGEST_GPU_TILE, max(SMALLEST_GPU_TILE, 1 << max(0, side.bit_length() - 1)))


def free_gpu_bytes(device: torch.device) -> int:
    """Returns the memory of a GPU that torch can still use, with what its allocator caches.

    Without a GPU, and while a CUDA graph is captured, 0.
    """
    if not torch.cuda.is_available() or torch.cuda.is_current_stream_capturing():
        return 0
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + cached


@contextmanager
def gpu_precision(tf32: bool) -> Iterator[None]:
    """Within this block, products on GPUs are computed without autocast, and in full fp32 unless ``tf32``."""
    matmul = torch.backends.cuda.matmul
    name, exact = ("fp32_precision", "ieee") if hasattr(matmul, "fp32_precision") else ("allow_tf32", False)
    before = getattr(matmul, name)
    with torch.autocast("cuda", enabled=False):
        if not tf32:
            setattr(matmul, name, exact)
        try:
            yield
        finally:
            setattr(matmul, name, before)


_wanted = preferred_kernel(processor(), torch.backends.cpu.get_cpu_capability(), os.environ.get("COULOMB_PRODUCTS"))
LINEAR = find_linear() if _wanted == "oneDNN" else None  # None: torch.mm
KERNEL = "torch.mm" if LINEAR is None else "oneDNN"
FAST_BFLOAT16 = has_fast_bfloat16()
