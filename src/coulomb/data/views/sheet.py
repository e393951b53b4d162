"""A contact sheet: what the network will see."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from coulomb.data.views.views import ViewMaker
from coulomb.errors import InputError

if TYPE_CHECKING:
    from PIL import Image

SHOWN = 96  # pixels a tile is brought to, at least, by whole factors
GAP = 4
HEADER = 18
BACKGROUND = (250, 250, 250)
INK = (70, 70, 70)


def contact_sheet(
    canvas: Tensor, views: ViewMaker, generator: torch.Generator, n: int = 8, aspect: Tensor | None = None
) -> "Image.Image":
    """A row per image: the evaluation view, then ``n`` random views; tiny pictures enlarged without smoothing.

    One channel is shown grey, three as they are; of any other number the first is shown, and the header says so.
    """
    from PIL import Image, ImageDraw

    made = views(canvas, generator, n=n, aspect=aspect)
    if any(view.shape != made[0].shape for view in made):
        raise InputError("views of several sizes do not fit on one contact sheet: make one for each")
    columns = [views.plain(canvas, aspect), *made]
    size = columns[0].shape[-1]
    tile = size * max(1, -(-SHOWN // size))
    sheet = Image.new("RGB", (GAP + len(columns) * (tile + GAP) + GAP, HEADER + len(canvas) * (tile + GAP)), BACKGROUND)
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, 3), "original", fill=INK)
    note = "" if canvas.shape[1] in (1, 3) else f"  (channel 1 of {canvas.shape[1]})"
    draw.text((3 * GAP + tile, 3), f"{n} views{note}", fill=INK)
    for column, images in enumerate(columns):
        left = GAP + column * (tile + GAP) + (GAP if column else 0)
        for row, pixels in enumerate(displayable(images)):
            picture = Image.fromarray(pixels).resize((tile, tile), Image.Resampling.NEAREST)
            sheet.paste(picture, (left, HEADER + row * (tile + GAP)))
    return sheet


def displayable(images: Tensor) -> np.ndarray:
    """[B, C, H, W] in [0, 1] → uint8 [B, H, W, 3]."""
    shown = images if images.shape[1] == 3 else images[:, :1].expand(-1, 3, -1, -1)
    return (shown * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
