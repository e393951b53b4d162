"""Rules for runs on several columns: both sides of each threshold."""

import pytest

import doctor_cases as cases
from coulomb.evaluation.doctor import diagnose
from coulomb.evaluation.doctor.pair_rules import PAIR_RULES

LIMIT = {"least_temperature": 0.01}
COLUMNS = {"source": {"count": 1000}}


def of_columns(**parts):
    """A healthy run on two columns with some parts replaced."""
    look = {"second_std": 0.9, "second_rank": 20.0, "modality_gap": 0.7} | parts.pop("look", {})
    step = {"temperature": 0.03} | parts.pop("step", {})
    data = COLUMNS | {"distinct": {"image": 900, "caption": 800}} | parts.pop("data", {})
    options = LIMIT | parts.pop("options", {})
    return cases.evidence("clip", options=options, look=look, step=step, data=data, **parts)


CASES = [
    ("cells-repeat", "warning", of_columns(data={"distinct": {"image": 900, "caption": 40}})),
    ("tower-collapsed", "sick", of_columns(look={"second_std": 0.05})),
    ("tower-collapsed", "sick", of_columns(look={"second_rank": 1.5})),
    ("temperature-at-limit", "warning", of_columns(step={"temperature": 0.01})),
    ("modality-gap", "warning", of_columns(look={"modality_gap": 1.4})),
]


def state(name, evidence):
    return next(each["state"] for each in diagnose(evidence)["checked"] if each["name"] == name)


def test_a_healthy_run_has_no_verdict_of_these_rules():
    assert {state(rule.name, of_columns()) for rule in PAIR_RULES} == {"well"}
    assert {name for name, _, _ in CASES} == {rule.name for rule in PAIR_RULES}


@pytest.mark.parametrize(("name", "expected", "evidence"), CASES)
def test_each_threshold(name, expected, evidence):
    assert state(name, evidence) == expected
    verdict = next(each for each in diagnose(evidence)["verdicts"] if each["name"] == name)
    assert verdict["severity"] == expected and verdict["evidence"] and verdict["remedy"]


def test_runs_on_images_are_not_judged():
    assert {state(rule.name, cases.evidence()) for rule in PAIR_RULES} == {"unknown"}


def test_a_queue_of_pairs_is_judged():
    queue = {"same_cells": "left_out", "queue_size": 4096, "momentum": 0.99}
    held = {"queue_age_mean": 50.0, "update_ratio": 0.02}

    def run(**changes):
        return of_columns(options=queue | changes, step=held, data={"train": 1000})

    assert state("queue-stale", run()) == "sick"  # 50 updates of 2% of the weights each
    assert state("queue-larger-than-data", run()) == "unknown"  # a row's own keys are left out
    assert state("queue-larger-than-data", run(same_cells="negative")) == "sick"
    verdicts = diagnose(run(same_cells="negative"))["verdicts"]
    assert "same_cells=left_out" in next(each["remedy"] for each in verdicts if "larger" in each["name"])
    assert state("momentum-wrong", run()) == "well" and state("momentum-wrong", run(momentum=0.1)) == "sick"
    assert state("momentum-wrong", run(queue_size=0)) == "unknown"
    assert {state(name, of_columns()) for name in ("queue-stale", "queue-larger-than-data")} == {"unknown"}


def test_the_start_of_runs_on_columns_is_known():
    kinds = {"columns": {"image": "image", "caption": "text"}}
    for encoder, known in (
        ("image=lite0,caption=transformer-small", True),
        ("image=convnet,caption=static", True),
        ("image=convnet,caption=static-random", False),
    ):
        assert of_columns(config={"encoder": encoder}, data=kinds).from_weights == known
    found = diagnose(of_columns(config={"encoder": "image=lite0,caption=static"}, data=kinds))["checked"]
    assert "runs on images alone" in next(each["why"] for each in found if each["name"] == "drift")
