"""Sources whose items are encoded files or byte strings: everything about decoding is shared here."""

from abc import abstractmethod
from pathlib import Path

from coulomb.data.decode import decode, read_header
from coulomb.data.source import CorruptImage, Header, Picture, Source


class EncodedSource(Source):
    """A :class:`Source` of JPEG, PNG, TIFF, … items; a subclass says where the bytes of one item are."""

    @abstractmethod
    def encoded(self, index: int) -> bytes | Path:
        """The bytes of one item, or the file they are in. Raises :class:`CorruptImage`."""

    def image(self, index: int) -> Picture:
        """The picture at full size."""
        return self.picture(index)[0]

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """The picture, possibly decoded smaller (JPEG only, sides ≥ 2·``at_least``), and its true width/height."""
        item_id = self.item_id(index)
        return decode(self._opened(index, item_id), item_id, at_least=at_least)

    def header(self, index: int) -> Header:
        """Size and mode from the first bytes; the pixels stay encoded."""
        item_id = self.item_id(index)
        return read_header(self._opened(index, item_id), item_id)

    def content(self, index: int) -> bytes | Path:
        """The encoded bytes, or their file."""
        return self._opened(index, self.item_id(index))

    def _opened(self, index: int, item_id: str) -> bytes | Path:
        data = self.encoded(index)
        if isinstance(data, Path) and not data.is_file():  # a pipe or a device would block the reader for ever
            raise CorruptImage(item_id, "no such file" if not data.exists() else "not a regular file")
        return data
