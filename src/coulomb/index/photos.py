"""Reads each image once: for its features, its thumbnail, its size and its hash."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from torch.utils.data import Dataset

from coulomb.index.table import Photo
from coulomb.kinds.image.decode import decode, read_header, reasons
from coulomb.kinds.image.picture import CorruptImage, Header, Picture
from coulomb.kinds.image.pixels import eight_bits
from coulomb.tables.images import Batch, Images
from coulomb.tables.originals import Originals
from coulomb.tables.source import EncodedSource, Source
from coulomb.tables.workers import Then, no_change, read_batches, split_batches

QUALITY = 80  # of thumbnails
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

    def header(self, index: int) -> Header:
        """Returns the header in the source."""
        return self.source.header(index)

    def describe_last(self, index: int, side: int) -> tuple[int, int, bytes]:
        """Returns width, height and thumbnail of the image decoded last.

        A small JPEG file is its own thumbnail, which saves a tenth of the time of an index of such photos.
        """
        assert self._picture is not None
        picture = self._picture
        height, width = picture.shape[:2]
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


def make_thumbnail(picture: Picture, side: int, *, quality: int = QUALITY) -> bytes:
    """Returns a JPEG of at most ``side``×``side`` pixels; of other than 1 or 3 channels, it shows the first or the first 3."""
    picture = eight_bits(picture)
    shown = np.require(picture[..., : 1 if picture.shape[2] < 3 else 3], requirements=["C", "W"])
    height, width = shown.shape[:2]
    scale = side / max(height, width)
    if scale < 1:  # PyTorch resizes in half of Pillow's time; its pixels differ by a few levels
        size = max(1, round(height * scale)), max(1, round(width * scale))
        images = torch.from_numpy(shown).permute(2, 0, 1)[None]
        shown = functional.interpolate(images, size, mode="bicubic", antialias=True)[0].permute(1, 2, 0).numpy()
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(shown[..., 0] if shown.shape[2] == 1 else shown)).save(
        file, "JPEG", quality=quality
    )
    return file.getvalue()


class Recorded(Dataset[Batch]):
    """Batches of prepared images, with ``photos``: index → (Photo, thumbnail), and ``known``: index → SHA-256.

    Args:
        images: the images as the encoder takes them, of the source ``once``.
        once: see there.
        known: hashes of images whose features are known; these are not decoded.
        side: of thumbnails in pixels.
    """

    def __init__(self, images: Images | Originals, once: ReadOnce, known: frozenset[bytes], side: int) -> None:
        self.images = images
        self.once = once
        self.source = once.source  # a remote one is read ahead
        self.known = known
        self.side = side

    def batches(self, indices: Any, batch_size: int, workers: int = 0, then: Then = no_change) -> Iterator[Any]:
        """Yields batches of these images, in order; ``then``: see `read_batches`."""
        yield from read_batches(self, split_batches(indices, batch_size), workers, then)

    def __getitems__(self, indices: list[int]) -> Any:
        """Returns one batch."""
        batches: list[Batch] = []
        photos: dict[int, tuple[Photo, bytes]] = {}
        known: dict[int, Photo] = {}
        failed: list[tuple[int, str]] = []
        for index in indices:
            mtime = None if self.once.stamps_before is None else self.once.stamps_before[index][1]
            try:
                size, digest = self.once.read(index)
                if bytes.fromhex(digest) in self.known:
                    known[index] = Photo(size, digest, mtime, 0, 0)
                    continue
                batch = self.images.__getitems__([index])
                failed += batch["failed"]
                if len(batch["index"]):
                    width, height, thumbnail = self.once.describe_last(index, self.side)
                    photos[index] = Photo(size, digest, mtime, width, height), thumbnail
                    batches.append(batch)
            except CorruptImage as error:
                failed.append((index, error.reason))
        return {
            "image": torch.cat([batch["image"] for batch in batches]) if batches else torch.empty(0),
            "aspect": torch.cat([batch["aspect"] for batch in batches]) if batches else torch.empty(0),
            "photos": photos,
            "known": known,
            "failed": failed,
        }
