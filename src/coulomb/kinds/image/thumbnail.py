"""Small JPEG versions of images, for pages and indexes."""

import io

import numpy as np
import torch
from PIL import Image
from torch.nn import functional

from coulomb.kinds.image.false_color import displayable
from coulomb.kinds.image.picture import Picture

QUALITY = 80


def make_thumbnail(picture: Picture, side: int, *, quality: int = QUALITY) -> bytes:
    """Returns a JPEG of at most ``side``×``side`` pixels, with the colors of `displayable`."""
    shown = np.require(displayable(picture), requirements=["C", "W"])
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
