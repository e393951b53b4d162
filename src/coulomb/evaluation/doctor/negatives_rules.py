"""Rules about the loss: temperature, false negatives, queue, momentum encoder, batch size, normalization of the head."""

import math
from collections.abc import Callable
from statistics import NormalDist

from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.rule import (
    DATA,
    RATES,
    WARNING,
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

FEW = 0.5  # share of the repulsive gradient on the single hardest negative
ALIKE = 0.15  # share of the repulsive gradient on the hardest tenth; .1 if all are equal
SPREAD = 0.2  # standard deviation of the cosines of negatives after training
USUAL_TEMPERATURE = 0.2  # of the recipes
FALSE_MOST = 0.75  # share of the repulsive gradient between images of one class
STALE = 0.1  # distance of the encoder's weights from those that computed a key, relative to their norm
PASSES = 1.0  # keys of each image in the queue
START = 0.5  # share of the random initial weights in the momentum encoder at the end
QUICK = 0.5  # momentum below which the keys of consecutive updates come from different networks
NEGATIVES = 16.0  # per anchor; with 15, guessing the positive succeeds once in 16
IMAGES = 8.0  # per update, for batch norm and for the gradient
USUAL_BATCH = 128
CHANGE = 0.05  # relative change of the loss if the head's output is doubled


def gradient_share(evidence: Evidence, name: str) -> float | None:
    """Returns a share of the repulsive gradient as measured in training, or on the trained network."""
    value = evidence.late(name)
    return (evidence.network.get("negatives") or {}).get(name) if value is None else value


def check_low_temperature(evidence: Evidence) -> Judgment:
    """The share of the single hardest negative, at the first update and late in training.

    A temperature that is far too low is most visible at the first update: later the differences of the embeddings become
    as small as the temperature, and the gradient looks evenly distributed again.
    """
    share, first = gradient_share(evidence, "top1_gradient"), evidence.first("top1_gradient")
    if not evidence.traits.negatives or share is None:
        return _no_gradient(evidence)
    figures = [Figure("share of the repulsion carried by the single hardest negative", share, FEW, "above")]
    if first is not None:
        figures.append(Figure("the same at the first update", first[0], FEW, "above", first[1]))
    return judge(*figures, enough=any)


def is_too_cold_at_first(evidence: Evidence) -> bool:
    """True if one negative carries most of the repulsion at the first update, which no update can have caused."""
    first = evidence.first("top1_gradient")
    return evidence.traits.negatives and first is not None and first[0] > FEW


def check_high_temperature(evidence: Evidence) -> Judgment:
    """The share of the hardest tenth, as measured and for embeddings that have spread out.

    The gradient of embeddings that have not spread out is evenly distributed at any temperature. So the share for
    embeddings that have must be small as well: Φ(σ/τ − 1.28) for normally distributed cosines with deviation σ = .2.
    """
    share = gradient_share(evidence, "top10pct_gradient")
    if not evidence.traits.negatives or share is None:
        return _no_gradient(evidence)
    spread_out = NormalDist().cdf(SPREAD / float(evidence.config["temperature"]) + NormalDist().inv_cdf(0.1))
    return judge(
        Figure("share of the repulsion carried by the hardest tenth of negatives", share, ALIKE, "below"),
        Figure("the same at this temperature for spread-out embeddings", spread_out, ALIKE, "below"),
    )


def _no_gradient(evidence: Evidence) -> Judgment:
    if not evidence.traits.negatives:
        return unknown(f"{evidence.method} weighs no negatives by a temperature")
    return unknown("the gradient of the negatives was not measured")


def check_false_negatives(evidence: Evidence) -> Judgment:
    """The share of the repulsion between images of one class; a warning if kNN is higher than with the published weights."""
    if evidence.learns_from_labels:
        return unknown(f"{evidence.method} uses the labels: images of one class are no negatives")
    if not evidence.traits.negatives:
        return unknown(f"{evidence.method} has no weighted negatives")
    share = gradient_share(evidence, "false_negative_gradient")
    if share is None:
        return unknown("false negatives cannot be counted without labels")
    figure = Figure("share of the repulsion between images of one class", share, FALSE_MOST, "above")
    before, after = evidence.evaluated("starting_point", "knn"), evidence.evaluated("trained", "knn")
    if figure.crossed and before is not None and after is not None and after > before:
        return Judgment(
            WARNING, f"it did not outweigh the attraction: kNN rose from {before:.3f} to {after:.3f}", (figure,)
        )
    return judge(figure)


def check_stale_keys(evidence: Evidence) -> Judgment:
    """The mean age of keys in updates, times the mean size of an update relative to the weights."""
    age = next((age for name in ("queue_age_mean", "queue_age") if (age := evidence.typical(name)) is not None), None)
    if age is None:
        return unknown("there is no queue")
    ratios = evidence.all("update_ratio")
    if not ratios:
        return unknown("the size of steps was not measured")
    what = "distance of the weights while a key waits, relative to their size"
    return judge(Figure(what, age * sum(ratios) / len(ratios), STALE, "above"))


def check_queue_size(evidence: Evidence) -> Judgment:
    """Keys in the queue per training image; a symmetric method adds two keys of each image per epoch."""
    size, images = evidence.option("queue_size"), evidence.data.get("train")
    if not evidence.traits.queue or not size or not images:
        return unknown("there is no queue")
    if evidence.learns_from_labels or evidence.option("exclude_own") or evidence.option("same_cells") == "left_out":
        return unknown("keys of an image are no negatives of itself")
    views = int(evidence.config.get("n_views", 2))
    keys = 1 if evidence.option("same_cells") else views if evidence.option("symmetric") else views - 1
    return judge(Figure("keys of each image in the queue", size / images / keys, PASSES, "above"))


def remaining_start(momentum: float, updates: int, schedule: str) -> float:
    """Returns the share of the initial weights in a moving average after ``updates``: the product of its momenta."""
    if schedule != "cosine":
        return momentum**updates
    steps = [(1 - momentum) * (math.cos(math.pi * (i + 1) / updates) + 1) / 2 for i in range(updates)]
    return math.prod(1 - step for step in steps)


def check_momentum(evidence: Evidence) -> Judgment:
    """The share of the initial weights in the momentum encoder at the end of the run; with a queue, the momentum too."""
    momentum = evidence.option("momentum")
    if not evidence.traits.momentum or momentum is None or evidence.option("generalized"):
        return unknown(f"{evidence.method} has no momentum encoder")
    if evidence.option("same_cells") and not evidence.option("queue_size"):
        return unknown("there is no momentum encoder without a queue")
    if early := too_early(evidence):
        return early
    default = "cosine" if evidence.method == "byol" else "constant"
    schedule = evidence.option("momentum_schedule") or default
    start = remaining_start(float(momentum), evidence.planned, schedule)
    figure = Figure("share of its random start in the momentum encoder", start, START, "above")
    kept = evidence.option("same_cells") and evidence.from_weights  # its start is then not random
    if evidence.option("queue_size") and (kept or not figure.crossed):
        return judge(Figure("momentum", float(momentum), QUICK, "below"))
    return judge(figure)


def check_batch_size(evidence: Evidence) -> Judgment:
    """The negatives per anchor that the loss used, and the images per update."""
    batch, negatives = evidence.config.get("batch_size"), evidence.typical("negatives")
    if batch is None:
        return unknown("the batch size is not known")
    figures = [Figure("images per step", float(batch), IMAGES, "below")]
    if negatives is not None and not evidence.learns_from_labels:
        figures.append(Figure("negatives per anchor", negatives, NEGATIVES, "below"))
    return judge(*figures, enough=any)


def check_normalization(evidence: Evidence) -> Judgment:
    """Whether the loss depends on the length of the embeddings."""
    if evidence.traits.classifier:
        return unknown("the head is a classifier, whose logits need not be normalized")
    if not evidence.traits.normalized:
        return unknown(f"{evidence.method} determines the length of the embeddings by its loss")
    change = evidence.network.get("scale_change")
    if change is None:
        return unknown("the loss was not measured for longer embeddings")
    return judge(Figure("change of the loss when embeddings are twice as long", change, CHANGE, "above"))


def _to_usual_temperature(evidence: Evidence, phrase: str, choose: Callable[..., float]) -> str:
    """Advises the usual temperature, or if that is set or passed already, twice or half of the present one."""
    now = float(evidence.config["temperature"])
    further = 2 * now if choose is max else now / 2
    value = USUAL_TEMPERATURE if choose(USUAL_TEMPERATURE, now) != now else further
    return advice(evidence, (phrase, Option("temperature", rounded(value))))


def _fresher_keys(evidence: Evidence) -> str:
    size, batch = int(evidence.option("queue_size") or 0), int(evidence.config.get("batch_size") or 1)
    lr, keys = float(evidence.config.get("lr") or 0.0), batch * (2 if evidence.option("symmetric") else 1)
    return advice(
        evidence,
        ("make the queue shorter", Option("option queue_size", size // 8)) if size // 8 >= keys else None,
        ("lower the learning rate", Option("lr", rounded(lr / 10))) if lr else None,
        ("make the batch larger", Option("batch_size", 4 * batch)),
    )


def _shorter_queue(evidence: Evidence) -> str:
    half = 2 ** max(0, int(evidence.data["train"] / 2).bit_length() - 1)
    return advice(
        evidence,
        ("make the queue shorter than half the training images", Option("option queue_size", half)),
        ("or leave a row's own keys out", Option("option same_cells", "left_out"))
        if evidence.option("same_cells")
        else ("or exclude an image's own keys", Option("option exclude_own", True)),
    )


def _better_momentum(evidence: Evidence) -> str:
    """Advises the momentum at which e⁻⁵ of the start remains at the end, at most .999, in hundredths below .99."""
    best = min(0.999, 1 - 5 / max(evidence.planned, 6))
    target = Option("option momentum", float(f"{best:.3f}" if best > 0.99 else f"{best:.2f}"))
    now = float(evidence.option("momentum"))
    return advice(evidence, ("lower it" if now > best else "raise it", target))


def _larger_batch(evidence: Evidence) -> str:
    images = int(evidence.data.get("train") or 4 * USUAL_BATCH)
    batch = int(evidence.config.get("batch_size") or 0)
    possible = min(USUAL_BATCH, 2 ** max(1, (images // 4).bit_length() - 1))
    return advice(
        evidence,
        ("make the batch larger", Option("batch_size", possible))
        if possible > batch
        else "add images, so that the batch can be larger",
        ("or keep negatives in a queue", Option("method", "moco"))
        if evidence.traits.negatives and not evidence.traits.queue and not evidence.learns_from_labels
        else None,
    )


TEMPERATURE_TOO_LOW = Rule(
    name="temperature-too-low",
    title="A single negative carries most of the repulsion of each image.",
    check=check_low_temperature,
    consequence="The hardest negatives are often of the same class as the image (false negatives): the loss separates them, "
    "and the gradient comes from a few noisy pairs.",
    remedy=lambda evidence: _to_usual_temperature(evidence, "raise the temperature", max),
    explained_by=("images-blank", "batch-too-small", "learning-rate-too-high"),
)
TEMPERATURE_TOO_HIGH = Rule(
    name="temperature-too-high",
    title="All negatives have the same weight, however similar they are.",
    check=check_high_temperature,
    consequence="The loss does not depend on which images are confused: embeddings stay clustered, and what distinguishes "
    "similar images is not learned.",
    remedy=lambda evidence: _to_usual_temperature(evidence, "lower the temperature", min),
    explained_by=(
        *DATA,
        "augmentation-too-weak",
        "complete-collapse",
        *RATES,
        "no-signal",
        "augmentation-too-strong",
        "dimensional-collapse",
    ),
)
FALSE_NEGATIVES = Rule(
    name="false-negatives",
    title="Most of the repulsion is between images of the same class.",
    check=check_false_negatives,
    consequence="Images of a class are separated: nearest neighbors and clusters get worse with training.",
    remedy=lambda evidence: advice(
        evidence,
        ("raise the temperature", Option("temperature", rounded(2 * float(evidence.config["temperature"])))),
        ("correct for false negatives", Option("method", "debiased")),
        ("use a method without negatives", Option("method", "byol")),
        ("learn from the labels", Option("method", "supcon")) if evidence.classes else None,
    ),
    explained_by=("images-blank", "batch-too-small", "learning-rate-too-high", "duplicates"),
)
STALE_KEYS = Rule(
    name="queue-stale",
    title="The keys in the queue are so old that they come from a different network.",
    check=check_stale_keys,
    consequence="Old keys are easily distinguished from new ones: the loss falls for the wrong reason, or does not fall.",
    remedy=_fresher_keys,
    explained_by=("queue-larger-than-data", "learning-rate-too-high"),
)
QUEUE_TOO_LARGE = Rule(
    name="queue-larger-than-data",
    title="The queue holds more keys than there are images.",
    check=check_queue_size,
    consequence="Each image is repelled by keys of itself from the epoch before.",
    remedy=_shorter_queue,
)
MOMENTUM = Rule(
    name="momentum-wrong",
    title="The momentum encoder hardly changes, or changes completely with every update.",
    check=check_momentum,
    consequence="If it hardly changes, its targets come from a random network. If it changes completely, the queue holds "
    "keys of networks that cannot be compared (He et al., 2020: m = 0 does not converge).",
    remedy=_better_momentum,
)
BATCH_TOO_SMALL = Rule(
    name="batch-too-small",
    title="The batch is too small.",
    check=check_batch_size,
    consequence="An image is compared with a handful of others, which soon gives no gradient; batch norm and gradients of so "
    "few images are noisy.",
    remedy=_larger_batch,
)
HEAD_SCALE = Rule(
    name="head-not-normalized",
    title="The loss depends on the length of the embeddings: they are not normalized.",
    check=check_normalization,
    consequence="Longer embeddings lower the loss without any learning: the temperature loses its meaning, and norms grow "
    "without bound.",
    remedy=lambda evidence: (
        "Normalize the embeddings: torch.nn.functional.normalize(z, dim=1), or use a loss of coulomb.losses, which does."
    ),
)
