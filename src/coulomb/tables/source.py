"""The interface of a data set of images: every kind of input becomes a :class:`Source`."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.ground.text import portable
from coulomb.kinds.image.decode import decode, read_header, reasons, regular_file
from coulomb.kinds.image.picture import Header, Picture, array_header
from coulomb.tables.shards.blocks import Blocks

Labels = npt.NDArray[np.int64]


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
        remote: whether images come through the cache of `coulomb.tables.shards`, so that they are worth reading ahead.
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
        """Returns kind, size, labels and notes, JSON-serializable."""
        labels = self.labels
        return {
            "name": self.name,
            "kind": self.kind,
            "count": len(self),
            "root": None if self.root is None else portable(str(self.root)),
            "labeled": 0 if labels is None else int((labels >= 0).sum()),
            "classes": 0 if labels is None else len(np.unique(labels[labels >= 0])),
            "class_names": self.class_names,
            "notes": list(self.notes),
        }


class EncodedSource(Source):
    """A :class:`Source` of encoded images (JPEG, PNG, …); subclasses implement :meth:`encoded`."""

    @abstractmethod
    def encoded(self, index: int) -> bytes | Path:
        """Returns the encoded bytes of an image, or the file that holds them. Raises :class:`CorruptImage`."""

    def image(self, index: int) -> Picture:
        """Returns the image [H, W, C] at full size."""
        return self.picture(index)[0]

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image, a JPEG possibly decoded smaller (sides ≥ 2·``at_least``), and its original width/height."""
        return decode(self.encoded(index), self.item_id(index), at_least=at_least)

    def header(self, index: int) -> Header:
        """Returns size and mode without decoding the pixels."""
        return read_header(self.encoded(index), self.item_id(index))

    def content(self, index: int) -> bytes | Path:
        """Returns the encoded bytes, or the file that holds them."""
        data = self.encoded(index)
        with reasons(self.item_id(index)):
            return regular_file(data) if isinstance(data, Path) else data
