"""The verdict on a run: a level, a sentence and what to try next, from the paired comparisons."""

from collections.abc import Mapping, Sequence
from typing import Any

from coulomb.evaluation.comparison import START, VIEWS
from coulomb.evaluation.level import (
    AHEAD,
    BEHIND,
    COLLAPSED_RANK,
    EVEN,
    NO_SIGNAL_SHARE,
    SMALLEST,
    Level,
    decide_level,
    deciding,
    direction,
    directions,
    measurement_names,
)
from coulomb.evaluation.next_steps import CAUSE, next_steps
from coulomb.ground.reading import finite

NAMES = {START: "the published weights", "raw_pixels": "raw pixels", "untrained": "the untrained network"}
OWN_NAMES = NAMES | {START: "the starting weights"}  # of an earlier run or a local file
FAMILIES = {"knn": "kNN", "linear": "linear probe", "few_shot": "few-shot"}


def verdict(
    comparison: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
    updates: int | None = None,
    effective_rank: float | None = None,
) -> dict[str, Any] | None:
    """The verdict on a run.

    Args:
        comparison: one entry per baseline, as `compare` returns it; with ``"starting_point"``, if the run started from
            weights, that one decides.
        options: the run's options as in ``config.yaml``, so that no advice suggests a value that is already set.
        updates: number of updates of the training.
        effective_rank: effective rank of the features of held-out images; below 2, a run that is not ahead has collapsed.

    Returns:
        ``{"level", "title", "sentence", "remarks", "next"}``. ``level`` is ``"learned_well"``, ``"learned_something"``,
        ``"nothing_measurable"``, ``"worse_than_raw_pixels"`` or ``"collapsed"``; of a run that started from weights also
        ``"adapting_helped"``, ``"adapting_unverified"`` (without labels), ``"use_starting_point"`` or
        ``"adapting_hurt"``. ``next`` lists what to try, with the options to set. None if nothing was compared.

    >>> right, wrong = np.ones(50, bool), np.zeros(50, bool)
    >>> verdict([compare("raw_pixels", {"knn": right}, {"knn": wrong})])["level"]
    'learned_well'
    """
    options = options or {}
    compared = [entry for entry in comparison if entry["overall"] is not None]
    if not compared:
        return None
    level = decide_level(compared)
    views = compared[0]["overall"]["of"] == [VIEWS]
    names = NAMES if is_published(options) else OWN_NAMES
    sentence = summary_sentence(compared, views, names)
    if effective_rank is not None and effective_rank < COLLAPSED_RANK and level.tone != "good":
        return collapsed(effective_rank, [sentence])
    return {
        "level": level.value,
        "title": headline(level, compared, views, names[START]),
        "sentence": sentence,
        "remarks": remarks(compared, views, names),
        "next": next_steps(level, deciding(compared)["overall"], options, updates),
    }


def preliminary_verdict(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The verdict on a run that has no evaluation, in the form of `verdict`.

    Args:
        metrics: the lines of ``metrics.jsonl``. A value that is not a finite number counts as missing, or as a failure if
            it is the loss.

    Returns:
        The verdict, with the level ``"failed"``, ``"collapsed"``, ``"no_signal"`` or ``"pending"``.
    """
    training = [line for line in metrics if "loss" in line]
    failed = next((line for line in training if finite(line["loss"]) is None), None)
    if failed is not None:
        step = finite(failed.get("step"))
        where = "an unknown step" if step is None else f"step {step:,.0f}"
        return _plain(Level.FAILED, "Training failed", f"The loss was no longer a finite number at {where}.")
    rank = _last(metrics, "effective_rank")
    if rank is not None and rank[0] < COLLAPSED_RANK:
        return collapsed(rank[0])
    last = [line for line in training[-max(1, len(training) // 20) :] if finite(line.get("no_signal"))]
    if last:
        loss, constant = (sum(line[name] for line in last) / len(last) for name in ("loss", "no_signal"))
        if loss > NO_SIGNAL_SHARE * constant:
            sentence = f"The loss is {loss:.3g}; for constant embeddings it would be {constant:.3g}."
            return _plain(Level.NO_SIGNAL, "No signal so far", sentence)
    knn = _last(metrics, "knn")
    sentence = "This run folder has no evaluation, so there is no verdict."
    if knn is not None:
        sentence = f"The live kNN was {knn[0]:.1%} at epoch {knn[1]:g}."
    return _plain(Level.PENDING, "Not evaluated yet", sentence)


def collapsed(effective_rank: float, remarks: Sequence[str] = (), of: str = "images") -> dict[str, Any]:
    """Returns the verdict on a run whose features have an effective rank below 2; ``of``: what the rows are called."""
    sentence = (
        f"All {of} have nearly the same features: their effective rank is {effective_rank:.3g}, so fewer than two "
        "dimensions are in use."
    )
    return _plain(Level.COLLAPSED, "Collapsed", sentence) | {"remarks": list(remarks), "next": [CAUSE]}


def _plain(level: Level, title: str, sentence: str) -> dict[str, Any]:
    return {"level": level.value, "title": title, "sentence": sentence, "remarks": [], "next": []}


def _last(metrics: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float] | None:
    """Returns the last value of a metric and its epoch."""
    for line in reversed(metrics):
        value, epoch = finite(line.get(name)), finite(line.get("epoch"))
        if value is not None and epoch is not None:
            return value, epoch
    return None


def is_published(options: Mapping[str, Any]) -> bool:
    """Returns False if the run started from an earlier run or a local file, True for published weights."""
    encoder = str(options.get("encoder"))
    local = encoder.endswith(".safetensors") or (":" not in encoder and bool({"/", "\\"} & set(encoder)))
    return not (local or encoder.startswith("run:"))


def headline(level: Level, comparison: Sequence[Mapping[str, Any]], views: bool, weights: str) -> str:
    """Returns the title of the verdict; ``weights`` names the starting point."""
    if level == Level.ADAPTING_HELPED:
        return f"Adapting {weights} helped"
    if level == Level.ADAPTING_UNVERIFIED:
        return "It matches views better; whether that helps is unknown without labels"
    if level == Level.USE_STARTING_POINT:
        return f"Use {weights} as they are"
    if level == Level.ADAPTING_HURT:
        return f"Training made {weights} worse"
    if level == Level.LEARNED_WELL:
        return "It learned to match views well" if views else "The encoder learned well"
    if level == Level.LEARNED_SOMETHING:
        return "It learned to match views, to some extent" if views else "The encoder learned something"
    if level == Level.WORSE_THAN_RAW_PIXELS:
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


def describe_distance(entry: Mapping[str, Any], names: Mapping[str, str], of: str) -> str:
    """Returns a sentence about the difference from a baseline, of figures whose best value is 1, with its interval.

    ``of``: what the noise is of, such as "200 held-out rows".
    """
    name, overall, side = names[entry["against"]], entry["overall"], direction(entry)
    points = f"{format_points(overall['difference'])} points, 95% interval {format_interval(overall)}"
    if side == AHEAD:
        return f"It is ahead of {name} ({points})."
    if side == BEHIND:
        return f"It is behind {name} ({points})."
    if overall["outcome"] == "even":
        return f"The difference from {name} is within the noise of {of} ({points})."
    return f"The difference from {name} is negligible: less than {SMALLEST:.0%} of its distance from 1 ({points})."


def count_significant(entry: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """'Compared with BM25: significantly better in 3 of 5 measurements, worse in 0.'"""
    better, worse = (len(measurement_names(entry, outcome)) for outcome in ("better", "worse"))
    return (
        f"Compared with {names[entry['against']]}: significantly better in {better} of {len(measurement_names(entry))} "
        f"measurements, worse in {worse}."
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
