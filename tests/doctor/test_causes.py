"""Runs that were diagnosed wrongly, as made-up evidence: each has one verdict, of the right cause."""

import math

import pytest

from coulomb.doctor import diagnose, render, summary, verdict_lines
from doctor_cases import NO_SIGNAL, evidence

SHUFFLED = {"labels": {"pixels": 0.12, "features": 0.13, "chance": 0.1, "images": 359}}
ALIKE = {"embedding_std": 0.03, "embedding_rank": 1.5, "separation": 0.6, "knn": 0.11}
BLANK = {"images": 1438, "exact": 1437, "near": 0, "blank": 1438}
ALL_LEAK = {"images": 359, "exact": 359, "near": 0}


def sick(found):
    return [verdict["name"] for verdict in diagnose(found)["verdicts"] if verdict["severity"] == "sick"]


def state(found, name):
    return next(each["state"] for each in diagnose(found)["checked"] if each["name"] == name)


def test_a_tiny_temperature_is_not_called_a_learning_rate():
    step = {"loss": 1.5 * NO_SIGNAL, "top1_gradient": 0.99, "update_ratio": 0.5}
    config = {"temperature": 1e-3}
    assert sick(evidence(step=step, config=config)) == ["temperature-too-low"]
    assert sick(evidence(step=step, config=config, failed="the loss became infinite")) == ["temperature-too-low"]
    assert sick(evidence(step=step | {"top1_gradient": 0.1})) == ["learning-rate-too-high"]


@pytest.mark.parametrize("method", ["supcon", "softmax"])
def test_shuffled_labels_are_not_called_a_collapse(method):
    assert sick(evidence(method, look=ALIKE, step={"loss": NO_SIGNAL}, network=SHUFFLED)) == ["labels-unrelated"]


def test_shuffled_labels_are_a_warning_where_they_are_not_learned_from():
    assert sick(evidence(look={"knn": 0.1}, network=SHUFFLED)) == []
    assert state(evidence(look={"knn": 0.1}, network=SHUFFLED), "labels-unrelated") == "warning"


def test_a_few_held_out_images_do_not_accuse_the_labels():
    few = {"labels": SHUFFLED["labels"] | {"images": 40}}
    assert state(evidence("supcon", look={"knn": 0.1}, network=few), "labels-unrelated") == "unknown"


@pytest.mark.parametrize("figures", [{"identical_views": 1.0}, {"pixel_retrieval": 1.0, "identical_views": 1.0}])
def test_identical_views_are_too_weak_and_not_too_strong(figures):
    look = {"separation": 0.5, "embedding_std": 0.05, "embedding_rank": 1.2}
    found = diagnose(evidence(look=look, network=figures | {"matcher_separation": 0.5, "distance": 0.001}))
    assert [verdict["name"] for verdict in found["verdicts"]] == ["augmentation-too-weak"]
    assert found["verdicts"][0]["title"] == "The two views of an image are the same picture."


def test_black_images_are_called_blank_and_nothing_else():
    look = {"separation": 0.5, "embedding_std": 0.0, "embedding_rank": 1.0}
    network = {
        "matcher_separation": 0.5,
        "identical_views": 1.0,
        "distance": 0.0,
        "transplant": {"region": "top", "share": 1},
    }
    found = evidence(look=look, network=network | SHUFFLED, data={"copies": BLANK, "leaks": ALL_LEAK})
    assert sick(found) == ["images-blank"]


def test_a_short_byol_whose_views_can_be_matched_has_no_strong_views():
    short = evidence("byol", options={"momentum": 0.9}, look={"separation": 0.58}, network={"matcher_separation": 0.82})
    assert sick(short) == []


def test_a_loss_that_falls_slowly_is_not_without_signal():
    """SupCon on 1,500 photos for 6 epochs went 3% of the way to its floor."""
    assert (
        sick(evidence("supcon", steps=66, step={"loss": 5.48, "no_signal": 5.541}, config={"temperature": 0.1})) == []
    )
    assert sick(evidence("supcon", steps=66, step={"loss": 5.5409, "no_signal": 5.541})) == ["no-signal"]


def test_few_negatives_are_not_called_a_temperature():
    found = evidence(
        config={"batch_size": 4}, step={"negatives": 6.0, "top1_gradient": 0.6, "loss": 1.5, "no_signal": math.log(7)}
    )
    assert sick(found) == ["batch-too-small"]


@pytest.mark.parametrize(
    ("level", "verdicts"),
    [
        ("learned_well", []),
        ("learned_something", []),
        ("worse_than_raw_pixels", [("nothing-learned", "warning")]),
        ("nothing_measurable", [("nothing-learned", "sick")]),
    ],
)
def test_the_verdict_of_the_evaluation_decides_what_was_learned(level, verdicts):
    steps = ["Ask `coulomb doctor RUN`.", "Train longer."]
    found = diagnose(evidence(evaluation={"verdict": {"level": level, "next": steps}}))
    assert [(each["name"], each["severity"]) for each in found["verdicts"]] == verdicts
    assert found["healthy"] == (level != "nothing_measurable")
    assert not verdicts or found["verdicts"][0]["remedy"] == "Train longer."


@pytest.mark.parametrize(
    ("evaluation", "why"),
    [({}, "holds no verdict"), ({"verdict": "x"}, "holds no verdict"), (None, "was not evaluated")],
)
def test_without_a_verdict_of_the_evaluation_a_run_is_not_called_healthy(evaluation, why):
    found = diagnose(evidence(evaluation=evaluation))
    assert summary(found).startswith("nothing wrong found: ")
    assert why in verdict_lines(found)


def test_a_figure_within_its_threshold_says_so():
    found = diagnose(evidence(data={"leaks": {"images": 800, "exact": 1, "near": 0}}))
    assert "0.00125 (not above the threshold 0.01)" in render(found)


def test_checks_that_were_not_made_are_listed_with_their_reasons():
    found = diagnose(evidence())
    (line,) = [line for line in verdict_lines(found).splitlines() if "no queue" in line]
    assert line == "  not checked: queue-stale, queue-larger-than-data (there is no queue)"
    unknown = [each for each in found["checked"] if each["state"] == "unknown"]
    assert all(each["name"] in verdict_lines(found) for each in unknown)
