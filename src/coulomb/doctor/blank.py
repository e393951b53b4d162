"""Blank images: pictures with nothing in them."""

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import advice
from coulomb.doctor.rule import WARNING, Figure, Judgement, Rule, judged, unknown

MOST = 0.5  # share of blank training images above which the run is about nothing else
SOME = 0.05  # share that deserves a warning


def judge(evidence: Evidence) -> Judgement:
    """The share of training images of a single colour."""
    found = evidence.data.get("copies") or {}
    if not found.get("images") or "blank" not in found:
        return unknown("the images were not looked at")
    share = Figure("share of training images of a single colour", found["blank"] / found["images"], MOST, "above")
    if share.value > SOME and not share.crossed:
        return Judgement(
            WARNING, f"{found['blank']} of {found['images']} training images are of a single colour", (share,)
        )
    return judged(share)


BLANK = Rule(
    name="images-blank",
    title="The training images are blank.",
    judge=judge,
    consequence="There is nothing to tell the images apart by, and every other measurement of the run follows from that.",
    remedy=lambda evidence: advice(
        evidence,
        "look at views.png and at the files",
        "check the range of the values: arrays hold 0 to 255 as uint8, or 0 to 1 as floats",
        "remove blank images",
    ),
)
