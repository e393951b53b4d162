"""Small JPEG versions of images, for pages and indexes."""

import io

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from coulomb.kinds.image.picture import Picture
from coulomb.kinds.image.pixels import eight_bits

QUALITY = 80


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
