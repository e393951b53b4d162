"""Pictures as cells of a column: rows that point to the images of a source, so that several rows share one image."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.kinds.image.picture import Header, Picture
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.source import EncodedSource, Source


class PictureRows(Source):
    """The image of each row; images stay where the source has them.

    Args:
        source: the images.
        at: image of each row, int64 [N].
    """

    def __init__(self, source: Source, at: npt.NDArray[np.int64]) -> None:
        self.source, self.at = source, at
        self.kind, self.name, self.root = source.kind, source.name, source.root
        self.has_paths, self.remote, self.single_images = source.has_paths, source.remote, source.single_images
        blocks: Blocks | None = source.blocks
        self.blocks = None if blocks is None else replace(blocks, of=blocks.of[at])

    def __len__(self) -> int:
        return len(self.at)

    def item_id(self, index: int) -> str:
        """Returns the name of the image, which is the same for all rows that share it."""
        return self.source.item_id(int(self.at[index]))

    def image(self, index: int) -> Picture:
        """Returns the image [H, W, C] of a row."""
        return self.source.image(int(self.at[index]))

    def picture(self, index: int, at_least: int | None = None) -> tuple[Picture, float]:
        """Returns the image of a row and its width/height, see `Source`."""
        return self.source.picture(int(self.at[index]), at_least)

    def bands(self, index: int) -> Picture:
        """Returns all channels of the image of a row."""
        return self.source.bands(int(self.at[index]))

    def header(self, index: int) -> Header:
        """Returns size and mode of the image of a row."""
        return self.source.header(int(self.at[index]))

    def content(self, index: int) -> bytes | Path:
        """Returns the stored bytes of the image of a row, or the file that holds them."""
        return self.source.content(int(self.at[index]))

    def stamps(self) -> list[tuple[int | None, int]] | None:
        """Returns size and time of the last change of the file of each image."""
        stamps = self.source.stamps()
        return None if stamps is None else [stamps[index] for index in self.at.tolist()]

    @property
    def files(self) -> list[Path]:
        """Files that hold many images each."""
        return self.source.files

    def stored_bytes(self) -> int | None:
        """Returns the stored size of the source."""
        return self.source.stored_bytes()

    def fetch(self, unit: int) -> None:
        """Puts a block b ≥ 0, or the image of row i given as −1 − i, of a remote source into its cache."""
        self.source.fetch(self._unit(unit))

    def unit_size(self, unit: int) -> int:
        """Returns the size in bytes of what `fetch` would fetch."""
        return self.source.unit_size(self._unit(unit))

    def _unit(self, unit: int) -> int:
        return unit if unit >= 0 else -1 - int(self.at[-1 - unit])

    def release(self) -> None:
        """Frees read buffers."""
        self.source.release()


class EncodedBytes(EncodedSource):
    """Encoded images in an Arrow array of bytes; null where an image is missing."""

    kind = "bytes"

    def __init__(self, array: Any, name: str) -> None:
        self.array, self.name = array, name

    def __len__(self) -> int:
        return len(self.array)

    def item_id(self, index: int) -> str:
        """Returns the row number."""
        return str(index)

    def encoded(self, index: int) -> bytes:
        """Returns the encoded bytes of an image."""
        return bytes(self.array[index].as_py() or b"")
