"""The order of the samples in a batch does not matter."""

import torch

from coulomb.laws.finding import FAILS, HOLDS, Finding, no_samples
from coulomb.laws.subject import D, Subject, relative, shown, smallest

SAMPLES = 8


def order(subject: Subject) -> Finding:
    """Reorders the samples in all arguments alike and compares the values."""
    law, bound = "order of samples", 1e-5 if subject.in_fp32 else 1e-10
    if not subject.counts_samples(SAMPLES, subject.draw(SAMPLES), subject.shuffle):
        return no_samples(law)

    def error(n: int, d: int) -> tuple[float, str]:
        inputs, places = subject.draw(n, d), torch.arange(n).roll(1)
        if n > 2:
            places = torch.randperm(n, generator=torch.Generator().manual_seed(3))
        one, other = (
            subject.evaluate(given, backward=False) for given in (inputs, subject.reordered(n, inputs, places))
        )
        for outcome in (one, other):
            if outcome.error is not None:
                raise outcome.error
        text = f"{shown(subject.names, inputs)}\nvalue: {float(one.value):.9g}; in the order {places.tolist()}: "
        return relative(other.value, one.value, 1e-3), f"{text}{float(other.value):.9g}"

    def fails(n: int, d: int) -> str | None:
        size, text = error(n, d)
        return None if size <= bound else text

    size, _ = error(SAMPLES, D)
    measure = "relative change of the value"
    if size <= bound:
        return Finding(law, HOLDS, measure, size, bound)
    cause = (
        "the value depends on the position of samples in the batch: rows are matched, weighted or split by their place"
    )
    return Finding(law, FAILS, measure, size, bound, cause, smallest(fails, SAMPLES) or "")
