"""The interface of a data set of images: every kind of input becomes a :class:`Source`."""

import errno
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.data.shards.blocks import Blocks
from coulomb.errors import DataUnavailableError, InputError

Labels = npt.NDArray[np.int64]
Picture = npt.NDArray[Any]  # [H, W, C] uint8, uint16 or float32 in [0, 1]


class CorruptImage(InputError):
    """An image that cannot be decoded, with its ``item_id`` and the ``reason``. It is skipped, logged and counted."""

    def __init__(self, item_id: str, reason: str) -> None:
        super().__init__(f"{visible(item_id)}: {visible(reason)}")
        self.item_id = item_id
        self.reason = visible(reason)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.item_id, self.reason)  # worker processes pickle it


_OUTAGES = frozenset(
    getattr(errno, name)
    for name in (
        "EIO ESTALE ETIMEDOUT ENOTCONN ECONNRESET ECONNABORTED ECONNREFUSED EHOSTDOWN EHOSTUNREACH ENETDOWN ENETUNREACH "
        "ENETRESET ESHUTDOWN EREMOTEIO ENODEV ENXIO EMFILE ENFILE ENOMEM ENOBUFS"
    ).split()
    if hasattr(errno, name)
)


def is_outage(error: OSError) -> bool:
    """Returns True if a disk, the network or this process failed, False for an error of one file, such as no permission."""
    return error.errno in _OUTAGES


def unavailable(where: object, error: OSError) -> DataUnavailableError:
    """Returns the error for data ``where`` the operating system fails."""
    return DataUnavailableError(
        f"{visible(where)}: cannot be read ({error.strerror or error}); check the disk and the network, then run the command "
        "again, or resume the run"
    )


@dataclass(frozen=True)
class Header:
    """Properties of an image that are known before its pixels are decoded.

    Attributes:
        width: in pixels, after EXIF orientation.
        height: in pixels, after EXIF orientation.
        mode: Pillow's mode for files; ``uint8×3`` and the like for arrays.
        channels: of the array that :meth:`Source.image` returns.
        depth: type of that array: "uint8", "uint16" or "float32".
        transparent: whether the image has transparency, which is composited over white.
    """

    width: int
    height: int
    mode: str
    channels: int
    depth: str
    transparent: bool = False


class Source(ABC):
    """A data set of images with stable ids and optional labels. Subclasses must be picklable: workers receive a copy.

    Attributes:
        name: of the data set, for display.
        kind: of source, for display.
        labels: int64 [N], −1 where unknown; None if there are no labels.
        class_names: names by label; None if the classes have no names.
        root: the folder that ids are relative to.
        has_paths: whether ids are paths, from which groups of images can be read.
        notes: one sentence for each decision that was made, or kind of file that was skipped, when it was opened.
        blocks: parts of shards that are read at once, by which epochs are ordered; None where images are read one by one.
        remote: whether images come through the cache of `coulomb.data.shards`, so that they are worth reading ahead.
        single_images: whether an image of a remote source can be fetched without the rest of its block.
    """

    kind: str
    name: str
    labels: Labels | None = None
    class_names: list[str] | None = None
    root: Path | None = None
    has_paths: bool = False
    notes: tuple[str, ...] = ()
    blocks: Blocks | None = None
    remote: bool = False
    single_images: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item_id(self, index: int) -> str:
        """Returns a stable, unique name of an image; for files, their POSIX path relative to ``root``."""

    @abstractmethod
    def image(self, index: int) -> Picture:
        """Returns the image [H, W, C] as uint8, uint16 or float32 in [0, 1]. Raises :class:`CorruptImage`."""

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image and its width/height. Given ``at_least``, a decoder may shrink it to sides of that length."""
        del at_least  # arrays cannot be decoded at a smaller size
        image = self.image(index)
        return image, image.shape[1] / image.shape[0]

    def header(self, index: int) -> Header:
        """Returns size and mode of an image, without decoding it if possible. Raises :class:`CorruptImage`."""
        return array_header(self.image(index))

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the columns of a table that hold neither images nor the labels in use; ``{}`` for other sources."""
        return {}

    def content(self, index: int) -> bytes | Path:
        """Returns the stored bytes of an image, or the file that holds them. Raises :class:`CorruptImage`."""
        return self.image(index).tobytes()

    def stamps(self) -> list[tuple[int | None, int]] | None:
        """Returns (size in bytes, time of the last change in ns) of the file of each image, to find changed images.

        The size is None if the file holds many images. Returns None if the images are not in files.
        """
        return None

    @property
    def files(self) -> list[Path]:
        """Files that hold many images each; empty if images are stored in another way."""
        return []

    def stored_bytes(self) -> int | None:
        """Returns the stored size of all images, or None if it is not known without reading them."""
        return sum(path.stat().st_size for path in self.files) if self.files else None

    def fetch(self, unit: int) -> None:
        """Puts a block b ≥ 0, or a single image i given as −1 − i, of a remote source into its cache."""
        raise NotImplementedError

    def unit_size(self, unit: int) -> int:
        """Returns the size in bytes of what `fetch` would fetch."""
        raise NotImplementedError

    def release(self) -> None:  # noqa: B027  most sources buffer nothing
        """Frees read buffers; later reads fill them again."""

    def describe(self) -> dict[str, Any]:
        """Returns kind, size, labels and notes, JSON-serialisable."""
        labels = self.labels
        return {
            "name": self.name,
            "kind": self.kind,
            "count": len(self),
            "root": None if self.root is None else portable(str(self.root)),
            "labelled": 0 if labels is None else int((labels >= 0).sum()),
            "classes": 0 if labels is None else len(np.unique(labels[labels >= 0])),
            "class_names": self.class_names,
            "notes": list(self.notes),
        }


def array_header(image: Picture) -> Header:
    """Returns the header of a decoded [H, W, C] array."""
    height, width, channels = image.shape
    return Header(width, height, f"{image.dtype.name}×{channels}", channels, image.dtype.name)


# File and class names are untrusted text: stored unchanged, and made harmless where they are displayed.
# Control, format (bidi overrides too), surrogates, line and paragraph separators: invisible or able to move the cursor.
_HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_DIGITS = re.compile(r"([0-9]+)")


def visible(text: object, limit: int = 200) -> str:
    """Returns ``text`` for one line of a terminal or log: control characters escaped, long text cut with an ellipsis."""
    shown = "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _HIDDEN else char for char in str(text)
    )
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def first_few(names: Sequence[object], most: int = 5) -> str:
    """Returns at most ``most`` of ``names`` in one line: ``a, b, c and 7 more``."""
    listed = ", ".join(visible(name, 80) for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def natural_key(text: str) -> tuple[list[tuple[int, int, str]], str]:
    """Sort key that puts ``img2`` before ``img10``. Ties are broken by the name itself, so the order is total."""
    parts = [
        (0, int(part), "") if part[0].isdigit() and part.isascii() else (1, 0, part.casefold())
        for part in _DIGITS.split(text)
        if part
    ]
    return parts, text


def portable(name: str) -> str:
    """Returns a file name as valid Unicode: bytes that are not UTF-8 become ``\\xNN``, so it can be written anywhere."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
