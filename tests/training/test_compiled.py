"""Runs with a compiled encoder, and what a GPU needs of the loader."""

import copy
import io

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn

import coulomb
from coulomb.ground.errors import InputError
from coulomb.kinds import Share
from coulomb.kinds.image import Canvases
from coulomb.models import build_encoder, load_encoder
from coulomb.tables import image_samples
from coulomb.tables.sources.arrays import ArraySource
from coulomb.training.network import compile_encoders
from coulomb.training.order import RunLoader, RunOrder, TrainingBatch
from run_cases import comparable

PLAIN = {"precision": "32", "workers": 0, "evaluate": False, "progress": False, "epochs": 1}
quiet = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*")  # of its own modules, while it compiles


class OneEncoder(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder


def small_encoder():
    torch.manual_seed(0)
    return build_encoder("convnet", image_size=16, channels=3, width=4)


@pytest.mark.slow
@quiet
def test_only_training_is_compiled_and_results_are_equal_up_to_rounding():
    encoder, images = small_encoder(), torch.rand(6, 3, 16, 16)
    plain = copy.deepcopy(encoder)
    torch._dynamo.reset()
    compile_encoders(OneEncoder(encoder), torch.device("cpu"))
    assert encoder.compiled and encoder.state_dict().keys() == plain.state_dict().keys()
    compiled = torch._dynamo.utils.counters["stats"]
    before = compiled["unique_graphs"]
    for mode in (True, False):
        torch.testing.assert_close(encoder.train(mode)(images), plain.train(mode)(images), rtol=1e-4, atol=1e-5)
        assert compiled["unique_graphs"] == before + 1  # in training mode only
    for mine, true in zip(encoder.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-4, atol=1e-5)


@quiet
def test_copies_and_saved_weights_are_not_compiled():
    encoder = small_encoder()
    encoder.compile_backbone()
    twin = copy.deepcopy(encoder)
    assert encoder.backbone._compiled_call_impl is not None and twin.backbone._compiled_call_impl is None
    with torch.no_grad():
        twin.backbone.get_parameter(next(iter(dict(twin.backbone.named_parameters())))).zero_()
    images = torch.rand(6, 3, 16, 16)
    assert not torch.allclose(encoder.eval()(images), twin.eval()(images))  # not the original's network
    torch.save(encoder.state_dict(), buffer := io.BytesIO())
    buffer.seek(0)
    small_encoder().load_state_dict(torch.load(buffer, weights_only=True))


@quiet
def test_a_compiler_that_fails_is_named(monkeypatch):
    def fails(function, **options):
        raise RuntimeError("no C++ compiler\nand more")

    monkeypatch.setattr(torch, "compile", fails)
    with pytest.raises(InputError, match=r"^compile=True: torch.compile fails on this machine \(no C\+\+ compiler\)"):
        compile_encoders(OneEncoder(small_encoder()), torch.device("cpu"))


@pytest.mark.parametrize("tune", ["none", "whiten"])
def test_without_training_of_the_encoder_compile_is_refused(digit_tree, tmp_path, quick, tune):
    with pytest.raises(InputError, match=r"compile=True: has no effect with tune="):
        coulomb.train(
            digit_tree, out=tmp_path / "run", **quick | {"encoder": "lite0-random", "tune": tune, "compile": True}
        )


@pytest.mark.slow
@quiet
@pytest.mark.parametrize("options", [{}, {"method": "moco", "micro_batch": 4, "norm": "group"}], ids=str)
def test_a_compiled_run_is_that_of_the_plain_one_up_to_rounding(digit_tree, tmp_path, quick, options):
    options = quick | PLAIN | {"lr": 0.01, "knn_every": 1} | options
    torch._dynamo.reset()
    runs = {
        name: coulomb.train(digit_tree, out=tmp_path / str(name), compile=name, **options) for name in (False, True)
    }
    plain, compiled = ([line["loss"] for line in comparable(run.path) if "loss" in line] for run in runs.values())
    assert compiled[:2] == pytest.approx(plain[:2], rel=1e-3)
    assert "compile: " in (runs[True].path / "train.log").read_text()
    assert not load_encoder(runs[True].path).compiled


class Device(torch.Tensor):
    """A tensor that remembers that it was copied without waiting."""

    def to(self, *place, **options):
        self.copied = options
        return self


def test_batches_are_copied_without_waiting_and_values_for_the_host_stay_there():
    image = torch.zeros(2, 3, 4, 4).as_subclass(Device)
    index, aspect = torch.arange(2).as_subclass(Device), torch.ones(2).as_subclass(Device)
    train_row, labels = (torch.arange(2).as_subclass(Device) for _ in range(2))
    share = Share(torch.arange(2), 2)
    columns = {"image": Canvases(image, aspect)}
    batch = TrainingBatch(columns, index, [(7, "truncated")], train_row=train_row, labels=labels, share=share)
    cuda = torch.device("cuda", 0)
    moved = pl.LightningModule().transfer_batch_to_device(batch, cuda, 0)
    assert image.copied == {"non_blocking": True}
    assert train_row.copied == labels.copied == {"device": cuda, "non_blocking": True}
    assert moved.sample is index and moved.stack.aspect is aspect and moved.share is share
    assert moved.failed == [(7, "truncated")]


def test_batches_for_a_gpu_are_pinned():
    order = RunOrder(np.arange(8), 4, 1, 0)
    images = image_samples(ArraySource(np.zeros((8, 4, 4, 3), dtype=np.uint8)), size=4)
    assert RunLoader(images, order, 0, pinned=True).pin_memory and not RunLoader(images, order, 0).pin_memory
