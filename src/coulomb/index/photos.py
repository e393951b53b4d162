"""Reads each image once: for its features, its thumbnail, its size and its hash."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from coulomb.index.table import Photo
from coulomb.kinds import Cell, Kind
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.decode import decode, read_bands, read_header, reasons
from coulomb.kinds.image.false_color import false_color
from coulomb.kinds.image.picture import Header, Picture
from coulomb.kinds.image.thumbnail import make_thumbnail
from coulomb.tables.source import EncodedSource, Source

SMALL = 2**14  # bytes


class ReadOnce(Source):
    """A source that keeps the bytes of the image read last, so that hash and pixels are of the same bytes.

    Args:
        source: the images.
        stamps: see `Source.stamps`, taken before any image is read: a file that changes later is found by the next update.
    """

    def __init__(self, source: Source, stamps: list[tuple[int | None, int]] | None) -> None:
        self.source = source
        self.kind, self.name = source.kind, source.name
        self.blocks, self.remote, self.single_images = source.blocks, source.remote, source.single_images
        self.stamps_before = stamps
        self._bytes: bytes | None = None
        self._picture: Picture | None = None
        self._reduced = False  # the picture may have been decoded smaller

    def __len__(self) -> int:
        return len(self.source)

    def item_id(self, index: int) -> str:
        """Returns the id in the source."""
        return self.source.item_id(index)

    def read(self, index: int) -> tuple[int, str]:
        """Reads an image; returns its size in bytes and its SHA-256. Raises :class:`CorruptImage`."""
        self._bytes = self._picture = None
        content = self.source.content(index)
        if isinstance(content, Path) or isinstance(self.source, EncodedSource):
            with reasons(self.item_id(index)):
                self._bytes = content.read_bytes() if isinstance(content, Path) else content
            return len(self._bytes), hashlib.sha256(self._bytes).hexdigest()
        self._picture = self.source.image(index)
        digest = hashlib.sha256(f"{self._picture.dtype}{self._picture.shape}".encode())
        digest.update(self._picture.tobytes())
        return self._picture.nbytes, digest.hexdigest()

    def image(self, index: int) -> Picture:
        """Returns the image read last at full size."""
        return self.picture(index)[0]

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image read last and its width/height."""
        if self._bytes is not None:
            self._reduced = at_least is not None
            self._picture, aspect = decode(self._bytes, self.item_id(index), at_least=at_least)
            return self._picture, aspect
        assert self._picture is not None
        return self._picture, self._picture.shape[1] / self._picture.shape[0]

    def bands(self, index: int) -> Picture:
        """Returns all channels of the image read last."""
        if self._bytes is not None:
            self._reduced = False
            self._picture = read_bands(self._bytes, self.item_id(index))
        assert self._picture is not None
        return self._picture

    def header(self, index: int) -> Header:
        """Returns the header in the source."""
        return self.source.header(index)

    def fetch(self, unit: int) -> None:
        """Fetches a part of a remote source."""
        self.source.fetch(unit)

    def unit_size(self, unit: int) -> int:
        """Returns the size of a part of a remote source."""
        return self.source.unit_size(unit)

    def describe_last(self, index: int, side: int, bands: Bands | None = None) -> tuple[int, int, bytes]:
        """Returns width, height and thumbnail of the image decoded last; of bands, the first that the encoder uses.

        A small JPEG file is its own thumbnail, which saves a tenth of the time of an index of such photos.
        """
        assert self._picture is not None
        picture = self._picture
        height, width = picture.shape[:2]
        if bands is not None:
            return width, height, make_thumbnail(false_color(picture, bands), side)
        if self._bytes is not None:
            if self._reduced:
                header = read_header(self._bytes, self.item_id(index))
                width, height = header.width, header.height
            if max(picture.shape[:2]) < min(side, max(width, height)):  # decoded smaller than the thumbnail
                picture = decode(self._bytes, self.item_id(index), at_least=side)[0]
            small = len(self._bytes) <= SMALL and max(width, height) <= 2 * side
            if small and self._bytes.startswith(b"\xff\xd8\xff") and b"Exif" not in self._bytes:
                return width, height, self._bytes
        return width, height, make_thumbnail(picture, side)


@dataclass
class Photos:
    """Images that were read once, by their row in the source.

    Attributes:
        images: the stack of the images in ``photos``, in their order; later their features.
        photos: the facts and the thumbnail of each.
        known: the facts of images whose features are known, which were not decoded.
    """

    images: Any
    photos: dict[int, tuple[Photo, bytes]]
    known: dict[int, Photo]


class PhotoCell(NamedTuple):
    """One image; a known one has no value and no thumbnail."""

    row: int
    photo: Photo
    value: Any = None
    thumbnail: bytes = b""


@dataclass(frozen=True)
class PhotoKind:
    """Images of a `ReadOnce` as another kind reads them, with their size, hash and thumbnail.

    Args:
        kind: how the encoder takes images.
        known: hashes of images whose features are known; these are not decoded.
        side: side of thumbnails in pixels.
    """

    kind: Kind
    known: frozenset[bytes]
    side: int
    views: None = None
    nbytes: None = None  # each is read once

    def read(self, cells: ReadOnce, row: int) -> Cell:
        """Returns one image; raises `CorruptImage`."""
        mtime = None if cells.stamps_before is None else cells.stamps_before[row][1]
        size, digest = cells.read(row)
        if bytes.fromhex(digest) in self.known:
            return Cell(PhotoCell(row, Photo(size, digest, mtime, 0, 0)))
        cell = self.kind.read(cells, row)
        width, height, thumbnail = cells.describe_last(row, self.side, getattr(self.kind, "bands", None))
        return Cell(PhotoCell(row, Photo(size, digest, mtime, width, height), cell.value, thumbnail), cell.rounded)

    def stack(self, values: Sequence[PhotoCell]) -> Photos:
        """Returns the images, those that are known apart."""
        new = [each for each in values if each.value is not None]
        return Photos(
            self.kind.stack([each.value for each in new]),
            {each.row: (each.photo, each.thumbnail) for each in new},
            {each.row: each.photo for each in values if each.value is None},
        )

    def blank(self, count: int) -> Photos:
        """Photos are not cached."""
        raise NotImplementedError

    def preview(self, value: PhotoCell) -> str:
        """Returns a small image as HTML."""
        return self.kind.preview(value.value)
