"""Rules about learning: collapse, learning rate, a loss without signal, no measurable result."""

import math

from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.negatives_rules import is_too_cold_at_first
from coulomb.evaluation.doctor.rule import (
    DATA,
    KEYS,
    RATES,
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
    too_early,
    unknown,
)
from coulomb.evaluation.level import Level
from coulomb.metrics.loss_floor import fraction_of_floor_reached, infonce_at

SPREAD = 0.1  # √D·std of unit vectors = √(1 − ‖mean‖²): the mean cosine of two random images is then .99
DIRECTIONS = 3.0  # least effective rank; or half of what the dimensions or classes allow
JUMP = 0.3  # ‖Δθ‖/‖θ‖ of an update
WORSE = 1.05  # times the loss of constant embeddings
GROWN = 10.0  # times the initial norm of the weights
STILL = 0.01  # ‖θ − θ₀‖/‖θ₀‖ after training, or the sum of all updates relative to ‖θ‖
LEARNED = (
    0.01  # share of the distance from the loss of constant embeddings to the minimum; slow runs reach a few percent
)
ENOUGH = 40  # updates before which the loss need not have changed
STATES = {
    Level.LEARNED_WELL: WELL,
    Level.LEARNED_SOMETHING: WELL,
    Level.ADAPTING_HELPED: WELL,
    Level.ADAPTING_UNVERIFIED: WELL,
    Level.USE_STARTING_POINT: WARNING,
    Level.WORSE_THAN_RAW_PIXELS: WARNING,
    Level.WORSE_THAN_BM25: WARNING,
    Level.WORSE_THAN_RAW_VALUES: WARNING,
    Level.NOTHING_MEASURABLE: SICK,
    Level.ADAPTING_HURT: SICK,
    Level.COLLAPSED: SICK,
}
TITLES = {
    Level.WORSE_THAN_RAW_PIXELS: "Raw pixels are better than the encoder's features.",
    Level.WORSE_THAN_BM25: "Shared words (BM25) find more than the embeddings do.",
    Level.WORSE_THAN_RAW_VALUES: "The values as they are, standardized, are better than the encoder's features.",
    Level.USE_STARTING_POINT: "The trained encoder is no better than the weights that it started from.",
    Level.ADAPTING_HURT: "The trained encoder is worse than the weights that it started from.",
}

CONSEQUENCES = {
    Level.WORSE_THAN_RAW_PIXELS: "To compare the images, their pixels serve better than the features.",
    Level.WORSE_THAN_BM25: "A search by words serves better, without any training.",
    Level.WORSE_THAN_RAW_VALUES: "The standardized values serve better, without any training.",
    Level.USE_STARTING_POINT: "The weights as they are serve as well, without any training.",
    Level.ADAPTING_HURT: "The weights as they are serve better, without any training.",
}


def check_spread(evidence: Evidence) -> Judgment:
    """The spread of held-out embeddings after training."""
    spread = evidence.last("embedding_std")
    if spread is None:
        return unknown("no embeddings were measured (knn_every=0?)")
    if early := too_early(evidence):
        return early
    return judge(Figure("spread of the embeddings (1: even, 0: one point)", spread[0], SPREAD, "below", spread[1]))


def check_rank(evidence: Evidence) -> Judgment:
    """The effective rank of held-out embeddings and features after training."""
    ranks = {"embeddings": evidence.last("embedding_rank"), "encoder's features": evidence.last("effective_rank")}
    if ranks["embeddings"] is None:
        return unknown("no embeddings were measured (knn_every=0?)")
    if early := too_early(evidence):
        return early
    least = least_rank(evidence)
    if least is None:
        return unknown("two classes need no more than one direction")
    figures = [
        Figure(f"effective rank of the {name}", rank[0], least, "below", rank[1])
        for name, rank in ranks.items()
        if rank is not None
    ]
    return judge(*figures, enough=any)


def least_rank(evidence: Evidence) -> float | None:
    """Returns the effective rank below which embeddings have collapsed: 3, or half of the dimensions if these are below 6.

    A higher rank is not required: a head may drop directions that the encoder's features keep (Jing et al., 2022). Methods
    that learn from labels map each class to one point, and the points to the corners of a simplex of rank classes − 1: for
    them at most half of that is required, and nothing (None) for two classes.
    """
    least = min(DIRECTIONS, int(evidence.config.get("embedding_dim", 128)) / 2)
    if evidence.learns_from_labels:
        if evidence.classes is None or evidence.classes < 3:
            return None
        least = min(least, (evidence.classes - 1) / 2)
    return least


def check_high_rate(evidence: Evidence) -> Judgment:
    """NaN, a loss above its value for constant embeddings, or updates as large as the weights.

    Unknown if the temperature alone explains these: gradients grow as 1/τ, and so does the loss of wrong predictions.
    """
    if is_too_cold_at_first(evidence):
        return unknown("the temperature is too low for the size of the loss and of the steps to be judged")
    if evidence.failed:
        return Judgment(SICK, f"training stopped: {evidence.failed}", (Figure("non-finite steps", 1, 0, "above"),))
    figures = []
    ratio, loss, constant = evidence.typical("update_ratio"), evidence.late("loss"), evidence.late("no_signal")
    if ratio is not None:
        figures.append(Figure("norm of an update over the norm of the weights", ratio, JUMP, "above"))
    if loss is not None and constant and evidence.traits.ceiling and evidence.updates >= ENOUGH:
        figures.append(Figure("loss over its value for constant embeddings", loss / constant, WORSE, "above"))
    growth = evidence.network.get("growth")
    if growth is not None:
        figures.append(Figure("norm of the encoder's weights over its initial value", growth, GROWN, "above"))
    if not figures:
        return unknown("neither the size of steps nor the loss for constant embeddings is known")
    return judge(*figures, enough=any)


def check_low_rate(evidence: Evidence) -> Judgment:
    """The distance of the weights from their initial values; without the checkpoint, an upper bound of it."""
    if early := too_early(evidence):
        return early
    if evidence.from_weights:
        return unknown("the run started from weights, of which few or none may change; see drift")
    distance, ratio = evidence.network.get("distance"), evidence.typical("update_ratio")
    if distance is not None:
        what = "distance of the encoder's weights from their initial values over their norm"
        return judge(Figure(what, distance, STILL, "below"))
    if ratio is not None:
        what = "largest possible distance of the weights from their initial values over their norm"
        return judge(Figure(what, ratio * evidence.updates, STILL, "below"))
    return unknown("the distance of the weights from their initial values is not known")


def perfect_loss(evidence: Evidence, no_signal: float) -> float:
    """Returns the loss of a perfect encoder, given ``no_signal``, the loss for constant embeddings.

    With M = e^no_signal − 1 orthogonal negatives and identical positives it is ln(1 + M·e^(−1/τ)). With labels, images of
    the class stay in the denominator: ln(M·(1/C + e^(−1/τ))). Without the positive in the denominator it is
    no_signal − 1/τ. That of a classifier is 0.
    """
    floor, tau = evidence.traits.floor, float(evidence.config.get("temperature", 0.5))
    if floor == "zero":
        return 0.0
    if floor == "decoupled":
        return no_signal - 1 / tau
    negatives = math.expm1(min(no_signal, 700.0))
    if floor == "classes":
        return math.log1p(negatives * min(1.0, 1 / (evidence.classes or 1) + math.exp(-1 / tau)))
    return infonce_at(negatives, tau, 0.0)


def check_signal(evidence: Evidence) -> Judgment:
    """The share of the distance from the loss of constant embeddings to the minimum by the last quarter of training."""
    if early := too_early(evidence, ENOUGH):
        return early
    if not evidence.traits.ceiling:
        return unknown("the margin raises the loss above its value for constant embeddings")
    loss, constant = evidence.late("loss"), evidence.late("no_signal")
    if loss is None or constant is None:
        return unknown(f"{evidence.method} has no known loss for constant embeddings")
    floor = perfect_loss(evidence, constant)
    if constant - floor <= 1e-9:
        return unknown(f"{evidence.method} has no known loss for constant embeddings")
    what = "share of the distance from the loss for constant embeddings to its minimum"
    figure = Figure(what, fraction_of_floor_reached(loss, constant, floor), LEARNED, "below")
    why = f"loss {loss:.3f}, {constant:.3f} for constant embeddings, {floor:.3f} at best"
    return Judgment(SICK if figure.crossed else WELL, why, (figure,))


def check_evaluation(evidence: Evidence) -> Judgment:
    """The level of the verdict in ``evaluation.json``."""
    if evidence.evaluation is None:
        return unknown("the run was not evaluated; run coulomb evaluate")
    level = evidence.verdict.get("level")
    if level == Level.NOT_JUDGED:
        return unknown("there is nothing to judge by: neither labels nor scored pairs")
    if level not in STATES:
        return unknown("evaluation.json holds no verdict; run coulomb evaluate again")
    said = f"the evaluation says: {level.replace('_', ' ')}"
    return Judgment(STATES[level], said, title=TITLES.get(level), consequence=CONSEQUENCES.get(level))


def _against_one_point(evidence: Evidence) -> str:
    disabled = [
        (f"enable {name} again", Option(f"option {name}", True))
        for name in ("stop_gradient", "use_predictor")
        if evidence.option(name) is False
    ]
    if disabled:
        return advice(evidence, *disabled)
    lower = ("lower the learning rate", Option("lr", rounded(float(evidence.config.get("lr") or 0.0) / 10)))
    if evidence.traits.negatives or evidence.learns_from_labels:
        return advice(evidence, lower, "check that the head's output is not constant")
    compare = ("or compare with", Option("method", "simclr"))
    return advice(evidence, lower, "check that the head has batch norm", compare)


def _against_few_directions(evidence: Evidence) -> str:
    tau, decay = (float(evidence.config.get(name) or 0.0) for name in ("temperature", "weight_decay"))
    return advice(
        evidence,
        "look for a bottleneck in the head",
        ("lower the temperature", Option("temperature", rounded(tau / 2))) if evidence.traits.negatives else None,
        ("lower the weight decay", Option("weight_decay", rounded(decay / 10))) if decay else None,
        "use weaker views",
    )


def _lower_rate(evidence: Evidence) -> str:
    lr, epochs = (float(evidence.config.get(name) or 0.0) for name in ("lr", "epochs"))
    warm_up = rounded(max(1.0, epochs / 10))
    return advice(
        evidence,
        ("lower the learning rate", Option("lr", rounded(lr / 10))),
        ("or warm up longer", Option("warmup_epochs", warm_up))
        if float(evidence.config.get("warmup_epochs") or 0.0) < warm_up < epochs
        else None,
    )


def _higher_rate(evidence: Evidence) -> str:
    lr = float(evidence.config.get("lr") or 0.0)
    return advice(
        evidence,
        ("raise the learning rate", Option("lr", rounded(10 * lr) if lr else 0.01)),
        "check that the encoder's weights are trained (requires_grad)",
    )


def _next_steps(evidence: Evidence) -> str:
    steps = evidence.verdict.get("next")
    if isinstance(steps, list) and (others := [str(step) for step in steps if "coulomb doctor" not in str(step)]):
        return " ".join(others)
    longer = Option("epochs", 4 * int(evidence.config.get("epochs") or 1))
    return advice(evidence, ("train longer", longer), "look at views.png")


COMPLETE_COLLAPSE = Rule(
    name="complete-collapse",
    title="All images have nearly the same embedding.",
    check=check_spread,
    consequence="The embeddings do not distinguish images: whatever uses them is at chance level.",
    remedy=_against_one_point,
    explained_by=(*DATA, "augmentation-too-weak", *RATES, *KEYS),
    live=True,
)
DIMENSIONAL_COLLAPSE = Rule(
    name="dimensional-collapse",
    title="The embeddings use only a few of their dimensions.",
    check=check_rank,
    consequence="Images that differ only in other directions have the same embedding; longer training or a wider head does "
    "not help.",
    remedy=_against_few_directions,
    explained_by=(
        *DATA,
        "augmentation-too-weak",
        "complete-collapse",
        *RATES,
        "no-signal",
        "augmentation-too-strong",
        *KEYS,
    ),
)
RATE_TOO_HIGH = Rule(
    name="learning-rate-too-high",
    title="The learning rate is too high: updates destroy what was learned before.",
    check=check_high_rate,
    consequence="The loss jumps, rises above its value for constant embeddings, or becomes NaN; the encoder is left useless.",
    remedy=_lower_rate,
    explained_by=("images-blank",),
    live=True,
)
RATE_TOO_LOW = Rule(
    name="learning-rate-too-low",
    title="The learning rate is too low: the weights have hardly changed.",
    check=check_low_rate,
    consequence="The encoder is nearly the one before training.",
    remedy=_higher_rate,
    explained_by=("images-blank", "augmentation-too-weak"),
)
NO_SIGNAL = Rule(
    name="no-signal",
    title="The loss is no better than for constant embeddings.",
    check=check_signal,
    consequence="Nothing is being learned: positive pairs are no more similar than other pairs.",
    remedy=lambda evidence: advice(
        evidence,
        "look at views.png: are the two views in a row of the same image?",
        "check that labels are in the order of the images" if evidence.learns_from_labels else None,
        "check that the encoder's weights receive gradients",
    ),
    explained_by=(*DATA, "augmentation-too-weak", *RATES, "augmentation-too-strong", "complete-collapse", *KEYS),
    live=True,
)
NOTHING_LEARNED = Rule(
    name="nothing-learned",
    title="No measurement shows that the encoder learned anything.",
    check=check_evaluation,
    consequence="The features are no better than the features of the same encoder before training, or than raw pixels.",
    remedy=_next_steps,
    explained_by=(
        *DATA,
        *RATES,
        "complete-collapse",
        "dimensional-collapse",
        "no-signal",
        "augmentation-too-weak",
        "augmentation-too-strong",
        "temperature-too-low",
        "temperature-too-high",
        "head-not-normalized",
        "momentum-wrong",
        "queue-stale",
        "batch-too-small",
        "shortcut",
        "drift",
        "forgetting",
    ),
)
