"""Pictures for the page: of files of the index, decoded here and sent as JPEG, and pictures that the user uploads.

The server decodes one at a time: a picture of 89 megapixels takes 1.1 GB while it is decoded.
"""

import hashlib
import io
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.decode import decode, read_bands
from coulomb.kinds.image.false_color import false_color
from coulomb.kinds.image.picture import Picture
from coulomb.kinds.image.thumbnail import make_thumbnail

if TYPE_CHECKING:
    from coulomb.index import Index

SIDE = 1600  # longest side of a picture on the page, in pixels
MOST_UPLOADS = 64  # pictures in memory; the oldest is forgotten
UPLOAD_SIDE = 1024  # pixels: as large as any encoder looks at


def preview(index: "Index", position: int, bands: Bands | None = None) -> bytes:
    """Returns the image at ``position`` as JPEG of at most 1600 pixels; the bytes of a file are never sent as they are.

    An image of a table, which is no file, is its thumbnail. Of ``bands``, those of the encoder, the first three are shown.

    Raises:
        InputError: its file is outside the root of the index (by a link or "..") or gone.
        CorruptImage: it cannot be decoded.
    """
    path = index.paths[position]
    if not path:
        return index.thumbnail(position)
    file = allowed_file(index, Path(path))
    if bands is not None:
        picture = read_bands(file, index.ids[position])
        bands.require(picture, index.ids[position])
        return _jpeg(false_color(picture, bands), SIDE)
    picture, _ = decode(file, index.ids[position], at_least=SIDE // 2)
    return _jpeg(picture, SIDE)


def allowed_file(index: "Index", path: Path) -> Path:
    """Returns the ``path`` of an image if it may be read.

    Raises:
        InputError: it is missing, or a link that leads out of the index's root; without a root, any link.
    """
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        raise InputError(
            f"{path}: no such file; if the folder has moved, give its new place: coulomb browse INDEX --root FOLDER"
        ) from None
    if not (real.is_relative_to(index.root.resolve()) if index.root else real == path):
        raise InputError(f"{path}: leads out of the folder of the index and is not shown")
    return real


def _jpeg(picture: Picture, side: int) -> bytes:
    return make_thumbnail(picture, side, quality=88)


class Uploads:
    """Pictures that the user gave to search by, by the hash of their bytes. They stay in memory and are never written."""

    def __init__(self) -> None:
        self._pictures: OrderedDict[str, Image.Image] = OrderedDict()
        self._guard = threading.Lock()

    def add(self, content: bytes) -> str:
        """Returns the key of a picture. Raises `CorruptImage` if it cannot be decoded."""
        picture, _ = decode(content, "the picture", at_least=UPLOAD_SIDE // 2)
        image = Image.open(io.BytesIO(_jpeg(picture, UPLOAD_SIDE)))
        image.load()
        key = hashlib.sha256(content).hexdigest()[:32]
        with self._guard:
            self._pictures[key] = image
            self._pictures.move_to_end(key)
            while len(self._pictures) > MOST_UPLOADS:
                self._pictures.popitem(last=False)
        return key

    def __getitem__(self, key: str) -> Image.Image:
        with self._guard:
            if key not in self._pictures:
                raise InputError("the picture is no longer in memory; drop it on the page again")
            self._pictures.move_to_end(key)
            return self._pictures[key]
