"""The verdict on invented numbers: each rule, each threshold from both sides."""

import math

import pytest

from coulomb.evaluation.verdict import LEVELS
from coulomb.report.verdict import RULES, TONES, reach_verdict


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


def with_verdict(**changes):
    """An evaluation as it is written now."""
    overall = {"trained": 0.5, "baseline": 0.4, "difference": 0.1, "outcome": "better", "of": ["knn"], "share": 1 / 6}
    verdict = {"level": "learned_something", "title": "The encoder learned something", "sentence": "50.0% are right.",
               "remarks": ["Better."], "next": ["Train longer: `--epochs 100`."]}  # fmt: skip
    comparison = [{"against": name, "overall": overall} for name in ("raw_pixels", "untrained")]
    return evaluation() | {"verdict": verdict | changes, "comparison": comparison}


def test_the_verdict_of_the_evaluation_is_the_headline():
    shown = reach_verdict(with_verdict(), lines(3.0), [])
    assert (shown.kind, shown.tone, shown.headline) == ("learned_something", "good", "The encoder learned something")
    assert (shown.sentence, shown.remarks) == ("50.0\u202f% are right.", ("Better.",))
    assert shown.next == ("Train longer: `--epochs 100`.",)
    assert {name: value.mean for name, value in shown.score.values.items()} == {
        "trained": 0.5, "raw_pixels": 0.4, "random_init": 0.4}  # fmt: skip


@pytest.mark.parametrize(
    ("start", "kind", "tone"),
    [
        (0.85, "adapting_helped", "good"),
        (0.934, "use_starting_point", "fair"),
        (0.99, "adapting_hurt", "bad"),
    ],
)
def test_starting_weights_decide_evaluations_without_comparison(start, kind, tone):
    measured = evaluation() | {"starting_point": {"few_shot": {"5": {"mean": start, "std": 0.01}}}}
    shown = reach_verdict(measured, lines(3.0), [], test_images=2000, options={"encoder": "lite0"})
    assert (shown.kind, shown.tone) == (kind, tone)
    assert "published weights" in shown.headline and shown.score.values["starting_point"].mean == start


def test_every_level_has_a_tone():
    assert set(TONES) == set(LEVELS) and set(TONES.values()) == {"good", "fair", "bad"}


@pytest.mark.parametrize(
    "changes",
    [{"level": "perfect"}, {"level": None}, {"title": 3}, {"next": "text"}, {"remarks": [1]}, {"sentence": None}],
)
def test_a_damaged_verdict_is_computed_again(changes):
    shown = reach_verdict(with_verdict(**changes), lines(3.0), [], test_images=360)
    assert shown.sentence == reach_verdict(evaluation(), lines(3.0), [], test_images=360).sentence


@pytest.mark.parametrize("comparison", [None, 7, [7], [{}], [{"against": [], "overall": {"trained": "x"}}]])
def test_a_damaged_comparison_costs_the_tiles_at_most(comparison):
    shown = reach_verdict(with_verdict() | {"comparison": comparison}, lines(3.0), [])
    assert shown.kind == ("learned_something" if isinstance(comparison, list) else "uncompared")


@pytest.mark.parametrize(
    ("trained", "raw", "untrained", "kind", "tone"),
    [
        (0.66, 0.50, 0.30, "learned_well", "good"),  # 32 % of the errors gone
        (0.60, 0.50, 0.30, "learned_something", "good"),  # 20 %
        (0.66, 0.30, 0.50, "learned_well", "good"),  # the better baseline is the untrained network
        (0.60, 0.30, 0.50, "learned_something", "good"),
        (0.503, 0.50, 0.30, "nothing_measurable", "fair"),
        (0.497, 0.50, 0.30, "nothing_measurable", "fair"),
        (0.40, 0.50, 0.30, "worse_than_raw_pixels", "bad"),
        (1.0, 1.0, 1.0, "nothing_measurable", "fair"),
    ],
)
def test_evaluations_of_earlier_versions_are_judged_by_the_same_rules(trained, raw, untrained, kind, tone):
    shown = reach_verdict(evaluation(trained, raw, untrained), lines(3.0), [], test_images=2000)
    assert (shown.kind, shown.tone) == (kind, tone)
    assert "no paired comparison" in shown.remarks[-1]


def test_few_test_images_make_a_lead_chance():
    found = evaluation(0.60, 0.50, 0.30, std=0.0)
    assert reach_verdict(found, [], [], test_images=2000).kind == "learned_something"
    few = reach_verdict(found, [], [], test_images=50)
    assert few.kind == "nothing_measurable"
    assert "within the noise of 50 test images" in few.sentence


def test_without_the_number_of_test_images_nothing_is_claimed():
    shown = reach_verdict(evaluation(), [], [])
    assert shown.kind == "uncompared" and "not recorded" in shown.sentence
    found = evaluation()
    found["trained"]["protocol"]["test"] = 2000
    assert reach_verdict(found, [], []).kind == "learned_well"


def test_unknown_number_of_draws_is_taken_as_one():
    found = evaluation(0.60, 0.50, 0.30, std=0.03)
    assert reach_verdict(found, [], [], test_images=2000).kind == "learned_something"
    del found["trained"]["protocol"]
    assert reach_verdict(found, [], [], test_images=2000).kind == "nothing_measurable"


def test_worse_than_pixels_but_better_than_untrained_is_said():
    shown = reach_verdict(evaluation(0.6, 0.8, 0.4), [], [], test_images=2000)
    assert shown.kind == "worse_than_raw_pixels"
    assert any("Training improved" in remark for remark in shown.remarks)


def test_all_measurements_count():
    found = evaluation(0.9, 0.5, 0.3, key="10")
    for result, knn in zip(found.values(), (0.2, 0.9, 0.8), strict=True):
        result["knn"] = knn
    shown = reach_verdict(found, [], [], test_images=2000)
    assert "better in 1 of 2 measurements" in shown.remarks[0] and "worse in 1" in shown.remarks[0]
    for result in found.values():
        result["few_shot"] = None
    assert reach_verdict(found, [], [], test_images=2000).kind == "worse_than_raw_pixels"  # by kNN, all that is left


def test_without_labels_views_are_retrieved_and_the_weakness_is_said():
    found = {name: {"knn": None, "few_shot": None, "view_retrieval": value} for name, value in
             (("trained", 0.93), ("raw_pixels", 0.55), ("random_init", 0.4))}  # fmt: skip
    shown = reach_verdict(found, lines(3.0), [], test_images=360)
    assert shown.kind == "learned_well" and "views" in shown.headline
    assert "other view" in shown.sentence
    assert any("Without labels" in remark for remark in shown.remarks)


def test_options_of_the_run_decide_what_to_try_next():
    shown = reach_verdict(
        evaluation(0.6, 0.5, 0.3), lines(3.0), [], test_images=2000, options={"epochs": 3, "batch_size": 64}
    )
    assert shown.next[0] == "Train longer: `--epochs 100` (this run: 3, 1 update)."


@pytest.mark.parametrize(
    ("rank", "kind"), [(1.4, "collapsed"), (2.1, "worse_than_raw_pixels"), (None, "worse_than_raw_pixels")]
)
def test_collapse_by_effective_rank(rank, kind):
    measures = [{"epoch": 0, "effective_rank": 30.0}] + ([{"epoch": 9, "effective_rank": rank}] if rank else [])
    assert reach_verdict(evaluation(0.2, 0.8, 0.6), lines(3.0), measures, test_images=360).kind == kind


def test_two_classes_told_apart_along_one_direction_are_no_collapse():
    measures = [{"epoch": 9, "effective_rank": 1.5}]
    assert reach_verdict(evaluation(), lines(3.0), measures, test_images=2000).kind == "learned_well"


def test_rank_of_the_samples_stands_in():
    assert reach_verdict({}, lines(3.0), [], effective_rank=1.2).kind == "collapsed"
    assert reach_verdict({}, lines(3.0), [{"epoch": 1, "effective_rank": 9.0}], effective_rank=1.2).kind == "pending"


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "oops"])
def test_a_loss_that_is_no_number_is_a_failure(bad):
    verdict = reach_verdict(evaluation(), lines(5.0, bad, 4.0), [])
    assert verdict.kind == "failed"
    assert "step 2" in verdict.sentence


@pytest.mark.parametrize(("share", "kind"), [(0.985, "no-signal"), (0.975, "pending"), (1.1, "no-signal")])
def test_no_signal(share, kind):
    assert reach_verdict({}, lines(*[share * math.log(511)] * 40), []).kind == kind


def test_not_evaluated_tells_the_live_knn():
    verdict = reach_verdict({}, lines(3.0), [{"epoch": 2, "knn": 0.4}, {"epoch": 4, "knn": 0.512}])
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
    assert reach_verdict(found, [], []).kind == "pending"


def test_no_baseline_no_praise():
    assert reach_verdict({"trained": {"knn": 0.99}}, [], []).kind == "uncompared"


def test_the_rules_on_the_page_state_the_thresholds():
    for text in ("25%", "50%", "2%", "98%", "95% intervals", "below 2"):
        assert text in RULES
