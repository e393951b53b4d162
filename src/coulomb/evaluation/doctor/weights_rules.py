"""Rules for runs that start from weights: how far training moved the features, and what it forgot."""

from typing import Any

from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.rule import (
    SICK,
    WARNING,
    WELL,
    Figure,
    Judgment,
    Option,
    Rule,
    advice,
    judge,
    rounded,
    unknown,
)
from coulomb.models.tuning import FROZEN

FAR = 1.0  # distance of an image from its starting features, relative to the distance of two different images
KEPT = 0.25  # share that is kept of what the starting weights know beyond an untrained network
DISTANCE = "distance of an image from its starting features, relative to the distance of two images"


def check_drift(evidence: Evidence) -> Judgment:
    """The distance of the features from the starting ones; new features are no problem if they are better."""
    if missing := _not_compared(evidence):
        return missing
    distance, between = evidence.drift.get("distance"), evidence.drift.get("between")
    if distance is None or not between:
        return unknown("an adapter follows the network, or all images have the same starting features")
    figure = Figure(DISTANCE, distance / between, FAR, "above")
    gained = _outcome(evidence)
    if figure.crossed and gained == "better":
        return Judgment(WELL, f"{DISTANCE} {figure.value:.3g}, and the new features are better", (figure,))
    return judge(figure, state=WARNING if gained is None else SICK)


def check_forgetting(evidence: Evidence) -> Judgment:
    """The share that is kept of the starting features, and the accuracy that the linear probe lost."""
    if missing := _not_compared(evidence):
        return missing
    figures = []
    if (kept := _kept(evidence)) is not None:
        what = "share that is kept of what the starting features tell and untrained ones do not"
        figures.append(Figure(what, kept, KEPT, "below"))
    if (lost := _lost_accuracy(evidence)) is not None:
        figures.append(Figure("accuracy that the linear probe lost, at least", lost, 0.0, "above"))
    if not figures:
        return unknown("too few held-out images to compare the features")
    state = WARNING if _outcome(evidence) in ("better", "even") else SICK
    return judge(*figures, state=state, enough=any)


def _not_compared(evidence: Evidence) -> Judgment | None:
    if evidence.drift:
        return None
    if evidence.data.get("columns"):
        return unknown("it is measured for runs on images alone")
    if not evidence.from_weights:
        return unknown("the run did not start from weights")
    return unknown("the run was not evaluated; run coulomb evaluate")


def _kept(evidence: Evidence) -> float | None:
    """(R − R₀) / (1 − R₀), R and R₀ the shares recovered from the trained and the untrained network."""
    trained, untrained = (evidence.drift.get(name) for name in ("recovered", "recovered_untrained"))
    if trained is None or untrained is None or untrained >= 1:
        return None
    return float((trained - untrained) / (1 - untrained))


def _comparison(evidence: Evidence) -> dict[str, Any]:
    """The comparison of the trained encoder with the starting weights; empty if there is none."""
    entries = (evidence.evaluation or {}).get("comparison") or ()
    return next((each for each in entries if isinstance(each, dict) and each.get("against") == "starting_point"), {})


def _outcome(evidence: Evidence) -> str | None:
    """Better, even or worse than the starting weights on average; None without labels, where only views are matched."""
    overall = _comparison(evidence).get("overall") or {}
    return None if overall.get("of") in (None, ["view_retrieval"]) else overall.get("outcome")


def _lost_accuracy(evidence: Evidence) -> float | None:
    """The loss of accuracy of the linear probe that is certain: minus the upper end of the interval of the difference."""
    high = ((_comparison(evidence).get("measurements") or {}).get("linear") or {}).get("high")
    return -high if isinstance(high, int | float) else None


def _closer(evidence: Evidence) -> str:
    epochs, lr = int(evidence.config.get("epochs") or 0), float(evidence.config.get("lr") or 0.0)
    weight = float(evidence.config.get("stay_close") or 0.0)
    trains = evidence.config.get("tune") not in FROZEN  # which refuse stay_close, and train fewer weights already
    return advice(
        evidence,
        ("keep the features close to the starting ones", Option("stay_close", rounded(4 * weight) or 1.0))
        if trains
        else None,
        ("or train fewer weights", Option("tune", "lora:8")) if trains else None,
        ("lower the learning rate", Option("lr", rounded(lr / 10))) if lr else None,
        ("train for fewer epochs", Option("epochs", epochs // 4)) if epochs >= 4 else None,
        "or use the starting weights as they are",
    )


DRIFT = Rule(
    name="drift",
    title="Hardly anything is left of the starting weights.",
    check=check_drift,
    consequence="This is a training from scratch, with less data and time than that takes. Features that were stored before "
    "training cannot be compared with the new ones.",
    remedy=_closer,
    explained_by=("images-blank", "learning-rate-too-high", "complete-collapse"),
)
FORGETTING = Rule(
    name="forgetting",
    title="The encoder forgot what the starting weights knew.",
    check=check_forgetting,
    consequence="Images that differ in what this training does not reward become alike.",
    remedy=_closer,
    explained_by=("images-blank", "labels-unrelated", "learning-rate-too-high", "complete-collapse"),
)
