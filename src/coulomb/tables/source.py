"""A table of images: every kind of input becomes a :class:`Source`."""

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coulomb.kinds.image.decode import decode, read_bands, read_header, reasons, regular_file
from coulomb.kinds.image.picture import Header, Picture, array_header
from coulomb.tables.table import Labels, Table

__all__ = ["EncodedSource", "Labels", "Source"]


class Source(Table):
    """A table with one column, ``image``. Subclasses must be picklable: workers receive a copy.

    Only ``__len__``, ``item_id`` and ``image`` are required, and the attributes ``kind`` and ``name``; see `Table` for others.
    """

    @property
    def columns(self) -> Mapping[str, Any]:
        """The source itself, as the column ``image``."""
        return {"image": self}

    @abstractmethod
    def image(self, index: int) -> Picture:
        """Returns the image [H, W, C] as uint8, uint16 or float32 in [0, 1]. Raises :class:`CorruptImage`.

        Images of other than 1 or 3 channels may have any range, see `coulomb.kinds.image.bands`.
        """

    def bands(self, index: int) -> Picture:
        """Returns all channels [H, W, C] of an image with their stored values. Raises :class:`CorruptImage`."""
        return self.image(index)

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image and its width/height. Given ``at_least``, a decoder may shrink it to sides of that length."""
        del at_least  # arrays cannot be decoded at a smaller size
        image = self.image(index)
        return image, image.shape[1] / image.shape[0]

    def header(self, index: int) -> Header:
        """Returns size and mode of an image, without decoding it if possible. Raises :class:`CorruptImage`."""
        return array_header(self.image(index))

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

    def bands(self, index: int) -> Picture:
        """Returns all channels of an image, of a TIFF file with their stored values and alpha as a channel."""
        return read_bands(self.encoded(index), self.item_id(index))

    def header(self, index: int) -> Header:
        """Returns size and mode without decoding the pixels."""
        return read_header(self.encoded(index), self.item_id(index))

    def content(self, index: int) -> bytes | Path:
        """Returns the encoded bytes, or the file that holds them."""
        data = self.encoded(index)
        with reasons(self.item_id(index)):
            return regular_file(data) if isinstance(data, Path) else data
