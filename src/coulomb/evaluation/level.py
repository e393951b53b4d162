"""The levels of the verdict on a run, and the rules that decide them."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from coulomb.evaluation.comparison import START, VIEWS


class Level(StrEnum):
    """The level of a verdict, as in ``evaluation.json``. The last three are of runs without an evaluation."""

    LEARNED_WELL = "learned_well"
    LEARNED_SOMETHING = "learned_something"
    NOTHING_MEASURABLE = "nothing_measurable"
    WORSE_THAN_RAW_PIXELS = "worse_than_raw_pixels"
    WORSE_THAN_BM25 = "worse_than_bm25"  # of texts
    WORSE_THAN_RAW_VALUES = "worse_than_raw_values"  # of vectors
    ADAPTING_HELPED = "adapting_helped"
    ADAPTING_UNVERIFIED = "adapting_unverified"
    USE_STARTING_POINT = "use_starting_point"
    ADAPTING_HURT = "adapting_hurt"
    NOT_JUDGED = "not_judged"  # of one column without labels and scored pairs
    COLLAPSED = "collapsed"
    FAILED = "failed"
    NO_SIGNAL = "no_signal"
    PENDING = "pending"

    @property
    def tone(self) -> str:
        """``"good"``, ``"fair"`` or ``"bad"``; ``"open"`` if nothing is known yet."""
        return next((tone for tone, levels in _TONES.items() if self in levels), "bad")


_TONES = {
    "good": (Level.LEARNED_WELL, Level.LEARNED_SOMETHING, Level.ADAPTING_HELPED),
    "fair": (Level.NOTHING_MEASURABLE, Level.ADAPTING_UNVERIFIED, Level.USE_STARTING_POINT),
    "open": (Level.PENDING, Level.NOT_JUDGED),
}

# Share of the better baseline's errors that must be removed; most self-supervised runs of a few hours reach .25. Without
# labels more is expected, since view retrieval is close to the training objective.
WELL, WELL_VIEWS = 0.25, 0.5
SMALLEST = 0.02  # a smaller share of the baseline's errors is negligible, even if it is significant

SEVERAL = 2  # measurements that must agree if the average alone is not significant
AHEAD, EVEN, BEHIND = "ahead", "even", "behind"
ADAPTED = (Level.ADAPTING_HELPED, Level.ADAPTING_UNVERIFIED, Level.USE_STARTING_POINT, Level.ADAPTING_HURT)
COLLAPSED_RANK = 2.0  # effective rank of the features
NO_SIGNAL_SHARE = 0.98  # of the loss for constant embeddings


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
    f"itself. “Collapsed”: the features’ effective rank is below {COLLAPSED_RANK:.0f} and the encoder is not ahead. “No "
    f"signal”: there is no evaluation, and the last losses are above {NO_SIGNAL_SHARE:.0%} of the loss for constant "
    "embeddings (ln(2N−1) for two views), which is known for contrastive methods only."
)


def decide_level(comparison: Sequence[Mapping[str, Any]]) -> Level:
    """Returns the level; see ``RULES``."""
    sides = directions(comparison)
    if START in sides:
        return _level_of_adaptation(comparison, sides[START])
    if sides.get("raw_pixels") == BEHIND:
        return Level.WORSE_THAN_RAW_PIXELS
    if any(side != AHEAD for side in sides.values()):
        return Level.NOTHING_MEASURABLE
    return Level.LEARNED_WELL if all(map(is_clear, comparison)) else Level.LEARNED_SOMETHING


def _level_of_adaptation(comparison: Sequence[Mapping[str, Any]], side: str) -> Level:
    """The level of a run that started from weights.

    ``side``: whether the run is ahead of them. It must be ahead of the other baselines as well.
    """
    if side == BEHIND:
        return Level.ADAPTING_HURT
    others = [entry for entry in comparison if entry["against"] != START]
    level = decide_level(others) if others else Level.LEARNED_SOMETHING
    if level not in (Level.LEARNED_WELL, Level.LEARNED_SOMETHING):
        return level
    if side == EVEN:
        return Level.USE_STARTING_POINT
    return Level.ADAPTING_UNVERIFIED if comparison[0]["overall"]["of"] == [VIEWS] else Level.ADAPTING_HELPED


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
    """Returns the comparison that decides the level.

    If the level is about adapting weights, this is the comparison with the starting weights. Otherwise it is the comparison
    with the worst outcome; if the run is ahead of all baselines, the comparison with the most accurate one.
    """
    if decide_level(comparison) in ADAPTED:
        return next(entry for entry in comparison if entry["against"] == START)
    if all(direction(entry) == AHEAD for entry in comparison):
        return max(comparison, key=lambda entry: entry["overall"]["baseline"])
    return min(comparison, key=lambda entry: (BEHIND, EVEN, AHEAD).index(direction(entry)))


def worst(comparison: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Returns the comparison with the worst outcome, of equal ones that with the most accurate baseline."""
    return min(
        comparison, key=lambda entry: ((BEHIND, EVEN, AHEAD).index(direction(entry)), -entry["overall"]["baseline"])
    )
