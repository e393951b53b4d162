"""The same inputs give the same result, and are left as they are."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding
from coulomb.laws.subject import Outcome, Subject, floating, message, seeded, shown, smallest, value_of

SAMPLES, WIDTH = 64, 8


def repeated(subject: Subject) -> Finding:
    """Evaluates one batch several times and compares the bits: a new loss with another seed, and the same loss twice."""
    law = "deterministic"

    def compare(n: int, d: int) -> str:
        inputs = subject.draw(n, d)
        first = subject.evaluate(inputs)
        if first.error is not None:
            raise first.error
        with seeded(0):
            loss = subject.made(subject.precise)  # the parameters that belong to seed 0, drawn once
        outcomes = [subject.evaluate(inputs, loss=loss, seed=seed) for seed in (1, 1, 2)]
        if not same(outcomes[0], outcomes[1]):
            if same(first, subject.evaluate(inputs)):
                return "the second call of the same loss differs from the first: the loss keeps a state, such as a memory bank"
            return "results differ between calls with the same seed: an operation is not deterministic"
        if not same(outcomes[0], outcomes[2]):
            return "the result depends on the global random generator: pairs, negatives or noise are drawn at random"
        return ""

    cause = compare(SAMPLES, WIDTH)
    if not cause:
        return Finding(law, HOLDS, "calls that differ in any bit", 0.0, 0.0)

    def fails(n: int, d: int) -> str | None:
        return f"{shown(subject.names, subject.draw(n, d))}\ncalled three times" if compare(n, d) else None

    return Finding(law, FAILS, "calls that differ in any bit", 1.0, 0.0, cause, smallest(fails, SAMPLES, WIDTH) or "")


def same(one: Outcome, other: Outcome) -> bool:
    """True if value and gradients are equal, bit by bit."""
    pairs = [(one.value, other.value), *((g, other.gradients[name]) for name, g in one.gradients.items())]
    return all(torch.equal(a, b) or bool((a.isnan() & b.isnan()).all()) for a, b in pairs)


def unchanged(subject: Subject) -> Finding:
    """Compares the arguments, and the random state of the process, before and after a call."""
    law = "inputs unchanged"

    def changes(n: int, d: int) -> tuple[str, str]:
        inputs = subject.draw(n, d, torch.float32)
        given = [one.clone() if isinstance(one, Tensor) else one for one in inputs]
        with torch.no_grad():
            value_of(subject.call(subject.made(), given))
        for name, before, after in zip(subject.names, inputs, given, strict=True):
            if isinstance(before, Tensor) and not torch.equal(before, after):
                what = f"{shown([name], [before])}\nafterwards: {shown([name], [after])}"
                return f"{name} is changed in place, so that code after the loss sees other embeddings", what
        return "", ""

    cause, _ = changes(4, 3)
    backward = in_backward(subject)
    if not cause and not backward:
        return Finding(law, HOLDS, "arguments that change", 0.0, 0.0)

    def fails(n: int, d: int) -> str | None:
        return changes(n, d)[1] or None

    text = smallest(fails, 4, 3) or ""
    return Finding(law, FAILS, "arguments that change", 1.0, 0.0, cause or backward, text)


def in_backward(subject: Subject) -> str:
    """Returns a sentence if the backward pass changes an argument, else an empty string."""
    leaves = [one.clone().requires_grad_() if floating(one) else one for one in subject.draw(4, 3)]
    given = [one.clone() if floating(one) else one for one in leaves]
    before = [one.detach().clone() if floating(one) else one for one in given]
    try:
        value = value_of(subject.call(subject.made(subject.precise), given))
        torch.autograd.grad(value.mean(), [one for one in leaves if floating(one)], allow_unused=True)
    except Exception:
        return ""
    for name, one, other in zip(subject.names, before, given, strict=True):
        if floating(one) and not torch.equal(one, other.detach()):
            return f"{name} is changed in place, so that code after the loss sees other embeddings"
    return ""


def compiled(subject: Subject) -> Finding:
    """Compiles the loss with torch.compile (backend ``"aot_eager"``) and compares value and gradient."""
    law, bound = "torch.compile", 1e-4
    inputs = subject.draw(dtype=torch.float32)
    eager = subject.evaluate(inputs)
    if eager.error is not None:
        return Finding(law, NOT_APPLICABLE, cause=message(eager.error))
    torch._dynamo.reset()
    with seeded(0):
        loss = subject.made()
        graph: Any = torch.compile(loss, backend="aot_eager", fullgraph=True)
    broken = ""
    mine = evaluated(subject, inputs, graph)
    if mine.error is not None:
        broken = message(mine.error)
        torch._dynamo.reset()
        mine = evaluated(subject, inputs, torch.compile(loss, backend="aot_eager"))
    torch._dynamo.reset()
    if mine.error is not None:
        return Finding(
            law, FAILS, cause=f"raises when compiled: {message(mine.error)}", example=shown(subject.names, inputs)
        )
    error = max(
        difference(eager.value, mine.value),
        *(difference(g, mine.gradients[n]) for n, g in eager.gradients.items()),
        0.0,
    )
    measure = "relative error to the eager result"
    if error > bound:
        cause = "the compiled loss has another value or gradient than the eager one"
        return Finding(law, FAILS, measure, error, bound, cause, shown(subject.names, inputs))
    return Finding(law, HOLDS, measure, error, bound, f"with graph breaks: {broken}" if broken else "in one graph")


def evaluated(subject: Subject, inputs: Sequence[Any], loss: Any) -> Outcome:
    """Evaluates a compiled loss; the names of its parameters are those of the loss itself."""
    outcome = subject.evaluate(inputs, loss=loss)
    renamed = {name.removeprefix("_orig_mod."): one for name, one in outcome.gradients.items()}
    return Outcome(outcome.value, renamed, outcome.missing, outcome.warned, outcome.error, outcome.count)


def difference(one: Tensor, other: Tensor) -> float:
    """Returns the largest difference relative to the largest number, or to 1e-3."""
    return float((one - other).abs().max() / one.abs().max().clamp_min(1e-3)) if one.numel() else 0.0
