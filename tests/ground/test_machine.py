"""The choice of the kernel for matrix products (the kernels themselves are tested in test_streaming), and the allocator."""

import os
import subprocess
import sys

import pytest
import torch

from coulomb.ground import machine
from coulomb.ground.machine import preferred_kernel

ZEN = "AMD EPYC (AuthenticAMD family 26 model 2)"
XEON = "Intel(R) Xeon(R) CPU @ 2.80GHz (GenuineIntel family 6 model 85)"


@pytest.mark.parametrize(
    "processor, capability, kernel",
    [
        (ZEN, "AVX512", "oneDNN"),
        (ZEN, "AVX2", "torch.mm"),
        (XEON, "AVX512", "torch.mm"),
        ("arm64", "DEFAULT", "torch.mm"),
    ],
)
def test_the_kernel_is_the_faster_one_of_the_processor(processor, capability, kernel):
    assert preferred_kernel(processor, capability) == kernel
    assert preferred_kernel(processor, capability, "") == kernel


def test_the_kernel_can_be_overridden():
    assert preferred_kernel(ZEN, "AVX512", "torch.mm") == "torch.mm"
    assert preferred_kernel(XEON, "AVX512", "oneDNN") == "oneDNN"
    with pytest.raises(ValueError, match="COULOMB_PRODUCTS='mkl': must be"):
        preferred_kernel(XEON, "AVX512", "mkl")


@pytest.mark.parametrize("override", ["", "torch.mm"])
def test_the_same_choice_at_each_start(override):
    code = "from coulomb.ground.machine import KERNEL, LINEAR; print(KERNEL, LINEAR is None)"
    env = os.environ | {"COULOMB_PRODUCTS": override}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    kernel = override or machine.KERNEL
    assert said.split() == [kernel, str(kernel == "torch.mm")]


def test_the_processor_is_named():
    assert len(machine.processor()) > 2


def run_in_a_process(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


FAULTS = """
import resource, torch
from coulomb.ground.machine import keep_freed_memory
kept = keep_freed_memory()
count = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(2):
    torch.zeros(2**25).add_(1)
before = count()
for _ in range(4):
    torch.zeros(2**25).add_(1)
print(kept, count() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_freed_memory_is_used_again():
    kept, faults = run_in_a_process(FAULTS).split()
    if kept == "False":
        pytest.skip("another C library than glibc")
    mapped_anew = run_in_a_process(FAULTS, COULOMB_KEEP_MEMORY="0").split()
    assert mapped_anew[0] == "False"
    assert int(faults) < 0.2 * int(mapped_anew[1])


def test_a_c_library_without_mallopt_is_left_alone(monkeypatch):
    monkeypatch.setattr(machine.ctypes, "CDLL", lambda name: object())
    assert not machine.keep_freed_memory.__wrapped__()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_excluded_elements_become_minus_infinity(dtype):
    tile = torch.randn(5, 7, dtype=dtype)
    tile[0], tile[1, 2] = -torch.inf, torch.finfo(dtype).max
    least = torch.tensor([0.0, 0.3, torch.inf, -torch.inf, 0.0], dtype=dtype)[:, None]
    expected = tile.masked_fill(tile < least, -torch.inf)
    assert machine.exclude_(tile, torch.lt, tile, least) is tile
    assert torch.equal(tile, expected)
