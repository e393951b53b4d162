import pickle
from pathlib import Path

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.tables import open_source


def test_digits():
    from sklearn.datasets import load_digits

    source = open_source("digits")
    assert (len(source), source.kind) == (1797, "digits")
    assert source.class_names == [str(digit) for digit in range(10)]
    assert np.array_equal(source.labels, load_digits().target)
    original = load_digits().images[5]
    assert source.image(5).dtype == np.uint8
    assert np.array_equal(np.round(source.image(5)[..., 0] * (16 / 255)), original)
    assert source.item_id(5) == "digit-0005"
    assert source.describe()["classes"] == 10


def test_source_is_returned_unchanged():
    source = open_source("digits")
    assert open_source(source) is source
    assert open_source(source, labels="none").labels is None
    assert source.labels is not None  # the original is unchanged


@pytest.mark.parametrize(
    "data", ["nowhere", "./a/b", "/no/such/folder", "photos/", "a/b/c", "pictures.csv", "dir/list.parquet"]
)
def test_error_for_a_missing_file_is_one_line(data, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets, "load_dataset", lambda name: pytest.fail("the network was used for a path"))
    with pytest.raises(InputError, match="no such file or folder") as caught:
        open_source(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("data", ["", "a\0b", "x" * 5000])
def test_invalid_names_are_refused(data):
    with pytest.raises(InputError):
        open_source(data)


@pytest.mark.parametrize("data", [None, 3, ["a.png"], {"image": 1}, b"digits"])
def test_other_objects(data):
    with pytest.raises(InputError, match=f"data is a {type(data).__name__}"):
        open_source(data)


@pytest.mark.parametrize("name", ["model.pkl", "photo.png", "data.zip", "data.tar.gz", "noext"])
def test_unsupported_files_are_not_opened(tmp_path, name):
    (tmp_path / name).write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(InputError, match="not a data set"):
        open_source(tmp_path / name)


def test_existing_files_take_precedence_over_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("digits").mkdir()
    with pytest.raises(InputError, match="no images in this folder"):
        open_source("digits")


def test_pattern_without_a_match(tmp_path):
    with pytest.raises(InputError, match="no file matches"):
        open_source(f"{tmp_path}/train-*.parquet")


def test_every_kind_survives_pickling(tmp_path):
    from PIL import Image

    Image.new("L", (4, 4)).save(tmp_path / "a.png")
    for data in ("digits", tmp_path, np.zeros((2, 4, 4), np.uint8)):
        source = open_source(data)
        copy = pickle.loads(pickle.dumps(source))
        assert np.array_equal(copy.image(0), source.image(0))
        assert copy.describe() == source.describe()


def test_options_that_do_not_apply_are_refused(tmp_path):
    with pytest.raises(InputError, match="labels='breed': a digits has no columns"):
        open_source("digits", labels="breed")
    with pytest.raises(InputError, match="only a list of paths has a root"):
        open_source("digits", root=tmp_path)
