"""When checkpoints are written; that they survive a kill is tested in test_resume.py."""

from types import SimpleNamespace

from coulomb.runs.config import Config
from coulomb.training.checkpoints import Checkpoints
from coulomb.training.module import ContrastiveTraining
from coulomb.training.stopping import Signals


def saved_after(steps_per_epoch, epochs, every, accumulate, tmp_path, monkeypatch):
    saved = []
    checkpoints = Checkpoints(tmp_path / "last.ckpt", every, Signals())
    monkeypatch.setattr(checkpoints, "save", lambda trainer: saved.append(trainer.global_step))
    config = Config(epochs=epochs, accumulate=accumulate)
    module = SimpleNamespace(steps_per_epoch=steps_per_epoch, config=config)
    module.completes_update = lambda index: ContrastiveTraining.completes_update(module, index)
    updates, strategy = 0, SimpleNamespace(reduce_boolean_decision=lambda decision, all: decision)
    for index in range(steps_per_epoch * epochs):
        updates += module.completes_update(index)
        trainer = SimpleNamespace(global_step=updates, strategy=strategy)
        checkpoints.on_train_batch_end(trainer, module, None, None, index)
    return saved


def test_every_epoch_and_every_period(tmp_path, monkeypatch):
    assert saved_after(5, 2, 3, 1, tmp_path, monkeypatch) == [3, 5, 6, 9, 10]


def test_only_complete_updates_are_saved(tmp_path, monkeypatch):
    """Seven batches an epoch, three an update: the first epoch is saved with the update that goes beyond its end."""
    assert saved_after(7, 2, 100, 3, tmp_path, monkeypatch) == [3, 5]
