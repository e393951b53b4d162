"""The queue: keys that are too old to compare with, or more of them than there are images."""

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import Option, advice, rounded
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

STALE = 0.1  # how far the encoder moves, in its own size, while a key waits: what made it is a tenth another network
PASSES = 1.0  # times that the queue holds each image


def stale(evidence: Evidence) -> Judgement:
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


def larger(evidence: Evidence) -> Judgement:
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
    judge=stale,
    consequence="Old keys are easily told from new ones: the loss falls for the wrong reason, or does not fall.",
    remedy=_fresher,
    explained_by=("queue-larger-than-data", "learning-rate-too-high"),
)
LARGER = Rule(
    name="queue-larger-than-data",
    title="The queue holds more keys than there are images.",
    judge=larger,
    consequence="Each image is pushed away from keys of itself, made an epoch before.",
    remedy=_shorter,
)
