"""The verdict: example runs, every level, both sides of every threshold."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.evaluation.comparison import compare, comparison_row, with_share
from coulomb.evaluation.level import RULES, SMALLEST, WELL, WELL_VIEWS, Level, decide_level
from coulomb.evaluation.next_steps import next_steps
from coulomb.evaluation.verdict import preliminary_verdict, verdict

NAMES = ("knn", "linear", "few_shot_1", "few_shot_5", "few_shot_10")


def side(against, baseline, difference, width=0.02, outcomes=None, n=1000, names=NAMES):
    """One comparison with the same difference everywhere, unless ``outcomes`` says otherwise."""
    rows = {}
    for i, name in enumerate(names):
        rows[name] = comparison_row(baseline + difference, baseline, difference - width, difference + width, n)
        if outcomes:
            rows[name]["outcome"] = outcomes[i]
    overall = comparison_row(baseline + difference, baseline, difference - width, difference + width, n)
    of = ["view_retrieval"] if names == ("view_retrieval",) else ["knn", "linear", "few_shot"]
    return {"against": against, "measurements": rows, "overall": with_share(overall, of)}


def both(pixels, untrained, **options):
    return [side("raw_pixels", *pixels, **options), side("untrained", *untrained, **options)]


@pytest.mark.parametrize(
    ("pixels", "untrained", "level", "title"),
    [
        ((0.40, 0.07), (0.38, 0.09), "learned_something", "The encoder learned something"),  # the trial called "little"
        ((0.40, 0.16), (0.38, 0.18), "learned_well", "The encoder learned well"),  # 27% of the errors
        ((0.40, 0.14), (0.38, 0.16), "learned_something", "The encoder learned something"),  # 23%
        ((0.38, 0.16), (0.44, 0.10), "learned_something", "The encoder learned something"),  # 18% of the untrained's
        ((0.40, 0.001), (0.40, 0.001), "nothing_measurable", "Nothing measurable was learned"),
        ((0.40, -0.05), (0.30, 0.05), "worse_than_raw_pixels", "Worse than raw pixels"),
        ((0.40, -0.05), (0.40, -0.05), "worse_than_raw_pixels", "Worse than raw pixels"),
        ((0.40, 0.01), (0.30, 0.11), "nothing_measurable", "No better than raw pixels"),
        ((0.30, 0.10), (0.40, 0.00), "nothing_measurable", "No better than the untrained network"),
        ((0.30, 0.10), (0.50, -0.10), "nothing_measurable", "Worse than the untrained network"),
        ((1.00, 0.00), (1.00, 0.00), "nothing_measurable", "Nothing measurable was learned"),
        ((1.00, -0.10), (1.00, -0.10), "worse_than_raw_pixels", "Worse than raw pixels"),
    ],
)
def test_levels(pixels, untrained, level, title):
    found = verdict(both(pixels, untrained))
    assert (found["level"], found["title"]) == (level, title)
    assert found["next"] and all("`" in step for step in found["next"])


def test_small_significant_difference_is_negligible():
    certain = both((0.5, 0.001), (0.5, 0.001), width=0.0001, n=1_000_000)
    assert certain[0]["overall"]["outcome"] == "better"
    found = verdict(certain)
    assert found["level"] == "nothing_measurable" and "negligible" in found["sentence"]
    assert verdict(both((0.5, -0.001), (0.5, -0.001), width=0.0001))["level"] == "nothing_measurable"
    assert verdict(both((0.5, 0.5 * SMALLEST + 1e-6), (0.5, 0.2), width=0.001))["level"] == "learned_something"


def test_measurements_decide_if_the_average_is_not_significant():
    def with_outcomes(*outcomes):
        return both((0.9, 0.01), (0.9, 0.01), width=0.015, outcomes=outcomes)

    assert decide_level(with_outcomes("even", "even", "better", "better", "better")) == "learned_something"
    assert decide_level(with_outcomes("worse", "even", "better", "better", "better")) == "nothing_measurable"
    assert decide_level(with_outcomes("even", "even", "even", "better", "better")) == "learned_something"
    assert decide_level(with_outcomes("even", "even", "even", "even", "better")) == "nothing_measurable"
    assert decide_level(with_outcomes("even", "even", "even", "even", "even")) == "nothing_measurable"
    behind = both((0.4, -0.013), (0.3, 0.1), width=0.015, outcomes=("even", "worse", "even", "even", "even"))
    assert decide_level(behind) == "nothing_measurable"
    behind[0]["measurements"]["knn"]["outcome"] = "worse"
    assert decide_level(behind) == "worse_than_raw_pixels"
    assert "worse in others" in verdict(with_outcomes("worse", "even", "better", "better", "better"))["sentence"]


def test_learned_well_needs_most_measurements_and_none_worse():
    def level(*outcomes):
        return decide_level(both((0.4, 0.2), (0.4, 0.2), outcomes=outcomes))

    assert level("better", "better", "better", "even", "even") == "learned_well"
    assert level("better", "better", "even", "even", "even") == "learned_something"
    assert level("better", "better", "better", "better", "worse") == "learned_something"


def adapted(start, pixels, untrained=(0.1, 0.3), **options):
    return [side("starting_point", *start, **options), *both(pixels, untrained, **options)]


@pytest.mark.parametrize(
    ("start", "pixels", "level", "title"),
    [
        ((0.70, 0.06), (0.40, 0.36), "adapting_helped", "Adapting the published weights helped"),
        ((0.70, 0.00), (0.40, 0.30), "use_starting_point", "Use the published weights as they are"),
        ((0.70, 0.005), (0.40, 0.305), "use_starting_point", "Use the published weights as they are"),  # negligible
        ((0.70, -0.06), (0.40, 0.24), "adapting_hurt", "Training made the published weights worse"),
        ((0.70, -0.40), (0.40, -0.10), "adapting_hurt", "Training made the published weights worse"),  # not: raw pixels
        ((0.30, 0.00), (0.40, -0.10), "worse_than_raw_pixels", "Worse than raw pixels"),
        ((0.30, 0.05), (0.35, 0.00), "nothing_measurable", "No better than raw pixels"),
        ((0.30, 0.00), (0.30, 0.00), "nothing_measurable", "No better than raw pixels"),
        ((1.00, 0.00), (0.40, 0.60), "use_starting_point", "Use the published weights as they are"),
    ],
)
def test_starting_point_decides(start, pixels, level, title):
    found = verdict(adapted(start, pixels), {"encoder": "lite0"})
    assert (found["level"], found["title"]) == (level, title)
    assert found["next"] and all("`" in step for step in found["next"])


def test_starting_point_decides_where_the_other_baselines_would_say_well():
    """Before there was a starting point, published weights were the untrained network, and hardly any loss showed."""
    comparison = adapted((0.70, -0.01), (0.40, 0.29), width=0.005)
    assert decide_level(comparison[1:]) == "learned_well" and decide_level(comparison) == "adapting_hurt"


def test_adaptation_without_labels_is_not_called_help():
    def found(difference):
        names = ("view_retrieval",)
        return verdict(adapted((0.4, difference), (0.2, 0.2 + difference), (0.1, 0.3 + difference), names=names))

    better = found(0.3)
    assert better["level"] == "adapting_unverified" and "unknown without labels" in better["title"]
    assert any("may push images of the same kind apart" in remark for remark in better["remarks"])
    assert "--on OTHER" in better["next"][0]
    assert found(0.0)["level"] == "use_starting_point" and found(-0.3)["level"] == "adapting_hurt"
    assert not any("push" in remark for remark in found(0.0)["remarks"])


def test_sentence_about_the_starting_point_has_its_figures():
    found = verdict(adapted((0.70, 0.06), (0.40, 0.36), width=0.03), {"encoder": "lite0"})
    assert found["sentence"] == (
        "Averaged over kNN, linear probe and few-shot, 76.0% of unseen images are classified correctly, compared with the "
        "published weights 70.0%, raw pixels 40.0% and the untrained network 10.0%. It makes 20% fewer errors than the "
        "published weights (+6.0 points, 95% interval +3.0 to +9.0)."
    )
    assert found["remarks"][0].startswith("Compared with the published weights: significantly better in 5 of 5 ")
    negligible = verdict(adapted((0.70, 0.001), (0.40, 0.3), width=0.0001))["sentence"]
    assert "less than 2% of their errors" in negligible
    assert "The published weights make no error" in verdict(adapted((1.0, 0.0), (0.4, 0.6), width=0))["sentence"]


@pytest.mark.parametrize(
    ("encoder", "name"),
    [
        ("lite0", "published"),
        ("hf:facebook/dinov2-small@weights", "published"),
        ("run:runs/photos", "starting"),
        ("models/mine", "starting"),
        ("weights.safetensors", "starting"),
        (None, "published"),
    ],
)
def test_weights_of_an_earlier_run_are_not_called_published(encoder, name):
    found = verdict(adapted((0.7, 0.0), (0.4, 0.3)), {"encoder": encoder})
    assert found["title"] == f"Use the {name} weights as they are"
    assert f"{name} weights" in found["sentence"] and f"{name} weights" in found["remarks"][0]


def test_advice_for_published_weights_that_are_as_good():
    options = {"encoder": "lite0", "data": "my photos", "image_size": 128, "epochs": 20}
    told = verdict(adapted((0.7, 0.0), (0.4, 0.3)), options, 100)["next"]
    assert "`coulomb embed lite0 'my photos' --image-size 128 --out features.parquet`" in told[0]
    assert "`--tune whiten`" in told[1]
    again = verdict(adapted((0.7, 0.0), (0.4, 0.3)), options | {"tune": "whiten", "data": "<ndarray>"}, 100)["next"]
    assert "coulomb embed lite0 PHOTOS" in again[0] and not any("whiten" in step for step in again)
    wide = verdict(adapted((0.7, 0.0), (0.4, 0.3), width=0.1), options, 100)["next"]
    assert any("Measure more precisely" in step for step in wide)
    assert "No update was made" in verdict(adapted((0.7, 0.0), (0.4, 0.3)), options, 0)["next"][1]


def test_advice_for_weights_that_training_damaged():
    options = {"encoder": "lite0", "data": "photos", "epochs": 20, "lr": 0.06, "tune": "all"}
    told = verdict(adapted((0.7, -0.1), (0.4, 0.2)), options, 100)["next"]
    assert told[0].startswith("Use the weights as they are: `coulomb embed lite0 photos ")
    assert told[1] == "Keep the network close to its start: `--stay-close 1` or `--tune lora:8`."
    assert told[2] == "Train less: `--epochs 5` (this run: 20) or `--lr 0.006` (this run: 0.06)."
    told = verdict(adapted((0.7, -0.1), (0.4, 0.2)), options | {"tune": "lora:8", "stay_close": 1.0, "epochs": 2}, 100)
    assert len(told["next"]) == 2 and "lora" not in told["next"][1] and "--epochs" not in told["next"][1]


@pytest.mark.parametrize(
    ("difference", "level"), [(0.45, "learned_well"), (0.3, "learned_something"), (-0.1, "worse_than_raw_pixels")]
)
def test_view_retrieval_decides_without_labels(difference, level):
    found = verdict(both((0.2, difference), (0.2, difference), names=("view_retrieval",)))
    assert found["level"] == level
    assert "views" in found["title"] and "Without labels" in found["remarks"][0]


def test_remark_on_views_that_match_without_helping():
    """A shortcut, such as a bar code in each image: views are found by it, classes are not."""
    found = both((0.4, 0.0), (0.4, 0.0))
    for each in found:
        each["measurements"]["view_retrieval"] = comparison_row(0.9, 0.2, 0.65, 0.75, 500)
    told = verdict(found)
    assert told["level"] == "nothing_measurable"
    assert any("match views (90.0%, raw pixels 20.0%)" in remark for remark in told["remarks"])


def test_sentence_and_remarks_hold_the_figures():
    found = verdict(both((0.40, 0.07), (0.38, 0.09), width=0.03))
    assert found["sentence"] == (
        "Averaged over kNN, linear probe and few-shot, 47.0% of unseen images are classified correctly, compared with raw "
        "pixels 40.0% and the untrained network 38.0%. It makes 12% fewer errors than raw pixels (+7.0 points, 95% interval "
        "+4.0 to +10.0)."
    )
    assert found["remarks"][0].startswith(
        "Compared with raw pixels: significantly better in 5 of 5 measurements (kNN, "
    )
    assert "1 label per class, 5 labels per class" in found["remarks"][0]


@pytest.mark.parametrize(
    ("pixels", "untrained", "name"),
    [
        ((0.3, 0.1), (0.4, 0.0), "from the untrained network"),
        ((0.3, 0.1), (0.5, -0.1), "behind the untrained network"),
        ((0.4, 0.0), (0.3, 0.1), "from raw pixels"),
        ((0.4, -0.1), (0.5, -0.2), "behind raw pixels"),
        ((0.4, 0.2), (0.5, 0.1), "fewer errors than the untrained network"),
    ],
)
def test_sentence_names_the_deciding_baseline(pixels, untrained, name):
    assert name in verdict(both(pixels, untrained))["sentence"]


def test_nothing_compared_gives_no_verdict():
    assert verdict([]) is None
    assert verdict([compare("raw_pixels", {}, {})]) is None
    assert verdict([side("raw_pixels", 0.4, 0.2)])["level"] == "learned_well"  # one baseline is better than none


@pytest.mark.parametrize(
    ("rank", "difference", "level"),
    [
        (1.4, -0.1, "collapsed"),
        (1.4, 0.0, "collapsed"),
        (2.1, -0.1, "worse_than_raw_pixels"),
        (None, -0.1, "worse_than_raw_pixels"),
        (1.4, 0.3, "learned_well"),  # two classes told apart along one direction
    ],
)
def test_a_run_that_is_not_ahead_and_uses_one_direction_has_collapsed(rank, difference, level):
    found = verdict(both((0.4, difference), (0.4, difference)), effective_rank=rank)
    assert found["level"] == level
    if level == "collapsed":
        assert "1.4" in found["sentence"] and "compared with raw pixels" in found["remarks"][0]


def lines(*losses, no_signal=math.log(511)):
    return [{"step": i, "epoch": 1, "loss": loss, "no_signal": no_signal} for i, loss in enumerate(losses, 1)]


@pytest.mark.parametrize("bad", [math.nan, math.inf, None, "oops"])
def test_a_loss_that_is_not_a_number_is_a_failure(bad):
    found = preliminary_verdict(lines(5.0, bad, 4.0))
    assert found["level"] == "failed" and "step 2" in found["sentence"]


@pytest.mark.parametrize(("share", "level"), [(0.985, "no_signal"), (0.975, "pending"), (1.1, "no_signal")])
def test_a_loss_near_its_value_for_constant_embeddings_is_no_signal(share, level):
    assert preliminary_verdict(lines(*[share * math.log(511)] * 40))["level"] == level


def test_collapse_is_seen_without_an_evaluation():
    measures = [{"epoch": 0, "effective_rank": 30.0}, {"epoch": 9, "effective_rank": 1.4}]
    assert preliminary_verdict([*lines(3.0), *measures])["level"] == "collapsed"
    assert preliminary_verdict([*lines(3.0), *measures[::-1]])["level"] == "pending"


def test_before_the_evaluation_the_last_live_knn_is_named():
    found = preliminary_verdict(
        [*lines(3.0), {"epoch": 2, "knn": 0.4}, {"epoch": 4, "knn": 0.512}, {"epoch": 6, "knn": "x"}]
    )
    assert found["level"] == "pending" and "51.2%" in found["sentence"] and "epoch 4" in found["sentence"]
    assert preliminary_verdict([])["level"] == "pending"


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.integers(4, 200))
def test_any_outcome_has_a_level_and_is_json(seed, p, q, r, n):
    draw = np.random.default_rng(seed)

    def right(probability):
        return {"knn": draw.random(n) < probability, "few_shot_1": draw.random((3, n)) < probability}

    trained, pixels, untrained = right(p), right(q), right(r)
    comparison = [compare("raw_pixels", trained, pixels), compare("untrained", trained, untrained)]
    if seed % 2:
        comparison.insert(0, compare("starting_point", trained, right(q)))
    found = verdict(comparison, {"epochs": 3, "batch_size": 256, "lr": 0.1}, 12)
    assert Level(found["level"]) and json.loads(json.dumps(found)) == found
    differences = {each["against"]: each["overall"]["difference"] for each in comparison}
    assert min(differences.values()) > 0 or found["level"] not in (
        "learned_well",
        "learned_something",
        "adapting_helped",
    )
    assert differences["raw_pixels"] < 0 or found["level"] != "worse_than_raw_pixels"
    assert differences.get("starting_point", 0) < 0 or found["level"] != "adapting_hurt"
    assert ("starting_point" in differences) or not found["level"].startswith(("adapting", "use"))


@settings(deadline=None, max_examples=25)
@given(st.floats(0.05, 0.9), st.floats(-0.3, 0.3), st.floats(0, 0.1), st.floats(0, 0.3))
def test_more_accuracy_never_lowers_the_level(baseline, difference, width, more):
    order = {"worse_than_raw_pixels": 0, "nothing_measurable": 1, "learned_something": 2, "learned_well": 3}
    steps = [(baseline, difference), (baseline, difference + more)]
    levels = [decide_level(both(step, step, width=width)) for step in steps]
    assert order[levels[0]] <= order[levels[1]]
    order = {"adapting_hurt": -1} | order | {"use_starting_point": 4, "adapting_helped": 5}
    for start in (0.0, 0.2, 0.4):
        levels = [decide_level(adapted((b + start, d - start), (b, d), width=width)) for b, d in steps]
        assert order[levels[0]] <= order[levels[1]]


def test_rules_state_the_thresholds():
    for text in (f"{WELL:.0%}", f"{WELL_VIEWS:.0%}", f"{SMALLEST:.0%}", "95% intervals", "98%", "below 2"):
        assert text in RULES


OPTIONS = {"epochs": 12, "batch_size": 256, "lr": 0.06, "image_size": 32, "encoder_width": 32, "views": "small-natural",
           "view_options": {}, "data": "photos", "test": None, "test_fraction": 0.2}  # fmt: skip


def steps(pixels, updates=48, width=0.02, **options):
    return " ".join(verdict(both(pixels, pixels, width=width), OPTIONS | options, updates)["next"])


def test_advice_names_options_that_are_not_set():
    assert "`--epochs 100` (this run: 12, 48 updates)" in steps((0.4, 0.1))
    assert "`--batch-size 64`" in steps((0.4, 0.1)) and "--batch-size" not in steps((0.4, 0.1), batch_size=64)
    assert "--epochs" not in steps((0.4, 0.1), epochs=400)
    assert "`coulomb doctor RUN`" in steps((0.4, -0.1)) and "coulomb doctor" not in steps((0.4, 0.1))
    crop = {"epochs": 400, "batch_size": 64, "image_size": 96}
    assert "--view crop_area" in steps((0.4, -0.1), **crop)
    assert "--view crop_area" not in steps((0.4, -0.1), **crop, view_options={"crop_area": [0.5, 1]})
    assert "--image-size" not in steps((0.4, 0.1), **crop) and "`--encoder-width 64`" in steps((0.4, 0.1), **crop)


def test_setup_errors_are_the_only_advice():
    assert steps((0.4, -0.1), updates=0) == "No update was made: train with `--epochs 100`."
    assert "leave out `--lr`" in steps((0.4, -0.1), lr=0.0) and "--epochs" not in steps((0.4, -0.1), lr=0.0)


def test_advice_for_too_few_test_images():
    assert "`--test-fraction 0.4`" in steps((0.4, 0.05), width=0.1)
    assert "`--test`" in steps((0.4, 0.05), width=0.1, test="held-out")
    assert "`--test`" in steps((0.4, 0.05), width=0.1, test_fraction=0.5)
    assert "--test" not in steps((0.4, 0.0), width=0.01)


def test_advice_for_a_good_run():
    told = steps((0.4, 0.3))
    assert "`--seeds 3`" in told and "--full" in told


@pytest.mark.parametrize("tune", ["none", "head", "whiten"])
def test_no_step_suggests_an_option_that_a_frozen_network_refuses(tune):
    steps = next_steps(
        "adapting_hurt", {"of": ["knn"], "low": -0.2, "high": -0.1, "n": 400}, {"tune": tune, "encoder": "lite0"}
    )
    assert steps and not any("stay-close" in step or "lora" in step for step in steps)
