"""Measures one case: checks the result, then measures time and peak memory and compares them with the targets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks import dense
from benchmarks.cases import BY_NAME, Case, Inputs, Target, make_inputs
from benchmarks.contenders import (
    CONTENDERS,
    PEERS,
    PLAIN,
    Step,
    UnavailableError,
    bind,
    dense_bytes,
    dense_eager,
    peak_of_fresh_process,
    too_large,
)
from benchmarks.timing import interleaved, medians
from coulomb.ground import machine
from coulomb.similarity.policy import tile_for

# Errors relative to the loss, and to the largest entry of a gradient.
TOLERANCE = {torch.float32: (1e-5, 1e-4), torch.float64: (1e-10, 1e-8)}
ROUNDED = (1e-4, 5e-3)  # computed in fp32, gradients rounded to bf16: 2⁻⁸
PEER_TOLERANCE = (1e-3, 1e-2)  # distinguishes other losses from rounding


@dataclass(frozen=True)
class Reference:
    """The correct loss and gradients, how they were computed, and the tolerated (loss, gradient) errors."""

    result: tuple[Tensor, ...]
    method: str
    tolerance: tuple[float, float]


def reference(case: Case, inputs: Inputs) -> Reference | None:
    """Computes the reference densely in fp64, else in fp32, else in strips, whichever fits into memory first.

    The tolerance for half-precision inputs is the error of dense PyTorch in that type plus 1e-5. Returns None if no reference
    fits.
    """
    dtype = case.torch_dtype
    half = dtype not in TOLERANCE
    for wide, method in ((torch.float64, "dense, fp64"), (torch.float32, "dense, fp32")):
        if too_large(dense_bytes(case, itemsize=wide.itemsize), inputs.arguments[0].device.type) is None:
            result = dense_eager(case)(inputs.to(wide))
            return Reference(result, method, _half_tolerance(case, inputs, result) if half else TOLERANCE[dtype])
    in_strips = dense.IN_STRIPS.get(case.dense)
    if in_strips is None or half:
        return None
    return Reference(in_strips(*inputs.arguments, **case.options), "dense in strips, fp32", TOLERANCE[dtype])


def _half_tolerance(case: Case, inputs: Inputs, right: tuple[Tensor, ...]) -> tuple[float, float]:
    try:
        loss, gradient = differences(dense_eager(case)(inputs), right)
    except (RuntimeError, NotImplementedError):  # torch lacks some operation in this type
        return ROUNDED
    return loss + 1e-5, gradient + 1e-5


def differences(result: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> tuple[float, float]:
    """Returns the relative error of the loss, and the largest error of the gradients relative to their largest entry."""
    loss, *grads = (value.double() for value in result)
    right_loss, *right_grads = (value.double() for value in right)
    apart = float((loss - right_loss).abs() / right_loss.abs())
    gradient = [float((a - b).abs().max() / b.abs().max()) for a, b in zip(grads, right_grads, strict=True)]
    # Unlike max(), amax() propagates NaN.
    return apart, torch.tensor(gradient).amax().item()


def compare(
    step: Step, inputs: Inputs, against: Reference, tolerance: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Compares one step with the reference; returns ``{"ok", "loss", "gradient", "tolerance", "reference"}``."""
    loss, gradient = differences(step(inputs), against.result)
    allowed = tolerance or against.tolerance
    ok = loss <= allowed[0] and gradient <= allowed[1]
    return {"ok": ok, "loss": loss, "gradient": gradient, "tolerance": list(allowed), "reference": against.method}


Product = Callable[[Tensor, Tensor, Tensor], Tensor]
MAX_FLOPS = 2.5e11  # that are computed; a larger floor is extrapolated


def torch_mm(queries: Tensor, keys: Tensor, buffer: Tensor) -> Tensor:
    """Returns Q·Kᵀ by torch.mm, in ``buffer``."""
    out = buffer[: len(queries) * len(keys)].view(len(queries), len(keys))
    return torch.mm(queries, keys.T, out=out)


# The kernels that the engine chooses from. The floor that targets refer to is the faster one.
KERNELS: dict[str, Product] = {"torch.mm": torch_mm}
linear = machine.find_linear()
if linear is not None:  # oneDNN allocates its result
    KERNELS["oneDNN"] = lambda queries, keys, buffer, linear=linear: linear(queries, keys, None, "none", [], "")  # type: ignore[misc]


class Floor:
    """The matrix products of a case, tile by tile: ``products``·n·m·dim flops, rounded to whole tiles.

    A call computes the fraction ``share`` of them, so the floor is seconds / share.
    """

    def __init__(self, case: Case, product: Product, device: str = "cpu", tile: int | None = None) -> None:
        tile = tile or tile_for(case.dim)
        rows, cols = min(tile, case.n), min(tile, case.m)
        self.product = product
        self.queries = torch.full((rows, case.dim), 0.5, dtype=case.torch_dtype, device=device)
        self.keys = torch.full((cols, case.dim), 0.5, dtype=case.torch_dtype, device=device)
        self.buffer = torch.empty(rows * cols, dtype=case.torch_dtype, device=device)
        one = 2 * rows * cols * case.dim
        self.tiles = max(1, round(min(case.flops, MAX_FLOPS) / one))
        self.share = self.tiles * one / case.flops

    def __call__(self) -> None:
        """Computes the products."""
        for _ in range(self.tiles):
            self.product(self.queries, self.keys, self.buffer)


LONG = 3e11  # flops of the floor from which three rounds are enough


@dataclass
class Bench:
    """A benchmark of cases.

    Args:
        repeats: rounds per case; at most three for long cases.
        memory: whether to measure peak memory in fresh processes.
        contenders: names in `CONTENDERS`, without coulomb.
        say: called with progress messages.
        verified: comparisons with the reference by case.
    """

    repeats: int = 5
    memory: bool = True
    contenders: tuple[str, ...] = tuple(name for name in (*PLAIN, *PEERS) if name != "coulomb")
    say: Callable[[str], None] = lambda text: None
    verified: dict[str, dict[str, Any]] = field(default_factory=dict)

    def measure(self, case: Case) -> dict[str, Any]:
        """Returns the result of a case, ready for JSON.

        ``status`` is "measured", "wrong" (the result differs from the reference, and no times are reported) or "skipped",
        with a ``reason``. ``seconds`` are medians, ``spread`` minimum and maximum; ``skipped`` has the reasons of contenders
        that were left out.
        """
        result = empty_result(case)
        try:
            step, inputs, right = self.prepared(case)
        except UnavailableError as reason:
            return result | {"status": "skipped", "reason": str(reason)}
        self.say(f"{case.title}: parity")
        parity = self.verified[case.name] = compare(step, inputs, right)
        result["parity"] = parity
        if not parity["ok"]:
            return result | {"status": "wrong", "reason": "loss or gradient differ from the reference"}
        steps, result["skipped"] = self.rivals(case, inputs, right)
        del right
        self.time(case, inputs, {"coulomb": step} | steps, result)
        if self.memory:
            for name in ("coulomb", *steps):
                if CONTENDERS[name].fresh:
                    self.say(f"{case.title}: memory of {CONTENDERS[name].label}")
                    result["memory_mb"][name] = peak_of_fresh_process(name, case)
        result["targets"] = [check_target(target, result) for target in case.targets]
        return result | {"status": "measured"}

    def prepared(self, case: Case) -> tuple[Step, Inputs, Reference]:
        """Returns the step of coulomb, the inputs and the reference.

        Raises:
            UnavailableError: the loss does not exist, or the case does not fit into memory.
        """
        step = CONTENDERS["coulomb"].make(case)
        reason = too_large(3 * (case.n + case.m) * case.dim * case.torch_dtype.itemsize)
        if reason is not None:
            raise UnavailableError(reason)
        inputs = make_inputs(case)
        self.say(f"{case.title}: reference")
        right = reference(case, inputs)
        if right is None:
            raise UnavailableError("no reference fits into memory, and without one no speed is reported")
        return step, inputs, right

    def rivals(self, case: Case, inputs: Inputs, right: Reference) -> tuple[dict[str, Step], dict[str, str]]:
        """Returns the steps of the contenders that compute the same loss, and the reasons why others are left out."""
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
                if reason is None and not (errors := compare(step, inputs, right, _tolerance(case)))["ok"]:
                    reason = f"differs: loss by {errors['loss']:.0e}, gradient by {errors['gradient']:.0e}"
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
        """Times the steps, the floors and the cases of ratio targets, and stores the times in ``result``."""
        runs: dict[str, Callable[[], object]] = {name: bind(step, inputs) for name, step in steps.items()}
        floors = {name: Floor(case, product) for name, product in KERNELS.items()}
        runs |= {f"floor {name}": floor for name, floor in floors.items()}
        for other in {t.other for t in case.targets if t.kind == "ratio"}:
            run = self._other(BY_NAME[other])
            if run is not None:
                runs[f"case {other}"] = run
        rounds = self.repeats if case.flops < LONG else min(self.repeats, 3)
        self.say(f"{case.title}: time, {rounds} rounds of {', '.join(CONTENDERS[name].label for name in steps)}")
        # The comparison with the reference was the warm-up of long cases.
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
            self.say(f"{case.title}: parity, for a ratio")
            step, inputs, right = self.prepared(case)
            self.verified[case.name] = compare(step, inputs, right)
        if not self.verified[case.name]["ok"]:
            return None
        return bind(CONTENDERS["coulomb"].make(case), make_inputs(case))


def empty_result(case: Case) -> dict[str, Any]:
    """Returns a result without measurements."""
    about = {"name": case.name, "title": case.title, "loss": case.loss, "options": dict(case.options)}
    sizes = {"n": case.n, "m": case.m, "dim": case.dim, "dtype": case.dtype, "products": case.products}
    empty: dict[str, Any] = {"status": "", "reason": "", "parity": None, "rounds": 0}
    empty |= {name: {} for name in ("seconds", "spread", "speedup", "time_over_floor", "memory_mb", "skipped")}
    return about | sizes | empty | {"targets": [check_target(target, empty) for target in case.targets]}


def check_target(target: Target, result: dict[str, Any]) -> dict[str, Any]:
    """Returns ``{"kind", "text", "target", "value", "met"}``; value and met are None if they were not measured.

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
