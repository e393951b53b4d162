import errno

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import open_source


class Listed(Dataset):
    def __init__(self, items, **attributes):
        self.items = items
        self.touched = 0
        self.__dict__.update(attributes)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        self.touched += 1
        if isinstance(self.items[index], Exception):
            raise self.items[index]
        return self.items[index]


GRAY = np.arange(20, dtype=np.uint8).reshape(4, 5)


@pytest.mark.parametrize(
    ("image", "shape"),
    [
        (Image.fromarray(GRAY), (4, 5, 1)),
        (Image.fromarray(GRAY).convert("RGBA"), (4, 5, 3)),
        (GRAY, (4, 5, 1)),
        (np.dstack([GRAY] * 3), (4, 5, 3)),
        (torch.from_numpy(GRAY), (4, 5, 1)),
        (torch.from_numpy(GRAY)[None], (4, 5, 1)),
        (torch.zeros(13, 4, 5, dtype=torch.uint8), (4, 5, 13)),
        (torch.rand(3, 4, 5), (4, 5, 3)),
    ],
)
def test_kinds_of_images(image, shape):
    for item in (image, (image, 1), {"image": image, "label": 1}):
        source = open_source(Listed([item, item]))
        assert source.image(1).shape == shape
        assert source.labels is None if item is image else source.labels.tolist() == [1, 1]
    if shape == (4, 5, 1):
        assert np.array_equal(source.image(0)[..., 0], GRAY)


def test_errors_of_reading_are_no_corrupt_images():
    source = open_source(
        Listed([GRAY, InputError("shard 7 is gone"), OSError(errno.EIO, "Input/output error"), ValueError("no image")])
    )
    with pytest.raises(InputError, match="^shard 7 is gone$") as raised:
        source.image(1)
    assert not isinstance(raised.value, CorruptImage)
    with pytest.raises(DataUnavailableError, match="item 2: cannot be read \\(Input/output error\\)"):
        source.image(2)
    with pytest.raises(CorruptImage, match="ValueError: no image"):
        source.image(3)


def test_labels_come_from_targets_without_a_pass():
    items = [(GRAY, 0), (GRAY, 1), (GRAY, 1)]
    dataset = Listed(items, targets=torch.tensor([0, 1, 1]), classes=["cat", "dog"])
    source = open_source(dataset)
    assert source.labels.tolist() == [0, 1, 1]
    assert source.class_names == ["cat", "dog"]
    assert dataset.touched == 0
    subset = open_source(Subset(dataset, [2, 0]))
    assert subset.labels.tolist() == [1, 0]
    assert subset.class_names == ["cat", "dog"]


def test_labels_from_one_pass_are_noted_and_can_be_skipped():
    items = [(GRAY, "dog"), OSError("torn"), (GRAY, "cat")]
    source = open_source(Listed(items))
    assert source.labels.tolist() == [1, -1, 0]
    assert "one pass" in source.notes[0]
    dataset = Listed(items)
    assert open_source(dataset, labels=False).labels is None
    assert open_source(dataset, labels=[0, 1, 2]).labels.tolist() == [0, 1, 2]
    assert dataset.touched == 0


def test_tensor_dataset():
    source = open_source(TensorDataset(torch.zeros(3, 1, 4, 4), torch.tensor([0, 1, -1])))
    assert source.labels.tolist() == [0, 1, -1]
    assert source.image(0).dtype == np.float32


def test_failing_items_are_corrupt_and_bugs_are_raised():
    with pytest.raises(CorruptImage, match="1: OSError: torn"):
        open_source(Listed([GRAY, OSError("torn")])).image(1)
    with pytest.raises(AttributeError):
        open_source(Listed([GRAY, AttributeError("typo")])).image(1)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(3, 4, 4, dtype=torch.int64), "type int64"),
        ("path.png", "a str is not an image"),
        ({"picture": GRAY}, "without 'image'"),
        (np.full((4, 4), 7.0), "scale them to"),
    ],
)
def test_items_that_are_not_images(image, message):
    with pytest.raises(InputError, match=message):
        open_source(Listed([image])).image(0)


def test_not_map_style_or_empty():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([GRAY])

    with pytest.raises(InputError, match="not a map-style data set"):
        open_source(Stream())
    with pytest.raises(InputError, match="empty"):
        open_source(Listed([]))
