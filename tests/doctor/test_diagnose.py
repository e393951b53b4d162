"""Verdicts, causes and their symptoms, the suggested temperature, and the text."""

import json

import pytest

from coulomb.doctor import RULES, diagnose, render, summary
from doctor_cases import evidence

FIELDS = {"name", "severity", "title", "evidence", "consequence", "remedy"}


def test_a_healthy_run():
    found = diagnose(evidence())
    assert found["healthy"]
    assert found["verdicts"] == []
    assert [each["name"] for each in found["checked"]] == [rule.name for rule in RULES]
    assert (found["version"], found["step"], found["epoch"]) == (1, 100, 20)
    assert found["suggestions"] == {"temperature": None}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_symptoms_are_left_to_their_cause():
    found = diagnose(evidence(look={"embedding_std": 0.01, "embedding_rank": 1.0}, step={"loss": 6.23}))
    assert [verdict["name"] for verdict in found["verdicts"]] == ["complete-collapse"]
    states = {each["name"]: each for each in found["checked"]}
    for name in ("dimensional-collapse", "no-signal"):
        assert states[name]["state"] == "unknown"
        assert "complete-collapse" in states[name]["why"]


def test_a_verdict_holds_what_a_reader_needs():
    found = diagnose(evidence(look={"embedding_rank": 1.3}))
    (verdict,) = found["verdicts"]
    assert set(verdict) == FIELDS
    assert verdict["severity"] == "sick"
    assert not found["healthy"]
    assert verdict["evidence"] == [
        {"what": "effective rank of the embeddings", "value": 1.3, "threshold": 3.0, "bad": "below", "at_epoch": 20}
    ]


def test_text_for_people():
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
def test_a_sick_temperature_is_answered_with_that_of_the_curve(step, now, value):
    found = diagnose(evidence(step=step, config={"temperature": now}, network=swept(value)))
    assert found["suggestions"]["temperature"]["value"] == value
    assert f"Try a temperature of {value:g}: on the embeddings" in render(found)


def test_nothing_is_suggested_without_need_or_answer():
    def suggested(network, step=None):
        return diagnose(evidence(step=step or {"top1_gradient": 0.9}, network=network))["suggestions"]["temperature"]

    assert suggested(swept(0.4), {"top1_gradient": 0.1}) is None  # nothing is wrong
    assert suggested(swept(None)) is None
    assert suggested({}) is None
    assert suggested(swept(0.1)) is None  # .2 is too low, and the curve says lower
