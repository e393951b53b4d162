"""Verdicts with their causes, symptoms and texts; runs that were once diagnosed wrongly, as synthetic evidence."""

import json
import math

import pytest

from coulomb.evaluation.doctor import RULES, diagnose, render, summary, verdict_lines
from doctor_cases import NO_SIGNAL, evidence

FIELDS = {"name", "severity", "title", "evidence", "consequence", "remedy"}


def test_healthy_run():
    found = diagnose(evidence())
    assert found["healthy"]
    assert found["verdicts"] == []
    assert [each["name"] for each in found["checked"]] == [rule.name for rule in RULES]
    assert (found["version"], found["step"], found["epoch"]) == (1, 100, 20)
    assert found["suggestions"] == {"temperature": None}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_symptoms_are_attributed_to_their_cause():
    found = diagnose(evidence(look={"embedding_std": 0.01, "embedding_rank": 1.0}, step={"loss": 6.23}))
    assert [verdict["name"] for verdict in found["verdicts"]] == ["complete-collapse"]
    states = {each["name"]: each for each in found["checked"]}
    for name in ("dimensional-collapse", "no-signal"):
        assert states[name]["state"] == "unknown"
        assert "complete-collapse" in states[name]["why"]


def test_fields_of_a_verdict():
    found = diagnose(evidence(look={"embedding_rank": 1.3}))
    (verdict,) = found["verdicts"]
    assert set(verdict) == FIELDS
    assert verdict["severity"] == "sick"
    assert not found["healthy"]
    assert verdict["evidence"] == [
        {"what": "effective rank of the embeddings", "value": 1.3, "threshold": 3.0, "bad": "below", "at_epoch": 20}
    ]


def test_render():
    sick = diagnose(evidence(look={"embedding_rank": 1.3}))
    text = render(sick)
    assert text.startswith("1 sick: ")
    assert "✗ dimensional-collapse" in text
    assert "effective rank of the embeddings: 1.3 (below the threshold 3, at epoch 20)" in text
    assert "What to do: " in text
    assert summary(diagnose(evidence())).startswith("healthy: ")
    assert max(map(len, text.splitlines())) < 200


def swept(value):
    return {"sweep": {"suggestion": value, "why": "the temperature at which half of it is carried", "curve": []}}


@pytest.mark.parametrize(
    ("step", "now", "value"), [({"top1_gradient": 0.9}, 0.2, 0.4), ({"top10pct_gradient": 0.11}, 2.0, 0.1)]
)
def test_suggested_temperature(step, now, value):
    found = diagnose(evidence(step=step, config={"temperature": now}, network=swept(value)))
    assert found["suggestions"]["temperature"]["value"] == value
    assert f"Try a temperature of {value:g}: on the embeddings" in render(found)


def test_no_suggestion_without_verdict_or_answer():
    def suggested(network, step=None):
        return diagnose(evidence(step=step or {"top1_gradient": 0.9}, network=network))["suggestions"]["temperature"]

    assert suggested(swept(0.4), {"top1_gradient": 0.1}) is None  # nothing is wrong
    assert suggested(swept(None)) is None
    assert suggested({}) is None
    assert suggested(swept(0.1)) is None  # .2 is too low, and the curve says lower


SHUFFLED = {"labels": {"pixels": 0.12, "features": 0.13, "chance": 0.1, "images": 359}}
ALIKE = {"embedding_std": 0.03, "embedding_rank": 1.5, "separation": 0.6, "knn": 0.11}
BLANK = {"images": 1438, "exact": 1437, "near": 0, "blank": 1438}
ALL_LEAK = {"images": 359, "exact": 359, "near": 0}


def sick(found):
    return [verdict["name"] for verdict in diagnose(found)["verdicts"] if verdict["severity"] == "sick"]


def state(found, name):
    return next(each["state"] for each in diagnose(found)["checked"] if each["name"] == name)


def test_small_temperature_is_not_a_learning_rate():
    step = {"loss": 1.5 * NO_SIGNAL, "top1_gradient": 0.99, "update_ratio": 0.5}
    config = {"temperature": 1e-3}
    assert sick(evidence(step=step, config=config)) == ["temperature-too-low"]
    assert sick(evidence(step=step, config=config, failed="the loss became infinite")) == ["temperature-too-low"]
    assert sick(evidence(step=step | {"top1_gradient": 0.1})) == ["learning-rate-too-high"]


@pytest.mark.parametrize("method", ["supcon", "softmax"])
def test_shuffled_labels_are_not_a_collapse(method):
    assert sick(evidence(method, look=ALIKE, step={"loss": NO_SIGNAL}, network=SHUFFLED)) == ["labels-unrelated"]


def test_shuffled_labels_are_a_warning_for_methods_without_labels():
    assert sick(evidence(look={"knn": 0.1}, network=SHUFFLED)) == []
    assert state(evidence(look={"knn": 0.1}, network=SHUFFLED), "labels-unrelated") == "warning"


def test_few_held_out_images_leave_labels_unknown():
    few = {"labels": SHUFFLED["labels"] | {"images": 40}}
    assert state(evidence("supcon", look={"knn": 0.1}, network=few), "labels-unrelated") == "unknown"


@pytest.mark.parametrize("figures", [{"identical_views": 1.0}, {"pixel_retrieval": 1.0, "identical_views": 1.0}])
def test_identical_views_are_too_weak_and_not_too_strong(figures):
    look = {"separation": 0.5, "embedding_std": 0.05, "embedding_rank": 1.2}
    found = diagnose(evidence(look=look, network=figures | {"matcher_separation": 0.5, "distance": 0.001}))
    assert [verdict["name"] for verdict in found["verdicts"]] == ["augmentation-too-weak"]
    assert found["verdicts"][0]["title"] == "The two views of an image are the same picture."


def test_black_images_are_only_blank():
    look = {"separation": 0.5, "embedding_std": 0.0, "embedding_rank": 1.0}
    network = {
        "matcher_separation": 0.5,
        "identical_views": 1.0,
        "distance": 0.0,
        "transplant": {"region": "top", "share": 1},
    }
    found = evidence(look=look, network=network | SHUFFLED, data={"copies": BLANK, "leaks": ALL_LEAK})
    assert sick(found) == ["images-blank"]


def test_short_byol_has_no_strong_views():
    short = evidence("byol", options={"momentum": 0.9}, look={"separation": 0.58}, network={"matcher_separation": 0.82})
    assert sick(short) == []


def test_slow_loss_has_a_signal():
    """SupCon on 1,500 photos for 6 epochs went 3% of the way to its floor."""
    assert (
        sick(evidence("supcon", steps=66, step={"loss": 5.48, "no_signal": 5.541}, config={"temperature": 0.1})) == []
    )
    assert sick(evidence("supcon", steps=66, step={"loss": 5.5409, "no_signal": 5.541})) == ["no-signal"]


def test_few_negatives_are_not_a_temperature():
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
def test_verdict_of_the_evaluation_decides_nothing_learned(level, verdicts):
    steps = ["Ask `coulomb doctor RUN`.", "Train longer."]
    found = diagnose(evidence(evaluation={"verdict": {"level": level, "next": steps}}))
    assert [(each["name"], each["severity"]) for each in found["verdicts"]] == verdicts
    assert found["healthy"] == (level != "nothing_measurable")
    assert not verdicts or found["verdicts"][0]["remedy"] == "Train longer."


@pytest.mark.parametrize("level", ["use_starting_point", "adapting_hurt", "worse_than_raw_pixels"])
def test_the_consequence_does_not_contradict_the_verdict(level):
    """Of a run from weights, "no better than raw pixels" was said although it was better in all measurements."""
    (found,) = diagnose(evidence(evaluation={"verdict": {"level": level, "next": []}}))["verdicts"]
    assert "no better than" not in found["consequence"]
    assert ("pixels" in found["consequence"]) == (level == "worse_than_raw_pixels")


@pytest.mark.parametrize(
    ("evaluation", "why"),
    [({}, "holds no verdict"), ({"verdict": "x"}, "holds no verdict"), (None, "was not evaluated")],
)
def test_run_without_evaluation_is_not_healthy(evaluation, why):
    found = diagnose(evidence(evaluation=evaluation))
    assert summary(found).startswith("nothing wrong found: ")
    assert why in render(found)


def test_text_of_a_figure_within_its_threshold():
    found = diagnose(evidence(data={"leaks": {"images": 800, "exact": 1, "near": 0}}))
    assert "0.00125 (not above the threshold 0.01)" in render(found)


def test_a_remedy_that_is_printed_above_is_not_repeated():
    steps = ["Ask `coulomb doctor RUN`.", "Train longer.", "Use larger images."]
    found = diagnose(evidence(evaluation={"verdict": {"level": "nothing_measurable", "next": steps}}))
    assert "What to do: Train longer." in verdict_lines(found)
    assert "What to do" not in verdict_lines(found, steps) and "nothing-learned" in verdict_lines(found, steps)
    assert "What to do: Train longer. Use" in render(found)


def test_the_end_of_a_training_counts_the_missing_checks_and_the_doctor_lists_them():
    found = diagnose(evidence())
    unknown = [each for each in found["checked"] if each["state"] == "unknown"]
    assert (
        verdict_lines(found).splitlines()[-1] == f"  {len(unknown)} checks were not made: `coulomb doctor RUN` says why"
    )
    assert unknown and all(each["name"] in render(found) and each["why"] in render(found) for each in unknown)
