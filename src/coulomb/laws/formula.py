"""The value is that of the formula."""

import torch
from torch import Tensor, nn

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding
from coulomb.laws.subject import D, Subject, floating, relative, shown, smallest

SAMPLES = 7


def formula(subject: Subject) -> Finding:
    """Compares value and gradient with a function of the same arguments that the user wrote, such as a double loop."""
    if subject.formula is None:
        return Finding("formula", NOT_APPLICABLE, cause="no formula was given to compare with (formula=)")
    bound = 1e-4 if subject.in_fp32 else 1e-8
    made = subject.make()
    if isinstance(made, nn.Module) and any(True for _ in made.parameters()):
        bound = max(bound, 1e-6)  # parameters start in fp32

    def compare(n: int, d: int) -> tuple[float, Tensor, Tensor, float]:
        inputs = subject.draw(n, d)
        mine = subject.evaluate(inputs)
        if mine.error is not None:
            raise mine.error
        leaves = [one.detach().clone().requires_grad_() if floating(one) else one for one in inputs]
        assert subject.formula is not None
        value = subject.formula(*leaves)
        value = subject.mean(value) if value.ndim else value
        wanted = [(name, one) for name, one in zip(subject.names, leaves, strict=True) if floating(one)]
        grads = torch.autograd.grad(value, [one for _, one in wanted], allow_unused=True)
        errors = [
            relative(mine.gradients[name], torch.zeros_like(one) if grad is None else grad, 1e-3)
            for (name, one), grad in zip(wanted, grads, strict=True)
            if name not in subject.detached
        ]
        return relative(mine.value, value, 1e-3), mine.value, value.detach(), max(errors, default=0.0)

    def fails(n: int, d: int) -> str | None:
        error, mine, true, gradient = compare(n, d)
        if max(error, gradient) <= bound:
            return None
        return f"{shown(subject.names, subject.draw(n, d))}\nvalue: {float(mine):.9g}; formula: {float(true):.9g}"

    error, mine, true, gradient = compare(SAMPLES, D)
    measure = "largest relative error of value and gradient"
    largest = max(error, gradient)
    if largest <= bound:
        return Finding("formula", HOLDS, measure, largest, bound)
    if error <= bound:
        cause = "the value is that of the formula and the gradient is not: a term is detached, or a custom backward is wrong"
    else:
        cause = unlike(compare, float(mine), float(true))
    return Finding("formula", FAILS, measure, largest, bound, cause, smallest(fails, SAMPLES) or "")


def unlike(compare: object, mine: float, true: float) -> str:
    """Returns how the value differs from the formula's: by a factor, or by other terms."""
    assert callable(compare)
    _, other, its, _ = compare(SAMPLES - 2, D)
    ratio, second = mine / true if true else float("inf"), float(other) / float(its) if float(its) else float("inf")
    if abs(ratio - second) <= 1e-6 * abs(ratio):
        return f"the value is {ratio:.6g} times the formula's for batches of any size: a constant factor"
    for name, factor in (("N", SAMPLES / (SAMPLES - 2)), ("1/N", (SAMPLES - 2) / SAMPLES)):
        if abs(ratio / second - factor) <= 1e-6:
            return f"the value is the formula's times a number proportional to {name}: a sum instead of a mean, or two means"
    return (
        "the value differs from the formula's by more than a factor: other pairs are counted, such as a sample as its own "
        "negative, or another temperature or normalization is used"
    )
