"""Augmentation: views so alike that there is nothing to learn, or so different that nothing can be."""

from dataclasses import asdict
from typing import Any

from coulomb.data.views.presets import PRESETS
from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.remedy import Option, advice
from coulomb.doctor.rule import SICK, Figure, Judgement, Rule, judged, unknown

TRIVIAL = 0.9  # share of views that raw pixels match to their partner: the task is solved before training
EQUAL = 0.5  # share of images whose two views are the same picture
SAME = 1e-6  # distance from 1 of the mean cosine of two views at the first update, when they are one picture
APART = 0.75  # chance that two views of an image are nearer than two images; .5 is a coin
COIN = 0.65  # the same for a linear map fitted to match views: nothing is left in them that could be learned
STRENGTHS = ("affine", "elastic", "jitter", "grey", "blur", "noise", "cutout", "flip")


def too_weak(evidence: Evidence) -> Judgement:
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


def too_strong(evidence: Evidence) -> Judgement:
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
TOO_WEAK = Rule(
    name="augmentation-too-weak",
    title="The two views of an image are nearly the same picture.",
    judge=too_weak,
    consequence="Pixels suffice to match them: the loss falls to its floor without the encoder learning what is in an "
    "image, and kNN stays where it was before training.",
    remedy=_stronger,
    explained_by=("images-blank",),
)
TOO_STRONG = Rule(
    name="augmentation-too-strong",
    title="The two views of an image have nothing recognisable in common.",
    judge=too_strong,
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
