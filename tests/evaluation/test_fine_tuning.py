import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from coulomb.evaluation import fine_tuning as module
from coulomb.evaluation.fine_tuning import (
    LabeledImages,
    Tuned,
    epoch_order,
    fine_tune,
    geometric_view,
    label_fraction,
    lr_factor,
    tune,
)
from coulomb.ground.errors import InputError, NonFiniteError
from coulomb.kinds.image import Canvases
from coulomb.kinds.image.views import OwnViews, make_views
from coulomb.tables import Batch


class Digits:
    """Digits as `coulomb.tables.Samples` offers them; ``seen`` remembers which were read."""

    def __init__(self):
        self.canvas = torch.from_numpy(load_digits().images).float()[:, None] / 16
        self.seen = []

    def batches(self, indices, batch_size, workers=0):
        for start in range(0, len(indices), batch_size):
            index = torch.as_tensor(np.asarray(indices[start : start + batch_size]))
            self.seen.append(index)
            yield Batch({"image": Canvases(self.canvas[index], torch.ones(len(index)))}, index)


def encoder():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.1),
        )


def sides(train=300):
    y, images = load_digits().target, Digits()
    return LabeledImages(images, np.arange(train), y[:train]), LabeledImages(images, np.arange(1500, 1797), y[1500:])


VIEWS = make_views("single-channel", size=8, channels=1, flip=0)


@pytest.fixture
def run(fine_tuning_updates):
    def run(updates=4, **options):
        fine_tuning_updates(updates)
        train, test = sides()
        return fine_tune(encoder(), 256, train, test, VIEWS, **options)

    return run


def test_more_labels_give_higher_accuracy(run):
    found = run(updates=60, fractions=(0.05, 1.0))
    few, whole = found["fractions"]["0.05"], found["fractions"]["1"]
    assert few["labels"] < 20 and whole["labels"] == 300
    assert 0.15 < few["accuracy"] < whole["accuracy"] - 0.1 and whole["accuracy"] > 0.6
    assert few["lr"] == module.DEFAULT_LR and few["lr_accuracies"] == {}
    assert whole["lr_accuracies"][f"{whole['lr']:g}"] == max(whole["lr_accuracies"].values())
    json.dumps(found)


def test_fine_tuning_leaves_the_encoder_unchanged(fine_tuning_updates):
    net, (train, test) = encoder(), sides()
    fine_tuning_updates(3)
    net[1].eval()
    before, random = {k: v.clone() for k, v in net.state_dict().items()}, torch.get_rng_state()
    fine_tune(net, 256, train, test, VIEWS, fractions=(0.1,))
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert [part.training for part in net] == [True, False, True, True, True, True]
    assert torch.equal(random, torch.get_rng_state())
    assert all(p.grad is None for p in net.parameters())


def test_whole_copy_is_trained():
    net, (train, _) = Tuned(encoder(), 256, 10), sides()
    before = {key: value.clone() for key, value in net.state_dict().items()}
    view, _ = geometric_view(VIEWS)
    options = {"lr": 1e-3, "updates": 3, "seed": 0, "device": torch.device("cpu")}
    tune(net, train.images, train.positions, train.labels, view, **options)
    assert all(not torch.equal(before[key], value) for key, value in net.state_dict().items())


def test_learning_rate_is_not_chosen_by_test_images_or_further_labels(fine_tuning_updates, monkeypatch):
    train, test = sides()
    fine_tuning_updates(2)
    monkeypatch.setattr(module, "LEAST_HELD_OUT", 5)
    first = fine_tune(encoder(), 256, train, test, VIEWS, fractions=(0.1,))
    read = torch.cat(train.images.seen).tolist()
    assert len(read) - len(set(read)) > 0 and read[-297:] == list(range(1500, 1797))
    assert max(read[:-297]) < 300  # before the last, the only look at test images
    assert len(set(read[:-297])) == first["fractions"]["0.1"]["labels"]
    wrong = LabeledImages(test.images, test.positions, (test.labels + 1) % 10)
    other = fine_tune(encoder(), 256, train, wrong, VIEWS, fractions=(0.1,))
    for found in (first, other):
        found["fractions"]["0.1"].pop("accuracy")
    assert first == other


def test_learning_rate_is_chosen_on_held_out_images(run, monkeypatch):
    trained, validated = [], []
    monkeypatch.setattr(module, "tune", lambda net, images, positions, *_, **__: trained.append(set(positions)))
    original = module.predict
    monkeypatch.setattr(
        module, "predict", lambda net, images, p, *rest: validated.append(set(p)) or original(net, images, p, *rest)
    )
    run(fractions=(1.0,))
    assert [len(part) for part in trained] == [240] * len(module.GRID) + [300]
    assert [len(part) for part in validated] == [60] * len(module.GRID) + [297]
    assert all(not (one & other) for one, other in zip(trained, validated, strict=True))


def test_same_seed_same_result(run):
    assert run(fractions=(0.1,), seed=3) == run(fractions=(0.1,), seed=3)


def test_unlabeled_images_are_left_out(fine_tuning_updates):
    fine_tuning_updates(2)
    train, test = sides()
    train.labels[:100] = -1
    found = fine_tune(encoder(), 256, train, test, VIEWS, fractions=(1.0,))
    assert found["fractions"]["1"]["labels"] == found["protocol"]["train"] == 200
    assert min(torch.cat(train.images.seen).tolist()) == 100


def test_bad_input():
    train, test = sides()
    one = LabeledImages(train.images, train.positions, np.zeros(300, dtype=np.int64))
    with pytest.raises(InputError, match=r"train.*two classes.*\(1\)"):
        fine_tune(encoder(), 256, one, test, VIEWS)
    with pytest.raises(InputError, match=r"fraction=0\.0 "):
        fine_tune(encoder(), 256, train, test, VIEWS, fractions=(0.0,))


def test_non_finite_loss_is_raised():
    net, (train, _) = Tuned(encoder(), 256, 10), sides()
    nn.init.constant_(net.encoder[0].weight, torch.inf)
    options = {"lr": 1e-3, "updates": 3, "seed": 0, "device": torch.device("cpu")}
    with pytest.raises(NonFiniteError, match="update 1, lr 0.001"):
        tune(net, train.images, train.positions, train.labels, geometric_view(VIEWS)[0], **options)


def test_label_fractions_are_stratified_and_nested():
    labels = np.repeat([0, 1, 2, -1], [200, 50, 3, 40])
    tenth, half, whole = (label_fraction(labels, fraction, 0) for fraction in (0.1, 0.5, 1.0))
    assert np.bincount(labels[tenth]).tolist() == [20, 5, 1]
    assert set(tenth) < set(half) < set(whole) == set(np.flatnonzero(labels >= 0))
    assert set(tenth) != set(label_fraction(labels, 0.1, 1))
    with pytest.raises(InputError, match="no label"):
        label_fraction(np.full(4, -1), 0.5, 0)


def test_geometric_views_keep_colors_and_user_views_are_plain():
    canvas = torch.rand(4, 3, 16, 16)
    mild, words = geometric_view(make_views("small-natural", size=16))
    draw = torch.Generator().manual_seed(0)
    assert mild(canvas, draw).shape == canvas.shape and "0.5 to 1 of the area" in words
    flat = mild(canvas[:, :, :1, :1].expand(4, 3, 16, 16).contiguous(), draw)
    torch.testing.assert_close(flat, canvas[:, :, :1, :1].expand_as(flat))
    own, words = geometric_view(OwnViews(lambda images, generator: 1 - images, 16, 3))
    assert torch.equal(own(canvas, draw), canvas) and words == "the plain view"


def test_order_and_schedule():
    order = epoch_order(np.array([4, 8, 9]), 7, 0)
    assert len(order) == 7 and sorted(order[:3]) == sorted(order[3:6]) == [4, 8, 9]
    rates = [lr_factor(step, 100) for step in range(100)]
    assert rates[0] == 0.1 and max(rates) == rates[9] == rates[10] == 1.0 and rates[-1] < 0.001
