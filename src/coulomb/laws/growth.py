"""How memory and work grow with the number of samples."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding, no_samples
from coulomb.laws.subject import Subject

WIDTH = 8
LADDER = (128, 256, 512, 1024, 2048, 4096)  # samples; climbed until a step is slow or large
LONGEST, LARGEST = 1.0, 2**27  # seconds and bytes of the last step
LINEAR = 1.5  # exponents below count as linear, from here on as quadratic
SMALL = (16, 32, 64, 128)  # samples for counting: exact, so that small numbers do
QUADRATIC = 2.3  # sorting N² distances takes N² log N


def memory(subject: Subject) -> Finding:
    """Fits the exponent p of N^p to the bytes that autograd keeps for the backward pass, without the inputs."""
    law, measure = "memory for backward", "exponent of N"
    if not samples_grow(subject):
        return no_samples(law)
    sizes, kept = [], []
    for n in LADDER:
        inputs = subject.draw(n, WIDTH, torch.float32)
        if sum(one.numel() for one in inputs if isinstance(one, Tensor)) >= n * n:
            return Finding(law, NOT_APPLICABLE, cause="the inputs themselves grow as N²")
        start = time.monotonic()
        with saved() as storages:
            outcome = subject.evaluate(inputs, backward=True)
        if outcome.error is not None:
            return Finding(law, NOT_APPLICABLE, cause=f"N = {n}: {type(outcome.error).__name__}: {outcome.error}"[:160])
        sizes.append(n)
        kept.append(max(1, sum(storages.values())))
        if time.monotonic() - start > LONGEST or kept[-1] > LARGEST:
            break
    power = exponent(sizes[-4:], kept[-4:])
    if power <= LINEAR:
        return Finding(law, HOLDS, measure, max(0.0, power), LINEAR, f"{kept[-1] / 2**20:.3g} MiB at N = {sizes[-1]:,}")
    rows = "\n".join(f"N = {n:,}: {k / 2**20:.3g} MiB" for n, k in zip(sizes, kept, strict=True))
    copies = kept[-1] / (4 * sizes[-1] ** 2)
    cause = (
        f"the matrix of all pairs is kept for the backward pass: {copies:.2g} numbers per pair"
        if power < 2.5
        else "a tensor of all triplets is kept for the backward pass"
    )
    return Finding(law, FAILS, measure, power, LINEAR, cause, rows)


def work(subject: Subject) -> Finding:
    """Fits the exponent to the numbers that all operations of a step write, and counts the operations."""
    law, measure = "work", "exponent of N"
    if not samples_grow(subject):
        return no_samples(law)
    written, calls = [], []
    for n in SMALL:
        with Counting() as counted:
            outcome = subject.evaluate(subject.draw(n, WIDTH, torch.float32))
        if outcome.error is not None:
            return Finding(law, NOT_APPLICABLE, cause=f"N = {n}: {type(outcome.error).__name__}: {outcome.error}"[:160])
        written.append(counted.written)
        calls.append(counted.calls)
    # Terms of a lower order hide in the smallest sizes: the last doubling is what the law is about.
    power, growing = exponent(SMALL[-2:], written[-2:]), exponent(SMALL[-2:], calls[-2:])
    rows = "\n".join(
        f"N = {n}: {count} operations write {w:,} numbers" for n, w, count in zip(SMALL, written, calls, strict=True)
    )
    if power > QUADRATIC:
        return Finding(
            law,
            FAILS,
            measure,
            power,
            QUADRATIC,
            "more than N² numbers are computed, as for a list of all triplets",
            rows,
        )
    if growing > 0.5:
        cause = f"a Python loop over samples: {calls[-1]} operations for {SMALL[-1]} samples"
        return Finding(law, FAILS, "exponent of the number of operations", growing, 0.5, cause, rows)
    return Finding(law, HOLDS, measure, power, QUADRATIC)


def samples_grow(subject: Subject) -> bool:
    """True if an argument is larger for more samples."""
    small, large = subject.draw(16, WIDTH), subject.draw(32, WIDTH)
    pairs = zip(small, large, strict=True)
    return any(isinstance(a, Tensor) and a.shape != b.shape for a, b in pairs)


def exponent(sizes: Sequence[int], values: Sequence[int]) -> float:
    """Returns p of the least-squares fit of log value = p·log N + constant."""
    if len(sizes) < 2:
        return 0.0
    x, y = ([math.log(max(1, one)) for one in column] for column in (sizes, values))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


@contextmanager
def saved() -> Iterator[dict[int, int]]:
    """Yields address → bytes of the storages that autograd saves in this block, without those of leaves (the inputs)."""
    storages: dict[int, int] = {}
    held = []  # storages must stay alive, or their addresses would be used again

    def pack(tensor: Tensor) -> Tensor:
        if not tensor.is_leaf or not tensor.requires_grad:
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            held.append(tensor.detach())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield storages
    held.clear()


class Counting(TorchDispatchMode):
    """Counts the operations within this block, and the numbers that they write; views write nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.written = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the operation and counts it."""
        result = func(*args, **(kwargs or {}))
        self.calls += 1
        if not getattr(func, "is_view", False):
            outputs = result if isinstance(result, tuple | list) else (result,)
            self.written += sum(one.numel() for one in outputs if isinstance(one, Tensor))
        return result
