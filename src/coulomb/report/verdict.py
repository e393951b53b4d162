"""The verdict of the report: that of the evaluation, or the reason why there is none."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from coulomb.evaluation.comparison import LEVEL, VIEWS, comparison_row, family_mean, group_families, with_share
from coulomb.evaluation.verdict import (
    ADAPTING_HELPED,
    ADAPTING_HURT,
    ADAPTING_UNVERIFIED,
    LEARNED_SOMETHING,
    LEARNED_WELL,
    LEVELS,
    NOTHING_MEASURABLE,
    USE_STARTING_POINT,
    WORSE_THAN_RAW_PIXELS,
    verdict,
)
from coulomb.evaluation.verdict import RULES as EVALUATION_RULES
from coulomb.report.collect import finite
from coulomb.report.pages.numbers import NARROW, axis_value, count, percent, significant
from coulomb.report.scores import Score, Value, scores

COLLAPSED_RANK = 2.0  # effective rank of the features
NO_SIGNAL_SHARE = 0.98  # of the loss for constant embeddings
TONES = {
    LEARNED_WELL: "good",
    LEARNED_SOMETHING: "good",
    ADAPTING_HELPED: "good",
    ADAPTING_UNVERIFIED: "fair",
    USE_STARTING_POINT: "fair",
    NOTHING_MEASURABLE: "fair",
    WORSE_THAN_RAW_PIXELS: "bad",
    ADAPTING_HURT: "bad",
}
ORDER = ("few_shot_5", "few_shot_10", "few_shot_1", "knn", "linear", "view_retrieval")
BASELINES = {"starting_point": "starting_point", "raw_pixels": "raw_pixels", "untrained": "random_init"}
UNPAIRED = (
    "This evaluation has no paired comparison, so the intervals are wider than necessary; "
    "coulomb evaluate RUN repeats it."
)

RULES = EVALUATION_RULES + (
    f" “Collapsed”: the features’ effective rank is below {COLLAPSED_RANK:.0f} and the encoder is not ahead. "
    f"“No signal”: there is no evaluation, and the last losses are above {NO_SIGNAL_SHARE:.0%} of the loss for constant "
    "embeddings (ln(2N−1) for two views), which is known for contrastive methods only."
)


@dataclass(frozen=True)
class Verdict:
    """The verdict on a run.

    Attributes:
        kind: for programs, a level of `coulomb.evaluation.verdict` or the reason why there is none.
        tone: for the color, good, fair, bad or open.
        headline, sentence, remarks: for readers.
        score: the accuracies that the verdict is based on.
        next: what to try.
    """

    kind: str
    tone: str
    headline: str
    sentence: str
    score: Score | None = None
    remarks: tuple[str, ...] = ()
    next: tuple[str, ...] = ()


def reach_verdict(
    evaluation: dict[str, Any],
    training: list[dict[str, Any]],
    measures: list[dict[str, Any]],
    *,
    test_images: int | None = None,
    effective_rank: float | None = None,
    options: dict[str, Any] | None = None,
) -> Verdict:
    """Returns the verdict on a run from its evaluation and the lines of its metrics.

    This is ``evaluation["verdict"]`` if it exists. For evaluations of earlier versions the same rules are applied to the
    accuracies, with intervals for unpaired measurements.

    Args:
        evaluation: content of ``evaluation.json``.
        training, measures: lines of ``metrics.jsonl``.
        test_images: number of held-out images, if the evaluation does not record it.
        effective_rank: used if no line of ``measures`` has one.
        options: the run's options, for what to try next.
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
    shown = _stored(evaluation) or _recomputed(evaluation, rows, training, test_images, options or {})
    if rank is not None and rank < COLLAPSED_RANK and (shown is None or shown.tone != "good"):
        return _collapsed(rank, shown)
    return shown or _without_baselines(rows, training, measures)


def _stored(evaluation: dict[str, Any]) -> Verdict | None:
    """The verdict in the file, if it has the expected structure: the folder may come from somebody else."""
    stored, comparison = evaluation.get("verdict"), evaluation.get("comparison")
    if not isinstance(stored, dict) or stored.get("level") not in LEVELS or not isinstance(comparison, list):
        return None
    if not all(isinstance(stored.get(key), str) for key in ("title", "sentence")):
        return None
    if not all(_is_text_list(stored.get(key)) for key in ("remarks", "next")):
        return None
    return _shown(stored, comparison)


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _shown(stored: dict[str, Any], comparison: list[Any]) -> Verdict:
    """A verdict of the evaluation, with the accuracies that it is based on."""
    values: dict[str, Value] = {}
    for each in comparison:
        overall = each.get("overall") if isinstance(each, dict) else None
        name = BASELINES.get(str(each.get("against"))) if isinstance(each, dict) else None
        if isinstance(overall, dict) and name is not None:
            pair = {"trained": finite(overall.get("trained")), name: finite(overall.get("baseline"))}
            values |= {key: Value(mean) for key, mean in pair.items() if mean is not None}
    texts = [text.replace("%", f"{NARROW}%") for text in (stored["sentence"], *stored["remarks"])]
    return Verdict(
        stored["level"],
        TONES[stored["level"]],
        stored["title"],
        texts[0],
        Score("overall", "overall", values) if values else None,
        tuple(texts[1:]),
        tuple(stored["next"]),
    )


def _recomputed(
    evaluation: dict[str, Any],
    rows: dict[str, Score],
    training: list[dict[str, Any]],
    test_images: int | None,
    options: dict[str, Any],
) -> Verdict | None:
    """The same rules for an evaluation without a comparison; None without baselines or the number of test images."""
    n, draws = _protocol(evaluation, "test") or test_images, _protocol(evaluation, "few_shot", "draws") or 1
    compared = [_unpaired(against, name, rows, n, draws) for against, name in BASELINES.items()] if n else []
    updates = [step for line in training if (step := finite(line.get("step"))) is not None]
    result = verdict(compared, options, round(max(updates)) if updates else None)
    if result is None:
        return None
    return _shown(result | {"remarks": [*result["remarks"], UNPAIRED]}, compared)


def _unpaired(against: str, name: str, rows: dict[str, Score], n: int, draws: int) -> dict[str, Any]:
    """An entry as `coulomb.evaluation.compare` makes it, from means and standard deviations alone.

    The variance of an accuracy on n images is p(1 − p) / n, that of a mean over draws is std² / draws. Both sides count as
    independent, and the error of the overall mean is the mean of the errors. The intervals hold simultaneously for all
    measurements (Šidák) and are wider than paired ones.
    """
    both = {key: row.values for key, row in rows.items() if key in ORDER and {"trained", name} <= row.values.keys()}
    names = [key for key in both if key != VIEWS] or list(both)
    if not names:
        return {"against": against, "measurements": {}, "overall": None}
    families, z = group_families(names), NormalDist().inv_cdf((1 + LEVEL ** (1 / (len(names) + 1))) / 2)
    sides = {"trained": {}, name: {}, "error": dict[str, float]()}
    for key in names:
        variance = 1 / n**2  # so that a perfect score has an interval too
        for side in ("trained", name):
            value = both[key][side]
            sides[side][key] = value.mean
            variance += max(0.0, value.mean * (1 - value.mean)) / n + (value.std or 0.0) ** 2 / draws
        sides["error"][key] = z * math.sqrt(variance)
    sides = {side: values | {"overall": float(family_mean(families, values))} for side, values in sides.items()}
    made = {}
    for key in (*names, "overall"):
        ours, theirs, error = sides["trained"][key], sides[name][key], sides["error"][key]
        made[key] = comparison_row(ours, theirs, ours - theirs - error, ours - theirs + error, n)
    return {"against": against, "overall": with_share(made.pop("overall"), list(families)), "measurements": made}


def _protocol(evaluation: dict[str, Any], *keys: str) -> int | None:
    """A whole number of at least 1 from the protocol of the trained encoder."""
    value: Any = evaluation
    for key in ("trained", "protocol", *keys):
        value = value.get(key) if isinstance(value, dict) else None
    number = finite(value)
    return int(number) if number is not None and number >= 1 else None


def _collapsed(rank: float, verdict: Verdict | None) -> Verdict:
    sentence = (
        f"All images have nearly the same features: their effective rank is {significant(rank)}, "
        "so fewer than two dimensions are in use."
    )
    if verdict is None:
        return Verdict("collapsed", "bad", "Collapsed", sentence)
    return Verdict("collapsed", "bad", "Collapsed", sentence, verdict.score, (verdict.sentence,))


def _without_baselines(
    rows: dict[str, Score], training: list[dict[str, Any]], measures: list[dict[str, Any]]
) -> Verdict:
    measured = [(key, rows[key]) for key in ORDER if key in rows]
    if measured:
        share = percent(measured[0][1].values["trained"].mean)
        label = measured[0][1].label
        reached = f"The trained encoder reaches {share} ({label}), but "
        if len(measured[0][1].values) > 1:
            why = "the number of test images is not recorded, so it is unknown whether the difference is significant."
            return Verdict("uncompared", "open", "Not compared with the baselines", reached + why)
        why = "no baseline was measured for comparison."
        return Verdict("uncompared", "open", "Measured without a baseline", reached + why)
    recent = [line for line in training[-max(1, len(training) // 20) :] if finite(line.get("no_signal"))]
    if recent:
        loss, line = (sum(float(entry[key]) for entry in recent) / len(recent) for key in ("loss", "no_signal"))
        if loss > NO_SIGNAL_SHARE * line:
            sentence = f"The loss is {significant(loss)}; for constant embeddings it would be {significant(line)}."
            return Verdict("no-signal", "bad", "No signal so far", sentence)
    values = [(line["epoch"], knn) for line in measures if (knn := finite(line.get("knn"))) is not None]
    if values:
        return Verdict(
            "pending",
            "open",
            "Not evaluated yet",
            f"The live kNN was {percent(values[-1][1])} at epoch {axis_value(values[-1][0])}.",
        )
    return Verdict("pending", "open", "Not evaluated yet", "This run folder has no evaluation, so there is no verdict.")
