"""The verdict on the page: the evaluation's, or a preliminary one."""

import math
from pathlib import Path

import pytest

from coulomb.evaluation.level import Level
from coulomb.report.collect import RunData
from coulomb.report.verdict_section import verdict_section


def run_with(verdict=None, comparison=None, losses=(3.0,)):
    training = [{"step": i, "epoch": 1, "loss": loss} for i, loss in enumerate(losses, 1)]
    return RunData(Path("x"), evaluation={"verdict": verdict, "comparison": comparison}, training=training)


def stored(**changes):
    return {
        "level": "learned_something", "title": "The encoder learned something", "sentence": "50.0% are right.",
        "remarks": ["Better."], "next": ["Train longer: `--epochs 100`."],
    } | changes  # fmt: skip


COMPARISON = [{"against": name, "overall": {"trained": 0.5, "baseline": 0.4}} for name in ("raw_pixels", "untrained")]


def test_the_evaluations_verdict_is_shown():
    run = run_with(stored(), COMPARISON)
    shown = verdict_section(run)
    assert (shown.level, shown.tone, shown.headline) == (Level.LEARNED_SOMETHING, "good", stored()["title"])
    assert (shown.sentence, shown.remarks) == ("50.0\u202f% are right.", ["Better."])
    assert shown.next == stored()["next"] and run.problems == []
    assert {name: value.mean for name, value in shown.score.values.items()} == {
        "trained": 0.5, "raw_pixels": 0.4, "random_init": 0.4}  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [{"level": "perfect"}, {"level": []}, {"title": 3}, {"next": "text"}, {"remarks": [1]}, {"sentence": None}],
)
def test_a_damaged_verdict_is_named_and_not_shown(changes):
    run = run_with(stored(**changes), COMPARISON)
    assert verdict_section(run).level == "pending"
    assert "evaluation.json" in run.problems[0] and "coulomb evaluate" in run.problems[0]


@pytest.mark.parametrize("comparison", [None, 7, [7], [{}], [{"against": [], "overall": {"trained": "x"}}]])
def test_a_damaged_comparison_costs_the_tiles_only(comparison):
    shown = verdict_section(run_with(stored(), comparison))
    assert (shown.level, shown.score) == ("learned_something", None)


def test_a_failed_training_is_more_important_than_an_evaluation():
    assert verdict_section(run_with(stored(), COMPARISON, losses=(5.0, math.nan))).level == "failed"


def test_a_run_without_an_evaluation_has_a_preliminary_verdict():
    run = RunData(Path("x"), measures=[{"epoch": 4, "knn": 0.512}])
    assert verdict_section(run).level == "pending" and "51.2\u202f%" in verdict_section(run).sentence
