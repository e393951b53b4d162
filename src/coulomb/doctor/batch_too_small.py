"""Batch size: too few negatives, or too few images for batch statistics."""

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import Option, advice
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

NEGATIVES = 16.0  # per anchor; with 15, guessing the positive succeeds once in 16
IMAGES = 8.0  # per step, for batch norm and for the gradient
USUAL = 128


def judge(evidence: Evidence) -> Judgement:
    """Negatives per anchor as the loss saw them, and images per step."""
    batch, negatives = evidence.config.get("batch_size"), evidence.typical("negatives")
    if batch is None:
        return unknown("the batch size is not known")
    figures = [Figure("images per step", float(batch), IMAGES, "below")]
    if negatives is not None and not evidence.traits.labels:
        figures.append(Figure("negatives per anchor", negatives, NEGATIVES, "below"))
    return judged(*figures, enough=any)


def _larger(evidence: Evidence) -> str:
    images = int(evidence.data.get("train") or 4 * USUAL)
    batch = int(evidence.config.get("batch_size") or 0)
    possible = min(USUAL, 2 ** max(1, (images // 4).bit_length() - 1))
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
    judge=judge,
    consequence="An image is compared with a handful of others, which is soon too easy to teach anything; batch norm and "
    "gradients of so few images are noise.",
    remedy=_larger,
)
