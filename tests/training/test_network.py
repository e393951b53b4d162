import json

import numpy as np
import pytest
import torch

import coulomb
from coulomb.ground.errors import InputError
from coulomb.methods import METHODS, MoCo, SimCLR, Softmax, SupCon
from coulomb.metrics.linear import linear_probe
from coulomb.models import build_encoder
from coulomb.tables import image_samples, open_source
from coulomb.training.network import linear_classifier, make_method, predictions
from coulomb.training.plan.config import Config
from coulomb.training.plan.facts import Facts
from coulomb.training.plan.plan import Part, Prepared, find_training_images


def prepared(labels, train=range(10)):
    labels = None if labels is None else np.asarray(labels)
    facts = Facts(10, 8, 1, 10, digits=False, fast_bf16=False, survey=None, split=None)
    names = None if labels is None else ["a", "b", "c"]
    return Prepared(
        Part(None, np.asarray(train), labels), Part(None, np.asarray([]), labels), facts, names, "", {"name": "data"}
    )


PARTIAL = [0, 0, 1, -1, 2, -1, 0, 1, -1, 0]


def test_which_methods_leave_out_images_without_a_label():
    assert find_training_images(prepared(PARTIAL), Softmax).tolist() == [0, 1, 2, 4, 6, 7, 9]
    for method in (SupCon, SimCLR, MoCo):
        assert find_training_images(prepared(PARTIAL), method).tolist() == list(range(10))
    assert find_training_images(prepared(None), SimCLR).tolist() == list(range(10))


def test_training_images_without_any_label_are_refused():
    for labels in (None, [-1] * 10):
        with pytest.raises(InputError, match="SupCon.*none of the 10 training images"):
            find_training_images(prepared(labels), SupCon)


@pytest.mark.parametrize(("sampler", "counts"), [("uniform", [4, 2, 1]), ("class_balanced", [7 / 3] * 3)])
def test_methods_receive_the_class_counts_of_the_sampler(sampler, counts):
    config = Config(method="balanced_softmax", sampler=sampler)
    encoder = build_encoder("convnet", channels=1, image_size=8, width=4, stages=2)
    method = make_method(config, prepared(PARTIAL), METHODS["balanced_softmax"], encoder, 7)
    np.testing.assert_allclose(method.criterion.class_counts, counts)


def test_a_run_on_partial_labels(tmp_path, quick):
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(40) % 4 == 0, -1, np.arange(40) % 3)
    np.savez(tmp_path / "data.npz", images=rng.integers(0, 256, (40, 16, 16, 1), dtype=np.uint8), labels=labels)
    out = tmp_path / "run"
    run = coulomb.train(tmp_path / "data.npz", method="softmax", out=out, evaluate=False, progress=False, **quick)
    assert "10 of 34 training images have no label: Softmax leaves them out" in (out / "train.log").read_text()
    assert len([line for line in run.metrics if "loss" in line]) == 3 * (24 // 8)


def blobs(classes, per_class=30, dim=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    centers = 4 * torch.randn(classes, dim, generator=draw)
    labels = torch.arange(classes).repeat_interleave(per_class)
    return 3 + centers[labels] + torch.randn(len(labels), dim, generator=draw), labels


@pytest.mark.parametrize("classes", [2, 4])
def test_the_second_stage_is_the_linear_probe_on_unscaled_features(classes):
    x, y = blobs(classes)
    train, test = torch.arange(len(y)) % 3 != 0, torch.arange(len(y)) % 3 == 0
    classifier = linear_classifier(x[train], y[train], classes, seed=0)
    accuracy = float((predictions(classifier, x[test]) == y[test]).double().mean())
    assert accuracy == linear_probe(x[train], y[train], x[test], y[test])["accuracy"] > 0.9


def test_unlabeled_images_are_left_out_and_absent_classes_never_predicted():
    x, y = blobs(3)
    partial = torch.where(torch.arange(len(y)) % 2 == 0, y, -1)
    some = linear_classifier(x, partial, 5, seed=0)
    same = linear_classifier(x[partial >= 0], y[partial >= 0], 5, seed=0)
    torch.testing.assert_close(some(x), same(x))
    assert set(predictions(some, 10 * torch.randn(500, 6)).tolist()) <= {0, 1, 2}
    assert linear_classifier(x[:30], y[:30], 3, seed=0) is None


@pytest.mark.slow
def test_a_finished_run_classifies(digit_tree, tmp_path, quick):
    quick = quick | {"epochs": 4}
    run = coulomb.train(digit_tree, method="supcon", out=tmp_path / "run", evaluate=False, progress=False, **quick)
    images, labels = [], []
    source = open_source(digit_tree)
    store = image_samples(source, size=16, channels=1, cache_bytes=0)
    held_out = set(json.loads((run.path / "split.json").read_text())["test"])
    for batch in store.batches([row for row in range(len(source)) if source.item_id(row) in held_out], 64):
        images.append(batch.stack.canvas.float() / 255)
        labels.append(torch.from_numpy(np.asarray(source.labels)[batch.sample.numpy()]))
    found = coulomb.load(run.path).classify(torch.cat(images))
    assert float((found.labels == torch.cat(labels)).double().mean()) > 0.5
    assert found.names == [source.class_names[label] for label in found.labels]
    assert coulomb.load(run.path).class_names == source.class_names
    plain = coulomb.train(digit_tree, out=tmp_path / "plain", evaluate=False, progress=False, **quick)
    with pytest.raises(InputError, match="has no classifier"):
        plain.classify(torch.cat(images))
