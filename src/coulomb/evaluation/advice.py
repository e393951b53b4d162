"""What to try next after an evaluation, each step with the option to set."""

from collections.abc import Mapping
from typing import Any

from coulomb.evaluation.comparison import VIEWS

WIDE = 0.05  # half the interval: with fewer test images than that takes, a useful difference would go unseen
HELD_OUT = 0.4  # share of the images that may well be held out to measure more precisely
LONG = 400  # epochs after which more of them rarely help
SEEDS = "See how much of the difference is chance: train again with `--seeds 3`."
DETAILED = 64  # pixels per side


def next_steps(
    level: str, overall: Mapping[str, Any], options: Mapping[str, Any], updates: int | None = None
) -> list[str]:
    """At most three steps for a level of `coulomb.evaluation.verdict`, the most promising first.

    Args:
        level: the level of the verdict.
        overall: the comparison that decided.
        options: the run's options; a step never names a value that is set already.
        updates: updates that were made.
    """
    if level == "learned_well":
        return _confirm(overall)
    steps = _mistakes(options, updates)
    if not steps:
        if level == "nothing_measurable":
            steps = _precision(overall, options)
        if level != "learned_something":
            steps.append("Look for the cause: `coulomb doctor RUN`.")
        steps += _longer(options, updates)
        steps += _views(options) if level == "worse_than_raw_pixels" else []
        steps += _capacity(options)
        steps += [SEEDS] if level == "learned_something" else []
    return steps[:3]


def _confirm(overall: Mapping[str, Any]) -> list[str]:
    steps = [
        SEEDS,
        "Measure the encoder on other labelled images: `coulomb evaluate RUN --on OTHER`.",
    ]
    if overall["of"] != [VIEWS]:
        steps.append("Fine-tune it with 1%, 10% and all of the labels: `coulomb evaluate RUN --full`.")
    return steps


def _mistakes(options: Mapping[str, Any], updates: int | None) -> list[str]:
    if updates == 0 or options.get("epochs") == 0:
        return ["No update was made: train with `--epochs 100`."]
    if options.get("lr") == 0:
        return ["No weight moved, because lr is 0: leave out `--lr`, so that the recipe chooses it."]
    return []


def _precision(overall: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    half = (overall["high"] - overall["low"]) / 2
    if half <= WIDE:
        return []
    more = "give more of them with `--test`"
    if options.get("test") is None and (options.get("test_fraction") or 0) < HELD_OUT:
        more = f"hold out more with `--test-fraction {HELD_OUT}`"
    return [
        f"Measure more precisely: {overall['n']:,} test images cannot show a difference below {100 * half:.0f} points; {more}."
    ]


def _longer(options: Mapping[str, Any], updates: int | None) -> list[str]:
    epochs, batch = options.get("epochs"), options.get("batch_size")
    steps = []
    if isinstance(epochs, int) and 0 < epochs < LONG:
        made = "" if updates is None else f", {updates:,} update{'' if updates == 1 else 's'}"
        steps.append(f"Train longer: `--epochs {max(100, min(LONG, 4 * epochs))}` (this run: {epochs}{made}).")
    if epochs and updates and updates / epochs < 10 and isinstance(batch, int) and batch > 64:
        steps.append(f"Make more updates per epoch: `--batch-size {max(64, batch // 4)}` (this run: {batch}).")
    return steps


def _views(options: Mapping[str, Any]) -> list[str]:
    views, own = str(options.get("views")), options.get("view_options") or {}
    if "crop_area" not in own and views in ("natural", "small-natural", "single-channel"):
        return ["Crop less, if objects are small or off-centre: `--view crop_area=[0.5,1]`."]
    if "cutout" not in own and views in ("digits", "documents"):
        return ["Use weaker augmentation: `--view cutout=0`."]
    return []


def _capacity(options: Mapping[str, Any]) -> list[str]:
    size, width, steps = options.get("image_size"), options.get("encoder_width"), []
    if isinstance(size, int) and size < DETAILED and options.get("data") != "digits":
        steps.append(f"If the images are larger, keep more detail: `--image-size {2 * size}` (this run: {size}).")
    if isinstance(width, int):
        steps.append(f"Use a larger encoder: `--encoder-width {2 * width}` (this run: {width}).")
    return steps
