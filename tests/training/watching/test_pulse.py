"""The pulse measures what each method has, and does not change the training."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

import coulomb
from coulomb.methods import METHODS, SupCon
from coulomb.models import ViewRows, build_encoder
from coulomb.training.record.journal import Journal
from coulomb.training.watching.pulse import ClassGradients
from method_cases import built
from run_cases import comparable, stopped_at

NEGATIVES = {"negatives", "effective_negatives", "top1_gradient", "top1pct_gradient", "top10pct_gradient"}
FALSE, POSITIVE, DRIFT = "false_negative_gradient", "train_positive_similarity", "drift"
ALWAYS = {"gradient_norm", "update_ratio"}
HAS = {
    "simclr": NEGATIVES | {FALSE, POSITIVE},
    "debiased": NEGATIVES | {FALSE, POSITIVE},
    "hard": NEGATIVES | {FALSE, POSITIVE},
    "dcl": NEGATIVES | {FALSE, POSITIVE},
    "siglip": {POSITIVE},
    "vicreg": {POSITIVE},
    "barlow": {POSITIVE},
    "moco": NEGATIVES | {FALSE, POSITIVE, DRIFT},
    "instdisc": NEGATIVES | {FALSE, POSITIVE},
    "supcon": NEGATIVES | {POSITIVE},
    "paco": NEGATIVES | {POSITIVE, DRIFT},
    "byol": {POSITIVE, DRIFT},
    "simsiam": {POSITIVE},
    "triplet": {POSITIVE},
    "arcface": {POSITIVE},
    "softmax": set(),
    "balanced_softmax": set(),
}
OWN = {"moco": {"queue_size": 20}, "paco": {"queue_size": 20}, "instdisc": {"full": True}}


def updates(lines):
    return [line for line in lines if "loss" in line]


def without_pulse(lines):
    return [{k: v for k, v in line.items() if k not in NEGATIVES | ALWAYS | {FALSE, POSITIVE, DRIFT}} for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_the_pulse_of_every_method_changes_nothing(digit_tree, quick, tmp_path, method):
    """With a pulse at every second update, without, and resumed, weights and lines are the same."""
    options = quick | {
        "epochs": 2,
        "method": method,
        "method_options": OWN.get(method, {}),
        "knn_every": 0,
        "workers": 0,
    }
    options |= {"evaluate": False, "progress": False}
    run = coulomb.train(digit_tree, out=tmp_path / "run", pulse=2, **options)
    lines = updates(run.metrics)
    looked = [line for line in lines if "gradient_norm" in line]
    assert [line["step"] for line in looked] == [1, *range(2, len(lines) + 1, 2)]
    assert HAS.keys() == METHODS.keys()
    for line in looked[1:]:  # a queue has no labels at first
        assert (NEGATIVES | ALWAYS | {FALSE, POSITIVE, DRIFT}) & line.keys() == HAS[method] | ALWAYS
        check(line)
    plain = coulomb.train(digit_tree, out=tmp_path / "plain", pulse=0, **options)
    assert not any("gradient_norm" in line for line in plain.metrics)
    assert without_pulse(comparable(run.path)) == without_pulse(comparable(plain.path))
    assert (run.path / "encoder.safetensors").read_bytes() == (plain.path / "encoder.safetensors").read_bytes()


def check(line):
    assert line["gradient_norm"] > 0
    assert 0 < line["update_ratio"] < 1
    if "negatives" in line:
        assert 1 <= line["effective_negatives"] <= line["negatives"] + 1e-3
        assert 0 < line["top1_gradient"] <= line["top1pct_gradient"] + 1e-6
        assert line["top1pct_gradient"] <= line["top10pct_gradient"] + 1e-6 <= 1 + 1e-5
        assert 0 <= line.get(FALSE, 0) <= 1
    assert -1 <= line.get(POSITIVE, 0) <= 1 + 1e-6
    assert 0 <= line.get(DRIFT, 0) + 1e-6 <= 2


def test_resume_repeats_the_pulse(digit_tree, quick, tmp_path):
    options = quick | {"method": "moco", "method_options": OWN["moco"], "pulse": 3, "knn_every": 2, "workers": 0}
    whole = coulomb.train(digit_tree, out=tmp_path / "whole", evaluate=False, progress=False, **options)
    stopped_at(11, digit_tree, tmp_path / "run", **options)  # the last checkpoint is of step 8
    run = coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    assert comparable(run.path) == comparable(whole.path)
    assert any("drift" in line for line in comparable(run.path) if line["step"] > 8)


def test_gradients_that_accumulate_and_half_precision(digit_tree, quick, tmp_path):
    options = quick | {"accumulate": 3, "precision": "bf16", "evaluate": False, "progress": False, "knn_every": 0}
    run = coulomb.train(digit_tree, out=tmp_path / "run", pulse=2, workers=0, **options)
    looked = [line for line in updates(run.metrics) if "gradient_norm" in line]
    assert [line["step"] for line in looked] == [1, 2, 4, 6]
    for line in looked:
        check(line)


def test_the_values_follow_their_definitions(digit_tree, quick, tmp_path, monkeypatch):
    """Compares gradient_norm and update_ratio with values computed from gradients and weights."""
    from coulomb.training.watching.pulse import Pulse

    wanted = []
    before, after = Pulse.on_before_optimizer_step, Pulse.on_train_batch_end

    def watch_before(self, trainer, module, optimizer):
        norms = [float(p.grad.double().square().sum()) for p in module.method.parameters() if p.grad is not None]
        weights = [p.detach().double().clone() for p in module.method.tower.encoder.parameters()]
        wanted.append([math.sqrt(sum(norms)), weights])
        before(self, trainer, module, optimizer)

    def watch_after(self, trainer, module, *rest):
        weights = wanted[-1].pop()
        moved = [
            (p.detach().double() - w) for p, w in zip(module.method.tower.encoder.parameters(), weights, strict=True)
        ]
        size = [math.sqrt(sum(float(w.square().sum()) for w in group)) for group in (moved, weights)]
        wanted[-1].append(size[0] / size[1])
        after(self, trainer, module, *rest)

    monkeypatch.setattr(Pulse, "on_before_optimizer_step", watch_before)
    monkeypatch.setattr(Pulse, "on_train_batch_end", watch_after)
    options = quick | {"epochs": 1, "evaluate": False, "progress": False, "knn_every": 0, "workers": 0}
    run = coulomb.train(digit_tree, out=tmp_path / "run", pulse=1, **options)
    for line, (gradient, ratio) in zip(updates(run.metrics), wanted, strict=True):
        assert (line["gradient_norm"], line["update_ratio"]) == pytest.approx((gradient, ratio), rel=1e-4)


MINE = """
import torch
from torch import nn
from coulomb.losses import InfoNCELoss

class Mine(nn.Module):
    def __init__(self, tower):
        super().__init__()
        self.tower = tower
        self.criterion = InfoNCELoss(0.2, symmetric=True)

    def forward(self, views, labels, train_row):
        first, second = (self.tower(view) for view in views.split(views["image"]))
        return self.criterion(first, second)
"""


def test_an_own_method(digit_tree, quick, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    options = quick | {"epochs": 1, "evaluate": False, "progress": False, "knn_every": 0, "workers": 0}
    run = coulomb.train(digit_tree, out=tmp_path / "run", method=f"{tmp_path / 'mine.py'}:Mine", pulse=2, **options)
    line = updates(run.metrics)[-1 if len(updates(run.metrics)) % 2 == 0 else -2]
    assert line["negatives"] == 7
    assert {POSITIVE, FALSE, "gradient_norm"} <= line.keys()


def test_drift_is_zero_for_a_copy():
    from coulomb.methods import MoCo
    from coulomb.models import build_encoder
    from coulomb.training.watching.pulse import measure_drift

    method = built(MoCo, build_encoder("convnet", channels=1, image_size=16, width=4), embedding_dim=4, queue_size=8)
    view, modes = torch.rand(6, 1, 16, 16), [part.training for part in method.modules()]
    assert measure_drift(method, view) == pytest.approx(0, abs=1e-6)
    with torch.no_grad():
        for weight in method.tower.head.parameters():
            weight.neg_()
    assert measure_drift(method, view) > 0.001
    assert [part.training for part in method.modules()] == modes


@pytest.fixture
def parts(tmp_path):
    """Returns the callback, a trainer and a module with six images in three classes (one image without a label)."""
    encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    labels = torch.tensor([0, 0, 1, 1, 2, -1])  # by sample
    config = SimpleNamespace(accumulate=2, knn_every=1, epochs=4)
    module = SimpleNamespace(
        method=built(SupCon, encoder, embedding_dim=4).eval(),
        labels=labels,
        config=config,
        steps_per_epoch=2,
        weight=one,
    )
    trainer = SimpleNamespace(is_global_zero=True, global_step=1)
    return ClassGradients(Journal(tmp_path / "metrics.jsonl"), 4), trainer, module


class Labeled(list):
    """A batch with labels."""

    @property
    def labels(self):
        return torch.stack(list(self))


def one(batch):
    """The weight of the batch of a single process."""
    return 1.0


def one_batch(callback, trainer, module, index, batch_idx, views=2):
    draw = torch.Generator().manual_seed(batch_idx)
    images = [torch.rand(len(index), 1, 16, 16, generator=draw) for _ in range(views)]
    batch = Labeled(module.labels[index])
    callback.on_train_batch_start(trainer, module, batch, batch_idx)
    loss = module.method(ViewRows.of(images), module.labels[index])
    (loss / module.config.accumulate).backward()
    callback.on_train_batch_end(trainer, module, {}, batch, batch_idx)
    return images


def by_hand(module, images, index):
    """Returns sum and number of ‖∂(B·loss)/∂h‖ per class, from the definition."""
    features = module.method.tower.encoder(torch.cat(images)).detach().requires_grad_()
    embeddings = module.method.tower.head(features)
    loss = module.method.criterion(torch.stack(embeddings.chunk(len(images)), dim=1), module.labels[index])
    (gradient,) = torch.autograd.grad(len(index) * loss, features)
    found = {}
    for row, label in zip(gradient, module.labels[index].tolist() * len(images), strict=True):
        found.setdefault(label, []).append(float(row.norm()))
    return found


def test_the_class_gradient_follows_its_definition(parts, tmp_path):
    callback, trainer, module = parts
    callback.on_train_start(trainer, module)
    indices = [[0, 1, 2, 3], [1, 0, 5, 4]]
    wanted = {}
    for number, index in enumerate(indices):
        for label, norms in by_hand(module, one_batch(callback, trainer, module, index, number), index).items():
            wanted.setdefault(label, []).extend(norms)
    callback.on_train_end(trainer, module)
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    assert (line["epoch"], line["step"]) == (1, 1)
    assert line["class_gradient_views"] == [8, 4, 2, 0]
    expected = [sum(wanted[label]) / len(wanted[label]) for label in range(3)]
    assert line["class_gradient_norm"][:3] == pytest.approx(expected, rel=1e-4)
    assert line["class_gradient_norm"][3] is None  # no image of that class
    module.method.tower.encoder(torch.rand(4, 1, 16, 16)).sum().backward()
    assert callback.counts.sum() == 0  # nobody listens after the end


def test_a_checkpoint_within_an_epoch_restores_the_sums(parts, tmp_path):
    callback, trainer, module = parts
    callback.on_train_start(trainer, module)
    one_batch(callback, trainer, module, [0, 1, 2, 3], 0)
    state = {name: value.clone() for name, value in callback.state_dict().items()}
    one_batch(callback, trainer, module, [1, 0, 5, 4], 1)
    callback.on_train_end(trainer, module)
    resumed = ClassGradients(Journal(tmp_path / "resumed.jsonl"), 4)
    resumed.load_state_dict(state)
    resumed.on_train_start(trainer, module)
    one_batch(resumed, trainer, module, [1, 0, 5, 4], 1)
    resumed.on_train_end(trainer, module)
    assert (tmp_path / "resumed.jsonl").read_text() == (tmp_path / "metrics.jsonl").read_text()


def test_a_run_writes_class_gradients_with_the_live_evaluation(digit_tree, quick, tmp_path):
    run = coulomb.train(digit_tree, out=tmp_path / "run", method="supcon", evaluate=False, progress=False, **quick)
    found = [line for line in run.metrics if "class_gradient_norm" in line]
    looked = [line["epoch"] for line in run.metrics if "alignment" in line and line["epoch"]]  # not before training
    assert [line["epoch"] for line in found] == looked
    assert all(len(line["class_gradient_norm"]) == 5 for line in found)
    assert all(norm > 0 for line in found for norm in line["class_gradient_norm"] if norm is not None)
