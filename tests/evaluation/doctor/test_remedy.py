"""Remedies name options to set, and none that are set already."""

import pytest

from coulomb.evaluation.doctor import RULES, diagnose
from coulomb.evaluation.doctor.rule import Option, advice, rounded
from doctor_cases import evidence

BY_NAME = {rule.name: rule for rule in RULES}
MOCO = {"momentum": 0.9999, "queue_size": 8192, "symmetric": True, "exclude_own": False}


def remedy(name, found):
    return BY_NAME[name].remedy(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("method", ["simclr", "moco", "byol", "supcon", "softmax"])
def test_every_rule_has_a_remedy_for_every_method(rule, method):
    found = rule.remedy(evidence(method, options=MOCO if method == "moco" else {"momentum": 0.99}))
    assert found.endswith(".") and found[0].isupper() and len(found) > 20


@pytest.mark.parametrize(
    ("name", "found", "named"),
    [
        ("momentum-wrong", evidence("moco", steps=25, options=MOCO, config={"epochs": 5}), "--option momentum=0.8)"),
        ("temperature-too-low", evidence(config={"temperature": 1e-3}), "--temperature 0.2"),
        ("temperature-too-high", evidence(config={"temperature": 10.0}), "--temperature 0.2"),
        ("learning-rate-too-high", evidence(), "--lr 0.0004"),
        ("learning-rate-too-low", evidence(), "--lr 0.04"),
        ("complete-collapse", evidence("byol", options={"stop_gradient": False}), "--option stop_gradient=true"),
        ("batch-too-small", evidence(config={"batch_size": 4}), "--batch-size 128"),
        ("queue-larger-than-data", evidence("moco", options=MOCO), "--option queue_size=512"),
        ("augmentation-too-weak", evidence(config={"view_options": {"jitter": 0.0}}), "--view jitter=1"),
        (
            "augmentation-too-strong",
            evidence(config={"view_options": {"noise_std": (3, 5)}}),
            "--view noise_std=[0,0.15]",
        ),
        ("imbalance", evidence("supcon"), "--sampler class_balanced"),
    ],
)
def test_remedy_names_the_option(name, found, named):
    assert named in remedy(name, found)


@pytest.mark.parametrize(
    ("name", "found", "named"),
    [
        ("imbalance", evidence("supcon", config={"sampler": "class_balanced"}), "class_balanced"),
        ("imbalance", evidence("paco"), "--method paco"),
        ("false-negatives", evidence("debiased"), "--method debiased"),
        ("queue-larger-than-data", evidence("moco", options=MOCO | {"exclude_own": True}), "exclude_own"),
        ("complete-collapse", evidence("byol", options={"stop_gradient": True}), "stop_gradient"),
        ("batch-too-small", evidence("moco", config={"batch_size": 4}), "--method moco"),
    ],
)
def test_remedy_omits_options_that_are_set(name, found, named):
    assert named not in remedy(name, found)


def test_advice_keeps_steps_without_options():
    run = evidence(options={"a": 1}, config={"view_options": {"crop_area": [0.2, 1.0]}})
    steps = ("look", ("set a", Option("option a", 1)), ("crop", Option("view crop_area", (0.2, 1.0))), None)
    assert advice(run, *steps, ("crop more", Option("view crop_area", (0.1, 1.0)))) == (
        "Look; crop more (--view crop_area=[0.1,1])."
    )
    assert rounded(0.06 / 7) == 0.0086


def test_verdict_has_the_remedy_of_its_run():
    (verdict,) = diagnose(evidence(config={"temperature": 1e-3}, step={"top1_gradient": 0.9}))["verdicts"]
    assert verdict["remedy"] == "Raise the temperature (--temperature 0.2)."
