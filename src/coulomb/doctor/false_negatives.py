"""False negatives: images of one class that are pushed apart."""

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import Option, advice, rounded
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown
from coulomb.doctor.temperature import shares

MOST = 0.75  # share of the repulsive gradient that pushes images of one class apart


def judge(evidence: Evidence) -> Judgement:
    """The share of the repulsion that acts on images of one class."""
    if evidence.traits.labels:
        return unknown(f"{evidence.method} knows the classes: its class mates are no negatives")
    if not evidence.traits.negatives:
        return unknown(f"{evidence.method} has no negatives")
    share = shares(evidence, "false_negative_gradient")
    if share is None:
        return unknown("there are no labels to tell false negatives by")
    return judged(Figure("share of the repulsion between images of one class", share, MOST, "above"))


FALSE_NEGATIVES = Rule(
    name="false-negatives",
    title="Most of the push drives images of the same class apart.",
    judge=judge,
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
