"""Rules about images and augmentation: blank images, copies, weak or strong views, shortcuts."""

from dataclasses import asdict
from typing import Any

from coulomb.data.views.spec import PRESETS
from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.rule import SICK, WARNING, Figure, Judgement, Option, Rule, advice, judged, unknown

TRIVIAL = 0.9  # share of views that raw pixels match to their partner: the task is solved before training
EQUAL = 0.5  # share of images whose two views are the same picture
SAME = 1e-6  # distance from 1 of the mean cosine of two views at the first update, when they are one picture
APART = 0.75  # chance that two views of an image are nearer than two images; .5 is a coin
COIN = 0.65  # the same for a linear map fitted to match views: nothing is left in them that could be learned
STRENGTHS = ("affine", "elastic", "jitter", "grey", "blur", "noise", "cutout", "flip")


def check_weak_views(evidence: Evidence) -> Judgement:
    """Whether the views are the same picture, or the pixels themselves already tell which views belong together."""
    if evidence.traits.labels:
        return unknown(f"{evidence.method} learns from labels: its views may be weak")
    figures, cosine = [], evidence.first("train_positive_similarity")
    equal = evidence.network.get("identical_views")
    if equal is not None:
        figures.append(Figure("share of held-out images whose two views are identical", equal, EQUAL, "above"))
    if cosine is not None:
        what = "mean cosine of two views at the first update"
        figures.append(Figure(what, cosine[0], 1 - SAME, "above", cosine[1]))
    found = evidence.evaluated("raw_pixels", "view_retrieval")
    found = evidence.network.get("pixel_retrieval") if found is None else found
    if any(figure.crossed for figure in figures):
        crossed = [figure for figure in figures if figure.crossed]
        return Judgement(SICK, "the two views are the same picture", tuple(crossed), title=IDENTICAL)
    if found is None:
        return unknown("the views were not matched by raw pixels")
    return judged(Figure("share of held-out views that raw pixels match to their partner", found, TRIVIAL, "above"))


def check_strong_views(evidence: Evidence) -> Judgement:
    """Whether held-out views of an image are nearer than views of two images, after training and by a linear matcher."""
    separation = evidence.last("separation") or _probed(evidence)
    if separation is None:
        return unknown("the separation of held-out views was not measured")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    figure = Figure("P(views of one image nearer than of two)", separation[0], APART, "below", separation[1])
    matched = evidence.network.get("matcher_separation")
    if not figure.crossed:
        return judged(figure)
    if matched is None:  # a network that learned nothing separates no views either
        return unknown("whether the views can be matched at all was not measured")
    return judged(figure, Figure("the same by a linear map fitted to match views", matched, COIN, "below"))


def _probed(evidence: Evidence) -> tuple[float, int | None] | None:
    """The separation that the trained network was found to have, where no line tells it."""
    found = evidence.network.get("separation")
    return None if found is None else (found, None)


def _preset(evidence: Evidence) -> dict[str, Any] | None:
    """The strengths of the run's preset; None for views of the user's own."""
    name = evidence.config.get("views")
    return asdict(PRESETS[name]()) if name in PRESETS else None


def _changed(evidence: Evidence) -> list[Option]:
    """Options that take changed strengths of the views back to their preset."""
    usual, given = _preset(evidence) or {}, evidence.config.get("view_options") or {}
    return [Option(f"view {name}", usual[name]) for name in given if name in usual]


def _stronger(evidence: Evidence) -> str:
    usual = _preset(evidence)
    if usual is None:
        return advice(evidence, "make your views function change the image differently at every call")
    changed = [option for option in _changed(evidence) if not option.is_set(evidence)]
    if changed:
        return advice(evidence, (f"take the views back to those of the preset {evidence.config['views']}", *changed))
    weakest = [name for name in STRENGTHS if usual[name] < 0.5 and name not in ("flip", "grey")]
    return advice(
        evidence,
        ("crop smaller parts", Option("view crop_area", (0.08, 1.0))),
        (f"add {weakest[-1]}", Option(f"view {weakest[-1]}", 0.5)) if weakest else None,
        "check that the method receives two different views (views[0] and views[1])",
    )


def _weaker(evidence: Evidence) -> str:
    usual = _preset(evidence)
    if usual is None:
        return advice(evidence, "weaken your views function until you could match the rows of views.png yourself")
    changed = [option for option in _changed(evidence) if not option.is_set(evidence)]
    if changed:
        return advice(evidence, (f"take the views back to those of the preset {evidence.config['views']}", *changed))
    return advice(
        evidence,
        ("crop larger parts", Option("view crop_area", (0.5, 1.0))) if usual["crop_area"][0] < 0.5 else None,
        *((f"halve {name}", Option(f"view {name}", usual[name] / 2)) for name in ("jitter", "noise") if usual[name]),
        "until you could match the rows of views.png yourself",
    )


IDENTICAL = "The two views of an image are the same picture."
AUGMENTATION_TOO_WEAK = Rule(
    name="augmentation-too-weak",
    title="The two views of an image are nearly the same picture.",
    judge=check_weak_views,
    consequence="Pixels suffice to match them: the loss falls to its floor without the encoder learning what is in an "
    "image, and kNN stays where it was before training.",
    remedy=_stronger,
    explained_by=("images-blank",),
)
AUGMENTATION_TOO_STRONG = Rule(
    name="augmentation-too-strong",
    title="The two views of an image have nothing recognisable in common.",
    judge=check_strong_views,
    consequence="Positives are as far apart as negatives, so there is nothing to learn from; what is in the image is lost.",
    remedy=_weaker,
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "augmentation-too-weak",
        "complete-collapse",
        "learning-rate-too-high",
        "learning-rate-too-low",
    ),
)


BLANK_MOST = 0.5  # share of blank training images above which the run is about nothing else
BLANK_SOME = 0.05  # share that deserves a warning


def check_blank(evidence: Evidence) -> Judgement:
    """The share of training images of a single colour."""
    found = evidence.data.get("copies") or {}
    if not found.get("images") or "blank" not in found:
        return unknown("the images were not looked at")
    share = Figure("share of training images of a single colour", found["blank"] / found["images"], BLANK_MOST, "above")
    if share.value > BLANK_SOME and not share.crossed:
        return Judgement(
            WARNING, f"{found['blank']} of {found['images']} training images are of a single colour", (share,)
        )
    return judged(share)


BLANK = Rule(
    name="images-blank",
    title="The training images are blank.",
    judge=check_blank,
    consequence="There is nothing to tell the images apart by, and every other measurement of the run follows from that.",
    remedy=lambda evidence: advice(
        evidence,
        "look at views.png and at the files",
        "check the range of the values: arrays hold 0 to 255 as uint8, or 0 to 1 as floats",
        "remove blank images",
    ),
)


REPEATED = 0.05  # share of training images that are copies of others
LEAKED = 0.01  # share of test images that were trained on: by as much accuracy may be flattered


def check_duplicates(evidence: Evidence) -> Judgement:
    """The share of copies among the training images."""
    found = evidence.data.get("copies")
    if not found or not found["images"]:
        return unknown("the images were not compared")
    share = (found["exact"] + found["near"]) / found["images"]
    return judged(Figure("share of training images that are copies of others", share, REPEATED, "above"))


def check_leaks(evidence: Evidence) -> Judgement:
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
    judge=check_duplicates,
    consequence="Copies meet as negatives: the loss pulls apart what is the same, and cannot reach its floor.",
    remedy=lambda evidence: advice(evidence, "remove them; `coulomb check DATA --json` lists exact copies by name"),
    explained_by=("images-blank",),
)
LEAK = Rule(
    name="evaluation-leak",
    title="Test images are among the training images.",
    judge=check_leaks,
    consequence="The evaluation is flattered: for these images it asks whether they are remembered.",
    remedy=lambda evidence: advice(
        evidence,
        "remove them from the training data"
        + ("" if evidence.config.get("test") else ", or give held-out images of your own (--test IMAGES)")
        + ", and train again",
    ),
    explained_by=("images-blank",),
)


DECIDES = 0.6  # share of images that are taken for the donor of a strip, a quarter of the image; healthy runs: 0 to .46


def check_shortcut(evidence: Evidence) -> Judgement:
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
    judge=check_shortcut,
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
