"""NumPy arrays of images, in memory or in .npy and .npz files, and the built-in digits."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.data.decode import checked_unit_range
from coulomb.data.labels import read_labels
from coulomb.data.names import portable, some, visible
from coulomb.data.source import Picture, Source
from coulomb.errors import InputError
from coulomb.reading import MIB, open_arrays

MOST_CHANNELS = 16  # more than this is taken for a side of the image unless the layout is named
IMAGE_NAMES = ("images", "image", "x", "X", "data")
MOST_EXPANDED = 2048 * MIB  # of an .npz file, unless the file itself is more than a twentieth of it
SAVE_AGAIN = "save it again with np.savez"
UNCOMPRESSED = "save the images as a plain .npy file, which is read in place"
LABEL_NAMES = ("labels", "label", "y", "Y", "targets", "target")


class ArraySource(Source):
    """Images as one array: [N, H, W], [N, H, W, C] or [N, C, H, W]; uint8, uint16, bool, or float in [0, 1].

    ``layout`` None finds the channel axis: the last or the second, whichever is smaller than both other sides and at most
    16; "NHWC" or "NCHW" says it. Raises :class:`InputError` where the axis or the scale would have to be guessed.
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
        self._columns = columns  # reads the other arrays of a file when they are asked for
        self.layout = find_layout(images.shape, layout, name)
        self._path = path  # a .npy file that is mapped: workers map it again instead of receiving its pixels
        self.array = images
        self.prefix = ""
        self._check_values()
        if labels is not None:
            self.labels, self.class_names = read_labels(labels, len(images), visible(name), class_names)

    def _check_values(self) -> None:
        array, name = self.array, visible(self.name)
        if not array.size:
            raise InputError(f"{name}: an array of shape {list(array.shape)} holds no pixels")
        if array.dtype.kind == "f":
            try:
                checked_unit_range(array)
            except ValueError as error:
                raise InputError(f"{name}: {error} (for values 0…255: (x).astype(np.uint8))") from None
        elif array.dtype not in (np.uint8, np.uint16, np.bool_):
            raise InputError(
                f"{name}: images of type {array.dtype}; make them uint8 (0…255), uint16 (0…65535) or float in [0, 1]"
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
        """The other arrays [N] of the file."""
        return self._columns()

    def item_id(self, index: int) -> str:
        """The number of the image, with leading zeros."""
        return f"{self.prefix}{index:0{len(str(len(self) - 1))}d}"

    def image(self, index: int) -> Picture:
        """One image as [H, W, C]."""
        image = np.asarray(self.array[index])
        if self.layout == "NHW":
            image = image[..., None]
        elif self.layout == "NCHW":
            image = np.moveaxis(image, 0, -1)
        if image.dtype == np.bool_:
            return image.astype(np.uint8) * 255
        return image.astype(np.float32) if image.dtype.kind == "f" else image


def find_layout(shape: tuple[int, ...], layout: str | None, name: str) -> str:
    """ "NHW", "NHWC" or "NCHW" for an array's shape; :class:`InputError` where it is ambiguous."""
    name = visible(name)
    if len(shape) == 3 and layout in (None, "NHW"):
        return "NHW"
    if len(shape) != 4 or layout not in (None, "NHWC", "NCHW"):
        raise InputError(
            f"{name}: an array of shape {list(shape)} with layout={layout!r}; "
            "images are [N, H, W], [N, H, W, C] or [N, C, H, W] (one image: array[None])"
        )
    if layout is not None:
        return layout
    _, second, third, last = shape
    if last <= MOST_CHANNELS and last < min(second, third):
        return "NHWC"
    if second <= MOST_CHANNELS and second < min(third, last):
        return "NCHW"
    raise InputError(
        f"{name}: which axis of {list(shape)} holds the channels cannot be told; "
        "say it: ArraySource(array, layout='NHWC') or layout='NCHW'"
    )


def open_array_file(path: Path, *, label_column: str | None = None) -> ArraySource:
    """A .npy of images, or an .npz of images and perhaps labels. Pickled objects are refused."""
    where = visible(path)
    try:
        if path.suffix.lower() == ".npy":
            return ArraySource(_mapped(path), name=portable(path.name), path=path)
        with open_arrays(path, most=MOST_EXPANDED, remedy=SAVE_AGAIN, smaller=UNCOMPRESSED) as file:
            name = _pick(file.names, IMAGE_NAMES, where, "images")
            names = LABEL_NAMES if label_column is None else (label_column,)
            label_name = next((each for each in names if each in file), None)
            if label_column is not None and label_name is None:
                raise InputError(f"{where}: no array {visible(label_column)!r}; there are {some(file.names)}")
            images, labels = file[name], None if label_name is None else file[label_name]
            rest = partial(_other_arrays, path, [each for each in file.names if each not in (name, label_name)])
        return ArraySource(images, labels, name=portable(path.name), columns=rest)
    except InputError:
        raise
    except PermissionError:
        raise InputError(f"{where}: permission denied") from None
    except (ValueError, OSError, EOFError) as error:
        if "allow_pickle" in str(error) or "Python objects" in str(error):
            raise InputError(
                f"{where}: it holds pickled Python objects, which are never loaded (they could run code); "
                "save a plain uint8 or float array"
            ) from None
        raise InputError(f"{where}: not a readable NumPy file ({visible(error)})") from None


def _mapped(path: Path) -> np.ndarray:
    # Memory-mapped: pixels are read when needed, and object arrays cannot be mapped at all.
    return np.lib.format.open_memmap(path, mode="r")


def _other_arrays(path: Path, names: list[str]) -> dict[str, list[Any]]:
    with open_arrays(path, most=MOST_EXPANDED, remedy=SAVE_AGAIN, smaller=UNCOMPRESSED) as file:
        arrays = {name: file[name] for name in names}
    return {name: array.tolist() for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "iubU"}


def _pick(names: list[str], usual: tuple[str, ...], where: str, what: str) -> str:
    found = next((name for name in usual if name in names), None)
    if found is None and len(names) == 1:
        found = names[0]
    if found is None:
        raise InputError(f"{where}: no array called {usual[0]!r} for the {what}; there are {some(names)}")
    return found


def open_digits() -> ArraySource:
    """The digits as uint8: their values 0…16 become 0…255."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.round(found.images * (255 / 16)).astype(np.uint8)
    source = ArraySource(images, found.target, name="digits", class_names=[str(digit) for digit in range(10)])
    source.kind = "digits"
    source.prefix = "digit-"
    return source
