"""The gradient is the derivative of the value, by finite differences."""

import re

import torch
from torch import Tensor, nn

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding
from coulomb.laws.subject import SEEDS, D, N, Outcome, Subject, normal, relative, seeded, shown, smallest

DIRECTIONS = 3  # per argument and parameter
# Precision → (steps, bound). A step of 1e-4 has an error of 1e-12 in fp64; smaller ones avoid the kinks of hinges.
STEPS = {torch.float64: ((1e-4, 1e-5, 1e-6), 1e-5), torch.float32: ((1e-2, 3e-3, 3e-2), 5e-2)}
TARGETS = "teacher|queue|bank|momentum|ema_"  # what has no gradient in the papers; "target" is also the name of labels
SMALLEST = 1e-4  # smaller derivatives are not compared: finite differences in fp64 have a rounding error of 1e-10


def gradient(subject: Subject) -> Finding:
    """Compares the gradient of each argument and parameter with finite differences in random directions.

    A loss with kinks (hinges, hardest negatives) fails only if it fails for three batches, each with another step.
    """
    precision = torch.float32 if subject.in_fp32 else torch.float64
    steps, bound = STEPS[precision]
    skipped = excused(subject)

    def compared(n: int, d: int) -> list[dict[str, tuple[Tensor, Tensor]]]:
        all_of = [compare(subject, n, d, seed, step) for seed, step in zip(SEEDS, steps, strict=True)]
        return [{name: pair for name, pair in one.items() if name not in skipped} for one in all_of]

    found = compared(N, D)
    error, cause = min((worst(one, bound) for one in found), key=lambda one: one[0])
    measure = f"largest relative error to finite differences in {'fp32' if precision == torch.float32 else 'fp64'}"
    if not cause:
        note = f"no gradient reaches {', '.join(sorted(skipped))}, on purpose" if skipped else ""
        return Finding("gradient", HOLDS, measure, error, bound, note)

    def fails(n: int, d: int) -> str | None:
        results = compared(n, d)
        if not all(worst(one, bound)[1] for one in results):
            return None
        name, (mine, true) = max(results[0].items(), key=lambda one: relative(*one[1]))
        inputs = shown(subject.names, subject.draw(n, d))
        numbers = f"finite difference {float(true[0]):.6g}, autograd {float(mine[0]):.6g}"
        return f"{inputs}\nderivative along a random direction of {name}: {numbers}"

    return Finding("gradient", FAILS, measure, error, bound, cause, smallest(fails) or "")


def excused(subject: Subject) -> set[str]:
    """Returns the arguments that get no gradient on purpose.

    They are named in ``detached``; or get none and are called teacher, queue, bank or the like; or the loss has an option
    stop_gradient that is True.
    """
    missing = subject.evaluate(subject.draw()).missing
    stops = getattr(subject.make(), "stop_gradient", False) is True
    return set(subject.detached) | {name for name in missing if stops or re.search(TARGETS, name.lower())}


def compare(subject: Subject, n: int, d: int, seed: int, step: float) -> dict[str, tuple[Tensor, Tensor]]:
    """Returns name → (derivatives by autograd, by finite differences) in `DIRECTIONS` random directions.

    Raises:
        Exception: what the loss raises.
    """
    inputs = subject.draw(n, d, seed=seed)
    outcome = subject.evaluate(inputs)
    if outcome.error is not None:
        raise outcome.error
    draw, found = normal(seed + 100), {}
    for name, gradient in outcome.gradients.items():
        mine, true = [], []
        for _ in range(DIRECTIONS):
            direction = draw(*gradient.shape)
            direction = (direction / direction.norm().clamp_min(1e-300)).to(gradient.dtype)
            mine.append((gradient * direction).sum().double())
            near, far = (difference(subject, inputs, name, direction * k * step) for k in (1, 2))
            true.append((8 * near - far) / (12 * step))
        found[name] = torch.stack(mine), torch.stack(true)
    return found


def difference(subject: Subject, inputs: tuple[object, ...], name: str, move: Tensor) -> Tensor:
    """Returns f(x + move) − f(x − move) for the argument or parameter ``name``."""
    values = []
    for sign in (1, -1):
        if name in subject.names:
            moved = tuple(
                one + sign * move if its == name and isinstance(one, Tensor) else one
                for its, one in zip(subject.names, inputs, strict=True)
            )
            values.append(subject.evaluate(moved, backward=False).value)
        else:
            with seeded(0):
                loss = subject.made(subject.precise)
            assert isinstance(loss, nn.Module)
            with torch.no_grad():
                dict(loss.named_parameters())[name].add_(sign * move)
            values.append(subject.evaluate(inputs, loss=loss, backward=False).value)
    return values[0].double() - values[1].double()


def worst(found: dict[str, tuple[Tensor, Tensor]], bound: float) -> tuple[float, str]:
    """Returns the largest error relative to the derivatives of all arguments, and its likely cause if above ``bound``."""
    size = max((float(true.abs().max()) for _, true in found.values()), default=0.0)
    errors = {
        name: float((mine - true).abs().max()) / max(float(true.abs().max()), 1e-3 * size, SMALLEST)
        for name, (mine, true) in found.items()
    }
    wrong = {name: found[name] for name, error in errors.items() if not error <= bound}
    largest = max(errors.values(), default=0.0)
    return largest, likely(wrong) if wrong else ""


def likely(wrong: dict[str, tuple[Tensor, Tensor]]) -> str:
    """Returns the likely cause in one sentence."""
    without = [name for name, (mine, _) in wrong.items() if not mine.any()]
    if without:
        return (
            f"no gradient reaches {' or '.join(without)}, although the value depends on it: it is detached, or used "
            f"through .data, .item() or NumPy (if this is intended, name it in detached=)"
        )
    name, (mine, true) = next(iter(wrong.items()))
    ratios = mine / true
    common = float(ratios.mean())
    if float((ratios - common).abs().max()) <= 1e-3 * abs(common):
        return f"the gradient of {name} is {common:.4g} times the derivative: a factor in a custom backward is wrong"
    return f"the gradient of {name} is not the derivative: one of its terms is detached, or a custom backward is wrong"


def factor(subject: Subject) -> Finding:
    """Checks that the gradient of 3·L is 3 times the gradient of L, as with a loss that is weighted or scaled."""
    law, inputs = "upstream factor", subject.draw()
    once, thrice = subject.evaluate(inputs), subject.evaluate(inputs, factor=3.0)
    if not any(bool(one.any()) for one in once.gradients.values()):
        return Finding(law, NOT_APPLICABLE, cause="this batch gives no gradient")
    error = max(relative(thrice.gradients[name], 3 * one) for name, one in once.gradients.items())
    bound = 1e-5 if subject.in_fp32 else 1e-10
    measure = "relative error of the gradient of 3·L"
    if error <= bound:
        return Finding(law, HOLDS, measure, error, bound)
    cause = "the backward pass ignores the gradient that arrives from above: a weighted or scaled loss trains as if unscaled"
    example = smallest(lambda n, d: ignoring(subject, n, d)) or ""
    return Finding(law, FAILS, measure, error, bound, cause, example)


def ignoring(subject: Subject, n: int, d: int) -> str | None:
    """Returns a description of a batch for which 3·L does not have 3 times the gradient."""
    inputs = subject.draw(n, d)
    once, thrice = gradients(subject.evaluate(inputs)), gradients(subject.evaluate(inputs, factor=3.0))
    for name, one in once.items():
        if relative(thrice[name], 3 * one) > 1e-3:
            size, mine = float(one.norm()), float(thrice[name].norm())
            return f"{shown(subject.names, inputs)}\nnorm of the gradient of {name}: {size:.6g}; of 3·L: {mine:.6g}"
    return None


def gradients(outcome: Outcome) -> dict[str, Tensor]:
    """Returns the gradients; raises what the loss raised."""
    if outcome.error is not None:
        raise outcome.error
    return outcome.gradients
