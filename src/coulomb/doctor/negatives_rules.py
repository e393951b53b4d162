"""Rules about the loss: temperature, negatives, queue, momentum encoder, batch size."""

import math
from collections.abc import Callable
from statistics import NormalDist

from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.rule import Figure, Judgement, Option, Rule, advice, judged, rounded, unknown

FEW = 0.5  # share of an anchor's repulsive gradient that its single hardest negative may carry
SPREAD = 0.2  # deviation of the cosines of negatives after training
USUAL_TEMPERATURE = 0.2  # the recipes' temperature
ALIKE = 0.15  # share carried by the hardest tenth; .1 when all are alike


def gradient_share(evidence: Evidence, name: str) -> float | None:
    """A share of the repulsive gradient as measured in training, or else of the trained network."""
    value = evidence.late(name)
    if value is None:
        found = evidence.network.get("negatives") or {}
        value = found.get(name)
    return value


def check_low_temperature(evidence: Evidence) -> Judgement:
    """The share of the single hardest negative, at the first update and late in training.

    Far too low a temperature is best seen at the beginning: embeddings then draw together until their differences are as
    small as the temperature, and the push looks even again.
    """
    share, first = gradient_share(evidence, "top1_gradient"), evidence.first("top1_gradient")
    if not evidence.traits.negatives or share is None:
        return _cannot(evidence)
    figures = [Figure("share of the repulsion carried by the single hardest negative", share, FEW, "above")]
    if first is not None:
        figures.append(Figure("the same at the first update", first[0], FEW, "above", first[1]))
    return judged(*figures, enough=any)


def starts_too_cold(evidence: Evidence) -> bool:
    """True if one negative carries most of the repulsion at the first update, before any step could have caused it."""
    first = evidence.first("top1_gradient")
    return evidence.traits.negatives and first is not None and first[0] > FEW


def check_high_temperature(evidence: Evidence) -> Judgement:
    """The share of the hardest tenth, as measured and at best.

    Embeddings that have not spread yet get an even push at any temperature. So the share that the temperature allows once
    they have spread must be small as well: Φ(σ/τ − 1.28) for cosines with a normal distribution of deviation σ = .2.
    """
    share = gradient_share(evidence, "top10pct_gradient")
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
    value = USUAL_TEMPERATURE if choose(USUAL_TEMPERATURE, now) != now else further
    return advice(evidence, (phrase, Option("temperature", rounded(value))))


TEMPERATURE_TOO_LOW = Rule(
    name="temperature-too-low",
    title="A single negative carries most of the push of each image.",
    judge=check_low_temperature,
    consequence="The nearest negatives are often of the same kind as the image (false negatives): they are torn apart, and "
    "the gradient is that of a few noisy pairs.",
    remedy=lambda evidence: _towards(evidence, "raise the temperature", max),
    explained_by=("images-blank", "batch-too-small", "learning-rate-too-high"),
)
TEMPERATURE_TOO_HIGH = Rule(
    name="temperature-too-high",
    title="All negatives push alike, however near they are.",
    judge=check_high_temperature,
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


FALSE_MOST = 0.75  # share of the repulsive gradient that pushes images of one class apart


def check_false_negatives(evidence: Evidence) -> Judgement:
    """The share of the repulsion that acts on images of one class."""
    if evidence.traits.labels:
        return unknown(f"{evidence.method} knows the classes: its class mates are no negatives")
    if not evidence.traits.negatives:
        return unknown(f"{evidence.method} has no negatives")
    share = gradient_share(evidence, "false_negative_gradient")
    if share is None:
        return unknown("there are no labels to tell false negatives by")
    return judged(Figure("share of the repulsion between images of one class", share, FALSE_MOST, "above"))


FALSE_NEGATIVES = Rule(
    name="false-negatives",
    title="Most of the push drives images of the same class apart.",
    judge=check_false_negatives,
    consequence="What belongs together is scattered: nearest neighbours and clusters get worse with training.",
    remedy=lambda evidence: advice(
        evidence,
        ("raise the temperature", Option("temperature", rounded(2 * float(evidence.config["temperature"])))),
        ("correct for false negatives", Option("method", "debiased")),
        ("use a method without negatives", Option("method", "byol")),
        ("learn from the labels", Option("method", "supcon")) if evidence.classes else None,
    ),
    explained_by=("images-blank", "batch-too-small", "learning-rate-too-high", "duplicates"),
)


STALE = 0.1  # how far the encoder moves, in its own size, while a key waits: what made it is a tenth another network
PASSES = 1.0  # times that the queue holds each image


def check_stale(evidence: Evidence) -> Judgement:
    """The mean age of keys, in steps, times the mean size of a step relative to the weights."""
    age = next(
        (found for name in ("queue_age_mean", "queue_age") if (found := evidence.typical(name)) is not None), None
    )
    if age is None:
        return unknown("there is no queue")
    ratios = evidence.all("update_ratio")
    if not ratios:
        return unknown("the size of steps was not measured")
    way = age * sum(ratios) / len(ratios)
    return judged(Figure("way of the weights while a key waits, in their size", way, STALE, "above"))


def check_queue_size(evidence: Evidence) -> Judgement:
    """Keys in the queue over training images; a symmetric method brings two keys of each image an epoch."""
    size, images = evidence.option("queue_size"), evidence.data.get("train")
    if not evidence.traits.queue or not size or not images:
        return unknown("there is no queue")
    if evidence.traits.labels or evidence.option("exclude_own"):
        return unknown("keys of an image are no negatives of itself")
    views = int(evidence.config.get("n_views", 2))
    keys = views if evidence.option("symmetric") else views - 1
    return judged(Figure("keys of each image in the queue", size / images / keys, PASSES, "above"))


def _fresher(evidence: Evidence) -> str:
    size, batch = int(evidence.option("queue_size") or 0), int(evidence.config.get("batch_size") or 1)
    lr, keys = float(evidence.config.get("lr") or 0.0), batch * (2 if evidence.option("symmetric") else 1)
    return advice(
        evidence,
        ("make the queue shorter", Option("option queue_size", size // 8)) if size // 8 >= keys else None,
        ("lower the learning rate", Option("lr", rounded(lr / 10))) if lr else None,
        ("make the batch larger", Option("batch_size", 4 * batch)),
    )


def _shorter(evidence: Evidence) -> str:
    half = 2 ** max(0, int(evidence.data["train"] / 2).bit_length() - 1)
    return advice(
        evidence,
        ("make the queue shorter than half the training images", Option("option queue_size", half)),
        ("or leave out an image's own keys", Option("option exclude_own", True)),
    )


STALE_KEYS = Rule(
    name="queue-stale",
    title="Keys wait so long in the queue that another network made them.",
    judge=check_stale,
    consequence="Old keys are easily told from new ones: the loss falls for the wrong reason, or does not fall.",
    remedy=_fresher,
    explained_by=("queue-larger-than-data", "learning-rate-too-high"),
)
QUEUE_TOO_LARGE = Rule(
    name="queue-larger-than-data",
    title="The queue holds more keys than there are images.",
    judge=check_queue_size,
    consequence="Each image is pushed away from keys of itself, made an epoch before.",
    remedy=_shorter,
)


START = 0.5  # share of the momentum encoder that is still its random start at the end
QUICK = 0.5  # momentum below which keys of one step and the next come from different networks


def remains(momentum: float, updates: int, schedule: str) -> float:
    """The share of the start in an average after ``updates``: the product of its momenta."""
    if schedule != "cosine":
        return momentum**updates
    towards = [(1 - momentum) * (math.cos(math.pi * (i + 1) / updates) + 1) / 2 for i in range(updates)]
    return math.prod(1 - step for step in towards)


def check_momentum(evidence: Evidence) -> Judgement:
    """The share of the start that remains; the momentum itself, where a queue keeps what it made."""
    momentum = evidence.option("momentum")
    if not evidence.traits.momentum or momentum is None or evidence.option("generalized"):
        return unknown(f"{evidence.method} has no momentum encoder")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    default = "cosine" if evidence.method == "byol" else "constant"
    schedule = evidence.option("momentum_schedule") or default
    updates = evidence.planned  # a run that is under way is judged by where it will be
    start = remains(float(momentum), updates, schedule)
    frozen = Figure("share of its random start in the momentum encoder", start, START, "above")
    if frozen.crossed:
        return judged(frozen)
    if evidence.option("queue_size"):
        return judged(Figure("momentum", float(momentum), QUICK, "below"))
    return judged(frozen)


def _better_momentum(evidence: Evidence) -> str:
    """The momentum at which e⁻⁵ of the start remains after the planned updates, at most .999, in hundredths below .99."""
    best = min(0.999, 1 - 5 / max(evidence.planned, 6))
    target = Option("option momentum", float(f"{best:.3f}" if best > 0.99 else f"{best:.2f}"))
    now = float(evidence.option("momentum"))
    return advice(evidence, ("lower it" if now > best else "raise it", target))


MOMENTUM = Rule(
    name="momentum-wrong",
    title="The momentum encoder does not do its part: it stands still, or jumps with every step.",
    judge=check_momentum,
    consequence="Standing still, it says what a random network says. Jumping, it fills the queue with keys of networks that "
    "cannot be compared (He et al., 2020: m = 0 does not converge).",
    remedy=_better_momentum,
)


NEGATIVES = 16.0  # per anchor; with 15, guessing the positive succeeds once in 16
IMAGES = 8.0  # per step, for batch norm and for the gradient
USUAL_BATCH = 128


def check_batch(evidence: Evidence) -> Judgement:
    """Negatives per anchor as the loss saw them, and images per step."""
    batch, negatives = evidence.config.get("batch_size"), evidence.typical("negatives")
    if batch is None:
        return unknown("the batch size is not known")
    figures = [Figure("images per step", float(batch), IMAGES, "below")]
    if negatives is not None and not evidence.traits.labels:
        figures.append(Figure("negatives per anchor", negatives, NEGATIVES, "below"))
    return judged(*figures, enough=any)


def _larger(evidence: Evidence) -> str:
    images = int(evidence.data.get("train") or 4 * USUAL_BATCH)
    batch = int(evidence.config.get("batch_size") or 0)
    possible = min(USUAL_BATCH, 2 ** max(1, (images // 4).bit_length() - 1))
    return advice(
        evidence,
        ("make the batch larger", Option("batch_size", possible))
        if possible > batch
        else "add images, so that the batch can be larger",
        ("or keep negatives in a queue", Option("method", "moco"))
        if evidence.traits.negatives and not evidence.traits.queue and not evidence.traits.labels
        else None,
    )


BATCH_TOO_SMALL = Rule(
    name="batch-too-small",
    title="The batch is too small.",
    judge=check_batch,
    consequence="An image is compared with a handful of others, which is soon too easy to teach anything; batch norm and "
    "gradients of so few images are noise.",
    remedy=_larger,
)


CHANGE = 0.05  # of the loss, when the head's output is made twice as long


def check_head(evidence: Evidence) -> Judgement:
    """Whether the loss depends on the length of the embeddings."""
    if evidence.traits.classifier:
        return unknown("the head is a classifier, whose logits have a length of their own")
    change = evidence.network.get("scale_change")
    if change is None:
        return unknown("the loss was not tried with longer embeddings")
    figures = [Figure("change of the loss when embeddings are twice as long", change, CHANGE, "above")]
    return judged(*figures)


HEAD_SCALE = Rule(
    name="head-not-normalised",
    title="The loss depends on the length of the embeddings: they are not normalised.",
    judge=check_head,
    consequence="Making embeddings longer lowers the loss as well as learning does: the temperature loses its meaning, and "
    "norms grow without bound.",
    remedy=lambda evidence: (
        "Normalise the embeddings: torch.nn.functional.normalize(z, dim=1), or use a loss of coulomb.losses, which does."
    ),
)
