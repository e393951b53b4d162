"""One case: is it right, how fast is it, what does it hold, and does it reach its targets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coulomb.bench.cases import BY_NAME, Case, Target
from coulomb.bench.contenders import Step, UnavailableError, run_of
from coulomb.bench.floors import KERNELS, Floor
from coulomb.bench.inputs import Inputs, make_inputs
from coulomb.bench.memory import too_large
from coulomb.bench.parity import PEER_TOLERANCE, Reference, compare, reference
from coulomb.bench.peak import peak_of_fresh_process
from coulomb.bench.peers import CONTENDERS
from coulomb.bench.timing import interleaved, medians

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
