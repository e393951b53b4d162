"""Zero-shot classification, compared with a loop over images."""

import json

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.metrics.zero_shot import class_embeddings, class_prompts, zero_shot


def test_prompts_are_every_template_of_each_class():
    prompts = class_prompts(["cat", "a {} b"], ["a photo of a {}", "{}."])
    assert prompts == ["a photo of a cat", "cat.", "a photo of a a {} b", "a {} b."]
    assert class_prompts(["cat"]) == ["cat"]
    with pytest.raises(InputError, match="'a photo' has no {}"):
        class_prompts(["cat"], ["a photo"])
    with pytest.raises(InputError, match=r"names=\[\]"):
        class_prompts([])


def test_class_embeddings_are_means_of_unit_embeddings():
    texts = torch.tensor([[3.0, 0.0], [0.0, 0.5], [2.0, 2.0], [1.0, 1.0]])
    found = class_embeddings(texts, 2)
    expected = torch.tensor([[0.5, 0.5], [0.5**0.5, 0.5**0.5]])
    torch.testing.assert_close(found, expected / expected.norm(dim=1, keepdim=True))
    with pytest.raises(InputError, match="classes=3: 4 texts"):
        class_embeddings(texts, 3)


def test_figures_are_those_of_a_loop():
    draw = np.random.default_rng(0)
    classes = draw.normal(size=(6, 5))
    labels = draw.choice(5, 200, p=[0.5, 0.2, 0.1, 0.1, 0.1])  # class 5 has no image
    x = classes[labels] + 1.3 * draw.normal(size=(200, 5))
    labels[:9] = -1
    found = zero_shot(x, labels, 4 * classes, ks=(1, 2, 9))
    cosine = (x / np.linalg.norm(x, axis=1, keepdims=True)) @ (
        classes / np.linalg.norm(classes, axis=1, keepdims=True)
    ).T
    order = np.argsort(-cosine, axis=1)[9:]
    truth = labels[9:]
    right = order[:, 0] == truth
    assert found["top"]["1"] == pytest.approx(right.mean()) and found["top"]["9"] == 1
    assert found["top"]["2"] == pytest.approx((order[:, :2] == truth[:, None]).any(1).mean())
    assert found["balanced_accuracy"] == pytest.approx(np.mean([right[truth == c].mean() for c in range(5)]))
    confusion = np.zeros((6, 6), int)
    np.add.at(confusion, (truth, order[:, 0]), 1)
    assert found["confusion"] == confusion.tolist()
    assert found["chance"]["top"] == {"1": pytest.approx(1 / 6), "2": pytest.approx(1 / 3), "9": 1}
    assert found["protocol"]["test_unlabeled"] == 9 and found["protocol"]["classes_without_images"] == 1
    json.dumps(found)


def test_equal_classes_count_against_the_image():
    found = zero_shot(np.ones((10, 3)), np.arange(10) % 2, np.ones((2, 3)))
    assert found["top"]["1"] == 0 and found["confusion"] == [[0, 5], [5, 0]]
    assert zero_shot(np.ones((3, 3)), np.zeros(3, int), np.ones((1, 3)))["top"]["1"] == 1


def test_labels_without_a_class_are_refused():
    with pytest.raises(InputError, match="class 2; they must be classes 0 to 1"):
        zero_shot(np.ones((3, 3)), np.arange(3), np.ones((2, 3)))
    with pytest.raises(InputError, match="no label"):
        zero_shot(np.ones((3, 3)), np.full(3, -1), np.ones((2, 3)))
    with pytest.raises(InputError, match=r"ks=\(0,\)"):
        zero_shot(np.ones((3, 3)), np.arange(3), np.ones((3, 3)), ks=(0,))
