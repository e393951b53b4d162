import pickle

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.tables import ArraySource, open_source


@pytest.mark.parametrize(
    ("shape", "layout", "picture"),
    [
        ((5, 8, 9), "NHW", (8, 9, 1)),
        ((5, 8, 9, 3), "NHWC", (8, 9, 3)),
        ((5, 3, 8, 9), "NCHW", (8, 9, 3)),
        ((5, 8, 9, 1), "NHWC", (8, 9, 1)),
        ((5, 13, 64, 64), "NCHW", (64, 64, 13)),
    ],
)
def test_layouts(shape, layout, picture):
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    source = open_source(array)
    assert source.layout == layout
    image = source.image(2)
    assert image.shape == picture
    expected = array[2]
    if layout == "NCHW":
        expected = expected.transpose(1, 2, 0)
    assert np.array_equal(image, expected.reshape(picture))


@pytest.mark.parametrize("shape", [(5, 3, 3, 3), (5, 3, 4, 3), (5, 17, 64, 64), (5, 64, 64, 64)])
def test_ambiguous_channels_are_refused(shape):
    with pytest.raises(InputError, match="ambiguous which axis.*layout='NHWC'"):
        open_source(np.zeros(shape, np.uint8))
    assert ArraySource(np.zeros(shape, np.uint8), layout="NCHW").image(0).shape == (*shape[2:], shape[1])


@pytest.mark.parametrize("shape", [(8,), (8, 9), (1, 2, 3, 4, 5)])
def test_other_dimensions_are_refused(shape):
    with pytest.raises(InputError, match=r"images must be \[N, H, W\]"):
        open_source(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 4, 4), np.int64), "type int64 must be uint8"),
        (np.full((2, 4, 4), 16.0), r"float pixels range from 16 to 16; scale them to \[0, 1\]"),
        (np.full((2, 4, 4), np.nan), "nan"),
        (np.full((2, 4, 4), -0.5), "float pixels range from -0.5"),
        (np.zeros((0, 4, 4), np.uint8), "holds no pixels"),
        (np.array([[[{}]]], dtype=object), "type object"),
    ],
)
def test_values_outside_the_range_are_refused(array, message):
    with pytest.raises(InputError, match=message):
        open_source(array)


def test_types():
    assert open_source(np.ones((2, 4, 4), bool)).image(0).max() == 255
    assert open_source(np.full((2, 4, 4), 60_000, np.uint16)).image(0).dtype == np.uint16
    half = open_source(np.full((2, 4, 4), 0.5, np.float16)).image(0)
    assert half.dtype == np.float32
    assert half.max() == 0.5


def test_pairs_of_images_and_labels():
    source = open_source((np.zeros((3, 4, 4), np.uint8), np.array([2, -1, 0])))
    assert source.labels.tolist() == [2, -1, 0]
    with pytest.raises(InputError, match="2 labels for 3 images"):
        open_source((np.zeros((3, 4, 4), np.uint8), np.array([2, -1])))


def test_npy_is_mapped_and_not_pickled(tmp_path):
    array = np.random.default_rng(0).integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "a.npy", array)
    source = open_source(tmp_path / "a.npy")
    sent = pickle.dumps(source)
    assert len(sent) < 2000
    assert np.array_equal(pickle.loads(sent).image(7), array[7])
    assert source.item_id(7) == "07"


def test_npz_with_labels(tmp_path):
    images = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.array([[1], [0], [1]]))
    source = open_source(tmp_path / "a.npz")
    assert source.labels.tolist() == [1, 0, 1]
    np.savez(tmp_path / "b.npz", train=images, test=images)
    with pytest.raises(InputError, match="no array called 'images'.*train, test"):
        open_source(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", images)
    assert open_source(tmp_path / "c.npz").labels is None


class Bomb:
    exploded = False

    def __reduce__(self):
        return (setattr, (Bomb, "exploded", True))


@pytest.mark.parametrize("kind", ["npy", "npz", "pickle in npy"])
def test_pickles_are_refused_without_loading(tmp_path, kind):
    Bomb.exploded = False
    trap = np.array([Bomb()], dtype=object)
    path = tmp_path / f"a.{kind[-3:]}"
    if kind == "npy":
        np.save(path, trap, allow_pickle=True)
    elif kind == "npz":
        np.savez(path, images=trap)
    else:
        path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="never loaded|not a readable"):
        open_source(path)
    assert not Bomb.exploded


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_invalid_numpy_files_are_refused(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 garbage")
    with pytest.raises(InputError, match="not a readable NumPy file|never loaded"):
        open_source(tmp_path / name)
