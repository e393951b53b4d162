"""The Python interface: arguments that can only be objects."""

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

import coulomb
from coulomb.ground.errors import InputError
from coulomb.kinds.image.views import OwnViews
from coulomb.training.plan.given import load_module

QUICK = {
    "epochs": 1,
    "batch_size": 8,
    "encoder": "convnet",
    "encoder_width": 4,
    "embedding_dim": 4,
    "workers": 0,
    "progress": False,
}


def pictures(count=24, side=16):
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


class Pairs(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.from_numpy(pictures()[index]).permute(2, 0, 1), index % 3


def test_arrays_and_data_sets(tmp_path):
    array = coulomb.train(pictures(), out=tmp_path / "array", evaluate=False, **QUICK)
    assert array.config.data == "<ndarray>"
    dataset = coulomb.train(Pairs(), out=tmp_path / "dataset", **QUICK)
    assert dataset.evaluation["trained"]["knn"] is not None
    with pytest.raises(InputError, match="<Pairs>"):
        coulomb.evaluate(dataset.path, progress=False)
    assert coulomb.evaluate(dataset.path, data=Pairs(), progress=False)["trained"] == dataset.evaluation["trained"]


def test_own_views(tmp_path):
    seen = []

    def mirrored(images, generator):
        seen.append(images.shape)
        return images.flip(3)

    own = OwnViews(mirrored, size=12, channels=3)
    run = coulomb.train(pictures(), views=own, out=tmp_path / "run", **QUICK)
    assert seen and {shape[1:] for shape in seen} == {(3, 12, 12)}
    assert run.encoder.image_size == 12
    assert run.config.views == "custom:OwnViews"


def test_own_views_must_be_passed_again(tmp_path):
    own = OwnViews(lambda images, generator: images.flip(3), size=16, channels=3)
    np.save(tmp_path / "a.npy", pictures())
    run = coulomb.train(tmp_path / "a.npy", views=own, out=tmp_path / "run", evaluate=False, **QUICK)
    with pytest.raises(InputError, match="your own views"):
        coulomb.evaluate(run.path, progress=False)
    assert coulomb.evaluate(run.path, views=own, progress=False)["trained"]["view_retrieval"] is not None


def test_load_says_what_is_missing(tmp_path):
    with pytest.raises(InputError, match=r"no trained encoder.*--resume"):
        coulomb.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [("Net = 3", "no class or function"), ("def Net():\n    return 3", r"returned a int, not a torch\.nn\.Module")],
)
def test_a_file_without_an_encoder(tmp_path, text, words):
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(InputError, match=words):
        load_module(f"{tmp_path}/mine.py:Net")


def test_names_of_built_in_encoders_are_no_files():
    assert load_module("resnet18") is None and load_module(None) is None


def test_unknown_attribute():
    with pytest.raises(AttributeError, match="coulomb.*trian"):
        _ = coulomb.trian


def test_evaluation_refuses_data_that_changed(tmp_path):
    """With another split, the encoder would be evaluated on training images."""
    np.save(tmp_path / "a.npy", pictures())
    run = coulomb.train(tmp_path / "a.npy", out=tmp_path / "run", evaluate=False, **QUICK)
    np.save(tmp_path / "a.npy", pictures(30))
    with pytest.raises(InputError, match="data changed since the run began: data: 24 images then, 30 now"):
        coulomb.evaluate(run.path, progress=False)


def test_dir_lists_lazy_imports():
    assert {"train", "evaluate", "load", "Run", "__version__"} <= set(dir(coulomb))
