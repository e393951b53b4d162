"""What to try after a verdict."""

import shlex
from collections.abc import Mapping
from typing import Any

from coulomb.evaluation.comparison import VIEWS
from coulomb.evaluation.level import Level
from coulomb.models.tuning import FROZEN

WIDE = 0.05  # half the interval above which there are too few test images to see a useful difference
HELD_OUT = 0.4  # share of the images that may be held out to measure more precisely
LONG = 400  # epochs beyond which more rarely help
DETAILED = 64  # pixels per side below which larger images may help
SEEDS = "See how much of the difference is chance: train again with `--seeds 3`."
MEASURE = "Measure the encoder on other labeled images: `coulomb evaluate RUN --on OTHER`."
CAUSE = "Look for the cause: `coulomb doctor RUN`."


def next_steps(
    level: str, overall: Mapping[str, Any], options: Mapping[str, Any], updates: int | None = None
) -> list[str]:
    """Returns at most three steps to try after a verdict of this level, the most promising first.

    Args:
        level: the level of the verdict.
        overall: the deciding comparison.
        options: the run's options; no step suggests a value that is already set.
        updates: number of updates of the training.
    """
    if level in (Level.LEARNED_WELL, Level.ADAPTING_HELPED):
        return _confirm(overall)
    if level == Level.ADAPTING_UNVERIFIED:
        return [MEASURE, _use(options)]
    if level == Level.ADAPTING_HURT:
        return [_use(options), *_adapt_less(options)]
    steps = _setup_errors(options, updates)
    if level == Level.USE_STARTING_POINT:
        steps = [_use(options), *(steps or _adapt(options, overall))]
    elif not steps:
        if level == Level.NOTHING_MEASURABLE:
            steps = _precision(overall, options)
        if level != Level.LEARNED_SOMETHING:
            steps.append(CAUSE)
        steps += _longer(options, updates)
        steps += _views(options) if level == Level.WORSE_THAN_RAW_PIXELS else []
        steps += _capacity(options)
        steps += [SEEDS] if level == Level.LEARNED_SOMETHING else []
    return steps[:3]


def _confirm(overall: Mapping[str, Any]) -> list[str]:
    steps = [SEEDS, MEASURE]
    if overall["of"] != [VIEWS]:
        steps.append("Fine-tune it with 1%, 10% and all of the labels: `coulomb evaluate RUN --full`.")
    return steps


def _use(options: Mapping[str, Any]) -> str:
    data, size = str(options.get("data") or "PHOTOS"), options.get("image_size")
    command = ["coulomb", "embed", str(options.get("encoder") or "ENCODER"), "PHOTOS" if data.startswith("<") else data]
    command += ["--image-size", str(size)] if isinstance(size, int) else []
    return f"Use the weights as they are: `{shlex.join(command)} --out features.parquet`."


def _adapt(options: Mapping[str, Any], overall: Mapping[str, Any]) -> list[str]:
    steps = [] if options.get("tune") == "whiten" else ["Try whitened features, in seconds: `--tune whiten`."]
    return steps + _precision(overall, options)


def _adapt_less(options: Mapping[str, Any]) -> list[str]:
    epochs, lr, tune = options.get("epochs"), options.get("lr"), str(options.get("tune"))
    close = [] if tune in FROZEN or options.get("stay_close") else ["`--stay-close 1`"]
    close += [] if tune in FROZEN or tune.startswith(("lora", "norm")) else ["`--tune lora:8`"]
    less = [f"`--epochs {epochs // 4}` (this run: {epochs})"] if isinstance(epochs, int) and epochs >= 4 else []
    less += [f"`--lr {lr / 10:.2g}` (this run: {lr:g})"] if isinstance(lr, int | float) and lr > 0 else []
    steps = {"Keep the network close to its start": close, "Train less": less}
    return [f"{what}: {' or '.join(how)}." for what, how in steps.items() if how]


def _setup_errors(options: Mapping[str, Any], updates: int | None) -> list[str]:
    if options.get("tune") != "whiten" and (updates == 0 or options.get("epochs") == 0):
        return ["No update was made: train with `--epochs 100`."]
    if options.get("lr") == 0:
        return ["No weight changed, because lr is 0: leave out `--lr`, so that the recipe chooses it."]
    return []


def _precision(overall: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    half = (overall["high"] - overall["low"]) / 2
    if half <= WIDE:
        return []
    more = "pass more of them with `--test`"
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
    views, changed = str(options.get("views")), options.get("view_options") or {}
    if "crop_area" not in changed and views in ("natural", "small-natural", "single-channel"):
        return ["Crop less, if objects are small or off-center: `--view crop_area=[0.5,1]`."]
    if "cutout" not in changed and views in ("digits", "documents"):
        return ["Use weaker augmentation: `--view cutout=0`."]
    return []


def _capacity(options: Mapping[str, Any]) -> list[str]:
    size, width, steps = options.get("image_size"), options.get("encoder_width"), []
    if isinstance(size, int) and size < DETAILED and options.get("data") != "digits":
        steps.append(f"If the images are larger, keep more detail: `--image-size {2 * size}` (this run: {size}).")
    if isinstance(width, int):
        steps.append(f"Use a larger encoder: `--encoder-width {2 * width}` (this run: {width}).")
    return steps
