"""Any map-style torch data set: of images, (image, label) pairs, or dicts with "image" and perhaps "label"."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Subset

from coulomb.data.arrays import find_layout
from coulomb.data.decode import checked_unit_range, from_pil
from coulomb.data.labels import read_labels
from coulomb.data.names import visible
from coulomb.data.source import CorruptImage, Picture, Source
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
