"""Labels that say nothing about the images: shuffled, or in another order than the images."""

import math

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import advice
from coulomb.doctor.rule import SICK, WARNING, WELL, Figure, Judgement, Rule, unknown

ERRORS = 3.0  # standard errors above chance that count as more than chance
FEWEST = 100  # held-out images with a label; with fewer, chance reaches too far


def judge(evidence: Evidence) -> Judgement:
    """The best kNN accuracy of pixels, of trained features, and of any live evaluation, against chance.

    With C classes at random, raw pixels already exceed chance on nearly all image data. Methods without labels train well
    without them, but every accuracy of the run is meaningless: a warning.
    """
    found = evidence.network.get("labels")
    if not found:
        return unknown("there are no labels on both sides of the split, or no checkpoint")
    if found["images"] < FEWEST:
        return unknown(f"{found['images']} held-out images with labels are too few to tell")
    chance, images = found["chance"], found["images"]
    limit = chance + ERRORS * math.sqrt(chance * (1 - chance) / images)
    best = max(found["pixels"], found["features"], *evidence.all("knn")[:1])
    figure = Figure("best kNN accuracy of raw pixels and features on held-out images", best, limit, "below")
    told = f"kNN accuracy {best:.3g}, {chance:.3g} by chance"
    state = SICK if evidence.traits.labels else WARNING
    return Judgement(state if figure.crossed else WELL, told, (figure,))


LABELS_UNRELATED = Rule(
    name="labels-unrelated",
    title="The labels say nothing about the images.",
    judge=judge,
    consequence="Neither raw pixels nor features predict them better than chance: a method that learns from labels can only "
    "memorise them, and no accuracy of this run means anything.",
    remedy=lambda evidence: advice(
        evidence,
        "check that labels are in the order of the images (shuffled once, sorted twice, another column?)",
        "give the right column with --labels" if evidence.config.get("labels") is None else None,
    ),
    explained_by=("images-blank",),
)
