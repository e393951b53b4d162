"""Rules about learning: collapse, learning rate, loss without signal, nothing learned."""

import math
from typing import Any

from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.negatives_rules import starts_too_cold
from coulomb.doctor.rule import (
    SICK,
    WARNING,
    WELL,
    Figure,
    Judgement,
    Option,
    Rule,
    advice,
    judged,
    rounded,
    unknown,
    well,
)
from coulomb.metrics.loss_floor import infonce_at, way_gone

SPREAD = 0.1  # √D·std of unit vectors = √(1 − ‖mean‖²): the cosine of two random images is then .99
DIRECTIONS = 3.0  # fewer cannot hold many images apart; or half of what so few dimensions or classes allow


def check_complete(evidence: Evidence) -> Judgement:
    """The spread of held-out embeddings after training."""
    spread = evidence.last("embedding_std")
    if spread is None:
        return unknown("no embeddings were looked at (knn_every=0?)")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    return judged(Figure("spread of the embeddings (1: even, 0: one point)", spread[0], SPREAD, "below", spread[1]))


def check_dimensional(evidence: Evidence) -> Judgement:
    """The effective rank of held-out embeddings and features after training, against what the method needs."""
    found = {"embeddings": evidence.last("embedding_rank"), "encoder's features": evidence.last("effective_rank")}
    if found["embeddings"] is None:
        return unknown("no embeddings were looked at (knn_every=0?)")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    least = least_rank(evidence)
    if least is None:
        return unknown("two classes need no more than one direction")
    figures = [
        Figure(f"effective rank of the {name}", rank[0], least, "below", rank[1])
        for name, rank in found.items()
        if rank is not None
    ]
    return judged(*figures, enough=any)


def least_rank(evidence: Evidence) -> float | None:
    """The effective rank below which embeddings have collapsed: 3, or half of the dimensions if these are below 6.

    A high rank is not asked for: a head may drop directions that the encoder's features keep (Jing et al., 2022). Methods that
    learn from labels pull each class into one point, and the points to the corners of a simplex, whose rank is classes − 1:
    for them no more than half of that is asked for, and nothing of two classes.
    """
    least = min(DIRECTIONS, int(evidence.config.get("embedding_dim", 128)) / 2)
    if evidence.traits.labels:
        if evidence.classes is None or evidence.classes < 3:
            return None
        least = min(least, (evidence.classes - 1) / 2)
    return least


def _against_one_point(evidence: Evidence) -> str:
    switched_off = [
        (f"switch {name} on again", Option(f"option {name}", True))
        for name in ("stop_gradient", "use_predictor")
        if evidence.option(name) is False
    ]
    if switched_off:
        return advice(evidence, *switched_off)
    lower = ("lower the learning rate", Option("lr", rounded(float(evidence.config.get("lr") or 0.0) / 10)))
    if evidence.traits.negatives or evidence.traits.labels:
        return advice(evidence, lower, "check that the head's output is not constant")
    return advice(
        evidence, lower, "check that the head has batch norm", ("or compare with", Option("method", "simclr"))
    )


def _against_few_directions(evidence: Evidence) -> str:
    tau, decay = (float(evidence.config.get(name) or 0.0) for name in ("temperature", "weight_decay"))
    return advice(
        evidence,
        "look for a bottleneck in the head",
        ("lower the temperature", Option("temperature", rounded(tau / 2))) if evidence.traits.negatives else None,
        ("lower the weight decay", Option("weight_decay", rounded(decay / 10))) if decay else None,
        "use weaker views",
    )


COMPLETE_COLLAPSE = Rule(
    name="complete-collapse",
    title="All images have nearly the same embedding.",
    judge=check_complete,
    consequence="The encoder tells nothing apart: whatever is built on it works no better than chance.",
    remedy=_against_one_point,
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "augmentation-too-weak",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "temperature-too-low",
        "momentum-wrong",
        "queue-stale",
    ),
    live=True,
)
DIMENSIONAL_COLLAPSE = Rule(
    name="dimensional-collapse",
    title="The embeddings use only a few of their dimensions.",
    judge=check_dimensional,
    consequence="Images that differ in any other direction fall together; more training or a wider head does not help.",
    remedy=_against_few_directions,
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "augmentation-too-weak",
        "complete-collapse",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "no-signal",
        "augmentation-too-strong",
        "temperature-too-low",
        "momentum-wrong",
        "queue-stale",
    ),
)


JUMP = 0.3  # ‖Δθ‖/‖θ‖ of a step: a third of the network is new after each
WORSE = 1.05  # times the loss of knowing nothing
GROWN = 10.0  # times the size of the weights before training
STILL = 0.01  # ‖θ − θ₀‖/‖θ₀‖ after training; also the longest way that the steps could have gone


def check_high_rate(evidence: Evidence) -> Judgement:
    """NaN, a loss above that of knowing nothing, or steps as large as the weights.

    Not judged where the temperature alone explains these: gradients grow as 1/τ, and so does the loss of a wrong answer.
    """
    if starts_too_cold(evidence):
        return unknown("the temperature is too low for the size of the loss and of the steps to be judged")
    if evidence.failed:
        return Judgement(SICK, f"training stopped: {evidence.failed}", (Figure("non-finite steps", 1, 0, "above"),))
    figures = []
    ratio, loss, none = evidence.typical("update_ratio"), evidence.late("loss"), evidence.late("no_signal")
    if ratio is not None:
        figures.append(Figure("size of a step over the size of the weights", ratio, JUMP, "above"))
    if loss is not None and none and evidence.traits.ceiling and evidence.updates >= ENOUGH:
        figures.append(Figure("loss over the loss of no signal", loss / none, WORSE, "above"))
    growth = evidence.network.get("growth")
    if growth is not None:
        figures.append(Figure("size of the encoder's weights, in that before training", growth, GROWN, "above"))
    if not figures:
        return unknown("neither the size of steps nor a loss of no signal is known")
    return judged(*figures, enough=any)


def check_low_rate(evidence: Evidence) -> Judgement:
    """How far the weights have come from their start; without the checkpoint, how far they can have come."""
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    distance, ratio = evidence.network.get("distance"), evidence.typical("update_ratio")
    if distance is not None:
        return judged(Figure("way of the encoder's weights from their start, in their size", distance, STILL, "below"))
    if ratio is not None:
        return judged(Figure("longest way of the weights, in their size", ratio * evidence.updates, STILL, "below"))
    return unknown("how far the weights moved is not known")


def _slower(evidence: Evidence) -> str:
    lr, epochs = (float(evidence.config.get(name) or 0.0) for name in ("lr", "epochs"))
    warm_up = rounded(max(1.0, epochs / 10))
    return advice(
        evidence,
        ("lower the learning rate", Option("lr", rounded(lr / 10))),
        ("or warm up longer", Option("warmup_epochs", warm_up))
        if float(evidence.config.get("warmup_epochs") or 0.0) < warm_up < epochs
        else None,
    )


def _faster(evidence: Evidence) -> str:
    lr = float(evidence.config.get("lr") or 0.0)
    return advice(
        evidence,
        ("raise the learning rate", Option("lr", rounded(10 * lr) if lr else 0.01)),
        "check that the encoder's weights are trained (requires_grad)",
    )


RATE_TOO_HIGH = Rule(
    name="learning-rate-too-high",
    title="The learning rate is too high: steps destroy what was learned before.",
    judge=check_high_rate,
    consequence="The loss jumps, rises above that of knowing nothing, or becomes NaN; the encoder ends as noise.",
    remedy=_slower,
    explained_by=("images-blank",),
    live=True,
)
RATE_TOO_LOW = Rule(
    name="learning-rate-too-low",
    title="The learning rate is too low: the weights have hardly moved.",
    judge=check_low_rate,
    consequence="The encoder is still the one that training began with.",
    remedy=_faster,
    explained_by=("images-blank", "augmentation-too-weak"),
)


LEARNED = 0.01  # of the way from knowing nothing to the floor; a run that learns slowly has gone a few hundredths
ENOUGH = 40  # updates before which nothing need have been learned


def perfect_loss(evidence: Evidence, no_signal: float) -> float:
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
    floor = perfect_loss(evidence, none)
    return way_gone(loss, none, floor) if none - floor > 1e-9 else None


def check_signal(evidence: Evidence) -> Judgement:
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
    told = f"loss {loss:.3f}, {none:.3f} without signal, {perfect_loss(evidence, none):.3f} at best"
    return well(told, figure) if not figure.crossed else Judgement(found.state, told, (figure,))


NO_SIGNAL = Rule(
    name="no-signal",
    title="The loss is where it is when embeddings say nothing about the images.",
    judge=check_signal,
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


STATES = {
    "learned_well": WELL,
    "learned_something": WELL,
    "worse_than_raw_pixels": WARNING,
    "nothing_measurable": SICK,
}
TITLES = {"worse_than_raw_pixels": "Raw pixels do better than the encoder's features."}


def check_evaluation(evidence: Evidence) -> Judgement:
    """The level of ``evaluation.json``'s verdict, by all of its measurements."""
    if evidence.evaluation is None:
        return unknown("the run was not evaluated; run coulomb evaluate")
    level = _verdict(evidence).get("level")
    if level not in STATES:
        return unknown("evaluation.json holds no verdict; run coulomb evaluate again")
    return Judgement(STATES[level], f"the evaluation says: {level.replace('_', ' ')}", title=TITLES.get(level))


def _verdict(evidence: Evidence) -> dict[str, Any]:
    found = (evidence.evaluation or {}).get("verdict")
    return found if isinstance(found, dict) else {}


def _next(evidence: Evidence) -> str:
    steps = _verdict(evidence).get("next")
    if isinstance(steps, list) and (left := [str(step) for step in steps if "coulomb doctor" not in str(step)]):
        return " ".join(left)
    longer = Option("epochs", 4 * int(evidence.config.get("epochs") or 1))
    return advice(evidence, ("train longer", longer), "look at views.png")


NOTHING_LEARNED = Rule(
    name="nothing-learned",
    title="No measurement shows that the encoder learned anything.",
    judge=check_evaluation,
    consequence="The features are no better than those of the same encoder before training, or than raw pixels.",
    remedy=_next,
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "complete-collapse",
        "dimensional-collapse",
        "no-signal",
        "augmentation-too-weak",
        "augmentation-too-strong",
        "temperature-too-low",
        "temperature-too-high",
        "head-not-normalised",
        "momentum-wrong",
        "queue-stale",
        "batch-too-small",
        "shortcut",
    ),
)
