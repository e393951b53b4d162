import json

import numpy as np
import pytest
import torch

import coulomb
from coulomb.data import Images, open_source
from coulomb.errors import InputError
from coulomb.metrics.linear import linear_probe
from coulomb.training.network import linear_classifier, predictions


def blobs(classes, per_class=30, dim=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    centres = 4 * torch.randn(classes, dim, generator=draw)
    labels = torch.arange(classes).repeat_interleave(per_class)
    return 3 + centres[labels] + torch.randn(len(labels), dim, generator=draw), labels


@pytest.mark.parametrize("classes", [2, 4])
def test_it_is_the_linear_probe_on_plain_features(classes):
    x, y = blobs(classes)
    train, test = torch.arange(len(y)) % 3 != 0, torch.arange(len(y)) % 3 == 0
    classifier = linear_classifier(x[train], y[train], classes, seed=0)
    accuracy = float((predictions(classifier, x[test]) == y[test]).double().mean())
    assert accuracy == linear_probe(x[train], y[train], x[test], y[test])["accuracy"] > 0.9


def test_unlabelled_images_are_left_out_and_absent_classes_never_predicted():
    x, y = blobs(3)
    partial = torch.where(torch.arange(len(y)) % 2 == 0, y, -1)
    some = linear_classifier(x, partial, 5, seed=0)
    same = linear_classifier(x[partial >= 0], y[partial >= 0], 5, seed=0)
    torch.testing.assert_close(some(x), same(x))
    assert set(predictions(some, 10 * torch.randn(500, 6)).tolist()) <= {0, 1, 2}
    assert linear_classifier(x[:30], y[:30], 3, seed=0) is None


def test_a_finished_run_classifies(digit_tree, tmp_path, quick):
    quick = quick | {"epochs": 4}
    run = coulomb.train(digit_tree, method="supcon", out=tmp_path / "run", evaluate=False, progress=False, **quick)
    images, labels = [], []
    source = open_source(digit_tree)
    store = Images(source, size=16, channels=1, cache_bytes=0)
    split = json.loads((run.path / "split.json").read_text())["test"]
    for batch in store.batches(split, 64):
        images.append(batch["image"].float() / 255)
        labels.append(torch.from_numpy(np.asarray(source.labels)[batch["index"].numpy()]))
    found = coulomb.load(run.path).classify(torch.cat(images))
    assert float((found.labels == torch.cat(labels)).double().mean()) > 0.5
    assert found.names == [source.class_names[label] for label in found.labels]
    assert coulomb.load(run.path).class_names == source.class_names
    plain = coulomb.train(digit_tree, out=tmp_path / "plain", evaluate=False, progress=False, **quick)
    with pytest.raises(InputError, match="has no classifier"):
        plain.classify(torch.cat(images))
