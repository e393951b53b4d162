import json
from types import SimpleNamespace

import pytest
import torch

import coulomb
from coulomb.methods import SupCon
from coulomb.models import build_encoder
from coulomb.runs.journal import Journal
from coulomb.watching.pulse import ClassGradients


@pytest.fixture
def parts(tmp_path):
    """The callback, a trainer and a module of six images in three classes (one image without a label)."""
    encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    labels = torch.tensor([0, 0, 1, 1, 2, -1])
    config = SimpleNamespace(accumulate=2, knn_every=1, epochs=4)
    module = SimpleNamespace(
        method=SupCon(encoder, embedding_dim=4).eval(), labels=labels, config=config, steps_per_epoch=2
    )
    trainer = SimpleNamespace(is_global_zero=True, global_step=1)
    return ClassGradients(Journal(tmp_path / "metrics.jsonl"), 4), trainer, module


def one_batch(callback, trainer, module, index, batch_idx, views=2):
    draw = torch.Generator().manual_seed(batch_idx)
    images = [torch.rand(len(index), 1, 16, 16, generator=draw) for _ in range(views)]
    batch = {"index": torch.tensor(index)}
    callback.on_train_batch_start(trainer, module, batch, batch_idx)
    loss = module.method(images, module.labels[index])
    (loss / module.config.accumulate).backward()
    callback.on_train_batch_end(trainer, module, {}, batch, batch_idx)
    return images


def by_hand(module, images, index):
    """Σ and number of ‖∂(B·loss)/∂h‖ by class, from the definition."""
    features = module.method.encoder(torch.cat(images)).detach().requires_grad_()
    embeddings = module.method.head(features)
    loss = module.method.criterion(torch.stack(embeddings.chunk(len(images)), dim=1), module.labels[index])
    (gradient,) = torch.autograd.grad(len(index) * loss, features)
    found = {}
    for row, label in zip(gradient, module.labels[index].tolist() * len(images), strict=True):
        found.setdefault(label, []).append(float(row.norm()))
    return found


def test_the_figure_is_the_definition(parts, tmp_path):
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
    module.method.encoder(torch.rand(4, 1, 16, 16)).sum().backward()
    assert callback.counts.sum() == 0  # nobody listens after the end


def test_a_checkpoint_within_an_epoch_keeps_what_was_counted(parts, tmp_path):
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


def test_a_run_writes_it_beside_the_live_evaluation(digit_tree, quick, tmp_path):
    run = coulomb.train(digit_tree, out=tmp_path / "run", method="supcon", evaluate=False, progress=False, **quick)
    found = [line for line in run.metrics if "class_gradient_norm" in line]
    looked = [line["epoch"] for line in run.metrics if "alignment" in line and line["epoch"]]  # not before training
    assert [line["epoch"] for line in found] == looked
    assert all(len(line["class_gradient_norm"]) == 5 for line in found)
    assert all(norm > 0 for line in found for norm in line["class_gradient_norm"] if norm is not None)
