"""Shortcuts: something in a narrow region of the image that identifies it, such as a bar code or a time stamp."""

from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.remedy import advice
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

DECIDES = 0.6  # share of images that are taken for the donor of a strip, a quarter of the image; healthy runs: 0 to .46


def judge(evidence: Evidence) -> Judgement:
    """The share of images taken for another one when a strip along an edge is replaced by that one's."""
    found = evidence.network.get("transplant")
    if not found:
        return unknown("no regions were exchanged between images")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    what = f"share of images taken for another one by the quarter along the {found['region']} edge"
    return judged(Figure(what, found["share"], DECIDES, "above"))


SHORTCUT = Rule(
    name="shortcut",
    title="The encoder recognises images by a narrow region along an edge.",
    judge=judge,
    consequence="The views of an image are matched by what is there (a bar code, a time stamp, a frame): the loss falls, and "
    "the rest of the picture is not learned.",
    remedy=lambda evidence: advice(
        evidence,
        "look at that region in views.png",
        "crop the images or paint the region over before training",
    ),
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "complete-collapse",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "no-signal",
    ),
)
