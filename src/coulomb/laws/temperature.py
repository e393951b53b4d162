"""The temperature changes the value, and its limits are computed accurately."""

from collections.abc import Sequence
from typing import Any

import torch

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding
from coulomb.laws.origin import origin
from coulomb.laws.subject import D, N, Outcome, Subject, floating, relative, shown, smallest

DIRECT = ("temperature", "tau", "temp")
INVERSE = ("scale", "logit_scale", "inv_temperature")
LOW, HIGH = 1e-3, 1e3
ACCURATE = 0.01
LAW = "temperature"


def temperature(subject: Subject) -> list[Finding]:
    """Evaluates the loss at τ = 0.1 and 0.5, which must differ, and at τ = 0.001 and 1,000, where fp32 must equal fp64."""
    if find(subject) is None:
        return [Finding(LAW, NOT_APPLICABLE, cause="no option or argument is called temperature, tau or scale")]
    changes = changed(subject)
    return [changes, *(limit(subject, tau) for tau in (LOW, HIGH))]


def find(subject: Subject) -> tuple[str, bool] | None:
    """Returns the name of the temperature among options and arguments, and whether it is 1/τ."""
    for names, inverse in ((DIRECT, False), (INVERSE, True)):
        for name in names:
            if name in subject.options or name in subject.names:
                return name, inverse
    return None


def at(
    subject: Subject, tau: float, n: int = N, d: int = D, dtype: torch.dtype | None = None
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Returns inputs and options with this temperature."""
    found = find(subject)
    assert found is not None
    name, inverse = found
    number = 1 / tau if inverse else tau
    inputs = list(subject.draw(n, d, dtype))
    if name in subject.names:
        place = subject.names.index(name)
        inputs[place] = torch.full_like(inputs[place], number)
        return inputs, {}
    return inputs, {name: number}


def evaluated(subject: Subject, tau: float, n: int = N, d: int = D, dtype: torch.dtype | None = None) -> Outcome:
    """Returns the outcome at this temperature."""
    inputs, options = at(subject, tau, n, d, dtype)
    return subject.evaluate(inputs, **options)


def changed(subject: Subject) -> Finding:
    """Compares two temperatures."""
    one, other = (evaluated(subject, tau) for tau in (0.1, 0.5))
    if one.error is not None or other.error is not None:
        return Finding(LAW, NOT_APPLICABLE, cause=f"temperatures cannot be set: {one.error or other.error}"[:160])
    change = relative(other.value, one.value, 1e-3)
    if change > 1e-9:
        return Finding(LAW, HOLDS, "change of the value from τ = 0.1 to 0.5", change)

    def fails(n: int, d: int) -> str | None:
        values = [evaluated(subject, tau, n, d) for tau in (0.1, 0.5)]
        if any(each.error is not None for each in values) or relative(values[1].value, values[0].value, 1e-3) > 1e-9:
            return None
        return f"{shown(subject.names, subject.draw(n, d))}\nvalue at τ = 0.1 and 0.5: {float(values[0].value):.6g}"

    name = find(subject)
    cause = f"{name[0] if name else LAW} is ignored: the value is the same at τ = 0.1 and 0.5"
    return Finding(LAW, FAILS, "change of the value from τ = 0.1 to 0.5", change, None, cause, smallest(fails) or "")


def limit(subject: Subject, tau: float) -> Finding:
    """Evaluates the loss in fp32 at an extreme temperature, and compares with fp64."""
    law, measure = f"temperature {tau:g}", "relative error of value and gradient in fp32"
    outcome = evaluated(subject, tau, dtype=torch.float32)
    if outcome.error is not None:
        return Finding(law, HOLDS, cause=f"raises {outcome.error}"[:160])
    error = apart(subject, tau, N, D)
    if error <= ACCURATE:
        return Finding(law, HOLDS, measure, error, ACCURATE, f"value {float(outcome.value):.4g}")

    def fails(n: int, d: int) -> str | None:
        if apart(subject, tau, n, d) <= ACCURATE:
            return None
        small, wide = (evaluated(subject, tau, n, d, dtype) for dtype in (torch.float32, subject.precise))
        return (
            f"{shown(subject.names, at(subject, tau, n, d)[0])}\nτ = {tau:g}: value {float(small.value):.6g} with a gradient "
            f"of norm {norm(small):.6g} in fp32; {float(wide.value):.6g} and {norm(wide):.6g} in fp64"
        )

    cause = f"value or gradient at τ = {tau:g} is another one in fp32 than in fp64: exponentials vanish or are clipped"
    if not outcome.finite:
        inputs, options = at(subject, tau, dtype=torch.float32)
        where = origin(subject, inputs, **options)
        cause = f"NaN or infinite at τ = {tau:g} in fp32" + (f"; {where}" if where else "")
    return Finding(law, FAILS, measure, error, ACCURATE, cause, smallest(fails) or "")


def apart(subject: Subject, tau: float, n: int, d: int) -> float:
    """Returns the error of fp32 relative to fp64, for the same numbers; infinite if the value is not finite."""
    inputs, options = at(subject, tau, n, d, torch.float32)
    mine = subject.evaluate(inputs, **options)
    true = subject.evaluate([one.to(subject.precise) if floating(one) else one for one in inputs], **options)
    if mine.error is not None or true.error is not None or not mine.finite:
        return 0.0 if mine.error is not None or true.error is not None else float("inf")
    errors = [relative(mine.gradients[name], one, 1e-3 * max(norm(true), 1.0)) for name, one in true.gradients.items()]
    return max(relative(mine.value, true.value, 1.0), *errors, 0.0)


def norm(outcome: Outcome) -> float:
    """Returns the norm of all gradients."""
    return float(torch.stack([one.double().norm() for one in outcome.gradients.values()] or [torch.zeros(())]).norm())
