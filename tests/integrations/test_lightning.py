"""The callback in a Lightning trainer: its loggers get the figures, and the training is the same without it."""

import logging

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.loggers.logger import Logger
from torch import nn

from coulomb.integrations.lightning import EmbeddingMonitor
from coulomb.losses import NTXentLoss

NAMES = {
    f"coulomb/{name}"
    for name in (
        "alignment",
        "uniformity",
        "embedding_rank",
        "embedding_std",
        "effective_negatives",
        "top1_gradient",
        "top10pct_gradient",
        "temperature",
    )
}


class Module(pl.LightningModule):
    def __init__(self, gain=1.0):
        super().__init__()
        torch.manual_seed(0)
        self.network, self.criterion, self.gain = nn.Linear(8, 6), NTXentLoss(0.2), gain

    def training_step(self, batch, batch_idx):
        (x,) = batch
        shift = torch.linspace(-0.1, 0.1, 8)
        return self.criterion(
            self.gain * self.network(x) + 1 - self.gain, self.gain * self.network(x + shift) + 1 - self.gain
        )

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Kept(Logger):
    def __init__(self):
        super().__init__()
        self.lines = []

    name, version = "kept", 0

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, dict(metrics)))

    def log_hyperparams(self, *args, **named):
        pass


def train(callbacks, steps=12, gain=1.0, **options):
    draw = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(torch.randn(64, 8, generator=draw))
    logger, module = Kept(), Module(gain)
    trainer = pl.Trainer(
        max_steps=steps,
        logger=logger,
        callbacks=callbacks,
        accelerator="cpu",
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        **options,
    )
    trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=16))
    return trainer, module, logger


pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*number of training batches"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),  # raised within Lightning by torch
]


def test_logs_the_first_update_and_every_so_many_th():
    trainer, module, logger = train([EmbeddingMonitor(every=5)])
    ours = [(step, line) for step, line in logger.lines if NAMES & set(line)]
    assert [step for step, _ in ours] == [1, 5, 10]
    assert all(set(line) == NAMES for _, line in ours)
    assert ours[0][1]["coulomb/temperature"] == pytest.approx(0.2)
    assert set(trainer.callback_metrics) >= NAMES
    assert not module.criterion._forward_hooks


def test_one_measurement_per_update_with_gradient_accumulation():
    _, _, logger = train([EmbeddingMonitor(every=2)], steps=4, accumulate_grad_batches=2)
    assert [step for step, line in logger.lines if NAMES & set(line)] == [1, 2, 4]


def test_the_training_is_the_same_without_it():
    weights = [train(callbacks)[1].network.weight for callbacks in ([], [EmbeddingMonitor(every=2)])]
    assert torch.equal(*weights)


def test_a_collapse_is_warned_of(caplog):
    monitor = EmbeddingMonitor(every=10)
    with caplog.at_level(logging.WARNING, "coulomb"):
        train([monitor], steps=80, gain=1e-4)
    assert [one.split()[0] for one in monitor.warnings] == ["complete-collapse"]
    assert monitor.warnings[0] in caplog.text
