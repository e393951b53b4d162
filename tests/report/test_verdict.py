"""The verdict on invented numbers: each rule, each threshold from both sides."""

import math

import pytest

from coulomb.report.verdict import RULES, judge


def evaluation(trained=0.934, raw=0.865, untrained=0.71, *, std=0.01, draws=20, key="5"):
    def found(mean):
        return {"knn": None, "linear": None, "few_shot": {key: {"mean": mean, "std": std}}}

    return {
        "trained": found(trained) | {"protocol": {"few_shot": {"draws": draws}}},
        "raw_pixels": found(raw),
        "random_init": found(untrained),
    }


def lines(*losses, no_signal=math.log(511)):
    return [
        {"step": i + 1, "epoch": 1, "loss": loss, "no_signal": no_signal, "lr": 0.1} for i, loss in enumerate(losses)
    ]


def test_the_sentence_names_all_three_numbers():
    verdict = judge(evaluation(), lines(3.0), [], test_images=360)
    assert verdict.sentence == (
        "With 5 labels a class it is right for 93.4\u202f% of unseen images; raw pixels reach 86.5\u202f%, "
        "the untrained network reaches 71.0\u202f%."
    )
    assert verdict.remarks[0] == "Of the errors of raw pixels, 51\u202f% are gone."


@pytest.mark.parametrize(
    ("trained", "raw", "untrained", "kind", "tone"),
    [
        (0.76, 0.50, 0.30, "well", "good"),  # 52 % of the errors gone
        (0.74, 0.50, 0.30, "learned", "good"),  # 48 %
        (0.56, 0.50, 0.30, "learned", "good"),  # 12 %
        (0.54, 0.50, 0.30, "little", "fair"),  # 8 %
        (0.56, 0.30, 0.50, "learned", "good"),  # the better baseline is the untrained network
        (0.54, 0.30, 0.50, "little", "fair"),
        (0.503, 0.50, 0.30, "little", "fair"),  # within chance: 2·√(2·0.01²/20) = 0.0063
        (0.497, 0.50, 0.30, "little", "fair"),
        (0.45, 0.50, 0.30, "worse", "bad"),
        (1.0, 1.0, 1.0, "little", "fair"),  # nothing left to show
    ],
)
def test_thresholds(trained, raw, untrained, kind, tone):
    verdict = judge(evaluation(trained, raw, untrained), lines(3.0), [])
    assert (verdict.kind, verdict.tone) == (kind, tone)


def test_few_test_images_make_a_lead_chance():
    found = evaluation(0.56, 0.50, 0.30, std=0.0)
    assert judge(found, [], [], test_images=100_000).kind == "learned"
    few = judge(found, [], [], test_images=50)
    assert few.kind == "little"
    assert "within chance" in few.remarks[0]


def test_unknown_number_of_draws_is_taken_as_one():
    found = evaluation(0.56, 0.50, 0.30, std=0.03)
    assert judge(found, [], []).kind == "learned"
    del found["trained"]["protocol"]
    assert judge(found, [], []).kind == "little"


def test_worse_than_pixels_but_better_than_untrained_is_said():
    verdict = judge(evaluation(0.6, 0.8, 0.4), [], [])
    assert verdict.kind == "worse"
    assert "Training helped" in verdict.remarks[0]


def test_the_measurement_is_the_first_of_the_order():
    found = evaluation(0.9, 0.5, 0.3, key="10")
    for result, knn in zip(found.values(), (0.2, 0.9, 0.8), strict=True):
        result["knn"] = knn
    verdict = judge(found, [], [])
    assert verdict.score.key == "few_shot_10"
    assert "1 of 2 measurements" in verdict.remarks[-1]
    for result in found.values():
        result["few_shot"] = None
    assert judge(found, [], []).kind == "worse"  # by kNN, all that is left


def test_without_labels_views_are_retrieved_and_the_weakness_is_said():
    found = {name: {"knn": None, "few_shot": None, "view_retrieval": value} for name, value in
             (("trained", 0.93), ("raw_pixels", 0.55), ("random_init", 0.4))}  # fmt: skip
    verdict = judge(found, lines(3.0), [])
    assert verdict.kind == "well"
    assert "other view" in verdict.sentence
    assert any("weaker evidence" in remark for remark in verdict.remarks)


def test_view_retrieval_is_no_accuracy_that_counts_as_ahead():
    found = evaluation()
    for result, value in zip(found.values(), (0.1, 0.9, 0.9), strict=True):
        result["view_retrieval"] = value
        result["knn"] = value if value == 0.1 else 0.05
    assert "all 2 measurements" in judge(found, [], []).remarks[-1]


@pytest.mark.parametrize(("rank", "kind"), [(1.4, "collapsed"), (2.1, "worse"), (None, "worse")])
def test_collapse_by_effective_rank(rank, kind):
    measures = [{"epoch": 0, "effective_rank": 30.0}] + ([{"epoch": 9, "effective_rank": rank}] if rank else [])
    assert judge(evaluation(0.2, 0.8, 0.6), lines(3.0), measures).kind == kind


def test_two_classes_told_apart_along_one_direction_are_no_collapse():
    assert judge(evaluation(), lines(3.0), [{"epoch": 9, "effective_rank": 1.5}]).kind == "well"


def test_rank_of_the_samples_stands_in():
    assert judge({}, lines(3.0), [], effective_rank=1.2).kind == "collapsed"
    assert judge({}, lines(3.0), [{"epoch": 1, "effective_rank": 9.0}], effective_rank=1.2).kind == "pending"


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "oops"])
def test_a_loss_that_is_no_number_is_a_failure(bad):
    verdict = judge(evaluation(), lines(5.0, bad, 4.0), [])
    assert verdict.kind == "failed"
    assert "step 2" in verdict.sentence


@pytest.mark.parametrize(("share", "kind"), [(0.985, "no-signal"), (0.975, "pending"), (1.1, "no-signal")])
def test_no_signal(share, kind):
    assert judge({}, lines(*[share * math.log(511)] * 40), []).kind == kind


def test_not_evaluated_tells_the_live_knn():
    verdict = judge({}, lines(3.0), [{"epoch": 2, "knn": 0.4}, {"epoch": 4, "knn": 0.512}])
    assert verdict.kind == "pending"
    assert "51.2\u202f%" in verdict.sentence
    assert "epoch 4" in verdict.sentence


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"trained": None},
        {"trained": {"few_shot": {"5": None}, "knn": "0.9"}},
        {"trained": {"knn": math.nan}, "raw_pixels": {"knn": 0.4}},
        {"trained": {"few_shot": {"5": {"mean": math.inf}}}},
        {"trained": {"few_shot": [1]}, "protocol": 3},
        {"raw_pixels": {"knn": 0.4}},
    ],
)
def test_damaged_evaluations_end_in_no_verdict(found):
    assert judge(found, [], []).kind == "pending"


def test_no_baseline_no_praise():
    assert judge({"trained": {"knn": 0.99}}, [], []).kind == "uncompared"


def test_the_rules_on_the_page_state_the_thresholds():
    for text in ("50%", "10%", "98%", "2 standard errors", "below 2"):
        assert text in RULES
