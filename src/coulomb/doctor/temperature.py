"""Temperature: which negatives carry the gradient, a few or all alike."""

from collections.abc import Callable
from statistics import NormalDist

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import Option, advice, rounded
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

FEW = 0.5  # share of an anchor's repulsive gradient that its single hardest negative may carry
SPREAD = 0.2  # deviation of the cosines of negatives after training
USUAL = 0.2  # the recipes' temperature
ALIKE = 0.15  # share carried by the hardest tenth; .1 when all are alike


def shares(evidence: Evidence, name: str) -> float | None:
    """A share of the repulsive gradient as measured in training, or else of the trained network."""
    value = evidence.late(name)
    if value is None:
        found = evidence.network.get("negatives") or {}
        value = found.get(name)
    return value


def too_low(evidence: Evidence) -> Judgement:
    """The share of the single hardest negative, at the first update and late in training.

    Far too low a temperature is best seen at the beginning: embeddings then draw together until their differences are as
    small as the temperature, and the push looks even again.
    """
    share, first = shares(evidence, "top1_gradient"), evidence.first("top1_gradient")
    if not evidence.traits.negatives or share is None:
        return _cannot(evidence)
    figures = [Figure("share of the repulsion carried by the single hardest negative", share, FEW, "above")]
    if first is not None:
        figures.append(Figure("the same at the first update", first[0], FEW, "above", first[1]))
    return judged(*figures, enough=any)


def too_low_at_first(evidence: Evidence) -> bool:
    """True if one negative carries most of the repulsion at the first update, before any step could have caused it."""
    first = evidence.first("top1_gradient")
    return evidence.traits.negatives and first is not None and first[0] > FEW


def too_high(evidence: Evidence) -> Judgement:
    """The share of the hardest tenth, as measured and at best.

    Embeddings that have not spread yet get an even push at any temperature. So the share that the temperature allows once
    they have spread must be small as well: Φ(σ/τ − 1.28) for cosines with a normal distribution of deviation σ = .2.
    """
    share = shares(evidence, "top10pct_gradient")
    if not evidence.traits.negatives or share is None:
        return _cannot(evidence)
    at_best = NormalDist().cdf(SPREAD / float(evidence.config["temperature"]) + NormalDist().inv_cdf(0.1))
    return judged(
        Figure("share of the repulsion carried by the hardest tenth of negatives", share, ALIKE, "below"),
        Figure("the same at this temperature for spread-out embeddings", at_best, ALIKE, "below"),
    )


def _cannot(evidence: Evidence) -> Judgement:
    if not evidence.traits.negatives:
        return unknown(f"{evidence.method} weighs no negatives by a temperature")
    return unknown("the gradient of the negatives was not measured")


def _towards(evidence: Evidence, phrase: str, choose: Callable[..., float]) -> str:
    """To the usual temperature, or further in the same direction where that is set already."""
    now = float(evidence.config["temperature"])
    further = 2 * now if choose is max else now / 2
    value = USUAL if choose(USUAL, now) != now else further
    return advice(evidence, (phrase, Option("temperature", rounded(value))))


TOO_LOW = Rule(
    name="temperature-too-low",
    title="A single negative carries most of the push of each image.",
    judge=too_low,
    consequence="The nearest negatives are often of the same kind as the image (false negatives): they are torn apart, and "
    "the gradient is that of a few noisy pairs.",
    remedy=lambda evidence: _towards(evidence, "raise the temperature", max),
    explained_by=("images-blank", "batch-too-small", "learning-rate-too-high"),
)
TOO_HIGH = Rule(
    name="temperature-too-high",
    title="All negatives push alike, however near they are.",
    judge=too_high,
    consequence="The loss no longer cares which images are confused: embeddings come out clumped, and what sets similar "
    "images apart is not learned.",
    remedy=lambda evidence: _towards(evidence, "lower the temperature", min),
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "augmentation-too-weak",
        "complete-collapse",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "no-signal",
        "augmentation-too-strong",
        "dimensional-collapse",
    ),
)
