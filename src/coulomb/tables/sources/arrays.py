"""NumPy arrays of images, in memory or in .npy and .npz files, and the built-in digits."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.reading import MIB, open_arrays
from coulomb.ground.text import first_few, portable, visible
from coulomb.kinds.image.band_files import of_pictures
from coulomb.kinds.image.picture import Picture
from coulomb.kinds.image.pixels import checked_unit_range
from coulomb.tables.labels import read_labels
from coulomb.tables.source import Source

MOST_CHANNELS = 16  # a longer axis is taken as a side of the image unless the layout is given
IMAGE_NAMES = ("images", "image", "x", "X", "data")
LABEL_NAMES = ("labels", "label", "y", "Y", "targets", "target")
# Arguments for .npz files, which may take 2 GiB in memory, or 20 times the size of the file if that is more.
_NPZ: dict[str, Any] = {
    "most": 2048 * MIB,
    "remedy": "save it again with np.savez",
    "smaller": "save the images as a plain .npy file, which is read in place",
}


class ArraySource(Source):
    """Images as one array: [N, H, W], [N, H, W, C] or [N, C, H, W]; uint8, uint16, bool, or float in [0, 1].

    Images of other than 1 or 3 channels may hold numbers of any type and range, see `coulomb.kinds.image.bands`.

    Args:
        images: the array.
        labels: one label per image, see :func:`~coulomb.tables.labels.read_labels`.
        name: name of the data set.
        class_names: names by label.
        layout: "NHWC" or "NCHW". By default, channels are the last or the second axis, whichever has at most 16 entries
            and is smaller than both other axes.
        path: the .npy file that ``images`` is mapped from. Workers map it again instead of receiving its pixels.
        columns: reads the other arrays of the file.

    Raises:
        InputError: the channel axis is ambiguous, or the values are outside their range.

    >>> source = ArraySource(np.zeros((4, 8, 8, 3), np.uint8), labels=[0, 0, 1, 1])
    >>> len(source), source.image(0).shape
    (4, (8, 8, 3))
    """

    kind = "arrays"

    def __init__(
        self,
        images: np.ndarray,
        labels: Any = None,
        *,
        name: str = "arrays",
        class_names: list[str] | None = None,
        layout: str | None = None,
        path: Path | None = None,
        columns: Callable[[], dict[str, list[Any]]] = dict,
    ) -> None:
        self.name = name
        self._columns = columns
        self.layout = find_layout(images.shape, layout, name)
        self._path = path
        self.array = images
        self.prefix = ""
        self._check_values()
        if labels is not None:
            self.labels, self.class_names = read_labels(labels, len(images), visible(name), class_names)

    def _check_values(self) -> None:
        array, name = self.array, visible(self.name)
        if not array.size:
            raise InputError(f"{name}: an array of shape {list(array.shape)} holds no pixels")
        if self.layout != "NHW" and array.shape[1 if self.layout == "NCHW" else 3] not in (1, 3):
            bands_of(array[:1], name)
        elif array.dtype.kind == "f":
            try:
                checked_unit_range(array)
            except ValueError as error:
                raise InputError(f"{name}: {error} (for values 0…255: x.astype(np.uint8))") from None
        elif array.dtype not in (np.uint8, np.uint16, np.bool_):
            raise InputError(
                f"{name}: images of type {array.dtype} must be uint8 (0…255), uint16 (0…65535) or float in [0, 1]"
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "array": None} if self._path is not None else self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._path is not None:
            self.array = _mapped(self._path)

    def __len__(self) -> int:
        return len(self.array)

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the other arrays [N] of the file."""
        return self._columns()

    def stamps(self) -> list[tuple[int | None, int]] | None:
        """Returns None and the time of the last change of the .npy file, for each image; None for arrays in memory."""
        return None if self._path is None else [(None, self._path.stat().st_mtime_ns)] * len(self)

    def item_id(self, index: int) -> str:
        """Returns the index of the image, with leading zeros."""
        return f"{self.prefix}{index:0{len(str(len(self) - 1))}d}"

    def image(self, index: int) -> Picture:
        """Returns one image [H, W, C]."""
        image = to_last_axis(np.asarray(self.array[index]), self.layout)
        if image.dtype == np.bool_:
            return image.astype(np.uint8) * 255
        if image.shape[2] not in (1, 3):
            return bands_of(image, visible(self.name))
        return image.astype(np.float32) if image.dtype.kind == "f" else image


def find_layout(shape: tuple[int, ...], layout: str | None, name: str) -> str:
    """Returns "NHW", "NHWC" or "NCHW" for the shape of an array. Raises :class:`InputError` if it is ambiguous."""
    name = visible(name)
    if len(shape) == 3 and layout in (None, "NHW"):
        return "NHW"
    if len(shape) != 4 or layout not in (None, "NHWC", "NCHW"):
        raise InputError(
            f"{name}: an array of shape {list(shape)} with layout={layout!r}; "
            "images must be [N, H, W], [N, H, W, C] or [N, C, H, W] (for one image: array[None])"
        )
    if layout is not None:
        return layout
    _, second, third, last = shape
    if last <= MOST_CHANNELS and last < min(second, third):
        return "NHWC"
    if second <= MOST_CHANNELS and second < min(third, last):
        return "NCHW"
    raise InputError(
        f"{name}: it is ambiguous which axis of {list(shape)} holds the channels; "
        "give ArraySource(array, layout='NHWC') or layout='NCHW'"
    )


def bands_of(image: np.ndarray, where: str) -> Picture:
    """Returns an image of other than 1 or 3 channels, whose values may have any range, as uint8, uint16 or float32."""
    if image.dtype.kind not in "uifb":
        raise InputError(f"{where}: images of type {image.dtype} must be whole or real numbers")
    picture: Picture = of_pictures(image)
    return picture


def to_last_axis(image: np.ndarray, layout: str) -> Picture:
    """Returns one image of an array of this ``layout`` as [H, W, C]."""
    if layout == "NHW":
        return image[..., None]
    return np.moveaxis(image, 0, -1) if layout == "NCHW" else image


def open_array_file(path: Path, *, label_column: str | None = None) -> ArraySource:
    """Opens a .npy file of images, or an .npz file of images and optionally labels; pickled objects are refused.

    Raises :class:`InputError`.
    """
    where = visible(path)
    try:
        if path.suffix.lower() == ".npy":
            return ArraySource(_mapped(path), name=portable(path.name), path=path)
        with open_arrays(path, **_NPZ) as file:
            image_name = next((name for name in IMAGE_NAMES if name in file), None)
            if image_name is None and len(file.names) == 1:
                image_name = file.names[0]
            if image_name is None:
                raise InputError(
                    f"{where}: no array called {IMAGE_NAMES[0]!r} for the images; there are {first_few(file.names)}"
                )
            names = LABEL_NAMES if label_column is None else (label_column,)
            label_name = next((name for name in names if name in file), None)
            if label_column is not None and label_name is None:
                raise InputError(f"{where}: no array {visible(label_column)!r}; there are {first_few(file.names)}")
            images, labels = file[image_name], None if label_name is None else file[label_name]
            rest = partial(_read_vectors, path, [name for name in file.names if name not in (image_name, label_name)])
        return ArraySource(images, labels, name=portable(path.name), columns=rest)
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"{where}: permission denied") from None
    except (ValueError, OSError, EOFError) as error:
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise InputError(
                f"{where}: it holds pickled Python objects, which are never loaded because they could run code; "
                "save a plain uint8 or float array"
            ) from None
        raise InputError(f"{where}: not a readable NumPy file ({visible(error)})") from None


def _mapped(path: Path) -> np.ndarray:
    # Memory-mapped: pixels are read when needed, and arrays of objects cannot be mapped at all.
    return np.lib.format.open_memmap(path, mode="r")


def _read_vectors(path: Path, names: list[str]) -> dict[str, list[Any]]:
    with open_arrays(path, **_NPZ) as file:
        arrays = {name: file[name] for name in names}
    return {name: array.tolist() for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iubU"}


def open_digits() -> ArraySource:
    """Opens scikit-learn's handwritten digits: 1,797 gray images of 8×8, uint8 (values 0…16 become 0…255).

    They are part of that package, so that a demonstration needs no download.
    """
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)
    source = ArraySource(images, digits.target, name="digits", class_names=[str(digit) for digit in range(10)])
    source.kind = "digits"
    source.prefix = "digit-"
    return source
