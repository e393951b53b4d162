"""Python objects as sources: torch data sets and lists of single images."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset

from coulomb.data.decode import checked_unit_range, decode, from_pil, read_header
from coulomb.data.labels import read_labels
from coulomb.data.names import visible
from coulomb.data.source import CorruptImage, Header, Picture, Source, array_header
from coulomb.data.sources.arrays import MOST_CHANNELS, find_layout
from coulomb.errors import InputError


class DatasetSource(Source):
    """A torch ``Dataset``. Images may be Pillow images, [H, W] or [H, W, C] arrays, or [C, H, W] tensors.

    Labels come from ``labels``, else from the data set's ``targets`` or ``labels``, else from one pass over all items
    (``labels=False`` spares it). Without random augmentation, please: the views are made later, and the same index must
    give the same image.
    """

    kind = "torch dataset"

    def __init__(self, dataset: "Dataset[Any]", labels: Any = None) -> None:
        name = type(dataset).__name__
        if isinstance(dataset, IterableDataset) or not (
            hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        ):
            raise InputError(
                f"{name}: not a map-style data set; it needs __len__ and __getitem__ (an IterableDataset has none)"
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
        """The index, with leading zeros."""
        return f"{index:0{len(str(len(self) - 1))}d}"

    def image(self, index: int) -> Picture:
        """One image as [H, W, C]; whatever reading it raises of OSError, ValueError or SyntaxError makes it corrupt."""
        return as_picture(_image_of(self._item(index), self.name), self.item_id(index))

    def _item(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except CorruptImage:
            raise
        except (OSError, ValueError, SyntaxError) as error:
            raise CorruptImage(self.item_id(index), f"{type(error).__name__}: {error}") from None

    def _find_labels(self) -> Any:
        stored = _stored_labels(self.dataset)
        if stored is not None and len(stored) == len(self):
            return stored
        found: list[Any] = []
        for index in range(len(self)):
            try:
                item = self._item(index)
            except CorruptImage:
                found.append(None)
                continue
            if not _has_label(item):
                return None
            found.append(_label_of(item))
        self.notes = (f"Labels were read in one pass over {len(self)} items (the data set has no .targets).",)
        return found


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


def _has_label(item: Any) -> bool:
    return "label" in item if isinstance(item, dict) else isinstance(item, (tuple, list)) and len(item) > 1


def _label_of(item: Any) -> Any:
    return item["label"] if isinstance(item, dict) else item[1]


def _image_of(item: Any, name: str) -> Any:
    if isinstance(item, dict):
        if "image" not in item:
            raise InputError(
                f"{name}: items are dicts without 'image'; they have {sorted(visible(key) for key in item)}"
            )
        return item["image"]
    return item[0] if isinstance(item, (tuple, list)) and item else item


def as_picture(value: Any, item_id: str) -> Picture:
    """A Pillow image, tensor or array of one image as [H, W, C]; :class:`InputError` where it is none."""
    from PIL import Image

    if isinstance(value, Image.Image):
        return from_pil(value, item_id)
    layout = None
    if isinstance(value, torch.Tensor):
        layout = "NCHW" if value.ndim == 3 else None  # the convention of torch
        value = value.detach().cpu().numpy()
    if not isinstance(value, np.ndarray):
        raise InputError(
            f"item {visible(item_id)}: a {type(value).__name__} is no image; return a Pillow image, array or tensor"
        )
    layout = find_layout((1, *value.shape), layout, f"item {item_id}")
    picture = value[..., None] if layout == "NHW" else np.moveaxis(value, 0, -1) if layout == "NCHW" else value
    if picture.dtype.kind == "f":
        try:
            return checked_unit_range(picture.astype(np.float32))
        except ValueError as error:
            raise CorruptImage(item_id, str(error)) from None
    if picture.dtype not in (np.uint8, np.uint16):
        raise InputError(
            f"item {visible(item_id)}: an image of type {picture.dtype}; uint8, uint16 or float in [0, 1] is needed"
        )
    return picture


class GivenSource(Source):
    """Images one by one: each a path, a Pillow image, an array [H, W] or [H, W, C], or a tensor [C, H, W].

    Ids are the paths as given; images without a path are called by their position. Raises :class:`InputError` for what
    is no image, and for floats outside [0, 1].
    """

    kind = "images"
    name = "images"

    def __init__(self, items: list[Any]) -> None:
        if not items:
            raise InputError("images=[]: the list is empty; give at least one image")
        self.items = [_checked(item, f"images[{number}]") for number, item in enumerate(items)]

    def __len__(self) -> int:
        return len(self.items)

    def item_id(self, index: int) -> str:
        """The path as it was given, or the position."""
        item = self.items[index]
        return str(item) if isinstance(item, Path) else str(index)

    def image(self, index: int) -> Picture:
        """The picture at full size."""
        return self.picture(index)[0]

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """The picture, a JPEG file possibly decoded smaller, and its true width/height."""
        item = self.items[index]
        if isinstance(item, Path):
            return decode(self._file(item), str(item), at_least=at_least)
        image = as_picture(item, self.item_id(index))
        return image, image.shape[1] / image.shape[0]

    def header(self, index: int) -> Header:
        """Size and mode; of a file by its first bytes."""
        item = self.items[index]
        return read_header(self._file(item), str(item)) if isinstance(item, Path) else array_header(self.image(index))

    def _file(self, path: Path) -> Path:
        if not path.is_file():  # a pipe or a device would block the reader for ever
            reason = "a folder; give it alone" if path.is_dir() else "not a regular file"
            raise CorruptImage(str(path), reason if path.exists() else "no such file")
        return path


def _checked(item: Any, where: str) -> Any:
    """``item`` as a path, a Pillow image or a picture [H, W, C] whose values are known to be right."""
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
            f"{where}: {type(item).__name__} is no image; give a path, a Pillow image, an array or a tensor"
        )
    try:
        return as_picture(item, where)
    except CorruptImage as error:
        raise InputError(f"{where}: {error.reason} (values 0 to 255: divide by 255, or give uint8)") from None
