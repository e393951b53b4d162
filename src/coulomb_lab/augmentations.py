"""`coulomb lab augmentations`: leave out one augmentation at a time."""

from typing import Any

from coulomb.kinds.image.views import PRESETS, ViewSpec
from coulomb.kinds.image.views.spec import PROBABILITIES
from coulomb.report.pages.numbers import signed
from coulomb_lab.arms import Arm, Settings
from coulomb_lab.claims import (
    ACCURACIES,
    NOT_MEASURED,
    TRAINING,
    Claim,
    Rows,
    at_least,
    chance_note,
    format_value,
    read_value,
    summary,
)
from coulomb_lab.experiment import Experiment

CHEN = "SimCLR, ImageNet: crops with color distortion matter most, none suffices alone (Chen et al., 2020, fig. 5)"
NOTE = "Alignment is measured with the views of each run: weaker views alone lower it."
MEASURED_HERE = "this project, digits: without changes of brightness an encoder learns the brightness of images"


def view_preset(settings: Settings) -> str:
    """Returns the preset of the views: the user's choice, or the recipe's for digits or small photos."""
    return str(settings.options.get("views", "digits" if settings.digits else "small-natural"))


def removable_augmentations(spec: ViewSpec) -> dict[str, dict[str, Any]]:
    """Returns the augmentations of a preset with the options that turn each of them off."""
    parts: dict[str, dict[str, Any]] = {}
    if tuple(spec.crop_area) != (1.0, 1.0):
        parts["crop"] = {"crop_area": [1.0, 1.0], "crop_ratio": [1.0, 1.0]}
    return parts | {name: {name: 0.0} for name in PROBABILITIES if getattr(spec, name) > 0}


def augmentation_arms(settings: Settings) -> list[Arm]:
    """Returns runs with all augmentations, with all but one, and with none."""
    preset = view_preset(settings)
    parts = removable_augmentations(PRESETS[preset]())
    shared = {"method": "simclr", "views": preset}
    nothing = {name: value for options in parts.values() for name, value in options.items()}
    without: dict[str, dict[str, Any]] = (
        {"all": {}} | {f"no-{name}": options for name, options in parts.items()} | {"none": nothing}
    )
    return [Arm(name, shared | ({"view_options": options} if options else {}), 10) for name, options in without.items()]


def summarize_augmentations(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Ranks the augmentations by the accuracy that is lost without them."""
    key = settings.headline
    parts = list(removable_augmentations(PRESETS[view_preset(settings)]()))
    drops = {
        part: whole - without
        for part in parts
        if (whole := read_value(rows, "all", key)) is not None
        and (without := read_value(rows, f"no-{part}", key)) is not None
    }
    geometry, source = ("affine", MEASURED_HERE) if settings.digits else ("crop", CHEN)
    claims = [
        at_least(rows, "all", "none", key, 0.01, "Contrastive learning needs augmentations.", CHEN),
        _largest_claim(rows, parts, drops, key, "jitter", source),
        at_least(rows, "all", f"no-{geometry}", key, 0.0, f"Geometric augmentations ({geometry}) are needed.", CHEN),
        _all_needed_claim(rows, parts, drops, key),
    ]
    order = sorted(drops, key=lambda part: -drops[part])
    lines = [[part, format_value(rows, f"no-{part}", key), signed(-100 * drops[part])] for part in order]
    effects = {
        "title": "Effect of each augmentation",
        "lead": "",
        "head": ["left out", "accuracy", "points"],
        "rows": lines,
    }
    return summary(claims, notes=[NOTE], tables=[effects] if drops else [])


def _largest_claim(
    rows: Rows, parts: list[str], drops: dict[str, float], key: str, expected: str, published: str
) -> Claim:
    claim = "Changes of brightness and color matter most."
    if expected not in drops or len(drops) < len(parts):
        return Claim(claim, published, NOT_MEASURED, None)
    worst = max(drops, key=lambda part: drops[part])
    rival = max(set(drops) - {worst}, key=lambda part: drops[part])
    named = dict.fromkeys((worst, rival, expected))
    text = ", ".join(f"{signed(-100 * drops[part])} points without {part}" for part in named)
    against = rival if worst == expected else expected
    note = chance_note(rows, f"no-{worst}", f"no-{against}", key, drops[worst] - drops[against])
    return Claim(claim, published, text + note, worst == expected, bool(note))


def _all_needed_claim(rows: Rows, parts: list[str], drops: dict[str, float], key: str) -> Claim:
    claim = "Every augmentation helps: leaving out any of them costs accuracy."
    if not drops or len(drops) < len(parts):
        return Claim(claim, CHEN, NOT_MEASURED, None)
    idle = {part: drop for part, drop in drops.items() if drop <= 0}
    listed = ", ".join(f"{part} ({signed(-100 * drop)} points without it)" for part, drop in idle.items())
    unsure = [bool(chance_note(rows, "all", f"no-{part}", key, drop)) for part, drop in (idle or drops).items()]
    text = f"no loss of accuracy without: {listed}" if idle else "each costs accuracy"
    return Claim(claim, CHEN, text, not idle, all(unsure) if idle else any(unsure))


AUGMENTATIONS = Experiment(
    name="augmentations",
    title="Augmentations, one left out at a time",
    question="Which augmentations does contrastive learning need?",
    arms=augmentation_arms,
    summarize=summarize_augmentations,
    columns=(
        *ACCURACIES,
        ("alignment", "alignment", "figure"),
        ("uniformity", "uniformity", "figure"),
        ("loss", "last loss", "figure"),
        *TRAINING,
    ),
)
