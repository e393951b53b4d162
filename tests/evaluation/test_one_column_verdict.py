"""The verdict on one column from given comparisons."""

import pytest

from coulomb.evaluation.one_column_verdict import ONE_COLUMN_RULES, deciding_one_column, one_column_verdict


def entry(against, trained, baseline, of=("knn", "linear", "few_shot"), half=0.02):
    difference = trained - baseline
    low, high = difference - half, difference + half
    outcome = "better" if low > 0 else "worse" if high < 0 else "even"
    row = {"trained": trained, "baseline": baseline, "difference": difference, "low": low, "high": high, "n": 200,
           "outcome": outcome}  # fmt: skip
    share = difference / (1 - baseline)
    return {
        "against": against,
        "measurements": dict.fromkeys(of, row),
        "overall": row | {"of": list(of), "share": share},
    }


@pytest.mark.parametrize(
    ("trained", "baselines", "level", "title"),
    [
        (0.7, {"starting_point": 0.6, "bm25": 0.5}, "adapting_helped", "Training beyond MiniLM helped"),
        (0.7, {"starting_point": 0.6, "bm25": 0.7}, "adapting_helped", "Training beyond MiniLM helped"),
        (0.7, {"starting_point": 0.6, "bm25": 0.8}, "worse_than_bm25", "Worse than BM25"),
        (0.7, {"starting_point": 0.695, "bm25": 0.5}, "use_starting_point", "Use MiniLM without training"),
        (0.7, {"starting_point": 0.8, "bm25": 0.5}, "adapting_hurt", "Training made MiniLM worse"),
        (0.7, {"untrained": 0.3, "raw_values": 0.5}, "learned_well", "The encoder learned well"),
        (0.7, {"untrained": 0.3, "raw_values": 0.65}, "learned_something", "The encoder learned something"),
        (0.7, {"untrained": 0.3, "raw_values": 0.7}, "nothing_measurable", "No better than the raw values"),
        (0.7, {"untrained": 0.7, "raw_values": 0.5}, "nothing_measurable", "No better than the untrained network"),
        (0.7, {"untrained": 0.8, "raw_values": 0.5}, "nothing_measurable", "Worse than the untrained network"),
        (0.7, {"untrained": 0.3, "raw_values": 0.8}, "worse_than_raw_values", "Worse than the raw values"),
        (0.7, {"untrained": 0.3, "bm25": 0.7}, "nothing_measurable", "No better than BM25"),
    ],
)
def test_levels_and_titles(trained, baselines, level, title):
    comparison = [entry(name, trained, value) for name, value in baselines.items()]
    found = one_column_verdict(comparison, "labels", "text", "MiniLM", {"epochs": 10, "lr": 1e-3}, 20.0)
    assert (found["level"], found["title"]) == (level, title)
    assert "70.0%" in found["sentence"] and found["next"]
    assert deciding_one_column(comparison)["against"] in baselines


def test_a_baseline_that_is_measured_by_knn_alone_says_so():
    comparison = [entry("starting_point", 0.6, 0.5), entry("bm25", 0.7, 0.65, of=("knn",))]
    sentence = one_column_verdict(comparison, "labels", "text", "MiniLM")["sentence"]
    assert "BM25 65.0% (by kNN, where the encoder has 70.0%)" in sentence and "MiniLM 50.0%" in sentence


def test_collapse_and_nothing_to_judge_by():
    bare = one_column_verdict([], "nothing", "vector", effective_rank=12.0)
    assert bare["level"] == "not_judged" and "--labels" in bare["next"][0] and "12" in bare["remarks"][0]
    assert one_column_verdict([], "nothing", "vector", effective_rank=1.2)["level"] == "collapsed"
    assert one_column_verdict([entry("starting_point", 0.7, 0.5)], "labels", "text", effective_rank=1.2)["level"] == (
        "adapting_helped"
    )
    assert "protocol says why" in one_column_verdict([], "labels", "text")["sentence"]
    assert "nothing is judged" in ONE_COLUMN_RULES
