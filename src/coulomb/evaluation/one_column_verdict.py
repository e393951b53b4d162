"""The verdict on a run on one column: whether its encoder is worth more than what there was before."""

from collections.abc import Mapping, Sequence
from typing import Any

from coulomb.evaluation.comparison import START
from coulomb.evaluation.level import (
    BEHIND,
    COLLAPSED_RANK,
    SMALLEST,
    WELL,
    Level,
    decide_level,
    direction,
    worst,
)
from coulomb.evaluation.next_steps import CAUSE, SEEDS
from coulomb.evaluation.pair_verdict import BM25
from coulomb.evaluation.verdict import FAMILIES, collapsed, count_significant, describe_distance, join_words

RAW_VALUES = "raw_values"
ONE_COLUMN_CONTESTANTS = {  # in the order of tables, with their names there
    "trained": "trained encoder",
    START: "starting weights",
    "random_init": "untrained network",
    RAW_VALUES: "raw values",
    BM25: "BM25",
}
ONE_COLUMN_RULES = (
    "What counts is what is known of the held-out cells: with labels, the mean of kNN, linear probe and few labels (of BM25, "
    "kNN alone); with scored pairs, Spearman’s rank correlation of cosines and scores. The encoder is compared with the "
    "weights that it started from, or with the same network untrained; texts also with BM25, vectors also with their "
    "standardized values; on the same rows (paired bootstrap, 95% intervals). Ahead: significantly better, by at least "
    f"{SMALLEST:.0%} of the baseline’s distance from 1; behind likewise. “Worse than BM25”, “worse than the raw values”: "
    "behind them, whatever the rest. A run that starts from weights helped if it is ahead of them. A run without weights "
    "learned something if it is ahead of all baselines, and learned well if it also removes at least "
    f"{WELL:.0%} of each one’s distance from 1. Without labels and scored pairs nothing is judged: alignment, uniformity and "
    "rank describe embeddings, and training can improve them without making the embeddings useful. The intervals cover the "
    "choice of held-out rows, not the randomness of training; several seeds show that."
)
SIMPLE = {BM25: Level.WORSE_THAN_BM25, RAW_VALUES: Level.WORSE_THAN_RAW_VALUES}  # baselines without any network
GIVE = {
    "text": "a column of classes (`--labels`), or pairs with a score of their similarity (`--test pairs.csv` with two columns "
    "of texts and `score`)",
    "vector": "a column of classes (`--labels`), or pairs with a score of their similarity (`--test`)",
    "image": "a column of classes (`--labels`)",
}


def decide_one_column_level(comparison: Sequence[Mapping[str, Any]]) -> Level:
    """Returns the level of a run on one column; see ``ONE_COLUMN_RULES``."""
    if not comparison:
        return Level.NOT_JUDGED
    for entry in comparison:
        if entry["against"] in SIMPLE and direction(entry) == BEHIND:
            return SIMPLE[entry["against"]]
    starts = any(entry["against"] == START for entry in comparison)
    return decide_level([entry for entry in comparison if entry["against"] != BM25 or not starts])


def deciding_one_column(comparison: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the comparison that decides the level: the worst outcome, of equal ones the most accurate baseline."""
    level = decide_one_column_level(comparison)
    entries = list(comparison)
    if level in SIMPLE.values():
        entries = [entry for entry in entries if SIMPLE.get(entry["against"]) == level]
    elif level in (Level.USE_STARTING_POINT, Level.ADAPTING_HURT, Level.ADAPTING_HELPED):
        entries = [entry for entry in entries if entry["against"] == START]
    return worst(entries)


def one_column_verdict(
    comparison: Sequence[Mapping[str, Any]],
    judged_by: str,
    kind: str,
    weights: str = "",
    options: Mapping[str, Any] | None = None,
    effective_rank: float | None = None,
) -> dict[str, Any]:
    """The verdict on a run on one column, in the form of `coulomb.evaluation.verdict.verdict`.

    Args:
        comparison: one entry per baseline: ``"starting_point"`` or ``"untrained"``, ``"raw_values"``, ``"bm25"``; empty if
            there was nothing to judge by.
        judged_by: "labels", "scored pairs" or "nothing".
        kind: of the column.
        weights: names the weights that the run started from; default: "the starting weights".
        options: the run's options as in ``config.yaml``.
        effective_rank: of the held-out embeddings; below 2, a run that is not ahead has collapsed.
    """
    level, options = decide_one_column_level(comparison), options or {}
    start = weights or "the starting weights"
    names = {START: start, "untrained": "the untrained network", RAW_VALUES: "the raw values", BM25: "BM25"}
    sentence = _not_judged(judged_by, kind)
    if comparison:
        decided = deciding_one_column(comparison)
        gap = describe_distance(decided, names, f"{decided['overall']['n']:,} held-out rows")
        sentence = f"{_figures(comparison, judged_by, names)} {gap}"
    if effective_rank is not None and effective_rank < COLLAPSED_RANK and level.tone != "good":
        return collapsed(effective_rank, [sentence], of="cells")
    remarks = [count_significant(entry, names) for entry in comparison if len(entry["measurements"]) > 1]
    if level == Level.NOT_JUDGED and effective_rank is not None:
        remarks.append(f"The embeddings have not collapsed: their effective rank is {effective_rank:.3g}.")
    return {
        "level": level.value,
        "title": _title(level, comparison, start),
        "sentence": sentence,
        "remarks": remarks,
        "next": _next(level, kind, options),
    }


def _not_judged(judged_by: str, kind: str) -> str:
    if judged_by == "nothing":
        return f"Nothing is known of the held-out {kind}s that embeddings could be judged by."
    return f"The {judged_by} of the held-out {kind}s do not suffice to measure anything; the protocol says why."


def _title(level: Level, comparison: Sequence[Mapping[str, Any]], start: str) -> str:
    if level == Level.NOTHING_MEASURABLE:
        least = deciding_one_column(comparison)
        others = {"untrained": "the untrained network", RAW_VALUES: "the raw values", BM25: "BM25"}
        worse = "Worse than" if direction(least) == BEHIND else "No better than"
        return f"{worse} {others.get(least['against'], start)}"
    return {
        Level.NOT_JUDGED: "There is nothing to judge by",
        Level.ADAPTING_HELPED: f"Training beyond {start} helped",
        Level.USE_STARTING_POINT: f"Use {start} without training",
        Level.ADAPTING_HURT: f"Training made {start} worse",
        Level.LEARNED_WELL: "The encoder learned well",
        Level.LEARNED_SOMETHING: "The encoder learned something",
        Level.WORSE_THAN_BM25: "Worse than BM25",
        Level.WORSE_THAN_RAW_VALUES: "Worse than the raw values",
    }[level]


def _figures(comparison: Sequence[Mapping[str, Any]], judged_by: str, names: Mapping[str, str]) -> str:
    overall = comparison[0]["overall"]
    if judged_by == "scored pairs":
        others = join_words([f"{names[entry['against']]} {entry['overall']['baseline']:.3f}" for entry in comparison])
        return (
            f"Spearman’s correlation of cosines with the scores of {overall['n']:,} pairs is {overall['trained']:.3f}, "
            f"compared with {others}."
        )
    of = join_words([FAMILIES.get(name, name) for name in overall["of"]])
    others = join_words([_share(entry, overall, names) for entry in comparison])
    mean = "Averaged over " if len(overall["of"]) > 1 else "By "
    return f"{mean}{of}, {overall['trained']:.1%} of unseen rows are classified correctly, compared with {others}."


def _share(entry: Mapping[str, Any], overall: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """'BM25 61.0% (by kNN, where the encoder has 70.1%)'."""
    own = entry["overall"]
    found = f"{names[entry['against']]} {own['baseline']:.1%}"
    if own["of"] == overall["of"]:
        return found
    of = join_words([FAMILIES.get(name, name) for name in own["of"]])
    return f"{found} (by {of}, where the encoder has {own['trained']:.1%})"


def _next(level: Level, kind: str, options: Mapping[str, Any]) -> list[str]:
    longer, lr = options.get("epochs"), options.get("lr")
    more = (
        [f"Train longer: `--epochs {longer * 2}` (this run: {longer})."] if isinstance(longer, int) and longer else []
    )
    if level == Level.NOT_JUDGED:
        return [f"Give something to judge by: {GIVE[kind]}."]
    if level in (Level.LEARNED_WELL, Level.ADAPTING_HELPED):
        return [SEEDS]
    if level == Level.ADAPTING_HURT:
        less = f" (this run: {lr:g})" if isinstance(lr, int | float) else ""
        slower = [f"Train less: `--lr {lr / 10:.2g}`{less}."] if isinstance(lr, int | float) and lr > 0 else []
        return [CAUSE, *slower]
    if level == Level.LEARNED_SOMETHING:
        return [*more, SEEDS]
    return [CAUSE, *more]
