import json
import logging

import pytest

from coulomb.ground.errors import InputError
from coulomb.training.plan.preflight_columns import preflight_columns

ROWS = {
    "q": [f"question {row}" for row in range(40)],
    "a": [f"answer {row // 2}" for row in range(40)],
    "house": [0, 1] * 20,
}
OPTIONS = {
    "columns": "q,a",
    "encoder": "q=static,a=transformer-small",
    "batch_size": 8,
    "epochs": 3,
    "test_fraction": 0.25,
}


def test_the_check_shows_the_plan_of_the_run():
    result, text = preflight_columns({"data": ROWS, **OPTIONS})
    json.dumps(result)
    training = result["training"]
    assert (training["refused"], training["learned"], training["batch_size"], training["steps"]) == (None, 30, 8, 9)
    assert [tower["encoder"] for tower in training["towers"]] == ["static", "transformer-small"]
    assert result["config"]["columns"] == "q,a" and result["data"]["split"] == result["split"]["sentence"]
    assert "tower     a: transformer-small, from random weights, tune all" in text
    assert "training  clip: 3 epochs, 9 steps of 8 rows" in text


def test_what_training_would_refuse_is_said():
    result, text = preflight_columns({"data": ROWS, **OPTIONS, "batch_size": 99})
    assert "batch_size=99" in result["training"]["refused"] and "Training would be refused: batch_size=99" in text
    result, text = preflight_columns({"data": ROWS, **OPTIONS, "group": "house"})
    assert result["split"]["refused"] == result["training"]["refused"] and text.count("can be held out") == 2
    with pytest.raises(InputError, match="columns='answer'"):
        preflight_columns({"data": ROWS, **OPTIONS, "columns": "q,answer"})


def test_a_test_set_that_shares_cells(caplog):
    caplog.set_level(logging.WARNING, "coulomb")
    test = {"q": ["question 3", "new", "answer 2"], "a": ["other", "another", "third"]}
    options = {name: value for name, value in OPTIONS.items() if name != "test_fraction"}
    result, _ = preflight_columns({"data": ROWS, "test": test, **options})
    assert "2 of 3 test rows share a cell with the training set" in result["leaks"]
    assert "q of 2" in result["leaks"] and "2 of 3 test rows" in caplog.text
