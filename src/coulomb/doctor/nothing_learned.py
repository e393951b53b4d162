"""Nothing learned: the evaluation cannot tell the trained encoder from its baselines."""

from typing import Any

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import Option, advice
from coulomb.doctor.rule import SICK, WARNING, WELL, Judgement, Rule, unknown

STATES = {
    "learned_well": WELL,
    "learned_something": WELL,
    "worse_than_raw_pixels": WARNING,
    "nothing_measurable": SICK,
}
TITLES = {"worse_than_raw_pixels": "Raw pixels do better than the encoder's features."}


def judge(evidence: Evidence) -> Judgement:
    """The level of ``evaluation.json``'s verdict, by all of its measurements."""
    if evidence.evaluation is None:
        return unknown("the run was not evaluated; run coulomb evaluate")
    level = _verdict(evidence).get("level")
    if level not in STATES:
        return unknown("evaluation.json holds no verdict; run coulomb evaluate again")
    return Judgement(STATES[level], f"the evaluation says: {level.replace('_', ' ')}", title=TITLES.get(level))


def _verdict(evidence: Evidence) -> dict[str, Any]:
    found = (evidence.evaluation or {}).get("verdict")
    return found if isinstance(found, dict) else {}


def _next(evidence: Evidence) -> str:
    steps = _verdict(evidence).get("next")
    if isinstance(steps, list) and (left := [str(step) for step in steps if "coulomb doctor" not in str(step)]):
        return " ".join(left)
    longer = Option("epochs", 4 * int(evidence.config.get("epochs") or 1))
    return advice(evidence, ("train longer", longer), "look at views.png")


NOTHING_LEARNED = Rule(
    name="nothing-learned",
    title="No measurement shows that the encoder learned anything.",
    judge=judge,
    consequence="The features are no better than those of the same encoder before training, or than raw pixels.",
    remedy=_next,
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "learning-rate-too-high",
        "learning-rate-too-low",
        "complete-collapse",
        "dimensional-collapse",
        "no-signal",
        "augmentation-too-weak",
        "augmentation-too-strong",
        "temperature-too-low",
        "temperature-too-high",
        "head-not-normalised",
        "momentum-wrong",
        "queue-stale",
        "batch-too-small",
        "shortcut",
    ),
)
