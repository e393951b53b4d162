"""`coulomb lab augmentations`: drop one at a time."""

from dataclasses import asdict
from typing import Any

from coulomb.data.views import PRESETS, ViewSpec
from coulomb.data.views.spec import PROBABILITIES
from coulomb.lab.arms import Arm, Settings
from coulomb.lab.claims import HEADLINES, Claim, Rows, at_least, doubt, told, value
from coulomb.lab.experiment import Experiment
from coulomb.pages.numbers import signed

CHEN = "SimCLR, ImageNet: crops with colour distortion count most, no single one suffices (Chen et al., 2020, fig. 5)"
OWN = "this project's log for digits: without changes of brightness an encoder learns how bright images are"


def preset_of(settings: Settings) -> str:
    """The views that the runs are of: those asked for, or the recipe's for digits and for small photographs."""
    return str(settings.options.get("views", "digits" if settings.digits else "small-natural"))


def dropped(spec: ViewSpec) -> dict[str, dict[str, Any]]:
    """What can be left out of the views → the options that leave it out."""
    found: dict[str, dict[str, Any]] = {}
    if tuple(spec.crop_area) != (1.0, 1.0):
        found["crop"] = {"crop_area": [1.0, 1.0], "crop_ratio": [1.0, 1.0]}
    return found | {name: {name: 0.0} for name in PROBABILITIES if getattr(spec, name) > 0}


def arms(settings: Settings) -> list[Arm]:
    """All of them, each but one, none."""
    preset = preset_of(settings)
    parts = dropped(PRESETS[preset]())
    shared = {"method": "simclr", "views": preset}
    nothing = {name: value for options in parts.values() for name, value in options.items()}
    made = [Arm("all", shared, 10)]
    made += [Arm(f"no-{name}", shared | {"view_options": options}, 10) for name, options in parts.items()]
    return [*made, Arm("none", shared | {"view_options": nothing}, 10)]


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Which augmentation is missed most."""
    key = settings.headline
    parts = list(dropped(PRESETS[preset_of(settings)]()))
    missed, source = ("affine", OWN) if settings.digits else ("crop", CHEN)
    claims = [
        at_least(rows, "all", "none", key, 0.01, "Without augmentations contrast has little to teach.", CHEN),
        _worst(rows, parts, key, "Changes of brightness and colour are missed most.", "jitter", source),
        at_least(rows, "all", f"no-{missed}", key, 0.0, f"Geometry ({missed}) is needed.", CHEN),
        _all_needed(rows, parts, key),
    ]  # fmt: skip
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [],
        "tables": [_losses(rows, parts, key)] if value(rows, "all", key) is not None else [],
        "notes": ["Alignment is of views made as in training: with weaker views it is lower for that alone."],
    }


def _drop(rows: Rows, part: str, key: str) -> float | None:
    whole, without = value(rows, "all", key), value(rows, f"no-{part}", key)
    return None if whole is None or without is None else whole - without


def _worst(rows: Rows, parts: list[str], key: str, claim: str, expected: str, published: str) -> Claim:
    drops = {part: drop for part in parts if (drop := _drop(rows, part, key)) is not None}
    if expected not in drops or len(drops) < len(parts):
        return Claim(claim, published, "not measured", None)
    worst = max(drops, key=lambda part: drops[part])
    rival = max(set(drops) - {worst}, key=lambda part: drops[part])
    text = ", ".join(
        f"{signed(-100 * drops[part])} points without {part}" for part in dict.fromkeys((worst, rival, expected))
    )
    against = rival if worst == expected else expected
    doubtful = doubt(rows, f"no-{worst}", f"no-{against}", key, drops[worst] - drops[against])
    return Claim(claim, published, text + doubtful, worst == expected, bool(doubtful))


def _all_needed(rows: Rows, parts: list[str], key: str) -> Claim:
    claim = "Each of them helps: leaving any out costs accuracy."
    drops = {part: drop for part in parts if (drop := _drop(rows, part, key)) is not None}
    if not drops or len(drops) < len(parts):
        return Claim(claim, CHEN, "not measured", None)
    idle = {part: drop for part, drop in drops.items() if drop <= 0}
    text = ", ".join(f"{part} ({signed(-100 * drop)} points without it)" for part, drop in idle.items())
    unsure = [bool(doubt(rows, "all", f"no-{part}", key, drop)) for part, drop in (idle or drops).items()]
    chance = all(unsure) if idle else any(unsure)
    return Claim(claim, CHEN, f"not missed: {text}" if idle else "all are missed", not idle, chance)


def _losses(rows: Rows, parts: list[str], key: str) -> dict[str, Any]:
    drops = {part: drop for part in parts if (drop := _drop(rows, part, key)) is not None}
    order = sorted(drops, key=lambda part: -drops[part])
    lines = [[part, told(rows, f"no-{part}", key), signed(-100 * drops[part])] for part in order]
    return {"title": "What each is worth", "lead": "", "head": ["left out", "accuracy", "points"], "rows": lines}


AUGMENTATIONS = Experiment(
    name="augmentations",
    title="Augmentations, one left out at a time",
    question="Which changes to an image does contrast learn from?",
    arms=arms,
    judge=judge,
    columns=(
        *HEADLINES,
        ("alignment", "alignment", "figure"),
        ("uniformity", "uniformity", "figure"),
        ("loss", "last loss", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
