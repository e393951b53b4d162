"""Callbacks of one's own: they see the epochs of the run, may end it, and change nothing else."""

import csv
import json
import logging
import os
import subprocess
import sys

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, StochasticWeightAveraging

import coulomb
from coulomb.ground.errors import InputError
from coulomb.report.collect import read_run
from coulomb.report.facts import header
from coulomb.training.checkpoints import read_checkpoint
from run_cases import comparable, stopped_at

OPTIONS = {
    "epochs": 5, "batch_size": 16, "encoder": "convnet", "encoder_width": 8, "image_size": 16, "knn_every": 2,
}  # fmt: skip


def train(data, out, callbacks=None, **options):
    return coulomb.train(data, out=out, callbacks=callbacks, evaluate=False, progress=False, **OPTIONS | options)


class Diary(pl.Callback):
    """Notes the hooks of epochs; asks for a stop at the end of an epoch."""

    def __init__(self, until=None):
        self.lines, self.until = [], until

    def on_train_epoch_start(self, trainer, module):
        self.lines.append(("start", trainer.global_step))

    def on_validation_end(self, trainer, module):
        self.lines.append(("measured", trainer.global_step, float(trainer.callback_metrics["knn"])))

    def on_train_epoch_end(self, trainer, module):
        epoch = int(trainer.callback_metrics["epoch"])
        self.lines.append(("end", trainer.global_step, epoch))
        trainer.should_stop = epoch == self.until


def test_epochs_and_live_evaluations_are_those_of_the_run(photos, tmp_path):
    diary = Diary()
    run = train(photos, tmp_path / "run", diary)
    knn = [line["knn"] for line in run.metrics if "knn" in line][1:]  # without that of the untrained network
    expected = []
    for epoch in range(1, 6):
        expected += [("start", 3 * epoch - 3)]
        expected += [("measured", 3 * epoch, pytest.approx(knn.pop(0)))] if epoch in (2, 4, 5) else []
        expected += [("end", 3 * epoch, epoch)]
    assert diary.lines == expected
    train(photos, tmp_path / "plain")
    assert comparable(run.path) == comparable(tmp_path / "plain")
    before, after = (read_checkpoint(path / "checkpoints" / "last.ckpt") for path in (tmp_path / "plain", run.path))
    assert "callbacks" not in before or "OwnCallbacks" not in before["callbacks"]
    for name, value in before["state_dict"].items():
        assert torch.equal(value, after["state_dict"][name])


def test_a_stop_by_a_callback_ends_the_run_and_is_recorded(photos, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        run = train(photos, tmp_path / "run", [Diary(until=2)])
    assert json.loads(run.folder.stopped.read_text()) == {"step": 6, "epoch": 2, "by": "Diary", "reason": None}
    assert "trained 6 steps of 15; Diary ended the run" in caplog.text and run.config.epochs == 5
    assert (
        read_checkpoint(run.folder.checkpoint)["global_step"] == 6 and run.encode(torch.zeros(1, 3, 16, 16)).ndim == 2
    )
    assert "Diary ended the run after epoch 2 of 5" in header(read_run(run.path)).stopped
    lines = run.metrics
    for callbacks in (None, [Diary()]):  # the run is complete
        diary = callbacks and callbacks[0]
        coulomb.train(resume_from=run.path, callbacks=callbacks, evaluate=False, progress=False)
        assert run.metrics == lines and (diary is None or not diary.lines)


@pytest.mark.slow
def test_the_run_is_evaluated_after_a_stop(photos, tmp_path):
    options = OPTIONS | {"callbacks": EarlyStopping("knn", mode="max", stopping_threshold=-1.0)}
    run = coulomb.train(photos, out=tmp_path / "run", progress=False, **options)
    assert run.evaluation["protocol"]["epoch"] == 2 and run.evaluation["protocol"]["updates"] == 6
    assert "EarlyStopping ended the run" in run.report.read_text()


def test_early_stopping_is_the_same_in_a_resumed_run(photos, tmp_path):
    def patient():
        return [EarlyStopping("loss", mode="max", patience=2, min_delta=10.0, check_on_train_epoch_end=True), Diary()]

    whole = train(photos, tmp_path / "whole", patient())
    assert json.loads(whole.folder.stopped.read_text())["epoch"] == 3  # the first is the best, then two are not better
    stopped_at(
        6, photos, tmp_path / "cut", callbacks=patient(), **OPTIONS
    )  # its last checkpoint is of step 4, in epoch 2
    again = coulomb.train(resume_from=tmp_path / "cut", callbacks=patient(), evaluate=False, progress=False)
    assert comparable(again.path) == comparable(whole.path)
    assert json.loads(again.folder.stopped.read_text()) == json.loads(whole.folder.stopped.read_text())


TWO = """
import sys
import coulomb
from lightning.pytorch.callbacks import EarlyStopping

coulomb.train(
    sys.argv[1], out=sys.argv[2], epochs=4, knn_every=2, batch_size=8, encoder="convnet", encoder_width=8, image_size=16,
    callbacks=EarlyStopping("knn", mode="max", stopping_threshold=-1.0), logger="csv",
    devices=2, accelerator="cpu", workers=0, evaluate=False, progress=False,
)
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_two_processes_stop_together(photos, tmp_path):
    script, out = tmp_path / "two.py", tmp_path / "run"
    script.write_text(TWO)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), str(photos), str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=390,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "stopped.json").read_text())["epoch"] == 2  # kNN is measured in the first process only
    with (out / "csv" / "metrics.csv").open(newline="") as file:
        assert [row["step"] for row in csv.DictReader(file) if row["loss"]] == [str(step) for step in range(1, 7)]


def test_a_stop_waits_for_the_end_of_an_update(photos, tmp_path):
    run = train(photos, tmp_path / "run", Diary(until=1), accumulate=2)  # the third batch ends the epoch
    assert json.loads(run.folder.stopped.read_text())["step"] == 2
    assert read_checkpoint(run.folder.checkpoint)["global_step"] == 2


def test_missing_callbacks_of_a_resumed_run_are_named(photos, tmp_path, caplog):
    stopped_at(6, photos, tmp_path / "run", callbacks=[Diary()], **OPTIONS)
    with caplog.at_level(logging.WARNING):
        run = coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    assert "continues without them: Diary" in caplog.text and run.metrics[-1]["epoch"] == 5


@pytest.mark.slow
def test_each_seed_has_its_own_copy(photos, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(Diary, "on_fit_end", lambda self, trainer, module: seen.append(self), raising=False)
    monkeypatch.setattr("coulomb.api.summarize", lambda folder: {})
    diary = Diary(until=1)
    coulomb.train_seeds(2, photos, out=tmp_path / "runs", callbacks=[diary], **OPTIONS, progress=False)
    assert len(seen) == 2 and not diary.lines and all(len(each.lines) == 2 for each in seen)


class Odd(pl.Callback):
    def state_dict(self):
        return {"path": self}


def test_a_state_that_a_checkpoint_must_not_contain_is_refused(photos, tmp_path):
    with pytest.raises(InputError, match=r"callbacks: state_dict\(\) of Odd.*tensors, numbers"):
        train(photos, tmp_path / "run", [Odd()])


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        ("EarlyStopping", "must be a list"),
        ([print], "builtin_function_or_method.*is not a callback of Lightning"),
        ([StochasticWeightAveraging(0.1)], "StochasticWeightAveraging changes what is trained"),
        ([ModelCheckpoint()], "ModelCheckpoint without dirpath"),
    ],
)
def test_other_callbacks_are_refused(photos, tmp_path, callbacks, message):
    with pytest.raises(InputError, match=f"callbacks.*{message}"):
        train(photos, tmp_path / "run", callbacks)
    assert not (tmp_path / "run").exists()


def test_checkpoints_of_ones_own_go_elsewhere(photos, tmp_path):
    with pytest.raises(InputError, match="ModelCheckpoint must not write to"):
        train(photos, tmp_path / "run", ModelCheckpoint(dirpath=tmp_path / "run" / "checkpoints"))
    best = ModelCheckpoint(dirpath=tmp_path / "best", monitor="knn", mode="max")
    run = train(photos, tmp_path / "run", [best, LearningRateMonitor()], logger="csv")
    knn = [line["knn"] for line in run.metrics if "knn" in line][1:]
    assert float(best.best_model_score) == pytest.approx(max(knn)) and len(list((tmp_path / "best").iterdir())) == 1
    assert sorted(path.name for path in run.folder.checkpoint.parent.iterdir() if path.is_file()) == [
        "checksums.json", "last.ckpt", "previous.ckpt",
    ]  # fmt: skip
