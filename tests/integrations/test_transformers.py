"""The callback in a trainer of transformers: its log has the figures, and the training is the same without it."""

import pytest
import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments

from coulomb.integrations.transformers import EmbeddingMonitor
from coulomb.losses import InfoNCELoss, LearnableTemperature


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.network, self.criterion = nn.Linear(8, 6), InfoNCELoss(LearnableTemperature(0.1), symmetric=True)

    def forward(self, x, y):
        return {"loss": self.criterion(self.network(x), self.network(y))}


class Rows(torch.utils.data.Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(0)
        self.x = torch.randn(64, 8, generator=draw)

    def __len__(self):
        return 64

    def __getitem__(self, row):
        return {"x": self.x[row], "y": self.x[row] + 0.1}


class Reporter(TrainerCallback):
    def __init__(self):
        self.lines = []

    def on_log(self, args, state, control, logs, **kwargs):
        self.lines.append((state.global_step, dict(logs)))


def trainer(folder, callbacks=(), **options):
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=9,
        per_device_train_batch_size=16,
        logging_steps=3,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        learning_rate=0.01,
        **options,
    )
    return Trainer(Model(), arguments, train_dataset=Rows(), callbacks=list(callbacks))


def monitored(lines):
    return [(step, line) for step, line in lines if "coulomb/alignment" in line]


def test_attached_it_reports_to_all_and_the_loss_is_still_logged(tmp_path):
    reporter = Reporter()
    made = trainer(tmp_path, [reporter])
    monitor = EmbeddingMonitor(every=3).attach(made)
    made.train()
    lines = monitored(reporter.lines)
    assert [step for step, _ in lines] == [1, 3, 6, 9]
    assert {"coulomb/uniformity", "coulomb/embedding_rank", "coulomb/effective_negatives"} < set(lines[0][1])
    assert 0.09 < lines[0][1]["coulomb/temperature"] < 0.11
    assert [step for step, line in reporter.lines if "loss" in line] == [3, 6, 9]
    assert [line["step"] for line in made.state.log_history if "coulomb/alignment" in line] == [1, 3, 6, 9]
    assert monitor.latest["uniformity"] == lines[-1][1]["coulomb/uniformity"]


def test_as_a_plain_callback_it_writes_to_the_history(tmp_path):
    made = trainer(tmp_path, [EmbeddingMonitor(every=4)], gradient_accumulation_steps=2)
    made.train()
    found = [line for line in made.state.log_history if "coulomb/alignment" in line]
    assert [line["step"] for line in found] == [1, 4, 8]
    assert [line["step"] for line in made.state.log_history if "loss" in line] == [3, 6, 9]
    assert not made.model.criterion._forward_hooks


def test_a_loss_outside_of_the_model_is_passed(tmp_path):
    loss = InfoNCELoss(0.3)
    monitor = EmbeddingMonitor(loss, every=3)
    made = trainer(tmp_path, [monitor])
    made.compute_loss = lambda model, inputs, **named: loss(model.network(inputs["x"]), model.network(inputs["y"]))
    made.train()
    assert monitor.latest["temperature"] == pytest.approx(0.3)


def test_the_training_is_the_same_without_it(tmp_path):
    weights = []
    for callbacks in ([], [EmbeddingMonitor(every=2)]):
        made = trainer(tmp_path, callbacks)
        made.train()
        weights.append(made.model.network.weight.detach())
    assert torch.equal(*weights)
