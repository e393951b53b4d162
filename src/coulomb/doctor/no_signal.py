"""No signal: the loss stays where it is when embeddings say nothing."""

import math

from coulomb.diagnostics.loss_floor import infonce_at, way_gone
from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import advice
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown, well

LEARNED = 0.01  # of the way from knowing nothing to the floor; a run that learns slowly has gone a few hundredths
ENOUGH = 40  # updates before which nothing need have been learned


def floor_of(evidence: Evidence, no_signal: float) -> float:
    """The loss of a perfect encoder, given what knowing nothing costs.

    With M = e^no_signal − 1 negatives at right angles and positives that coincide it is ln(1 + M·e^(−1/τ)). With labels,
    class mates stay in the denominator: ln(M·(1/C + e^(−1/τ))). A classifier's is 0.
    """
    floor, tau = evidence.traits.floor, float(evidence.config.get("temperature", 0.5))
    if floor == "zero":
        return 0.0
    negatives = math.expm1(min(no_signal, 700.0))
    if floor == "classes":
        return math.log1p(negatives * min(1.0, 1 / (evidence.classes or 1) + math.exp(-1 / tau)))
    return infonce_at(negatives, tau, 0.0)


def learned(evidence: Evidence) -> float | None:
    """How much of the way from ``no_signal`` to the floor the loss has come by the last quarter of training."""
    loss, none = evidence.late("loss"), evidence.late("no_signal")
    if loss is None or none is None:
        return None
    floor = floor_of(evidence, none)
    return way_gone(loss, none, floor) if none - floor > 1e-9 else None


def judge(evidence: Evidence) -> Judgement:
    """The share of what can be learned that was."""
    if evidence.updates < ENOUGH:
        return unknown(f"{evidence.updates} updates are too few to tell")
    if not evidence.traits.ceiling:
        return unknown("the margin lifts the loss above that of no signal")
    share, loss, none = learned(evidence), evidence.late("loss"), evidence.late("no_signal")
    if share is None or loss is None or none is None:
        return unknown(f"{evidence.method} has no loss of no signal")
    figure = Figure("share of the way from the loss of no signal to its floor", share, LEARNED, "below")
    found = judged(figure)
    told = f"loss {loss:.3f}, {none:.3f} without signal, {floor_of(evidence, none):.3f} at best"
    return well(told, figure) if not figure.crossed else Judgement(found.state, told, (figure,))


NO_SIGNAL = Rule(
    name="no-signal",
    title="The loss is where it is when embeddings say nothing about the images.",
    judge=judge,
    consequence="Nothing is being learned: the pairs that should attract look no more alike than any other two.",
    remedy=lambda evidence: advice(
        evidence,
        "look at views.png: are the two views in a row of the same image?",
        "check that labels are in the order of the images" if evidence.traits.labels else None,
        "check that the encoder's weights receive gradients",
    ),
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "augmentation-too-weak",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "augmentation-too-strong",
        "complete-collapse",
        "temperature-too-low",
        "momentum-wrong",
        "queue-stale",
    ),
    live=True,
)
