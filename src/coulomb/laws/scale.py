"""How the value scales: reductions of the same terms, and micro-batches."""

import torch

from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Finding, no_samples
from coulomb.laws.subject import D, N, Outcome, Subject, relative, shown, smallest

LAW = "reductions"


def reductions(subject: Subject) -> Finding:
    """Compares "mean" and "sum" with the losses that ``reduction="none"`` returns; without it, with each other."""
    if "reduction" not in subject.options:
        return Finding(LAW, NOT_APPLICABLE, cause="the loss has no option reduction")
    bound = 1e-5 if subject.in_fp32 else 1e-9
    found = terms(subject, N, D)
    if "sum" not in found or "mean" not in found:
        return Finding(LAW, NOT_APPLICABLE, cause="the loss does not offer both 'mean' and 'sum'")
    error, cause = min((against(terms(subject, n, D), n, D) for n in (N, N + 1)), key=lambda one: one[0])
    measure = "relative error of mean and sum to the terms"
    if error <= bound:
        return Finding(LAW, HOLDS, measure, error, bound)
    if "none" not in found and other_ratio(subject, found):
        cause = "sum / mean is no multiple of the number of samples"
    if not cause:
        return Finding(LAW, HOLDS, measure, 0.0, bound, "the terms are not averaged per sample")

    def fails(n: int, d: int) -> str | None:
        values = terms(subject, n, d)
        if against(values, n, d)[0] <= bound:
            return None
        text = "; ".join(f"{name}: {float(one.value):.6g}" for name, one in values.items() if name != "none")
        return f"{shown(subject.names, subject.draw(n, d))}\n{text}"

    return Finding(LAW, FAILS, measure, error, bound, cause, smallest(fails) or "")


def terms(subject: Subject, n: int, d: int) -> dict[str, Outcome]:
    """Returns the outcome of each reduction that the loss accepts; the value for "none" is the mean of its terms."""
    inputs = subject.draw(n, d)
    found = {name: subject.evaluate(inputs, reduction=name) for name in ("mean", "sum", "none")}
    return {name: one for name, one in found.items() if one.error is None}


def against(found: dict[str, Outcome], n: int, d: int) -> tuple[float, str]:
    """Returns the error relative to the terms, and the likely cause."""
    total, mean = found["sum"].value, found["mean"].value
    if "none" not in found or found["none"].count < 2:
        return float("inf"), ""
    count, average = found["none"].count, found["none"].value
    if relative(total, average * count, 1e-3) > 1e-3:
        ratio = float(total / (average * count))
        return abs(ratio - 1), f"sum is {ratio:.4g} times the sum of the {count} terms that 'none' returns"
    if relative(mean, average, 1e-3) <= 1e-3:
        return max(relative(mean, average, 1e-3), relative(total, average * count, 1e-3)), ""
    divisor = float(total / mean)
    if abs(divisor - d) <= 1e-6 * d and d not in (count, n):
        cause = f"mean divides by {d}, the width of the embeddings, not by the number of terms, {count}: the wrong axis"
    elif abs(divisor - count**2) <= 1e-6 * count**2:
        cause = f"mean divides by {count}² instead of {count}: the mean is taken twice"
    elif abs(divisor - round(divisor)) <= 1e-6 * max(1.0, divisor):
        return 0.0, ""  # a mean over the anchors that count, over pairs or over triplets
    else:
        cause = f"mean is the sum of the terms divided by {divisor:.4g}, not by their number {count}"
        # A mean that is not linear in the terms, such as the logarithm of a mean, lies between the smallest and largest.
        if divisor > 0 and abs(float(mean)) <= 10 * abs(float(average)) and nonlinear(found):
            return 0.0, ""
    return relative(mean, average, 1e-3), cause


def nonlinear(found: dict[str, Outcome]) -> bool:
    """True if the gradient of "mean" is not parallel to that of "sum": another function of the terms than their sum."""
    for name, one in found["mean"].gradients.items():
        other = found["sum"].gradients[name]
        if one.any() and other.any():
            cosine = torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), dim=0)
            if abs(float(cosine)) < 1 - 1e-6:
                return True
    return False


def other_ratio(subject: Subject, found: dict[str, Outcome]) -> bool:
    """True if sum / mean is not proportional to N, for a loss that does not return its terms."""
    twice = terms(subject, 2 * N, D)
    if "sum" not in twice or "mean" not in twice:
        return False
    first, second = (float(one["sum"].value / one["mean"].value) for one in (found, twice))
    return abs(second / first - 2) > 1e-3 and abs(second / first - 1) > 1e-3


def micro_batches(subject: Subject) -> Finding:
    """Compares the loss with the mean over two halves of the batch, as accumulated micro-batches give it."""
    law, n, bound = "micro-batches", 2 * N, 1e-5 if subject.in_fp32 else 1e-9
    inputs = subject.draw(n)
    if not subject.counts_samples(n, inputs, subject.split):
        return no_samples(law)
    whole = subject.evaluate(inputs)
    parts = [subject.evaluate(subject.part(n, inputs, half, 2)) for half in (0, 1)]
    if any(one.error is not None for one in (whole, *parts)):
        return Finding(law, NOT_APPLICABLE, cause="halves of the batch cannot be evaluated alone")
    mean, total = (parts[0].value + parts[1].value) / 2, parts[0].value + parts[1].value
    error, summed = relative(mean, whole.value, 1e-3), relative(total, whole.value, 1e-3)
    measure = "relative difference to the mean over two halves"
    if error <= bound:
        return Finding(law, HOLDS, measure, error, bound, "samples do not depend on each other")
    if summed <= bound:
        return Finding(law, HOLDS, measure.replace("mean", "sum"), summed, bound, "samples do not depend on each other")
    return Finding(
        law,
        NOT_APPLICABLE,
        measure,
        error,
        None,
        f"samples are compared with each other, so accumulated micro-batches are another loss ({error:.1%} here); use "
        f"gradient caching for large batches",
    )
