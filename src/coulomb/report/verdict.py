"""The verdict on a run: that of its evaluation, or why there is none."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from coulomb.evaluation.comparison import LEVEL, VIEWS, comparison_row, family_mean, group_families, with_share
from coulomb.evaluation.verdict import (
    LEARNED_SOMETHING,
    LEARNED_WELL,
    LEVELS,
    NOTHING_MEASURABLE,
    WORSE_THAN_RAW_PIXELS,
    verdict,
)
from coulomb.evaluation.verdict import RULES as EVALUATION_RULES
from coulomb.pages.numbers import NARROW, count, figure, percent, position
from coulomb.report.collect import finite
from coulomb.report.scores import Score, Value, scores

COLLAPSED_RANK = 2.0  # features that fill fewer than two directions
NO_SIGNAL_SHARE = 0.98  # of the loss for constant embeddings
TONES = {LEARNED_WELL: "good", LEARNED_SOMETHING: "good", NOTHING_MEASURABLE: "fair", WORSE_THAN_RAW_PIXELS: "bad"}
ORDER = ("few_shot_5", "few_shot_10", "few_shot_1", "knn", "linear", "view_retrieval")
BASELINES = {"raw_pixels": "raw_pixels", "untrained": "random_init"}
UNPAIRED = (
    "This evaluation holds no paired comparison, so the intervals are wider than necessary; "
    "coulomb evaluate RUN measures it again."
)

RULES = EVALUATION_RULES + (
    f" “Collapsed”: the features’ effective rank is below {COLLAPSED_RANK:.0f} and the encoder is not ahead. "
    f"“No signal”: without an evaluation, the last losses are above {NO_SIGNAL_SHARE:.0%} of the loss for constant "
    "embeddings, which contrastive methods have (ln(2N−1) for two views) and not every method."
)


@dataclass(frozen=True)
class Verdict:
    """``kind`` for programs (a level of `coulomb.evaluation.verdict`, or why there is none), ``tone`` (good, fair, bad,
    open) for colour, ``headline``, ``sentence``, ``remarks`` and ``next`` (what to try) for people."""

    kind: str
    tone: str
    headline: str
    sentence: str
    score: Score | None = None
    remarks: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


def judge(
    evaluation: dict[str, Any],
    training: list[dict[str, Any]],
    measures: list[dict[str, Any]],
    *,
    test_images: int | None = None,
    effective_rank: float | None = None,
    options: dict[str, Any] | None = None,
) -> Verdict:
    """The verdict on a run from its evaluation and the lines of its metrics.

    ``evaluation["verdict"]`` if it is there; for evaluations of earlier versions the same rules are applied to the
    figures, with intervals for unpaired measurements. ``effective_rank`` stands in where no line of ``measures`` carries
    one; ``options`` are those of the run, for what to try next.
    """
    broken = [line for line in training if finite(line.get("loss")) is None]
    if broken:
        return Verdict(
            "failed",
            "bad",
            "Training failed",
            f"The loss was no longer a finite number at step {count(finite(broken[0].get('step')))}.",
        )
    ranks = [rank for line in measures if (rank := finite(line.get("effective_rank"))) is not None]
    rank = ranks[-1] if ranks else effective_rank
    rows = {row.key: row for row in scores(evaluation) if "trained" in row.values}
    found = _stored(evaluation) or _from_figures(evaluation, rows, training, test_images, options or {})
    if rank is not None and rank < COLLAPSED_RANK and (found is None or TONES.get(found.kind) != "good"):
        return _collapsed(rank, found)
    return found or _without_baselines(rows, training, measures)


def _stored(evaluation: dict[str, Any]) -> Verdict | None:
    """What `coulomb.evaluation.verdict` wrote, if it has the right shape: the folder may be a stranger's."""
    found, comparison = evaluation.get("verdict"), evaluation.get("comparison")
    if not isinstance(found, dict) or found.get("level") not in LEVELS or not isinstance(comparison, list):
        return None
    if not all(isinstance(found.get(key), str) for key in ("title", "sentence")):
        return None
    if not all(_texts(found.get(key)) for key in ("remarks", "next")):
        return None
    return _shown(found, comparison)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _shown(found: dict[str, Any], comparison: list[Any]) -> Verdict:
    """A verdict of the evaluation as the page shows it; the tiles hold the figures that it is based on."""
    values: dict[str, Value] = {}
    for each in comparison:
        overall = each.get("overall") if isinstance(each, dict) else None
        name = BASELINES.get(str(each.get("against"))) if isinstance(each, dict) else None
        if isinstance(overall, dict) and name is not None:
            pair = {"trained": finite(overall.get("trained")), name: finite(overall.get("baseline"))}
            values |= {key: Value(mean) for key, mean in pair.items() if mean is not None}
    texts = [text.replace("%", f"{NARROW}%") for text in (found["sentence"], *found["remarks"])]
    return Verdict(
        found["level"],
        TONES[found["level"]],
        found["title"],
        texts[0],
        Score("overall", "overall", values) if values else None,
        tuple(texts[1:]),
        tuple(found["next"]),
    )


def _from_figures(
    evaluation: dict[str, Any],
    rows: dict[str, Score],
    training: list[dict[str, Any]],
    test_images: int | None,
    options: dict[str, Any],
) -> Verdict | None:
    """The same rules for an evaluation without comparison; None without baselines or number of test images."""
    n, draws = _protocol(evaluation, "test") or test_images, _protocol(evaluation, "few_shot", "draws") or 1
    compared = [_unpaired(against, name, rows, n, draws) for against, name in BASELINES.items()] if n else []
    updates = [step for line in training if (step := finite(line.get("step"))) is not None]
    found = verdict(compared, options, round(max(updates)) if updates else None)
    if found is None:
        return None
    return _shown(found | {"remarks": [*found["remarks"], UNPAIRED]}, compared)


def _unpaired(against: str, name: str, rows: dict[str, Score], n: int, draws: int) -> dict[str, Any]:
    """An entry as `coulomb.evaluation.compare` makes them, from means and deviations alone.

    The variance of an accuracy on n images is p(1 − p) / n, that of a mean over draws std² / draws; both sides count as
    independent, and the error of the mean is the mean of the errors. Simultaneous for all measurements (Šidák). All
    this makes the intervals wider than paired ones.
    """
    both = {key: row.values for key, row in rows.items() if key in ORDER and {"trained", name} <= row.values.keys()}
    names = [key for key in both if key != VIEWS] or list(both)
    if not names:
        return {"against": against, "measurements": {}, "overall": None}
    families, z = group_families(names), NormalDist().inv_cdf((1 + LEVEL ** (1 / (len(names) + 1))) / 2)
    found = {"trained": {}, name: {}, "error": dict[str, float]()}
    for key in names:
        variance = 1 / n**2  # so that a perfect score has an interval too
        for side in ("trained", name):
            value = both[key][side]
            found[side][key] = value.mean
            variance += max(0.0, value.mean * (1 - value.mean)) / n + (value.std or 0.0) ** 2 / draws
        found["error"][key] = z * math.sqrt(variance)
    found = {side: values | {"overall": float(family_mean(families, values))} for side, values in found.items()}
    made = {}
    for key in (*names, "overall"):
        ours, theirs, error = found["trained"][key], found[name][key], found["error"][key]
        made[key] = comparison_row(ours, theirs, ours - theirs - error, ours - theirs + error, n)
    return {"against": against, "overall": with_share(made.pop("overall"), list(families)), "measurements": made}


def _protocol(evaluation: dict[str, Any], *keys: str) -> int | None:
    """A whole number of at least 1 from the trained encoder's protocol."""
    found: Any = evaluation
    for key in ("trained", "protocol", *keys):
        found = found.get(key) if isinstance(found, dict) else None
    number = finite(found)
    return int(number) if number is not None and number >= 1 else None


def _collapsed(rank: float, found: Verdict | None) -> Verdict:
    sentence = (
        f"All images get nearly the same features: their effective rank is {figure(rank)}, "
        "that is, fewer than two directions are in use."
    )
    told = () if found is None else (found.sentence,)
    return Verdict("collapsed", "bad", "Collapsed", sentence, None if found is None else found.score, told)


def _without_baselines(
    rows: dict[str, Score], training: list[dict[str, Any]], measures: list[dict[str, Any]]
) -> Verdict:
    known = [(key, rows[key]) for key in ORDER if key in rows]
    if known:
        share = percent(known[0][1].values["trained"].mean)
        label = known[0][1].label
        reached = f"The trained encoder reaches {share} ({label}), but "
        if len(known[0][1].values) > 1:
            why = "the number of test images is not recorded, so the difference from the baselines cannot be judged."
            return Verdict("uncompared", "open", "Not compared with the baselines", reached + why)
        why = "no baseline was measured to compare it with."
        return Verdict("uncompared", "open", "Measured without a baseline", reached + why)
    recent = [line for line in training[-max(1, len(training) // 20) :] if finite(line.get("no_signal"))]
    if recent:
        loss, line = (sum(float(entry[key]) for entry in recent) / len(recent) for key in ("loss", "no_signal"))
        if loss > NO_SIGNAL_SHARE * line:
            sentence = f"The loss is {figure(loss)}, and {figure(line)} is what it would be for constant embeddings."
            return Verdict("no-signal", "bad", "No signal so far", sentence)
    values = [(line["epoch"], knn) for line in measures if (knn := finite(line.get("knn"))) is not None]
    if values:
        return Verdict(
            "pending",
            "open",
            "Not evaluated yet",
            f"The live kNN was {percent(values[-1][1])} at epoch {position(values[-1][0])}.",
        )
    return Verdict(
        "pending", "open", "Not evaluated yet", "There is no evaluation in this run folder, so there is no verdict."
    )
