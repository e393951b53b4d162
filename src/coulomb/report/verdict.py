"""The verdict: what a run achieved, in a sentence, derived from its numbers alone by rules that the page states."""

import math
from dataclasses import dataclass
from typing import Any

from coulomb.report.collect import finite
from coulomb.report.scores import CONTESTANTS, Score, Value, scores
from coulomb.report.wording import count, figure, percent, position

COLLAPSED_RANK = 2.0  # features that fill fewer than two directions
NO_SIGNAL_SHARE = 0.98  # of the loss that knows nothing
WELL, LEARNED = 0.50, 0.10  # share of the better baseline's errors that is gone
STANDARD_ERRORS = 2.0  # a smaller lead is chance

RULES = (
    "The encoder is compared with the better of two baselines measured the same way: raw pixels, and the same network "
    "untrained. What counts is the first of these that was measured: accuracy with 5 labels a class, with 10, with 1, "
    "by k nearest neighbours, by a linear probe; without labels, how often an image’s other view is found. "
    f"“Learned well”: at least {WELL:.0%} of that baseline’s errors are gone. “Learned”: at least {LEARNED:.0%}. "
    f"“Little”: fewer, or the lead is smaller than {STANDARD_ERRORS:.0f} standard errors. “Worse”: the baseline leads by "
    f"more than that. “Collapsed”: the features’ effective rank is below {COLLAPSED_RANK:.0f} and the encoder is not ahead. "
    f"“No signal”: without an evaluation, the last losses are above {NO_SIGNAL_SHARE:.0%} of the loss of knowing nothing, "
    "which contrast has (ln(2N−1) for two views) and not every method."
)
ORDER = ("few_shot_5", "few_shot_10", "few_shot_1", "knn", "linear", "view_retrieval")


@dataclass(frozen=True)
class Verdict:
    """``kind`` for programs, ``tone`` (good, fair, bad, open) for colour, ``headline`` and ``sentence`` for people."""

    kind: str
    tone: str
    headline: str
    sentence: str
    score: Score | None = None
    remarks: tuple[str, ...] = ()


def judge(
    evaluation: dict[str, Any],
    training: list[dict[str, Any]],
    measures: list[dict[str, Any]],
    *,
    test_images: int | None = None,
    effective_rank: float | None = None,
) -> Verdict:
    """The verdict on a run from its evaluation and the lines of its metrics.

    ``effective_rank`` stands in where no line of ``measures`` carries one.
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
    compared = [rows[key] for key in ORDER if key in rows and len(rows[key].values) > 1]
    draws = _draws(evaluation)
    if rank is not None and rank < COLLAPSED_RANK and not (compared and _lead(compared[0], test_images, draws) > 0):
        return _collapsed(rank, compared)
    if not compared:
        return _without_baselines(rows, training, measures)
    return _compare(compared, test_images, draws)


def _compare(compared: list[Score], test_images: int | None, draws: int) -> Verdict:
    score = compared[0]
    trained, (name, best) = score.values["trained"], _best_baseline(score)
    sentence, remarks = _sentence(score), list(_agreement(compared))
    if score.key == "view_retrieval":
        remarks.append(
            "Without labels this is weaker evidence: it shows that views are recognised, not that classes are told apart."
        )
    lead = _lead(score, test_images, draws)
    if lead < 0:
        untrained = score.values.get("random_init")
        if name == "raw_pixels" and untrained is not None and trained.mean > untrained.mean:
            remarks.insert(0, "Training helped, but the pixels themselves still say more than the features do.")
        headline = f"Worse than {_article(name)}"
        return Verdict("worse", "bad", headline, sentence, score, tuple(remarks))
    gain = 0.0 if best.mean >= 1 else (trained.mean - best.mean) / (1 - best.mean)
    if lead == 0 or gain < LEARNED:
        if best.mean >= 1:
            remarks.insert(0, "The baseline makes no error on these images: there is nothing left to show.")
        elif lead == 0:
            remarks.insert(0, f"The difference from {_article(name)} is within chance.")
        return Verdict("little", "fair", "It learned little", sentence, score, tuple(remarks))
    remarks.insert(0, f"Of the errors of {_article(name)}, {percent(gain, 0)} are gone.")
    if gain >= WELL:
        return Verdict("well", "good", "The encoder learned well", sentence, score, tuple(remarks))
    return Verdict("learned", "good", "The encoder learned", sentence, score, tuple(remarks))


def _best_baseline(score: Score) -> tuple[str, Value]:
    return max(
        ((name, value) for name, value in score.values.items() if name != "trained"), key=lambda item: item[1].mean
    )


def _lead(score: Score, test_images: int | None, draws: int) -> float:
    """Trained minus the better baseline; 0 when that is within ``STANDARD_ERRORS`` of chance.

    Variance of a mean over draws: std² / draws; of an accuracy on n images: p(1−p) / n. Both sides are counted as
    independent though they share draws and images: rather too careful than too bold.
    """
    trained, best = score.values["trained"], _best_baseline(score)[1]
    variance = 0.0
    for value in (trained, best):
        variance += (value.std or 0.0) ** 2 / draws
        variance += max(0.0, value.mean * (1 - value.mean)) / test_images if test_images else 0.0
    gap = trained.mean - best.mean
    return gap if abs(gap) > STANDARD_ERRORS * math.sqrt(variance) else 0.0


def _draws(evaluation: dict[str, Any]) -> int:
    found: Any = evaluation
    for key in ("trained", "protocol", "few_shot", "draws"):
        found = found.get(key) if isinstance(found, dict) else None
    draws = finite(found)
    if draws is not None and draws >= 1:
        return int(draws)
    return 1  # unknown: the deviation of one draw is then all that is known


def _sentence(score: Score) -> str:
    trained = percent(score.values["trained"].mean)
    others = [
        f"{_article(name)} {'reach' if name == 'raw_pixels' else 'reaches'} {percent(score.values[name].mean)}"
        for name in CONTESTANTS
        if name != "trained" and name in score.values
    ]
    if score.key == "view_retrieval":
        start = f"Shown one view of an unseen image, it finds the other view among all for {trained}"
    elif score.key.startswith("few_shot_"):
        start = f"With {score.label} it is right for {trained} of unseen images"
    else:
        start = (
            f"By {'a ' if score.key == 'linear' else 'its '}{score.label} it is right for {trained} of unseen images"
        )
    return f"{start}; {', '.join(others)}."


def _agreement(compared: list[Score]) -> list[str]:
    compared = [score for score in compared if score.key != "view_retrieval"]  # not an accuracy on classes
    if len(compared) < 2:
        return []
    ahead = sum(score.values["trained"].mean > _best_baseline(score)[1].mean for score in compared)
    if ahead == len(compared):
        return [f"It is ahead of both baselines in all {ahead} measurements."]
    return [f"It is ahead of both baselines in {ahead} of {len(compared)} measurements: the picture is mixed."]


def _article(name: str) -> str:
    return CONTESTANTS[name] if name == "raw_pixels" else f"the {CONTESTANTS[name]}"


def _collapsed(rank: float, compared: list[Score]) -> Verdict:
    sentence = (
        f"All images get nearly the same features: their effective rank is {figure(rank)}, "
        "that is, fewer than two directions are in use."
    )
    return Verdict(
        "collapsed",
        "bad",
        "Collapsed",
        sentence,
        compared[0] if compared else None,
        tuple(map(_sentence, compared[:1])),
    )


def _without_baselines(
    rows: dict[str, Score], training: list[dict[str, Any]], measures: list[dict[str, Any]]
) -> Verdict:
    known = [(key, rows[key]) for key in ORDER if key in rows]
    if known:
        share = percent(known[0][1].values["trained"].mean)
        label = known[0][1].label
        sentence = f"The trained encoder reaches {share} ({label}), but no baseline was measured to compare it with."
        return Verdict("uncompared", "open", "Measured without a baseline", sentence)
    recent = [line for line in training[-max(1, len(training) // 20) :] if finite(line.get("no_signal"))]
    if recent:
        loss, line = (sum(float(entry[key]) for entry in recent) / len(recent) for key in ("loss", "no_signal"))
        if loss > NO_SIGNAL_SHARE * line:
            sentence = (
                f"The loss is {figure(loss)}, and {figure(line)} is what it would be if the network knew nothing."
            )
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
