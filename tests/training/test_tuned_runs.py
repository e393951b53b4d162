"""Runs that change a part of their encoder: what is frozen stays bit-identical, also after an interruption."""

import os
import subprocess
import sys

import pytest
import torch

import coulomb
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import derive_seed
from coulomb.models import build_encoder, load_encoder
from run_cases import comparable, stopped_at

SHAPE = {"encoder": "resnet10", "encoder_width": 8, "image_size": 16, "embedding_dim": 8, "batch_size": 8, "epochs": 3}
QUICK = SHAPE | {"lr": 0.01, "optimizer": "adamw", "workers": 0, "evaluate": False, "progress": False}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@pytest.fixture(autouse=True)
def weights(monkeypatch, request):
    """Takes the random weights of the encoder for trained ones, which are slow to load."""
    monkeypatch.setattr("coulomb.training.plan.complete.has_weights", lambda name: True)
    if "lora" in str(request.node.callspec.params if hasattr(request.node, "callspec") else ""):
        pytest.importorskip("peft", reason="peft is not installed")


def start():
    """The encoder with which the runs begin."""
    return build_encoder("resnet10", channels=3, image_size=16, width=8, seed=derive_seed(0, "encoder"))


def moved(run):
    """Names of tensors of the backbone that the run changed."""
    before, after = start().backbone.state_dict(), load_encoder(run.path).backbone.state_dict()
    assert list(before) == list(after)
    return {name for name in before if not torch.equal(before[name], after[name])}


def test_last_blocks(photos, tmp_path):
    run = coulomb.train(photos, out=tmp_path / "run", tune="last:1", **QUICK)
    found = moved(run)
    assert {name.rpartition(".")[0][:8] for name in found} == {"stages.3"}
    assert len(found) == sum(name.startswith("stages.3") for name in start().backbone.state_dict())
    assert "parameters of the encoder train" in (run.path / "train.log").read_text()


def test_last_blocks_with_frozen_statistics(photos, tmp_path):
    run = coulomb.train(photos, out=tmp_path / "run", tune="last:1", norm_statistics="frozen", **QUICK)
    assert moved(run) == {name for name, _ in start().backbone.named_parameters() if name.startswith("stages.3")}


def test_lora_changes_weights_of_adapted_layers_only(photos, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed")
    run = coulomb.train(photos, out=tmp_path / "run", tune="lora:2", **QUICK)
    convolutions = {f"{n}.weight" for n, m in start().backbone.named_modules() if isinstance(m, torch.nn.Conv2d)}
    # Residual branches begin with a scale of zero, so they get no gradient from random weights.
    assert {"stem.0.weight", "stages.3.0.shortcut.0.weight"} <= moved(run) <= convolutions


def test_norms_and_the_head_alone(photos, tmp_path):
    run = coulomb.train(photos, out=tmp_path / "norm", tune="norm", **QUICK)
    assert all(name.rpartition(".")[2] in ("weight", "bias", *STATISTICS) for name in moved(run))
    assert not any(start().backbone.state_dict()[name].ndim > 1 for name in moved(run))
    run = coulomb.train(photos, out=tmp_path / "first", head_epochs=3.0, **QUICK)
    assert not moved(run)


def test_the_head_is_trained_alone_for_the_given_updates(photos, tmp_path, monkeypatch):
    phases = []
    monkeypatch.setattr("coulomb.models.tuning.HeadFirst.set", lambda self, alone: phases.append(alone))
    coulomb.train(photos, out=tmp_path / "run", head_epochs=1.5, accumulate=2, **QUICK)
    batches = 3 * (48 // 8)
    assert phases == [True] * 2 * round(1.5 * 6 / 2) + [False] * (batches - 2 * round(1.5 * 6 / 2))


CASES = [
    {"tune": "lora:2", "method": "moco", "method_options": {"queue_size": 20}, "stay_close": 0.5},
    {"tune": "last:2", "method": "byol", "head_epochs": 1.0, "layer_decay": 0.75},
    {"tune": "lora:2", "precision": "bf16", "stay_close": 1.0, "head_epochs": 0.5},
    {"tune": "norm", "method": "supcon", "accumulate": 2, "stay_close": 1.0},
]


@pytest.mark.slow
@pytest.mark.parametrize("own", CASES, ids=str)
def test_a_run_resumes_bit_identically(photos, tmp_path, own):
    options = {name: value for name, value in QUICK.items() if name not in ("evaluate", "progress")} | own
    whole = coulomb.train(photos, out=tmp_path / "whole", evaluate=False, progress=False, **options)
    stopped_at(7 if "accumulate" in own else 11, photos, tmp_path / "run", **options)
    run = coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)
    assert (run.path / "encoder.safetensors").read_bytes() == (whole.path / "encoder.safetensors").read_bytes()
    distances = [line["stay_close"] for line in run.metrics if "stay_close" in line]
    assert len(distances) > 5 if "stay_close" in own else not distances
    assert not any("stay_close" in name for name in checkpoint_of(run))


@pytest.mark.slow
def test_lite0_resumes_without_its_package(photos, tmp_path, monkeypatch):
    pytest.importorskip("peft", reason="peft is not installed")
    options = {"encoder": "lite0", "image_size": 32, "batch_size": 8, "epochs": 2, "embedding_dim": 8, "workers": 0}
    options |= {"tune": "lora:2", "stay_close": 0.5, "head_epochs": 0.5}
    whole = coulomb.train(photos, out=tmp_path / "whole", evaluate=False, progress=False, **options)
    stopped_at(7, photos, tmp_path / "run", **options)
    monkeypatch.setattr("coulomb.models.build.read_tensors", None)
    run = coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)
    start, end = load_encoder(run.path / "checkpoints" / "initial").state_dict(), load_encoder(run.path).state_dict()
    assert list(start) == list(end)
    assert torch.equal(
        start["backbone._blocks.0._depthwise_conv.weight"], end["backbone._blocks.0._depthwise_conv.weight"]
    )
    assert not torch.equal(start["backbone._conv_head.weight"], end["backbone._conv_head.weight"])
    assert all(torch.equal(start[name], end[name]) for name in start if name.endswith(STATISTICS))


def checkpoint_of(run):
    path = run.path / "checkpoints" / "last.ckpt"
    return torch.load(path, map_location="cpu", weights_only=True)["state_dict"]


@pytest.mark.slow
def test_a_large_penalty_keeps_features_close(photos, tmp_path):
    found = []
    for weight in (0.001, 100.0):
        run = coulomb.train(photos, out=tmp_path / str(weight), stay_close=weight, norm_statistics="frozen", **QUICK)
        lines = [line for line in run.metrics if "loss" in line]
        found.append(lines[-1]["stay_close"])
        assert all(abs(line["loss"]) < 20 for line in lines), "the penalty is not part of the loss"
        assert lines[0]["stay_close"] < 1e-6
    assert found[1] < found[0] / 5


class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 6, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(6, 8, 3), torch.nn.AdaptiveAvgPool2d(1)
        )

    def forward(self, x):
        return self.layers(x).flatten(1)


@pytest.mark.slow
def test_a_users_module_keeps_its_layers_and_is_close_to_its_saved_start(photos, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed")
    options = {k: v for k, v in QUICK.items() if not k.startswith("encoder") and k not in ("evaluate", "progress")}
    options |= {"tune": "lora:2", "stay_close": 0.5}
    torch.manual_seed(0)
    module = Own()
    keys = list(module.state_dict())
    whole = coulomb.train(photos, out=tmp_path / "whole", encoder=module, evaluate=False, progress=False, **options)
    assert list(module.state_dict()) == keys
    torch.manual_seed(0)
    stopped_at(11, photos, tmp_path / "run", encoder=Own(), **options)
    run = coulomb.train(resume_from=tmp_path / "run", encoder=Own(), evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tune": "last:99"}, "tune='last:99': resnet10 has 4 blocks"),
        ({"tune": "last:0"}, "tune='last:0': last needs a whole number of at least 1"),
        ({"tune": "lora:0"}, "tune='lora:0': lora needs a whole number of at least 1"),
        ({"tune": "lsat:1"}, "must be one of all, last:K"),
        ({"layer_decay": 0.0}, "layer_decay=0.0: must be above 0"),
        ({"layer_decay": 1.5}, "layer_decay=1.5: must be above 0 and at most 1"),
        ({"stay_close": -1.0}, "stay_close=-1.0: must be at least 0"),
        ({"head_epochs": 4.0}, "head_epochs=4.0: more than the 3 epochs"),
        ({"norm_statistics": "still"}, "norm_statistics='still': must be one of moving, frozen"),
        ({"tune": "head", "stay_close": 1.0}, "stay_close=1.0: has no effect with tune='head'"),
        ({"tune": "none", "head_epochs": 1.0}, "head_epochs=1.0: has no effect with tune='none'"),
    ],
)
def test_wrong_values_are_refused_and_leave_no_folder(photos, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        coulomb.train(photos, out=tmp_path / "run", **QUICK | options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options", [{"tune": "last:1"}, {"tune": "lora:2"}, {"stay_close": 0.1}, {"head_epochs": 1.0}], ids=str
)
def test_encoders_without_weights_are_trained_as_a_whole(photos, tmp_path, options, monkeypatch):
    monkeypatch.setattr("coulomb.training.plan.complete.has_weights", lambda name: False)
    name, value = next(iter(options.items()))
    with pytest.raises(InputError, match=rf"{name}={value!r}: encoder='resnet10' has random weights"):
        coulomb.train(photos, out=tmp_path / "run", **QUICK | options)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("own", ["--tune lora:2 --stay-close 0.5 --head-epochs 0.5", "--tune last:1 --method byol"])
def test_two_processes(photos, tmp_path, own):
    pytest.importorskip("peft", reason="peft is not installed")
    script = (
        "import coulomb.cli, coulomb.training.plan.complete as c; c.has_weights = lambda name: True; coulomb.cli.main()"
    )
    options = "--epochs 2 --batch-size 8 --encoder resnet10 --encoder-width 8 --image-size 16 --embedding-dim 8 --quiet"
    arguments = ["train", photos, "--out", tmp_path / "run", *options.split(), *own.split(), "--no-evaluate"]
    arguments += ["--devices", "2", "--accelerator", "cpu", "--workers", "0"]
    file = tmp_path / "main.py"
    file.write_text(script)
    done = subprocess.run(
        [sys.executable, str(file), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert list(load_encoder(tmp_path / "run").state_dict()) == list(start().state_dict())


@pytest.mark.slow
def test_an_adapted_run_is_evaluated_and_reported(photos, tmp_path):
    pytest.importorskip("peft", reason="peft is not installed")
    run = coulomb.train(photos, out=tmp_path / "run", tune="lora:2", **QUICK | {"evaluate": True})
    assert 0 <= run.evaluation["trained"]["knn"] <= 1
    assert run.report.exists()
