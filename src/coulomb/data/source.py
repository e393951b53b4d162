"""Where pictures come from: the one interface that every kind of data set is turned into."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.data.names import portable, visible
from coulomb.errors import InputError

Labels = npt.NDArray[np.int64]
Picture = npt.NDArray[Any]  # [H, W, C] uint8, uint16 or float32 in [0, 1]


class CorruptImage(InputError):
    """One picture that cannot be decoded: ``item_id`` and ``reason``. It is skipped, named and counted, never replaced."""

    def __init__(self, item_id: str, reason: str) -> None:
        super().__init__(f"{visible(item_id)}: {visible(reason)}")
        self.item_id = item_id
        self.reason = visible(reason)

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.item_id, self.reason)  # it crosses from worker processes


@dataclass(frozen=True)
class Header:
    """What a picture is, before its pixels are decoded. ``mode`` is Pillow's for files, ``uint8×3`` and so on for arrays.

    ``channels`` and ``depth`` ("uint8", "uint16", "float32") are what :meth:`Source.image` will return; ``transparent``
    says that it was laid over white on the way.
    """

    width: int
    height: int
    mode: str
    channels: int
    depth: str
    transparent: bool = False


class Source(ABC):
    """A data set of pictures with stable ids and, perhaps, labels. Subclasses are picklable: workers receive a copy.

    Attributes: ``name`` and ``kind`` for people; ``labels`` int64 [N] with −1 = unknown, or None where there are none at
    all; ``class_names`` where classes have names; ``root`` the folder that ids are relative to; ``notes`` what was
    decided or left out when it was opened, one sentence each.
    """

    kind: str
    name: str
    labels: Labels | None = None
    class_names: list[str] | None = None
    root: Path | None = None
    notes: tuple[str, ...] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item_id(self, index: int) -> str:
        """A stable, unique name of one picture: for files their POSIX path relative to ``root``."""

    @abstractmethod
    def image(self, index: int) -> Picture:
        """The picture as an [H, W, C] array: uint8, uint16 or float32 in [0, 1]. Raises :class:`CorruptImage`."""

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """The picture and its width/height. ``at_least``: sides this long suffice, so a decoder may return fewer pixels."""
        del at_least  # arrays are what they are
        image = self.image(index)
        return image, image.shape[1] / image.shape[0]

    def header(self, index: int) -> Header:
        """Size and mode of one picture, cheaply where the format allows. Raises :class:`CorruptImage`."""
        return array_header(self.image(index))

    def other_columns(self) -> dict[str, list[Any]]:
        """Values of the columns of a table that hold neither images nor the labels in use; ``{}`` if it is no table."""
        return {}

    def content(self, index: int) -> bytes | Path:
        """What one picture is stored as: bytes, or the file that holds them. Raises :class:`CorruptImage`."""
        return self.image(index).tobytes()

    @property
    def files(self) -> list[Path]:
        """Files that hold many pictures each; empty where pictures are stored in another way."""
        return []

    def stored_bytes(self) -> int | None:
        """Size of all pictures as they are stored, where that is known without reading them."""
        return sum(path.stat().st_size for path in self.files) if self.files else None

    def release(self) -> None:  # noqa: B027  most sources hold nothing
        """Give back what was buffered for reading; the next read fetches it again."""

    def describe(self) -> dict[str, Any]:
        """Kind, size, labels and notes, ready for JSON."""
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
    """The header of a decoded [H, W, C] array."""
    height, width, channels = image.shape
    return Header(width, height, f"{image.dtype.name}×{channels}", channels, image.dtype.name)
