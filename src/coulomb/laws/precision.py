"""Half precision and autocast give the value of fp64, up to the rounding of the inputs."""

import torch

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding
from coulomb.laws.origin import origin
from coulomb.laws.subject import Outcome, Subject, Tensors, floating, message, relative, shown, smallest

SAMPLES, WIDTH = 16, 32
VALUE, GRADIENT = 0.05, 0.2  # relative; logits of 1/0.07 have an error of 3% in bf16
UNSUPPORTED = ("not implemented for", "not supported", "unsupported")
KINDS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "autocast": torch.float32}  # the precision of the inputs


def precision(subject: Subject) -> list[Finding]:
    """Returns findings for inputs in fp16, in bf16, and in fp32 within autocast to bf16; and for fp64 if it fails there."""
    findings = [one(subject, name) for name in KINDS]
    if subject.precise == torch.float32:
        inputs = subject.draw(dtype=torch.float64)
        error = subject.evaluate(inputs).error
        cause = "" if error is None else f"raises in fp64, so that gradcheck cannot be used: {message(error)}"
        findings.append(Finding("float64", FAILS, cause=cause, example="any batch in fp64"))
    return findings


def one(subject: Subject, name: str) -> Finding:
    """Compares value and gradient with those for the same numbers in fp64."""
    mine, true = both(subject, name, SAMPLES, WIDTH)
    measure = f"error of value (gradient: up to {GRADIENT / VALUE:g} times as much)"
    if mine.error is not None:
        if any(words in str(mine.error) for words in UNSUPPORTED):
            return Finding(name, NOT_APPLICABLE, cause=f"PyTorch has no such operation on CPUs: {message(mine.error)}")
        return Finding(name, FAILS, cause=f"raises {message(mine.error)}", example=f"any batch in {name}")
    error = errors(mine, true)
    if error <= VALUE:
        return Finding(name, HOLDS, measure, error, VALUE)

    def fails(n: int, d: int) -> str | None:
        small, right = both(subject, name, n, d)
        if small.error is not None or right.error is not None or errors(small, right) <= VALUE:
            return None
        inputs = shown(subject.names, subject.draw(n, d))
        numbers = [f"{float(one.value):.6g} with a gradient of norm {size(one):.6g}" for one in (small, right)]
        return f"{inputs}\nvalue: {numbers[0]}; in fp64: {numbers[1]}"

    cause = "products or sums are computed in half precision, and the loss amplifies their error"
    if not mine.finite:
        where = origin(subject, given(subject, name, SAMPLES, WIDTH)[0], autocast=name == "autocast")
        cause = f"NaN or infinite in {name}; {where}" if where else f"NaN or infinite in {name}"
    return Finding(name, FAILS, measure, error, VALUE, cause, smallest(fails, SAMPLES, WIDTH) or "")


def given(subject: Subject, name: str, n: int, d: int) -> tuple[Tensors, Tensors]:
    """Returns the inputs in this precision, and the same numbers in fp64, or in the loss's best precision."""
    rounded = subject.draw(n, d, KINDS[name])
    return rounded, tuple(each.to(subject.precise) if floating(each) else each for each in rounded)


def both(subject: Subject, name: str, n: int, d: int) -> tuple[Outcome, Outcome]:
    """Returns the outcomes in this precision and in fp64."""
    rounded, exact = given(subject, name, n, d)
    return subject.evaluate(rounded, autocast=name == "autocast"), subject.evaluate(exact)


def errors(mine: Outcome, true: Outcome) -> float:
    """Returns the larger of the errors of value and gradient, the latter divided by its larger allowance."""
    if not mine.finite:
        return float("inf") if true.finite else 0.0
    value = float((mine.value.double() - true.value.double()).abs()) / max(1.0, abs(float(true.value)))
    norm = max((float(g.norm()) for g in true.gradients.values()), default=0.0)
    gradient = max(
        (
            relative(mine.gradients[name].double() / max(norm, 1e-30), one.double() / max(norm, 1e-30), 0.1)
            for name, one in true.gradients.items()
        ),
        default=0.0,
    )
    return max(value, gradient * VALUE / GRADIENT)


def size(outcome: Outcome) -> float:
    """Returns the norm of all gradients."""
    return float(torch.stack([one.double().norm() for one in outcome.gradients.values()] or [torch.zeros(())]).norm())
