"""The verdict on pairs from given comparisons."""

import pytest

from coulomb.evaluation.level import Level
from coulomb.evaluation.pair_verdict import (
    PAIR_RULES,
    decide_pair_level,
    deciding_pair,
    measurement_label,
    pair_verdict,
)

NAMES = [f"{way}_{figure}" for way in ("first_to_second", "second_to_first") for figure in ("recall_at_5", "mrr")]


def entry(against, trained, baseline, half=0.02):
    difference = trained - baseline
    low, high = difference - half, difference + half
    outcome = "better" if low > 0 else "worse" if high < 0 else "even"
    row = {"trained": trained, "baseline": baseline, "difference": difference, "low": low, "high": high, "n": 200,
           "outcome": outcome}  # fmt: skip
    share = difference / (1 - baseline)
    return {
        "against": against,
        "measurements": dict.fromkeys(NAMES, row),
        "overall": row | {"of": NAMES[1::2], "share": share, "clusters": 160},
    }


def compared(trained, **baselines):
    return [entry(name, trained, value) for name, value in baselines.items()]


@pytest.mark.parametrize(
    ("trained", "baselines", "level", "title"),
    [
        (0.5, {"linear_map": 0.4, "chance": 0.03}, "adapting_helped", "Training beyond CLIP helped"),
        (0.5, {"linear_map": 0.49, "chance": 0.03}, "use_starting_point", "Use CLIP with a linear map"),
        (0.5, {"linear_map": 0.6, "chance": 0.03}, "adapting_hurt", "Worse than CLIP with a linear map"),
        # The stronger of both forms of the untouched towers decides.
        (0.5, {"starting_point": 0.49, "linear_map": 0.3}, "use_starting_point", "Use CLIP without training"),
        (0.5, {"starting_point": 0.2, "linear_map": 0.6}, "adapting_hurt", "Worse than CLIP with a linear map"),
        (0.5, {"starting_point": 0.6, "linear_map": 0.3}, "adapting_hurt", "Training made CLIP worse"),
        (0.5, {"starting_point": 0.2, "linear_map": 0.3, "bm25": 0.5}, "adapting_helped", "Training beyond CLIP helped"),
        (0.5, {"linear_map": 0.3, "bm25": 0.6}, "worse_than_bm25", "Worse than BM25"),
        (0.04, {"linear_map": 0.01, "chance": 0.03}, "nothing_measurable", "No better than chance"),
        (0.5, {"untrained": 0.05, "chance": 0.03}, "learned_well", "The towers learned well"),
        (0.2, {"untrained": 0.05, "chance": 0.03}, "learned_something", "The towers learned something"),
        (0.05, {"untrained": 0.05, "chance": 0.01}, "nothing_measurable",
         "No better than untrained towers with a linear map"),
        (0.05, {"untrained": 0.15, "chance": 0.01}, "nothing_measurable",
         "Worse than untrained towers with a linear map"),
        (0.5, {"chance": 0.03}, "learned_something", "The towers learned something"),
    ],
)  # fmt: skip
def test_levels_and_titles(trained, baselines, level, title):
    comparison = compared(trained, **baselines)
    found = pair_verdict(comparison, "" if "untrained" in baselines else "CLIP")
    assert (found["level"], found["title"]) == (level, title)
    assert decide_pair_level(comparison) == Level(level)
    assert all(isinstance(each, str) for each in [found["sentence"], *found["remarks"], *found["next"]])


def test_sentence_names_the_figures_and_the_gap():
    found = pair_verdict(compared(0.5, linear_map=0.4, chance=0.03), "CLIP")
    assert "200 unseen queries, is 0.500" in found["sentence"]
    assert "CLIP with the best linear map 0.400 and chance 0.030" in found["sentence"]
    assert "(+10.0 points, 95% interval +8.0 to +12.0)" in found["sentence"]
    assert "better in 4 of 4" in found["remarks"][0]


def test_worst_outcome_decides():
    comparison = compared(0.5, starting_point=0.3, linear_map=0.45, chance=0.03)
    assert deciding_pair(comparison)["against"] == "linear_map"


def test_collapse_is_said_unless_the_run_is_ahead():
    assert pair_verdict(compared(0.5, linear_map=0.4), effective_rank=1.2)["level"] == "adapting_helped"
    assert pair_verdict(compared(0.1, linear_map=0.4), effective_rank=1.2)["level"] == "collapsed"
    assert pair_verdict([]) is None


def test_steps_name_options_of_the_run():
    steps = pair_verdict(compared(0.1, linear_map=0.4), "CLIP", {"epochs": 40, "lr": 0.1})["next"]
    assert "`--epochs 10` (this run: 40) or `--lr 0.01` (this run: 0.1)" in steps[1]


@pytest.mark.parametrize(
    ("encoder", "value"),
    [
        ("image=lite0,caption=static", "image=last:2,caption=all"),
        ("image=lite0,caption=hf:bert@weights", "last:2"),
        ("static", "all"),
    ],
)
def test_token_vectors_are_not_asked_for_their_last_blocks(encoder, value):
    options = {"tune": "none", "encoder": encoder}
    steps = pair_verdict(compared(0.4, linear_map=0.4), "lite0", options)["next"]
    assert f"`--tune {value}` (this run: none)" in steps[1]


def test_measurements_are_named_by_columns():
    assert measurement_label("second_to_first_recall_at_10", ("image", "caption")) == "caption → image R@10"
    assert measurement_label("first_to_second_mrr", ("image", "caption")) == "image → caption MRR"
    assert "MRR" in PAIR_RULES
