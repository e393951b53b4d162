"""Python objects as sources: torch data sets, and lists of single images."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
)

from coulomb.ground.errors import InputError
from coulomb.ground.outages import is_outage, unavailable
from coulomb.ground.text import visible
from coulomb.kinds.image.decode import decode, from_pil, read_bands, read_header, reasons, regular_file
from coulomb.kinds.image.picture import CorruptImage, Header, Picture, array_header
from coulomb.kinds.image.pixels import checked_unit_range
from coulomb.tables.labels import read_labels
from coulomb.tables.source import Source
from coulomb.tables.sources.arrays import MOST_CHANNELS, bands_of, find_layout, to_last_axis
from coulomb.tables.sources.files import file_stamp


class DatasetSource(Source):
    """A map-style torch ``Dataset`` of images, (image, label) pairs, or dicts with "image" and optionally "label".

    Images may be Pillow images, arrays [H, W] or [H, W, C], or tensors [C, H, W]. The data set must not augment them
    randomly: the same index must give the same image, because views are made later.

    Args:
        dataset: the data set.
        labels: one label per item, or False for no labels. By default they are the data set's ``targets`` or ``labels``,
            or are read in one pass over all items.

    >>> data = torch.utils.data.TensorDataset(torch.rand(5, 1, 8, 8), torch.tensor([0, 1, 0, 1, 0]))
    >>> len(DatasetSource(data))
    5
    """

    kind = "torch dataset"

    def __init__(self, dataset: "Dataset[Any]", labels: Any = None) -> None:
        name = type(dataset).__name__
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise InputError(
                f"{name}: not a map-style data set; it needs __len__ and __getitem__ (an IterableDataset has neither)"
            )
        self.dataset = dataset
        self.name = name
        if not len(self):
            raise InputError(f"{name}: the data set is empty")
        if labels is None:
            labels = self._find_labels()
        if labels is not None and labels is not False:
            self.labels, self.class_names = read_labels(labels, len(self), name, _class_names(dataset))

    def __len__(self) -> int:
        return len(self.dataset)

    def item_id(self, index: int) -> str:
        """Returns the index, with leading zeros."""
        return f"{index:0{len(str(len(self) - 1))}d}"

    def image(self, index: int) -> Picture:
        """Returns an image [H, W, C]; it is corrupt if the data set raises OSError, ValueError or SyntaxError.

        Raises:
            DataUnavailableError: the OSError is of a disk, the network or this process, not of one file.
        """
        return as_picture(_get_image(self._item(index), self.name), self.item_id(index))

    def _item(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except InputError:
            raise
        except (OSError, ValueError, SyntaxError) as error:
            if isinstance(error, OSError) and is_outage(error):
                raise unavailable(f"{self.name}, item {index}", error) from None
            raise CorruptImage(self.item_id(index), f"{type(error).__name__}: {error}") from None

    def _find_labels(self) -> Any:
        stored = _stored_labels(self.dataset)
        if stored is not None and len(stored) == len(self):
            return stored
        labels: list[Any] = []
        for index in range(len(self)):
            try:
                item = self._item(index)
            except CorruptImage:
                labels.append(None)
                continue
            if isinstance(item, dict) and "label" in item:
                labels.append(item["label"])
            elif isinstance(item, (tuple, list)) and len(item) > 1:
                labels.append(item[1])
            else:
                return None
        self.notes = (f"Labels were read in one pass over {len(self)} items (the data set has no .targets).",)
        return labels


def dataset_of(loader: "DataLoader[Any]") -> Any:
    """Returns the data set of a loader, of which its order, batch size, workers and ``collate_fn`` are not used.

    Raises:
        InputError: the loader has a sampler of its own, which may leave items out or repeat them, or its data set has no items
            by number.
    """
    dataset = loader.dataset
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"data=DataLoader of {type(dataset).__name__}: only a data set with __len__ and __getitem__ can be used, since "
            "a run reads each image again in every epoch"
        )
    plain = type(loader.sampler) in (SequentialSampler, RandomSampler) and type(loader.batch_sampler) in (
        BatchSampler,
        type(None),
    )
    if not plain or len(loader.sampler) != len(dataset):  # type: ignore[arg-type]
        sampler = type(loader.sampler if type(loader.batch_sampler) is BatchSampler else loader.batch_sampler).__name__
        raise InputError(
            f"data=DataLoader with {sampler}: its choice of items would be lost, because a run makes its own batches; give "
            "torch.utils.data.Subset(loader.dataset, indices), and see the option sampler"
        )
    return dataset


def _stored_labels(dataset: Any) -> Any:
    if isinstance(dataset, Subset):
        stored = _stored_labels(dataset.dataset)
        return None if stored is None else [stored[index] for index in dataset.indices]
    for name in ("targets", "labels"):
        stored = getattr(dataset, name, None)
        if stored is not None and hasattr(stored, "__len__"):
            return stored.tolist() if isinstance(stored, torch.Tensor) else stored
    return None


def _class_names(dataset: Any) -> list[str] | None:
    names = getattr(dataset.dataset if isinstance(dataset, Subset) else dataset, "classes", None)
    usable = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return list(names) if usable and names else None


def _get_image(item: Any, name: str) -> Any:
    if isinstance(item, dict):
        if "image" not in item:
            raise InputError(
                f"{name}: items are dicts without 'image'; they have {sorted(visible(key) for key in item)}"
            )
        return item["image"]
    return item[0] if isinstance(item, (tuple, list)) and item else item


def as_picture(value: Any, item_id: str) -> Picture:
    """Converts one Pillow image, tensor [C, H, W] or array to [H, W, C]. Raises :class:`InputError` for other objects."""
    if isinstance(value, Image.Image):
        return from_pil(value, item_id)
    layout = None
    if isinstance(value, torch.Tensor):
        layout = "NCHW" if value.ndim == 3 else None  # the convention of torch
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"item {visible(item_id)}: a {type(value).__name__} is not an image; return a Pillow image, array or tensor"
        )
    picture = to_last_axis(value, find_layout((1, *value.shape), layout, f"item {item_id}"))
    if picture.shape[2] not in (1, 3):
        return bands_of(picture, f"item {visible(item_id)}")
    if picture.dtype.kind == "f":
        try:
            return checked_unit_range(picture.astype(np.float32))
        except ValueError as error:
            raise CorruptImage(item_id, str(error)) from None
    if picture.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"item {visible(item_id)}: images of type {picture.dtype} must be uint8, uint16 or float in [0, 1]"
        )
    return picture


class ImageListSource(Source):
    """A list of single images: each a path, a Pillow image, an array [H, W] or [H, W, C], or a tensor [C, H, W].

    The id of an image is its path as given, or its position in the list. Raises :class:`InputError` for an item that is
    not an image, and for floats outside [0, 1].
    """

    kind = "images"
    name = "images"

    def __init__(self, items: list[Any]) -> None:
        if not items:
            raise InputError("images=[]: the list is empty; give at least one image")
        self.items = [_checked_item(item, f"images[{position}]") for position, item in enumerate(items)]

    def __len__(self) -> int:
        return len(self.items)

    def item_id(self, index: int) -> str:
        """Returns the path as given, or the position."""
        item = self.items[index]
        return str(item) if isinstance(item, Path) else str(index)

    def image(self, index: int) -> Picture:
        """Returns the image [H, W, C] at full size."""
        return self.picture(index)[0]

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image, a JPEG file possibly decoded smaller, and its original width/height."""
        item = self.items[index]
        if isinstance(item, Path):
            return decode(item, str(item), at_least=at_least)
        image = as_picture(item, self.item_id(index))
        return image, image.shape[1] / image.shape[0]

    def bands(self, index: int) -> Picture:
        """Returns all channels of an image, of a file with their stored values."""
        item = self.items[index]
        return read_bands(item, str(item)) if isinstance(item, Path) else as_picture(item, self.item_id(index))

    def content(self, index: int) -> bytes | Path:
        """Returns the file, or the pixels of an image in memory."""
        item = self.items[index]
        if not isinstance(item, Path):
            return self.image(index).tobytes()
        with reasons(self.item_id(index)):
            return regular_file(item)

    def stamps(self) -> list[tuple[int | None, int]] | None:
        """Returns size and time of the last change of each file; None unless all images are files."""
        paths = [item for item in self.items if isinstance(item, Path)]
        return [file_stamp(str(path)) for path in paths] if len(paths) == len(self) else None

    def header(self, index: int) -> Header:
        """Returns size and mode, of a file without decoding its pixels."""
        item = self.items[index]
        return read_header(item, str(item)) if isinstance(item, Path) else array_header(self.image(index))


def _checked_item(item: Any, where: str) -> Any:
    """Returns ``item`` as a path, a Pillow image or an array [H, W, C] with valid values."""
    if isinstance(item, str | Path):
        return Path(item).expanduser()
    if isinstance(item, Image.Image):
        return item
    if isinstance(item, torch.Tensor):
        item = item.detach().cpu()
        item = item.float() if item.is_floating_point() else item
        if item.ndim == 3 and item.shape[0] > MOST_CHANNELS:
            raise InputError(f"{where}: a tensor of shape {list(item.shape)}; one image is [C, H, W]")
    elif not isinstance(item, np.ndarray):
        raise InputError(
            f"{where}: {type(item).__name__} is not an image; give a path, a Pillow image, an array or a tensor"
        )
    try:
        return as_picture(item, where)
    except CorruptImage as error:
        raise InputError(f"{where}: {error.reason} (for values 0 to 255: divide by 255, or give uint8)") from None
