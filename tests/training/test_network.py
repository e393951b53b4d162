import numpy as np
import pytest

import coulomb
from coulomb.errors import InputError
from coulomb.methods import MoCo, SimCLR, Softmax, SupCon
from coulomb.models import build_encoder
from coulomb.runs.config import Config
from coulomb.runs.objects import Objects
from coulomb.runs.plan import find_training_images
from coulomb.runs.prepare import Facts, Part, Prepared
from coulomb.training.network import make_method


def prepared(labels, train=range(10)):
    labels = None if labels is None else np.asarray(labels)
    facts = Facts(10, 8, 1, 10, digits=False, fast_bf16=False, survey=None, split=None)
    names = None if labels is None else ["a", "b", "c"]
    return Prepared(
        Part(None, np.asarray(train), labels), Part(None, np.asarray([]), labels), facts, names, "", {"name": "data"}
    )


PARTIAL = [0, 0, 1, -1, 2, -1, 0, 1, -1, 0]


def test_who_leaves_out_images_without_a_label():
    assert find_training_images(prepared(PARTIAL), Softmax).tolist() == [0, 1, 2, 4, 6, 7, 9]
    for method in (SupCon, SimCLR, MoCo):
        assert find_training_images(prepared(PARTIAL), method).tolist() == list(range(10))
    assert find_training_images(prepared(None), SimCLR).tolist() == list(range(10))


def test_training_images_without_any_label_are_refused():
    for labels in (None, [-1] * 10):
        with pytest.raises(InputError, match="SupCon.*none of the 10 training images"):
            find_training_images(prepared(labels), SupCon)


@pytest.mark.parametrize(("sampler", "counts"), [("uniform", [4, 2, 1]), ("class_balanced", [7 / 3] * 3)])
def test_methods_know_the_counts_as_they_are_drawn(sampler, counts):
    config = Config(method="balanced_softmax", sampler=sampler)
    encoder = build_encoder("convnet", channels=1, image_size=8, width=4, stages=2)
    method = make_method(config, prepared(PARTIAL), Objects(), encoder, 7)
    np.testing.assert_allclose(method.criterion.class_counts, counts)


def test_a_run_on_partial_labels(tmp_path, quick):
    rng = np.random.default_rng(0)
    labels = np.where(np.arange(40) % 4 == 0, -1, np.arange(40) % 3)
    np.savez(tmp_path / "data.npz", images=rng.integers(0, 256, (40, 16, 16, 1), dtype=np.uint8), labels=labels)
    out = tmp_path / "run"
    run = coulomb.train(tmp_path / "data.npz", method="softmax", out=out, evaluate=False, progress=False, **quick)
    assert "10 of 34 training images have no label: Softmax leaves them out" in (out / "train.log").read_text()
    assert len([line for line in run.metrics if "loss" in line]) == 3 * (24 // 8)
