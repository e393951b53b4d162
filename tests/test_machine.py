"""The choice of the kernel for matrix products; the kernels themselves are tested in test_streaming."""

import os
import subprocess
import sys

import pytest

from coulomb import machine
from coulomb.machine import preferred_kernel

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
    code = "from coulomb.machine import KERNEL, LINEAR; print(KERNEL, LINEAR is None)"
    env = os.environ | {"COULOMB_PRODUCTS": override}
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    kernel = override or machine.KERNEL
    assert said.split() == [kernel, str(kernel == "torch.mm")]


def test_the_processor_is_named():
    assert len(machine.processor()) > 2
