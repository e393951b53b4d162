"""Collapse: all images get the same embedding, or embeddings use few of their dimensions."""

from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.remedy import Option, advice, rounded
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

SPREAD = 0.1  # √D·std of unit vectors = √(1 − ‖mean‖²): the cosine of two random images is then .99
DIRECTIONS = 3.0  # fewer cannot hold many images apart; or half of what so few dimensions or classes allow


def complete(evidence: Evidence) -> Judgement:
    """The spread of held-out embeddings after training."""
    spread = evidence.last("embedding_std")
    if spread is None:
        return unknown("no embeddings were looked at (knn_every=0?)")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    return judged(Figure("spread of the embeddings (1: even, 0: one point)", spread[0], SPREAD, "below", spread[1]))


def dimensional(evidence: Evidence) -> Judgement:
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


COMPLETE = Rule(
    name="complete-collapse",
    title="All images have nearly the same embedding.",
    judge=complete,
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
DIMENSIONAL = Rule(
    name="dimensional-collapse",
    title="The embeddings use only a few of their dimensions.",
    judge=dimensional,
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
