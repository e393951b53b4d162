"""Augmentation: views so alike that there is nothing to learn, or so different that nothing can be."""

from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

TRIVIAL = 0.9  # share of views that raw pixels match to their partner: the task is solved before training
APART = 0.75  # chance that two views of an image are nearer than two images; .5 is a coin
COIN = 0.6  # the same for raw pixels: the views left nothing that they could match


def too_weak(evidence: Evidence) -> Judgement:
    """Whether the pixels themselves already tell which views belong together."""
    if evidence.traits.labels:
        return unknown(f"{evidence.method} learns from labels: its views may be weak")
    found = evidence.evaluated("raw_pixels", "view_retrieval")
    found = evidence.network.get("pixel_retrieval") if found is None else found
    if found is None:
        return unknown("the views were not matched by raw pixels")
    return judged(Figure("share of held-out views that raw pixels match to their partner", found, TRIVIAL, "above"))


def too_strong(evidence: Evidence) -> Judgement:
    """Whether held-out views of an image are nearer than views of two images, after training and by raw pixels."""
    separation = evidence.last("separation") or _probed(evidence)
    if separation is None:
        return unknown("the separation of held-out views was not measured")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    figure = Figure("P(views of one image nearer than of two)", separation[0], APART, "below", separation[1])
    pixels = evidence.network.get("pixel_separation")
    if not figure.crossed:
        return judged(figure)
    if pixels is None:  # a network that learned nothing separates no views either
        return unknown("whether raw pixels could match the views was not measured")
    return judged(figure, Figure("the same by raw pixels", pixels, COIN, "below"))


def _probed(evidence: Evidence) -> tuple[float, int | None] | None:
    """The separation that the trained network was found to have, where no line tells it."""
    found = evidence.network.get("separation")
    return None if found is None else (found, None)


TOO_WEAK = Rule(
    name="augmentation-too-weak",
    title="The two views of an image are nearly the same picture.",
    judge=too_weak,
    consequence="Pixels suffice to match them: the loss falls to its floor without the encoder learning what is in an "
    "image, and kNN stays where it was before training.",
    remedy="Strengthen the views (crop_area, jitter, affine, …; see `coulomb views`), until pixels no longer match them.",
)
TOO_STRONG = Rule(
    name="augmentation-too-strong",
    title="The two views of an image have nothing recognisable in common.",
    judge=too_strong,
    consequence="Positives are as far apart as negatives, so there is nothing to learn from; what is in the image is lost.",
    remedy="Weaken the views until you yourself could match the rows of views.png.",
    explained_by=("complete-collapse", "learning-rate-too-high", "learning-rate-too-low"),
)
