"""Copies: images that are in the data twice, and test images that were trained on."""

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import advice
from coulomb.doctor.rule import SICK, WARNING, Figure, Judgement, Rule, judged, unknown

REPEATED = 0.05  # share of training images that are copies of others
LEAKED = 0.01  # share of test images that were trained on: by as much accuracy may be flattered


def duplicates(evidence: Evidence) -> Judgement:
    """The share of copies among the training images."""
    found = evidence.data.get("copies")
    if not found or not found["images"]:
        return unknown("the images were not compared")
    share = (found["exact"] + found["near"]) / found["images"]
    return judged(Figure("share of training images that are copies of others", share, REPEATED, "above"))


def leaks(evidence: Evidence) -> Judgement:
    """The share of test images that are among the training images; fewer are a warning."""
    found = evidence.data.get("leaks")
    if not found or not found["images"]:
        return unknown("there are no test images to compare")
    count = found["exact"] + found["near"]
    figure = Figure("share of test images that are in the training data", count / found["images"], LEAKED, "above")
    if count and not figure.crossed:
        return Judgement(WARNING, f"{count} of {found['images']} test images are in the training data", (figure,))
    return judged(figure, state=SICK)


DUPLICATES = Rule(
    name="duplicates",
    title="The data hold many copies of the same images.",
    judge=duplicates,
    consequence="Copies meet as negatives: the loss pulls apart what is the same, and cannot reach its floor.",
    remedy=lambda evidence: advice(evidence, "remove them; `coulomb check DATA --json` lists exact copies by name"),
    explained_by=("images-blank",),
)
LEAK = Rule(
    name="evaluation-leak",
    title="Test images are among the training images.",
    judge=leaks,
    consequence="The evaluation is flattered: for these images it asks whether they are remembered.",
    remedy=lambda evidence: advice(
        evidence,
        "remove them from the training data"
        + ("" if evidence.config.get("test") else ", or give held-out images of your own (--test IMAGES)")
        + ", and train again",
    ),
    explained_by=("images-blank",),
)
