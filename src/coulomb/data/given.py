"""Single images that a user hands over: paths, Pillow images, arrays, tensors, one or many."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from coulomb.data.arrays import MOST_CHANNELS, find_layout
from coulomb.data.decode import decode, read_header
from coulomb.data.opening import is_data_file, open_source
from coulomb.data.source import CorruptImage, Header, Picture, Source, array_header
from coulomb.data.torch_dataset import as_picture
from coulomb.errors import InputError


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


def open_images(images: Any) -> Source:
    """The source of one image or many, as ``Run.encode`` takes them.

    A path of an image file, a Pillow image, an array or a tensor, or a list of these; a batch as one array [N, H, W, C],
    [N, C, H, W] or [N, H, W] or as one tensor [N, C, H, W]; or a data set, see :func:`coulomb.data.open_source`. Values
    are uint8, uint16, or floats in [0, 1].

    Raises:
        InputError: no image; floats outside [0, 1]; or an array whose axes could mean several things.
    """
    if isinstance(images, np.ndarray | torch.Tensor):
        return GivenSource(_split(images))
    if isinstance(images, Image.Image | tuple):
        return GivenSource(list(images) if isinstance(images, tuple) else [images])
    return open_files(images, labels=False)


def open_files(data: Any, *, labels: Any = None) -> Source:
    """A list of images, or the path of a single image file, as a source; everything else by ``open_source``."""
    if isinstance(data, list):
        return GivenSource(data)
    path = Path(data).expanduser() if isinstance(data, str | Path) and "\0" not in str(data) else None
    if path is not None and path.is_file() and not is_data_file(path):
        return GivenSource([path])
    return open_source(data, labels=labels)


def _split(images: Any) -> list[Any]:
    """The images of an array or tensor, which may be a single one."""
    shape = tuple(images.shape)
    if len(shape) == 4:
        if isinstance(images, np.ndarray) and find_layout(shape, None, "images") == "NCHW":
            images = np.moveaxis(images, 1, -1)
        return list(images)
    if len(shape) == 2 or (len(shape) == 3 and isinstance(images, torch.Tensor)):
        return [images]
    if len(shape) != 3:
        raise InputError(
            f"images: an array of shape {list(shape)}; one image is [H, W] or [H, W, C] (a tensor [C, H, W]), "
            "a batch has one axis more in front"
        )
    first, height, last = shape
    if last <= MOST_CHANNELS and last < min(first, height):
        return [images]
    if first <= MOST_CHANNELS and first < min(height, last):
        raise InputError(
            f"images: an array of shape {list(shape)} is one image [C, H, W] or {first} grey ones [N, H, W]; "
            "give images.transpose(1, 2, 0) for one, or images[..., None] for a batch"
        )
    return list(images)  # [N, H, W]
