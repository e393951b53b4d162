"""Measure one case: check the result, then time it, its peak memory, and compare both with the targets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from coulomb import machine
from coulomb.bench import dense
from coulomb.bench.cases import BY_NAME, Case, Inputs, Target, make_inputs
from coulomb.bench.contenders import (
    CONTENDERS,
    Step,
    UnavailableError,
    dense_bytes,
    dense_eager,
    peak_of_fresh_process,
    run_of,
    too_large,
)
from coulomb.bench.timing import interleaved, medians
from coulomb.similarity.policy import tile_for

# Relative to the loss, and to the largest entry of a gradient, in fp32; and for fp64.
TOLERANCE = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-10, 1e-8)}
ROUNDED = (1e-4, 5e-3)  # fp32 inside, gradients rounded to bf16: 2⁻⁸
PEER_TOLERANCE = (1e-3, 1e-2)  # enough to know that it is the same loss


@dataclass(frozen=True)
class Reference:
    """The right result, (loss, gradients), what made it, and the differences from it that rounding explains."""

    result: tuple[Tensor, ...]
    made_by: str
    tolerance: tuple[float, float]


def reference(case: Case, inputs: Inputs) -> Reference | None:
    """Dense in fp64 where that fits the machine's memory, else dense in fp32, else dense in strips; None if none is.

    Half-precision inputs are allowed the error of dense PyTorch in their own type, and 1e-5.
    """
    dtype = case.torch_dtype
    half = dtype not in TOLERANCE
    for wide, made_by in ((torch.float64, "dense, fp64"), (torch.float32, "dense, fp32")):
        if too_large(dense_bytes(case, itemsize=wide.itemsize), inputs.arguments[0].device.type) is None:
            result = dense_eager(case)(inputs.to(wide))
            return Reference(result, made_by, _of_half(case, inputs, result) if half else TOLERANCE[dtype])
    in_strips = dense.IN_STRIPS.get(case.dense)
    if in_strips is None or half:
        return None
    return Reference(in_strips(*inputs.arguments, **case.options), "dense in strips, fp32", TOLERANCE[dtype])


def _of_half(case: Case, inputs: Inputs, right: tuple[Tensor, ...]) -> tuple[float, float]:
    try:
        loss, gradient = differences(dense_eager(case)(inputs), right)
    except (RuntimeError, NotImplementedError):  # torch lacks some operation in this type
        return ROUNDED
    return loss + 1e-5, gradient + 1e-5


def differences(result: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> tuple[float, float]:
    """Largest difference of the loss, relative to it, and of the gradients, relative to their largest entry."""
    loss, *grads = (value.double() for value in result)
    right_loss, *right_grads = (value.double() for value in right)
    apart = float((loss - right_loss).abs() / right_loss.abs())
    gradient = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(grads, right_grads, strict=True)]
    # NaN must not pass for a maximum.
    return apart, torch.tensor(gradient).amax().item()


def compare(
    step: Step, inputs: Inputs, against: Reference, tolerance: tuple[float, float] | None = None
) -> dict[str, Any]:
    """``{"ok", "loss", "gradient", "tolerance", "reference"}`` of one step; a wrong number anywhere makes ok False."""
    loss, gradient = differences(step(inputs), against.result)
    allowed = tolerance or against.tolerance
    ok = loss <= allowed[0] and gradient <= allowed[1]
    return {"ok": ok, "loss": loss, "gradient": gradient, "tolerance": list(allowed), "reference": against.made_by}


Product = Callable[[Tensor, Tensor, Tensor], Tensor]
LARGEST = 2.5e11  # flops that are really done; a larger floor is scaled up from these


def torch_mm(queries: Tensor, keys: Tensor, buffer: Tensor) -> Tensor:
    """Q·Kᵀ by torch.mm, into ``buffer``."""
    out = buffer[: len(queries) * len(keys)].view(len(queries), len(keys))
    return torch.mm(queries, keys.T, out=out)


def onednn(queries: Tensor, keys: Tensor, buffer: Tensor) -> Tensor:
    """Q·Kᵀ by oneDNN, which allocates its result."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise.default(queries, keys, None, "none", [], "")
    return out


# The kernels that the engine chooses from. The floor that targets refer to is the faster one.
KERNELS: dict[str, Product] = {"torch.mm": torch_mm}
if machine.find_linear() is not None:
    KERNELS["oneDNN"] = onednn


class Floor:
    """``products``·n·m·dim flops, tile after tile (to the nearest of the engine's tiles); call it to do them.

    ``share``: the part of them that is done; seconds / share is the floor.
    """

    def __init__(self, case: Case, product: Product, device: str = "cpu", tile: int | None = None) -> None:
        tile = tile or tile_for(case.dim)
        rows, cols = min(tile, case.n), min(tile, case.m)
        self.product = product
        self.queries = torch.full((rows, case.dim), 0.5, dtype=case.torch_dtype, device=device)
        self.keys = torch.full((cols, case.dim), 0.5, dtype=case.torch_dtype, device=device)
        self.buffer = torch.empty(rows * cols, dtype=case.torch_dtype, device=device)
        one = 2 * rows * cols * case.dim
        self.tiles = max(1, round(min(case.flops, LARGEST) / one))
        self.share = self.tiles * one / case.flops

    def __call__(self) -> None:
        """Do the products."""
        for _ in range(self.tiles):
            self.product(self.queries, self.keys, self.buffer)


LONG = 3e11  # flops of the floor above which three rounds are enough


@dataclass
class Bench:
    """How to measure, and what was found so far.

    Args:
        repeats: rounds of each case; those that take long get three at most.
        memory: measure peak memory in fresh processes.
        contenders: names in `peers.CONTENDERS` beside ours.
        say: called with what is being done.
        verified: parity of the cases that were looked at.
    """

    repeats: int = 5
    memory: bool = True
    contenders: tuple[str, ...] = tuple(name for name in CONTENDERS if name != "coulomb")
    say: Callable[[str], None] = lambda text: None
    verified: dict[str, dict[str, Any]] = field(default_factory=dict)

    def measure(self, case: Case) -> dict[str, Any]:
        """The result of a case.

        ``status`` is "measured", "wrong" (its parity failed: ``seconds`` and all that follows from them stay empty) or
        "skipped", with a ``reason``. ``seconds`` are medians, ``spread`` smallest and largest, ``skipped`` the reasons of
        contenders that could not take part.
        """
        result = empty(case)
        try:
            step, inputs, right = self.prepared(case)
        except UnavailableError as reason:
            return result | {"status": "skipped", "reason": str(reason)}
        self.say(f"{case.title}: parity")
        parity = self.verified[case.name] = compare(step, inputs, right)
        result["parity"] = parity
        if not parity["ok"]:
            return result | {"status": "wrong", "reason": "its loss or gradient is not the reference's"}
        steps, result["skipped"] = self.rivals(case, inputs, right)
        del right
        self.time(case, inputs, {"coulomb": step} | steps, result)
        if self.memory:
            for name in ("coulomb", *steps):
                if CONTENDERS[name].fresh:
                    self.say(f"{case.title}: memory of {CONTENDERS[name].label}")
                    result["memory_mb"][name] = peak_of_fresh_process(name, case)
        result["targets"] = [judged(target, result) for target in case.targets]
        return result | {"status": "measured"}

    def prepared(self, case: Case) -> tuple[Step, Inputs, Reference]:
        """Our step, the inputs and what is right; an `UnavailableError` where one cannot be had."""
        step = CONTENDERS["coulomb"].make(case)
        reason = too_large(3 * (case.n + case.m) * case.dim * case.torch_dtype.itemsize)
        if reason is not None:
            raise UnavailableError(reason)
        inputs = make_inputs(case)
        self.say(f"{case.title}: reference")
        right = reference(case, inputs)
        if right is None:
            raise UnavailableError("no reference fits the machine's memory, and without one no speed is reported")
        return step, inputs, right

    def rivals(self, case: Case, inputs: Inputs, right: Reference) -> tuple[dict[str, Step], dict[str, str]]:
        """The contenders that can take part and compute the same loss, and why the others do not."""
        steps: dict[str, Step] = {}
        reasons: dict[str, str] = {}
        for name in self.contenders:
            contender = CONTENDERS[name]
            if not contender.applies(case):
                continue
            self.say(f"{case.title}: {contender.label}")
            try:
                step = contender.make(case)
                reason = too_large(contender.needs(case), inputs.arguments[0].device.type)
                if reason is None and not (found := compare(step, inputs, right, _tolerance(case)))["ok"]:
                    reason = f"another result: loss {found['loss']:.0e}, gradient {found['gradient']:.0e} apart"
            except UnavailableError as unavailable:
                reason = str(unavailable)
            except Exception as error:  # another project's error must not end the benchmark
                reason = f"failed: {type(error).__name__}: {_first_line(error)}"
            if reason is None:
                steps[name] = step
            else:
                reasons[name] = reason
        return steps, reasons

    def time(self, case: Case, inputs: Inputs, steps: dict[str, Step], result: dict[str, Any]) -> None:
        """Fill in the seconds, of the floors and of the cases that ratios are with, too."""
        runs: dict[str, Callable[[], object]] = {name: run_of(step, inputs) for name, step in steps.items()}
        floors = {name: Floor(case, product) for name, product in KERNELS.items()}
        runs |= {f"floor {name}": floor for name, floor in floors.items()}
        for other in {t.other for t in case.targets if t.kind == "ratio"}:
            run = self._other(BY_NAME[other])
            if run is not None:
                runs[f"case {other}"] = run
        rounds = self.repeats if case.flops < LONG else min(self.repeats, 3)
        self.say(f"{case.title}: time, {rounds} rounds of {', '.join(CONTENDERS[name].label for name in steps)}")
        # All have run once for parity; where a step takes seconds, that is warm-up enough.
        taken = interleaved(runs, rounds, warmup=int(case.flops < LONG))
        for name, floor in floors.items():
            taken[f"floor {name}"] = [seconds / floor.share for seconds in taken[f"floor {name}"]]
        result["rounds"] = rounds
        result["seconds"] = seconds = medians(taken)
        result["spread"] = {name: [min(each), max(each)] for name, each in taken.items()}
        own = seconds["coulomb"]
        result["speedup"] = {name: seconds[name] / own for name in steps if name != "coulomb"}
        result["time_over_floor"] = {name: own / seconds[f"floor {name}"] for name in floors}
        result["time_over_floor"]["best"] = max(result["time_over_floor"].values())

    def _other(self, case: Case) -> Callable[[], object] | None:
        if case.name not in self.verified:
            self.say(f"{case.title}: parity, to compare with")
            step, inputs, right = self.prepared(case)
            self.verified[case.name] = compare(step, inputs, right)
        if not self.verified[case.name]["ok"]:
            return None
        return run_of(CONTENDERS["coulomb"].make(case), make_inputs(case))


def empty(case: Case) -> dict[str, Any]:
    """A result in which nothing was found yet."""
    told = {"name": case.name, "title": case.title, "loss": case.loss, "options": dict(case.options)}
    sizes = {"n": case.n, "m": case.m, "dim": case.dim, "dtype": case.dtype, "products": case.products}
    found: dict[str, Any] = {"status": "", "reason": "", "parity": None, "rounds": 0}
    found |= {name: {} for name in ("seconds", "spread", "speedup", "time_over_floor", "memory_mb", "skipped")}
    return told | sizes | found | {"targets": [judged(target, found) for target in case.targets]}


def judged(target: Target, result: dict[str, Any]) -> dict[str, Any]:
    """``{"kind", "text", "value", "met"}``: value and met are None where it could not be measured.

    A floor target refers to the faster kernel.
    """
    seconds = result["seconds"]
    value: float | None = None
    if target.kind == "speedup":
        value = result["speedup"].get("dense")
    elif target.kind == "floor":
        value = result["time_over_floor"].get("best")
    elif target.kind == "memory":
        value = result["memory_mb"].get("coulomb")
    elif f"case {target.other}" in seconds:
        value = seconds["coulomb"] / seconds[f"case {target.other}"]
    met = None if value is None else value >= target.value if target.kind == "speedup" else value <= target.value
    return {"kind": target.kind, "text": target.text(), "target": target.value, "value": value, "met": met}


def _tolerance(case: Case) -> tuple[float, float]:
    return PEER_TOLERANCE if case.torch_dtype.itemsize >= 4 else (0.05, 0.2)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:160]
