"""All thumbnails in one picture, and pictures as data: addresses."""

import base64
import io
import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

MAX_CELL = 64  # pixels; the page shows thumbnails no larger than twice this
PNG_UP_TO = 900_000  # bytes; larger sheets become JPEG
MAX_VIEWS = 1_500_000
MAX_VIEWS_WIDTH = 1600


@dataclass(frozen=True)
class Sheet:
    """A sprite sheet of square cells, ``columns`` in a row."""

    uri: str
    columns: int
    cell: int
    count: int


def sprite_sheet(thumbnails: np.ndarray) -> Sheet:
    """One sheet of uint8 [n, h, w, 3]: PNG when small, otherwise JPEG without colour subsampling."""
    n, height, width, _ = thumbnails.shape
    side = max(height, width)
    scale = min(1.0, MAX_CELL / side)
    cell = max(1, round(side * scale))
    columns = max(1, math.ceil(math.sqrt(n)))
    sheet = Image.new("RGB", (columns * cell, math.ceil(n / columns) * cell), (128, 128, 128))
    for i, pixels in enumerate(thumbnails):
        image = Image.fromarray(np.ascontiguousarray(pixels))
        if scale < 1:
            image = image.resize(
                (max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.LANCZOS
            )
        row, column = divmod(i, columns)
        sheet.paste(image, (column * cell + (cell - image.width) // 2, row * cell + (cell - image.height) // 2))
    return Sheet(_encode(sheet, PNG_UP_TO), columns, cell, n)


def picture(data: bytes) -> tuple[str, int, int]:
    """Any picture file as (data: address, width, height), decoded and written anew, at most 1600 pixels wide.

    Raises ``ValueError`` when it is not a picture.
    """
    try:
        with Image.open(io.BytesIO(data)) as opened:
            image = opened.convert("RGB")
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise ValueError("not a readable picture") from error
    if image.width > MAX_VIEWS_WIDTH:
        image = image.resize((MAX_VIEWS_WIDTH, max(1, round(image.height * MAX_VIEWS_WIDTH / image.width))))
    return _encode(image, MAX_VIEWS), image.width, image.height


def _encode(image: Image.Image, png_up_to: int) -> str:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    kind = "png"
    if buffer.tell() > png_up_to:
        kind = "jpeg"
        for quality in (88, 75, 60, 40, 20):
            buffer = io.BytesIO()
            image.save(buffer, "JPEG", quality=quality, subsampling=0)
            if buffer.tell() <= 2_500_000:
                break
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
