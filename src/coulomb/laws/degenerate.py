"""Degenerate batches give a finite result, a warning or an error, and never a number that looks like a loss and is none."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding
from coulomb.laws.origin import origin
from coulomb.laws.subject import Outcome, Subject, floating, message, shown

SAMPLES, WIDTH = 4, 3
STEEP = 1e6  # times the usual gradient: what dividing by a guarded norm of 1e-12 gives


def degenerate(subject: Subject) -> list[Finding]:
    """Returns a finding for each kind of degenerate batch."""
    return [kind(subject) for kind in (one_sample, equal_rows, zero_row, no_positives, one_class, nan, infinite)]


def one_sample(subject: Subject) -> Finding:
    """N = 1."""
    why = "one sample has no negatives"
    return judged(subject, "one sample", subject.draw(1, WIDTH, torch.float32), f"returns 0 without a warning: {why}")


def equal_rows(subject: Subject) -> Finding:
    """All embeddings are equal, as after a collapse."""
    inputs = replaced(subject, torch.ones_like)
    return judged(subject, "equal rows", inputs, None)


def zero_row(subject: Subject) -> Finding:
    """One embedding is a zero vector, as after a ReLU."""
    law, inputs = "zero row", list(subject.draw(SAMPLES, WIDTH, torch.float32))
    usual = subject.evaluate(inputs)
    places = [i for i, one in enumerate(inputs) if floating(one) and one.ndim > 1]
    if not places:
        return Finding(law, NOT_APPLICABLE, cause="no argument has rows")
    inputs[places[0]][0] = 0
    finding = judged(subject, law, inputs, None)
    outcome = subject.evaluate(inputs)
    if finding.outcome != HOLDS or outcome.error is not None or usual.error is not None:
        return finding
    longest, common = (max(float(g.abs().max()) for g in one.gradients.values()) for one in (outcome, usual))
    if longest <= STEEP * max(common, 1e-6):
        return finding
    return Finding(
        law,
        FAILS,
        "largest number in the gradient",
        longest,
        STEEP * max(common, 1e-6),
        f"the gradient of a zero row is divided by the guard of its norm: {longest:.2g} instead of about {common:.2g}, so "
        f"that one such row dominates the step",
        shown(subject.names, inputs),
    )


def no_positives(subject: Subject) -> Finding:
    """Every sample has another label."""
    return labeled(subject, "no positives", torch.arange, "no sample has a positive")


def one_class(subject: Subject) -> Finding:
    """Every sample has the same label."""
    return labeled(subject, "one class", lambda n: torch.zeros(n, dtype=torch.long), "no sample has a negative")


def labeled(subject: Subject, law: str, labels: Callable[[int], Tensor], why: str) -> Finding:
    """Replaces all labels."""
    drawn = subject.draw(SAMPLES, WIDTH, torch.float32)
    places = {i for i, one in enumerate(drawn) if isinstance(one, Tensor) and one.dtype == torch.long and one.ndim == 1}
    if not places:
        return Finding(law, NOT_APPLICABLE, cause="the loss takes no labels")
    inputs = [labels(len(one)) if i in places else one for i, one in enumerate(drawn)]
    return judged(subject, law, inputs, f"returns 0 without a warning: {why}, and nothing says so")


def nan(subject: Subject) -> Finding:
    """One number of the first argument is NaN."""
    return spoiled(subject, "NaN", torch.nan)


def infinite(subject: Subject) -> Finding:
    """One number of the first argument is infinite."""
    return spoiled(subject, "infinity", torch.inf)


def spoiled(subject: Subject, law: str, bad: float) -> Finding:
    """A number that is not finite must raise an error or make the result NaN or infinite."""
    inputs = list(subject.draw(SAMPLES, WIDTH, torch.float32))
    places = [i for i, one in enumerate(inputs) if floating(one) and one.ndim > 1]
    found = []
    for place in places:
        name = subject.names[place]
        changed = [one.clone() if isinstance(one, Tensor) else one for one in inputs]
        changed[place].view(-1)[-1] = bad
        outcome = subject.evaluate(changed)
        if outcome.error is not None:
            found.append(f"{name}: raises {message(outcome.error)}")
        elif not outcome.finite:
            found.append(f"{name}: NaN or infinite")
        elif outcome.warned:
            found.append(f"{name}: warns")
        else:
            cause = f"{law} in {name} gives a finite loss and gradient: it is filtered out or compared away silently"
            return failed(law, subject, changed, outcome, cause)
    if not found:
        return Finding(law, NOT_APPLICABLE, cause="no argument has rows")
    return Finding(law, HOLDS, cause="; ".join(found)[:200])


def replaced(subject: Subject, new: Callable[[Tensor], Tensor]) -> Sequence[Any]:
    """Returns the inputs with all rows replaced."""
    drawn = subject.draw(SAMPLES, WIDTH, torch.float32)
    return [new(one) if floating(one) and one.ndim > 1 else one for one in drawn]


def judged(subject: Subject, law: str, inputs: Sequence[Any], zero: str | None) -> Finding:
    """Returns whether the result is finite, and not 0 without a reason (``zero`` says why; None: 0 is right)."""
    outcome = subject.evaluate(inputs)
    if outcome.error is not None:
        return Finding(law, HOLDS, cause=f"raises {message(outcome.error)}")
    if not outcome.finite:
        return failed(law, subject, inputs, outcome, unfit(subject, outcome, inputs))
    if zero is not None and outcome.silent_zero:
        return failed(law, subject, inputs, outcome, zero)
    note = f"warns: {outcome.warned[0][:120]}" if outcome.warned else f"value {float(outcome.value):.4g}"
    return Finding(law, HOLDS, cause=note)


def unfit(subject: Subject, outcome: Outcome, inputs: Sequence[Any]) -> str:
    """Returns what is not finite, and where it came from."""
    what = "gradient" if bool(torch.isfinite(outcome.value)) else "value"
    where = origin(subject, inputs)
    return f"the {what} is NaN or infinite; {where}" if where else f"the {what} is NaN or infinite"


def failed(law: str, subject: Subject, inputs: Sequence[Any], outcome: Outcome, cause: str) -> Finding:
    """Returns the finding of a batch with a wrong result."""
    wrong = [name for name, one in outcome.gradients.items() if not bool(torch.isfinite(one).all())]
    text = f"; NaN or infinite gradient of {', '.join(wrong)}" if wrong else ""
    value = float(outcome.value)
    return Finding(law, FAILS, "value", value, None, cause, f"{shown(subject.names, inputs)}\nvalue: {value:.6g}{text}")
