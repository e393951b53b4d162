import dataclasses
from pathlib import Path

import pytest
import yaml

from coulomb.ground.errors import InputError
from coulomb.training.plan.config import Config, load_config, option_names


def test_round_trip_through_yaml(tmp_path):
    config = Config(data="photos", epochs=3, view_options={"flip": 0.0, "crop_area": [0.2, 1.0]}, lr=1)
    config.save(tmp_path / "config.yaml")
    assert load_config(tmp_path / "config.yaml") == config


def test_every_option_has_a_help_text():
    for option in dataclasses.fields(Config):
        assert len(option.metadata["help"]) > 8, option.name


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": -1}, ["epochs", "-1", "at least 0"]),
        ({"epochs": 2.5}, ["epochs", "2.5", "int"]),
        ({"epochs": True}, ["epochs", "True", "int"]),
        ({"batch_size": 1}, ["batch_size", "at least 2"]),
        ({"temperature": 0}, ["temperature", "0", "at least"]),
        ({"temperature": float("nan")}, ["temperature", "finite"]),
        ({"lr": "fast"}, ["lr", "'fast'", "float"]),
        (
            {"method": "simclear"},
            ["method", "'simclear'", "simclr, moco", "my_file.py:MyMethod", "did you mean 'simclr'"],
        ),
        ({"test_fraction": 1.0}, ["test_fraction", "1.0", "below 1"]),
        ({"warmup_epochs": 11.0, "epochs": 10}, ["warmup_epochs", "11.0", "10 epochs"]),
        ({"devices": 0}, ["devices", "at least 1"]),
        ({"epochs": 2 * 10**9}, ["epochs", "2000000000", "at most 1000000000"]),
        ({"seed": 2**63}, ["seed", str(2**63), "at most"]),
        ({"optimizer": "adam"}, ["optimizer", "'adam'", "sgd, adamw", "did you mean 'adamw'"]),
    ],
)
def test_bad_values_are_named(options, words):
    with pytest.raises(InputError) as error:
        Config(**options)
    for word in words:
        assert word in str(error.value)


def test_an_unknown_option_in_the_file_is_refused_with_the_nearest(tmp_path):
    (tmp_path / "config.yaml").write_text("data: digits\ntemprature: 0.1\n")
    with pytest.raises(InputError, match="temprature.*temperature"):
        load_config(tmp_path / "config.yaml")


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words", "a: [unclosed"])
def test_a_file_that_is_no_configuration(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(InputError, match=r"config\.yaml"):
        load_config(tmp_path / "config.yaml")


def test_yaml_cannot_run_code(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "data: !!python/object/apply:os.system ['touch " + str(tmp_path / "ran") + "']\n"
    )
    with pytest.raises(InputError):
        load_config(tmp_path / "config.yaml")
    assert not (tmp_path / "ran").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere.*cannot be read"):
        load_config(Path(tmp_path) / "nowhere" / "config.yaml")


def test_names_are_complete(tmp_path):
    Config().save(tmp_path / "config.yaml")
    assert list(yaml.safe_load((tmp_path / "config.yaml").read_text())) == option_names()
