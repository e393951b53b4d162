"""Runs in micro-batches: the figures of the whole batch, also after an interruption, and what the log says."""

import pytest
import torch
from torch import nn

import coulomb
from coulomb.ground.errors import InputError
from coulomb.models import load_encoder
from run_cases import comparable, stopped_at

PLAIN = {"precision": "32", "workers": 0, "evaluate": False, "progress": False}


def close(found, wanted):
    """The first updates of two runs are equal up to rounding, which later ones amplify."""
    found, wanted = comparable(found.path), comparable(wanted.path)
    assert [line.keys() for line in found] == [line.keys() for line in wanted]
    for name in ("loss", "gradient_norm"):
        one, two = ([line[name] for line in lines if name in line] for lines in (found, wanted))
        assert one[0] == pytest.approx(two[0], rel=1e-4), name
        assert one[1:3] == pytest.approx(two[1:3], rel=5e-3, abs=1e-3), name
    one, two = (
        [line["class_gradient_norm"] for line in lines if "class_gradient_norm" in line] for lines in (found, wanted)
    )
    assert one and [value or 0 for value in one[0]] == pytest.approx([value or 0 for value in two[0]], rel=0.2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "moco", "method_options": {"queue_size": 32}, "accumulate": 2},
        {"method": "byol"},
        {"method": "arcface"},
        {"method": "paco", "method_options": {"queue_size": 32}},
        {"method": "simsiam", "optimizer": "adamw", "lr": 1e-3},
    ],
    ids=str,
)
def test_a_run_is_that_of_the_whole_batch(digit_tree, tmp_path, quick, options):
    options = quick | PLAIN | {"norm": "group", "lr": 0.01, "pulse": 1, "knn_every": 1, "epochs": 1} | options
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", **options)
    micro = coulomb.train(digit_tree, out=tmp_path / "micro", micro_batch=3, **options)
    close(micro, whole)
    log = (micro.path / "train.log").read_text()
    assert "micro_batch=3: the encoder takes 16 views in 6 parts, twice" in log and "batch norms" not in log


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"tune": "last:2", "stay_close": 0.5, "accumulate": 2},
        {"tune": "norm", "head_epochs": 0.17, "method": "moco", "method_options": {"queue_size": 32}},
        {"tune": "lora:2", "head_epochs": 0.17},
        {"tune": "head"},
    ],
    ids=str,
)
def test_parts_of_an_encoder_that_train(photos, tmp_path, monkeypatch, options):
    if "lora" in options["tune"]:
        pytest.importorskip("peft", reason="peft is not installed")
    monkeypatch.setattr("coulomb.training.plan.complete.has_weights", lambda name: True)
    options = {"encoder": "resnet10", "encoder_width": 8, "image_size": 16, "batch_size": 8, "epochs": 1} | options
    options |= PLAIN | {"lr": 0.01, "optimizer": "sgd", "norm_statistics": "frozen", "pulse": 1, "knn_every": 1}
    whole = coulomb.train(photos, out=tmp_path / "whole", **options)
    micro = coulomb.train(photos, out=tmp_path / "micro", micro_batch=3, **options)
    close(micro, whole)
    assert "parts, twice" in (micro.path / "train.log").read_text()


class Random(nn.Module):
    """An encoder with dropout and batch norm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        layers = nn.Conv2d(1, 6, 3, stride=2), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(0.3), nn.Conv2d(6, 8, 3)
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"method": "moco", "method_options": {"queue_size": 32}, "accumulate": 2},
        {"method": "instdisc", "precision": "bf16"},
        {"method": "paco", "method_options": {"queue_size": 32}},
    ],
    ids=str,
)
def test_a_stopped_run_resumes(digit_tree, tmp_path, quick, options):
    options = quick | {"encoder_width": None, "micro_batch": 5, "workers": 0} | options
    whole = coulomb.train(
        digit_tree, out=tmp_path / "whole", evaluate=False, progress=False, **options | {"encoder": Random()}
    )
    stop = 10 // options.get("accumulate", 1)
    out = stopped_at(stop, digit_tree, tmp_path / "run", **options | {"encoder": Random(), "checkpoint_every": 2})
    run = coulomb.train(resume_from=out, encoder=Random(), evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)
    for a, b in zip(*(load_encoder(r.path, module=Random()).state_dict().values() for r in (run, whole)), strict=True):
        assert torch.equal(a, b)
    assert "micro_batch=5: 1 batch norms use the statistics of at most 5 views" in (run.path / "train.log").read_text()


def test_a_micro_batch_of_the_whole_batch_has_no_effect(digit_tree, tmp_path, quick):
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", **quick, **PLAIN)
    micro = coulomb.train(digit_tree, out=tmp_path / "micro", micro_batch=16, **quick, **PLAIN)
    assert comparable(micro.path) == comparable(whole.path)
    assert (
        "micro_batch=16: has no effect, because the batch of a process has 16 views"
        in (micro.path / "train.log").read_text()
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"micro_batch": 0}, "micro_batch=0: must be at least 1"),
        ({"micro_batch": 1}, "micro_batch=1: the encoder has batch norms"),
        ({"micro_batch": "64"}, "micro_batch='64': expected int"),
        (
            {"micro_batch": 4, "encoder": "lite0-random", "tune": "none", "encoder_width": None},
            "micro_batch=4: has no effect",
        ),
        ({"norm": "layer"}, "norm='layer': must be one of batch, group"),
        ({"norm": "group", "encoder": "vit", "encoder_width": None}, "norm='group': encoder='vit' has no such option"),
        ({"norm": "group", "encoder": Random(), "encoder_width": None}, "norm='group': your own encoder has its own"),
    ],
    ids=str,
)
def test_wrong_input(digit_tree, tmp_path, quick, options, message):
    with pytest.raises(InputError, match=message):
        coulomb.train(digit_tree, out=tmp_path / "run", **quick | PLAIN | options)
    assert not (tmp_path / "run").exists()
