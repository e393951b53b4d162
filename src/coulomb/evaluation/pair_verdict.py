"""The verdict on a run on pairs: whether its towers find more than untouched towers, BM25 and chance do."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from coulomb.evaluation.comparison import START
from coulomb.evaluation.level import (
    AHEAD,
    BEHIND,
    COLLAPSED_RANK,
    EVEN,
    SMALLEST,
    WELL,
    Level,
    decide_level,
    direction,
    worst,
)
from coulomb.evaluation.next_steps import CAUSE, SEEDS
from coulomb.evaluation.verdict import collapsed, count_significant, describe_distance, join_words

LINEAR_MAP, UNTRAINED, BM25, CHANCE = "linear_map", "untrained", "bm25", "chance"
PAIR_CONTESTANTS = {  # in the order of tables, with their names there
    "trained": "trained towers",
    START: "starting weights as they are",
    LINEAR_MAP: "starting weights, linear map",
    UNTRAINED: "untrained towers, linear map",
    BM25: "BM25",
    CHANCE: "chance",
}

PAIR_RULES = (
    "Both directions count alike: each cell of one column is a query among all held-out cells of the other. Decided by the "
    "mean reciprocal rank (MRR) of both directions, because R@k with a fixed k is near 1 among few candidates and near 0 "
    "among many, and MRR is neither. The towers are compared with the untouched towers and the best linear map between them, "
    "with the untouched towers as they are if they share a space, for texts with BM25, and with chance, on the same queries "
    "(paired bootstrap over clusters, so that the captions of a picture stay together; 95% intervals that hold for all "
    f"measurements at once). Ahead: significantly better, by at least {SMALLEST:.0%} of the baseline’s distance from an MRR "
    "of 1; behind likewise. A run that starts from weights helped if it is ahead of the untouched towers in every form and of "
    "chance. Towers without weights learned something if they are ahead of the untrained towers and of chance, and learned "
    f"well if they remove at least {WELL:.0%} of the better one’s distance from 1. “Worse than BM25”: behind it, whatever "
    "the rest. The intervals cover the choice of test pairs, not the randomness of training; several seeds show that."
)


def decide_pair_level(comparison: Sequence[Mapping[str, Any]]) -> Level:
    """Returns the level of a run on pairs; see ``PAIR_RULES``."""
    sides = {entry["against"]: direction(entry) for entry in comparison}
    if sides.get(BM25) == BEHIND:
        return Level.WORSE_THAN_BM25
    starts = _starts(comparison)
    if not starts:
        level = decide_level([entry for entry in comparison if entry["against"] != BM25])
        # Ahead of chance alone is not "well".
        return Level.LEARNED_SOMETHING if level == Level.LEARNED_WELL and UNTRAINED not in sides else level
    worst = min((direction(entry) for entry in starts), key=(BEHIND, EVEN, AHEAD).index)
    if worst == BEHIND:
        return Level.ADAPTING_HURT
    if sides.get(CHANCE, AHEAD) != AHEAD:
        return Level.NOTHING_MEASURABLE
    return Level.USE_STARTING_POINT if worst == EVEN else Level.ADAPTING_HELPED


def deciding_pair(comparison: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the comparison that decides the level: the worst outcome, of equal ones the most accurate baseline."""
    level = decide_pair_level(comparison)
    if level == Level.WORSE_THAN_BM25:
        return next(entry for entry in comparison if entry["against"] == BM25)
    entries = [entry for entry in comparison if entry["against"] != BM25]
    if level in (Level.ADAPTING_HURT, Level.USE_STARTING_POINT, Level.ADAPTING_HELPED):
        entries = _starts(comparison)
    return worst(entries)


def pair_verdict(
    comparison: Sequence[Mapping[str, Any]],
    weights: str = "",
    options: Mapping[str, Any] | None = None,
    effective_rank: float | None = None,
) -> dict[str, Any] | None:
    """The verdict on a run on two columns, in the form of `coulomb.evaluation.verdict.verdict`.

    Args:
        comparison: one entry per baseline: ``"starting_point"`` (the untouched towers as they are), ``"linear_map"`` or,
            without weights, ``"untrained"`` (the untouched towers with the best linear map), ``"bm25"``, ``"chance"``.
        weights: names the weights that the run started from; default: "the published weights".
        options: the run's options as in ``config.yaml``.
        effective_rank: the smaller effective rank of both towers' embeddings; below 2, a run that is not ahead has collapsed.

    Returns:
        ``{"level", "title", "sentence", "remarks", "next"}``; None if nothing was compared.

    >>> pair_verdict([]) is None
    True
    """
    if not comparison:
        return None
    level = decide_pair_level(comparison)
    names = baseline_names(weights)
    decided = deciding_pair(comparison)
    gap = describe_distance(decided, names, f"{decided['overall']['clusters']:,} clusters of queries")
    sentence = f"{_figures(comparison, names)} {gap}"
    if effective_rank is not None and effective_rank < COLLAPSED_RANK and level.tone != "good":
        return collapsed(effective_rank, [sentence])
    remarks = [count_significant(entry, names) for entry in comparison if entry["against"] != CHANCE]
    if not {START, LINEAR_MAP, UNTRAINED} & {entry["against"] for entry in comparison}:
        remarks.append("It was not compared with the untouched towers, so this does not show what training added.")
    return {
        "level": level.value,
        "title": _title(level, comparison, weights or "the published weights"),
        "sentence": sentence,
        "remarks": remarks,
        "next": _next(level, options or {}),
    }


def baseline_names(weights: str = "") -> dict[str, str]:
    """Returns the name of each baseline in sentences."""
    start = weights or "the published weights"
    return {
        START: f"{start} without training",
        LINEAR_MAP: f"{start} with the best linear map",
        UNTRAINED: "untrained towers with the best linear map",
        BM25: "BM25",
        CHANCE: "chance",
    }


def measurement_label(name: str, columns: Sequence[str] = ("first", "second")) -> str:
    """'first_to_second_recall_at_5' → 'image → caption R@5'."""
    first, second = columns
    start, end = (first, second) if name.startswith("first_to_second_") else (second, first)
    figure = name.split("_", 3)[3]
    return f"{start} → {end} {'MRR' if figure == 'mrr' else 'R@' + figure.removeprefix('recall_at_')}"


def _starts(comparison: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [entry for entry in comparison if entry["against"] in (START, LINEAR_MAP)]


def _title(level: Level, comparison: Sequence[Mapping[str, Any]], weights: str) -> str:
    if level == Level.NOTHING_MEASURABLE:
        sides = {entry["against"]: direction(entry) for entry in comparison}
        if sides.get(UNTRAINED) == BEHIND:
            return "Worse than untrained towers with a linear map"
        if sides.get(CHANCE) == AHEAD:
            return "No better than untrained towers with a linear map"
        return "No better than chance"
    mapped = deciding_pair(comparison)["against"] == LINEAR_MAP
    return {
        Level.ADAPTING_HELPED: f"Training beyond {weights} helped",
        Level.USE_STARTING_POINT: f"Use {weights} {'with a linear map' if mapped else 'without training'}",
        Level.ADAPTING_HURT: f"Worse than {weights} with a linear map" if mapped else f"Training made {weights} worse",
        Level.LEARNED_WELL: "The towers learned well",
        Level.LEARNED_SOMETHING: "The towers learned something",
        Level.WORSE_THAN_BM25: "Worse than BM25",
    }[level]


def _figures(comparison: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> str:
    overall = comparison[0]["overall"]
    others = join_words([f"{names[entry['against']]} {entry['overall']['baseline']:.3f}" for entry in comparison])
    return (
        f"The mean reciprocal rank of the right answer, over both directions and {overall['n']:,} unseen queries, is "
        f"{overall['trained']:.3f}, compared with {others}."
    )


def _next(level: Level, options: Mapping[str, Any]) -> list[str]:
    longer = options.get("epochs")
    more = [f"Train longer: `--epochs {longer * 2}` (this run: {longer})."] if isinstance(longer, int) else []
    tune = [_let_learn(str(options["tune"]), str(options.get("encoder")))] if options.get("tune") else []
    if level in (Level.LEARNED_WELL, Level.ADAPTING_HELPED):
        return [SEEDS]
    if level == Level.ADAPTING_HURT:
        return [CAUSE, *_less(options)]
    if level == Level.LEARNED_SOMETHING:
        return [*more, SEEDS]
    return [CAUSE, *tune, *more][:3]


def _let_learn(tune: str, encoder: str) -> str:
    """Token vectors have no blocks, so that the last of them cannot be chosen."""
    chosen = []
    for part in encoder.split(","):
        column, equals, name = part.rpartition("=")
        chosen.append(f"{column}{equals}{'all' if name.startswith('static') else 'last:2'}")
    value = "last:2" if all(each.endswith("last:2") for each in chosen) else ",".join(chosen)
    return f"Let the towers learn: `--tune {shlex.quote(value)}` (this run: {tune})."


def _less(options: Mapping[str, Any]) -> list[str]:
    epochs, lr = options.get("epochs"), options.get("lr")
    less = [f"`--epochs {epochs // 4}` (this run: {epochs})"] if isinstance(epochs, int) and epochs >= 4 else []
    less += [f"`--lr {lr / 10:.2g}` (this run: {lr:g})"] if isinstance(lr, int | float) and lr > 0 else []
    return [f"Train less: {' or '.join(less)}."] if less else []
