"""Rules about images and views: blank images, copies, shortcuts, views that are too similar or too different."""

from dataclasses import asdict
from typing import Any

from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.rule import (
    DATA,
    RATES,
    SICK,
    WARNING,
    Figure,
    Judgment,
    Option,
    Rule,
    advice,
    judge,
    too_early,
    unknown,
)
from coulomb.kinds.image.views.spec import PRESETS

BLANK_SICK, BLANK_WARNING = 0.5, 0.05  # share of blank training images
REPEATED = 0.05  # share of training images that are copies of others
LEAKED = 0.01  # share of test images that were trained on, which bounds the bias of the accuracy
DECIDES = 0.6  # share of images matched to the donor of a strip, a quarter of the image; healthy runs: 0 to .46
TRIVIAL = 0.9  # share of views that raw pixels match to their partner: the task is solved before training
EQUAL = 0.5  # share of images whose two views are identical
SAME = 1e-6  # distance from 1 of the mean cosine of two views at the first update, if they are identical
APART = 0.75  # probability that two views of an image are more similar than two images; chance level .5
COIN = 0.65  # the same for a linear map fitted to match views: below, the views share nothing that can be learned
STRENGTHS = ("affine", "elastic", "jitter", "gray", "blur", "noise", "cutout", "flip")


def check_blank(evidence: Evidence) -> Judgment:
    """The share of training images of a single color."""
    copies = evidence.data.get("copies") or {}
    if not copies.get("images") or "blank" not in copies:
        return unknown("the images were not examined")
    blank, images = copies["blank"], copies["images"]
    share = Figure("share of training images of a single color", blank / images, BLANK_SICK, "above")
    if share.value > BLANK_WARNING and not share.crossed:
        return Judgment(WARNING, f"{blank} of {images} training images are of a single color", (share,))
    return judge(share)


def check_duplicates(evidence: Evidence) -> Judgment:
    """The share of copies among the training images."""
    copies = evidence.data.get("copies")
    if not copies or not copies["images"]:
        return unknown("the images were not compared")
    share = (copies["exact"] + copies["near"]) / copies["images"]
    return judge(Figure("share of training images that are copies of others", share, REPEATED, "above"))


def check_leaks(evidence: Evidence) -> Judgment:
    """The share of test images that are among the training images; a smaller share is a warning."""
    leaks = evidence.data.get("leaks")
    if not leaks or not leaks["images"]:
        return unknown("there are no test images to compare")
    count = leaks["exact"] + leaks["near"]
    figure = Figure("share of test images that are in the training data", count / leaks["images"], LEAKED, "above")
    if count and not figure.crossed:
        return Judgment(WARNING, f"{count} of {leaks['images']} test images are in the training data", (figure,))
    return judge(figure)


def check_shortcut(evidence: Evidence) -> Judgment:
    """The share of images matched to another image if a strip along one edge is replaced by that image's."""
    transplant = evidence.network.get("transplant")
    if not transplant:
        return unknown("no regions were exchanged between images")
    if early := too_early(evidence):
        return early
    what = f"share of images taken for another one by the quarter along the {transplant['region']} edge"
    return judge(Figure(what, transplant["share"], DECIDES, "above"))


def check_weak_views(evidence: Evidence) -> Judgment:
    """Whether the two views are identical, or raw pixels already match them."""
    if evidence.learns_from_labels:
        return unknown(f"{evidence.method} learns from labels, so its views may be weak")
    figures, cosine = [], evidence.first("train_positive_similarity")
    equal = evidence.network.get("identical_views")
    if equal is not None:
        figures.append(Figure("share of held-out images whose two views are identical", equal, EQUAL, "above"))
    if cosine is not None:
        what = "mean cosine of two views at the first update"
        figures.append(Figure(what, cosine[0], 1 - SAME, "above", cosine[1]))
    if crossed := tuple(figure for figure in figures if figure.crossed):
        title = "The two views of an image are the same picture."
        return Judgment(SICK, "the two views are the same picture", crossed, title=title)
    matched = evidence.evaluated("raw_pixels", "view_retrieval")
    matched = evidence.network.get("pixel_retrieval") if matched is None else matched
    if matched is None:
        return unknown("view retrieval by raw pixels was not measured")
    return judge(Figure("share of held-out views that raw pixels match to their partner", matched, TRIVIAL, "above"))


def check_strong_views(evidence: Evidence) -> Judgment:
    """Whether held-out views of an image are separated from other images, by the trained network and by a linear map.

    Both are needed, since a network that learned nothing does not separate any views.
    """
    trained = evidence.network.get("separation"), None
    value, epoch = evidence.last("separation") or trained
    if value is None:
        return unknown("the separation of held-out views was not measured")
    if early := too_early(evidence):
        return early
    figure = Figure("P(views of one image nearer than of two)", value, APART, "below", epoch)
    if not figure.crossed:
        return judge(figure)
    matched = evidence.network.get("matcher_separation")
    if matched is None:
        return unknown("whether a linear map can match the views was not measured")
    return judge(figure, Figure("the same by a linear map fitted to match views", matched, COIN, "below"))


def _preset(evidence: Evidence) -> dict[str, Any]:
    """Returns the strengths of the run's preset of views, ``{}`` for a user's views."""
    name = evidence.config.get("views")
    return asdict(PRESETS[name]()) if name in PRESETS else {}


def _restore_views(evidence: Evidence, own_views: str) -> str | None:
    """Returns advice for a user's views, or for a preset with changed options to restore it; None for the preset itself."""
    preset = _preset(evidence)
    if not preset:
        return advice(evidence, own_views)
    given = evidence.config.get("view_options") or {}
    options = [Option(f"view {name}", preset[name]) for name in given if name in preset]
    changed = [option for option in options if not option.is_set(evidence)]
    return advice(evidence, (f"restore the preset {evidence.config['views']}", *changed)) if changed else None


def _strengthen_views(evidence: Evidence) -> str:
    restored = _restore_views(evidence, "make the views function change the image differently at every call")
    if restored:
        return restored
    preset = _preset(evidence)
    weak = [name for name in STRENGTHS if preset[name] < 0.5 and name not in ("flip", "gray")]
    return advice(
        evidence,
        ("crop smaller parts", Option("view crop_area", (0.08, 1.0))),
        (f"add {weak[-1]}", Option(f"view {weak[-1]}", 0.5)) if weak else None,
        "check that the method receives two different views (views[0] and views[1])",
    )


def _weaken_views(evidence: Evidence) -> str:
    until = "until you could match the rows of views.png yourself"
    restored = _restore_views(evidence, f"weaken the views function {until}")
    if restored:
        return restored
    preset = _preset(evidence)
    return advice(
        evidence,
        ("crop larger parts", Option("view crop_area", (0.5, 1.0))) if preset["crop_area"][0] < 0.5 else None,
        *((f"halve {name}", Option(f"view {name}", preset[name] / 2)) for name in ("jitter", "noise") if preset[name]),
        until,
    )


BLANK = Rule(
    name="images-blank",
    title="The training images are blank.",
    check=check_blank,
    consequence="Nothing distinguishes the images, and all other measurements of the run follow from that.",
    remedy=lambda evidence: advice(
        evidence,
        "look at views.png and at the files",
        "check the range of the values: arrays hold 0 to 255 as uint8, or 0 to 1 as floats",
        "remove blank images",
    ),
)
DUPLICATES = Rule(
    name="duplicates",
    title="The data contain many copies of the same images.",
    check=check_duplicates,
    consequence="Copies are negatives of each other: the loss separates equal images and cannot reach its minimum.",
    remedy=lambda evidence: advice(evidence, "remove them; `coulomb check DATA --json` lists exact copies by name"),
    explained_by=("images-blank",),
)
LEAK = Rule(
    name="evaluation-leak",
    title="Test images are among the training images.",
    check=check_leaks,
    consequence="The evaluation is too optimistic: for these images it measures memorization.",
    remedy=lambda evidence: advice(
        evidence,
        "remove them from the training data"
        + ("" if evidence.config.get("test") else ", or pass other held-out images (--test IMAGES)")
        + ", and train again",
    ),
    explained_by=("images-blank",),
)
SHORTCUT = Rule(
    name="shortcut",
    title="The encoder recognizes images by a narrow region along an edge.",
    check=check_shortcut,
    consequence="The views of an image are matched by the content of that region (a bar code, a time stamp, a frame): the "
    "loss falls, and the rest of the image is not learned.",
    remedy=lambda evidence: advice(
        evidence, "look at that region in views.png", "crop the images or paint over the region before training"
    ),
    explained_by=(*DATA, "complete-collapse", *RATES, "no-signal"),
)
AUGMENTATION_TOO_WEAK = Rule(
    name="augmentation-too-weak",
    title="The two views of an image are nearly the same picture.",
    check=check_weak_views,
    consequence="Pixels are enough to match them: the loss falls to its minimum although the encoder does not learn the "
    "content of images, and kNN accuracy does not improve.",
    remedy=_strengthen_views,
    explained_by=("images-blank",),
)
AUGMENTATION_TOO_STRONG = Rule(
    name="augmentation-too-strong",
    title="The two views of an image have nothing recognizable in common.",
    check=check_strong_views,
    consequence="Positives are as dissimilar as negatives, so that the loss has no signal to learn from.",
    remedy=_weaken_views,
    explained_by=(*DATA, "augmentation-too-weak", "complete-collapse", *RATES),
)
