"""The verdict on a run: a level, a sentence and what to try next, from the paired comparisons."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from coulomb.evaluation.comparison import VIEWS
from coulomb.models.tuning import FROZEN

LEARNED_WELL, LEARNED_SOMETHING = "learned_well", "learned_something"
NOTHING_MEASURABLE, WORSE_THAN_RAW_PIXELS = "nothing_measurable", "worse_than_raw_pixels"
ADAPTING_HELPED, ADAPTING_UNVERIFIED = "adapting_helped", "adapting_unverified"
USE_STARTING_POINT, ADAPTING_HURT = "use_starting_point", "adapting_hurt"
LEVELS = (
    LEARNED_WELL, LEARNED_SOMETHING, NOTHING_MEASURABLE, WORSE_THAN_RAW_PIXELS,
    ADAPTING_HELPED, ADAPTING_UNVERIFIED, USE_STARTING_POINT, ADAPTING_HURT,
)  # fmt: skip

# Share of the better baseline's errors that must be removed; most self-supervised runs of a few hours reach .25. Without
# labels more is expected, since view retrieval is close to the training objective.
WELL, WELL_VIEWS = 0.25, 0.5
SMALLEST = 0.02  # a smaller share of the baseline's errors is negligible, even if it is significant

START = "starting_point"  # the network with the weights that the run started from
NAMES = {START: "the published weights", "raw_pixels": "raw pixels", "untrained": "the untrained network"}
OWN_NAMES = NAMES | {START: "the starting weights"}  # of an earlier run or a local file
FAMILIES = {"knn": "kNN", "linear": "linear probe", "few_shot": "few-shot"}
SEVERAL = 2  # measurements that must agree if the average alone is not significant
WIDE = 0.05  # half the interval above which there are too few test images to see a useful difference
HELD_OUT = 0.4  # share of the images that may be held out to measure more precisely
LONG = 400  # epochs beyond which more rarely help
DETAILED = 64  # pixels per side below which larger images may help
SEEDS = "See how much of the difference is chance: train again with `--seeds 3`."
MEASURE = "Measure the encoder on other labeled images: `coulomb evaluate RUN --on OTHER`."
AHEAD, EVEN, BEHIND = "ahead", "even", "behind"

RULES = (
    "The encoder is compared with raw pixels and with the same network untrained, on the same test images and the same "
    "few-shot draws (paired bootstrap; 95% intervals that hold for all measurements at once, so that one chance result "
    "does not decide). The encoder is ahead of a baseline if it is significantly better on average over kNN, linear probe "
    "and few-shot, or better in at least two measurements and worse in none, and the average difference is at least "
    f"{SMALLEST:.0%} of the baseline’s errors; behind likewise. Without labels, what counts is how often an image’s other "
    f"view is found. “Learned well”: ahead of both baselines, at least {WELL:.0%} fewer errors than the better one "
    f"({WELL_VIEWS:.0%} without labels), better in most measurements and worse in none. “Learned something”: ahead of both. "
    "“Worse than raw pixels”: behind them. “Nothing measurable”: everything else. The intervals cover the choice of test "
    "images and of labels, not the randomness of training; several seeds show that. A run that starts from weights is "
    "compared with these weights, unchanged, in the same way, and that comparison decides: “use the weights as they are” "
    "unless it is ahead of them. Being ahead counts as help only with labels, because training optimizes view retrieval "
    "itself."
)


def verdict(
    comparison: Sequence[Mapping[str, Any]], options: Mapping[str, Any] | None = None, updates: int | None = None
) -> dict[str, Any] | None:
    """The verdict on a run.

    Args:
        comparison: one entry per baseline, as `compare` returns it; with ``"starting_point"``, if the run started from
            weights, that one decides.
        options: the run's options as in ``config.yaml``, so that no advice suggests a value that is already set.
        updates: number of updates of the training.

    Returns:
        ``{"level", "title", "sentence", "remarks", "next"}``. ``level`` is ``"learned_well"``, ``"learned_something"``,
        ``"nothing_measurable"`` or ``"worse_than_raw_pixels"``; of a run that started from weights also
        ``"adapting_helped"``, ``"adapting_unverified"`` (without labels), ``"use_starting_point"`` or
        ``"adapting_hurt"``. ``next`` lists what to try, with the options to set. None if nothing was compared.
    """
    options = options or {}
    compared = [entry for entry in comparison if entry["overall"] is not None]
    if not compared:
        return None
    level = decide_level(compared)
    views = compared[0]["overall"]["of"] == [VIEWS]
    names = NAMES if is_published(options) else OWN_NAMES
    return {
        "level": level,
        "title": headline(level, compared, views, names[START]),
        "sentence": summary_sentence(compared, views, names),
        "remarks": remarks(compared, views, names),
        "next": next_steps(level, deciding(compared)["overall"], options, updates),
    }


def is_published(options: Mapping[str, Any]) -> bool:
    """Returns False if the run started from an earlier run or a local file, True for published weights."""
    encoder = str(options.get("encoder"))
    local = encoder.endswith(".safetensors") or (":" not in encoder and bool({"/", "\\"} & set(encoder)))
    return not (local or encoder.startswith("run:"))


def decide_level(comparison: Sequence[Mapping[str, Any]]) -> str:
    """Returns the level; see ``RULES``."""
    sides = directions(comparison)
    if START in sides:
        return _level_of_adaptation(comparison, sides[START])
    if sides.get("raw_pixels") == BEHIND:
        return WORSE_THAN_RAW_PIXELS
    if any(side != AHEAD for side in sides.values()):
        return NOTHING_MEASURABLE
    return LEARNED_WELL if all(map(is_clear, comparison)) else LEARNED_SOMETHING


def _level_of_adaptation(comparison: Sequence[Mapping[str, Any]], side: str) -> str:
    """The level of a run from weights; ``side`` of the starting point. The other baselines must be beaten as well."""
    if side == BEHIND:
        return ADAPTING_HURT
    others = [entry for entry in comparison if entry["against"] != START]
    level = decide_level(others) if others else LEARNED_SOMETHING
    if level not in (LEARNED_WELL, LEARNED_SOMETHING):
        return level
    if side == EVEN:
        return USE_STARTING_POINT
    return ADAPTING_UNVERIFIED if comparison[0]["overall"]["of"] == [VIEWS] else ADAPTING_HELPED


def directions(comparison: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns baseline → ahead, even or behind."""
    return {entry["against"]: direction(entry) for entry in comparison}


def direction(entry: Mapping[str, Any]) -> str:
    """Returns ahead, even or behind; a difference counts if it is significant and not negligible."""
    overall = entry["overall"]
    better, worse = len(measurement_names(entry, "better")), len(measurement_names(entry, "worse"))
    if abs(overall["difference"]) < SMALLEST * (1 - overall["baseline"]):
        return EVEN
    if overall["difference"] > 0:
        return AHEAD if overall["outcome"] == "better" or (better >= SEVERAL and not worse) else EVEN
    return BEHIND if overall["outcome"] == "worse" or (worse >= SEVERAL and not better) else EVEN


def is_clear(entry: Mapping[str, Any]) -> bool:
    """True if one comparison is good enough for "learned well"."""
    overall = entry["overall"]
    better, worse = (measurement_names(entry, outcome) for outcome in ("better", "worse"))
    most = 2 * len(better) > len(measurement_names(entry)) and not worse
    return bool(most and overall["share"] >= (WELL_VIEWS if overall["of"] == [VIEWS] else WELL))


def measurement_names(entry: Mapping[str, Any], outcome: str | None = None) -> list[str]:
    """Returns the measurements that count, optionally of one outcome. View retrieval counts only without labels."""
    views = entry["overall"]["of"] == [VIEWS]
    rows = {name: row for name, row in entry["measurements"].items() if views or name != VIEWS}
    return [name for name, row in rows.items() if outcome in (None, row["outcome"])]


def deciding(comparison: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the comparison that decides the level: that with the starting point, unless another baseline is not beaten;
    else the worst, or if all are ahead, that with the better baseline.
    """
    if decide_level(comparison) in (ADAPTING_HELPED, ADAPTING_UNVERIFIED, USE_STARTING_POINT, ADAPTING_HURT):
        return next(entry for entry in comparison if entry["against"] == START)
    if all(direction(entry) == AHEAD for entry in comparison):
        return max(comparison, key=lambda entry: entry["overall"]["baseline"])
    return min(comparison, key=lambda entry: (BEHIND, EVEN, AHEAD).index(direction(entry)))


def headline(level: str, comparison: Sequence[Mapping[str, Any]], views: bool, weights: str) -> str:
    """Returns the title of the verdict; ``weights`` names the starting point."""
    if level == ADAPTING_HELPED:
        return f"Adapting {weights} helped"
    if level == ADAPTING_UNVERIFIED:
        return "It matches views better; whether that helps is unknown without labels"
    if level == USE_STARTING_POINT:
        return f"Use {weights} as they are"
    if level == ADAPTING_HURT:
        return f"Training made {weights} worse"
    if level == LEARNED_WELL:
        return "It learned to match views well" if views else "The encoder learned well"
    if level == LEARNED_SOMETHING:
        return "It learned to match views, to some extent" if views else "The encoder learned something"
    if level == WORSE_THAN_RAW_PIXELS:
        return "Worse than raw pixels at matching views" if views else "Worse than raw pixels"
    sides = directions(comparison)
    if sides.get("untrained") == BEHIND:
        return "Worse than the untrained network"
    if sides.get("untrained") == AHEAD and "raw_pixels" in sides:
        return "No better than raw pixels"
    if sides.get("raw_pixels") == AHEAD:
        return "No better than the untrained network"
    return "Nothing measurable was learned"


def summary_sentence(comparison: Sequence[Mapping[str, Any]], views: bool, names: Mapping[str, str] = NAMES) -> str:
    """Returns the figures behind the level in one or two sentences."""
    overall = comparison[0]["overall"]
    others = join_words([f"{names[entry['against']]} {entry['overall']['baseline']:.1%}" for entry in comparison])
    if views:
        what = f"The other view of an unseen image is the nearest of {overall['n']:,}"
        start = f"{what} in {overall['trained']:.1%} of cases, compared with {others}."
    else:
        of = join_words([FAMILIES.get(name, name) for name in overall["of"]])
        mean = "Averaged over " if len(overall["of"]) > 1 else "By "
        start = (
            f"{mean}{of}, {overall['trained']:.1%} of unseen images are classified correctly, compared with {others}."
        )
    return f"{start} {describe_gap(deciding(comparison), names)}"


def describe_gap(entry: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """Returns a sentence about the difference from a baseline, with its interval."""
    name, overall, side = names[entry["against"]], entry["overall"], direction(entry)
    share, n = overall["share"], f"{overall['n']:,}"
    points = f"{format_points(overall['difference'])} points, 95% interval {format_interval(overall)}"
    if side != EVEN and overall["outcome"] == "even":
        ahead, outcome = ("ahead of", "better") if side == AHEAD else ("behind", "worse")
        some = f"{len(measurement_names(entry, outcome))} of {len(measurement_names(entry))} measurements"
        return f"It is {ahead} {name} in {some}, the reverse in none; the average alone is within the noise ({points})."
    if side == AHEAD:
        return f"It makes {share:.0%} fewer errors than {name} ({points})."
    if side == BEHIND:
        return f"It is behind {name} ({points})."
    if share is None:
        makes = "make" if entry["against"] == START else "makes"
        return f"{name[0].upper()}{name[1:]} {makes} no error on these {n} images, so nothing more can be shown."
    if measurement_names(entry, "better") and measurement_names(entry, "worse"):
        return f"It is better than {name} in some measurements and worse in others ({points} on average)."
    if overall["outcome"] == "even":
        return f"The difference from {name} is within the noise of {n} test images ({points})."
    whose = "their" if entry["against"] == START else "its"
    return f"The difference from {name} is negligible: less than {SMALLEST:.0%} of {whose} errors ({points})."


def remarks(comparison: Sequence[Mapping[str, Any]], views: bool, names: Mapping[str, str] = NAMES) -> list[str]:
    """Returns sentences about single measurements and what the overall figure hides."""
    if views:
        shown = ["Without labels this shows that views of one image are recognized, not that classes are separated."]
        if directions(comparison).get(START) == AHEAD:
            shown.append("Training optimizes just that, and may push images of the same kind apart.")
        return shown
    sentences = [count_outcomes(entry, names) for entry in comparison]
    sides = directions(comparison)
    if sides.get("raw_pixels") == BEHIND and sides.get("untrained") == AHEAD:
        sentences.append(
            "Training improved on the untrained network, but raw pixels are still better than the features."
        )
    row = comparison[0]["measurements"].get(VIEWS)
    if row is not None and row["outcome"] == "better" and sides.get(comparison[0]["against"]) != AHEAD:
        sentences.append(
            f"It did learn to match views ({row['trained']:.1%}, {names[comparison[0]['against']]} "
            f"{row['baseline']:.1%}), but this does not help to separate classes."
        )
    return sentences


def count_outcomes(entry: Mapping[str, Any], names: Mapping[str, str] = NAMES) -> str:
    """'Compared with raw pixels: better in 3 of 5 measurements (…), worse in 0.'"""
    better, worse = (measurement_names(entry, outcome) for outcome in ("better", "worse"))
    named = [f" ({', '.join(map(measurement_label, names))})" if names else "" for names in (better, worse)]
    return (
        f"Compared with {names[entry['against']]}: significantly better in {len(better)} of {len(measurement_names(entry))} "
        f"measurements{named[0]}, worse in {len(worse)}{named[1]}."
    )


def measurement_label(name: str) -> str:
    """'few_shot_5' → '5 labels per class'."""
    if not name.startswith("few_shot_"):
        return FAMILIES.get(name, name)
    shots = name.removeprefix("few_shot_")
    return f"{shots} label{'' if shots == '1' else 's'} per class"


def format_interval(overall: Mapping[str, Any]) -> str:
    """'−1.2 to +1.4', in points."""
    return f"{format_points(overall['low'])} to {format_points(overall['high'])}"


def format_points(difference: float) -> str:
    """0.071 → '+7.1'."""
    return f"{100 * difference:+.1f}".replace("-", "−")


def join_words(words: Sequence[str]) -> str:
    """'a, b and c'."""
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


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
    if level in (LEARNED_WELL, ADAPTING_HELPED):
        return _confirm(overall)
    if level == ADAPTING_UNVERIFIED:
        return [MEASURE, _use(options)]
    if level == ADAPTING_HURT:
        return [_use(options), *_adapt_less(options)]
    steps = _setup_errors(options, updates)
    if level == USE_STARTING_POINT:
        steps = [_use(options), *(steps or _adapt(options, overall))]
    elif not steps:
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
