"""What is unusual about how an image looks: blurred, dark, bright or flat, of an odd shape, CMYK, of more than 8 bits."""

import numpy as np
import torch
from torch.nn import functional

from coulomb.kinds.image.picture import Header, Picture
from coulomb.kinds.image.pixels import eight_bits, to_channels

SIDE = 192  # pixels, the longer side at which images are judged
# 99th percentile of the Laplacian over the standard deviation: of 1,000 photos one in 200 had less than 1 (rooms) or .86
# (ImageNet), with a Gaussian blur of .7% of the longer side 98% had less than .65 and .8.
SHARP = 0.7
DARK, BRIGHT = 80, 242  # levels of 255 that 99% of the pixels are below, and that 95% are above
FLAT = 3.0  # standard deviation in levels of 255
NARROW = 0.35  # shorter side over longer side


def unusual(picture: Picture, header: Header) -> list[str]:
    """Returns what is unusual about an image, in words; ``[]`` for most.

    Args:
        picture: [H, W, C], at full size or as a thumbnail.
        header: size and mode of the original.
    """
    found = []
    height, width = picture.shape[:2]
    gray = to_channels(eight_bits(picture), 1) if picture.shape[2] in (1, 3) else eight_bits(picture[..., :1])
    values = torch.from_numpy(np.ascontiguousarray(gray[..., 0])).float()[None, None]
    scale = SIDE / max(height, width)
    if scale < 1:
        size = max(1, round(height * scale)), max(1, round(width * scale))
        values = functional.interpolate(values, size, mode="bilinear", antialias=True)
    shown = values[0, 0].numpy()
    spread = float(shown.std())
    if np.quantile(shown, 0.99) < DARK:
        found.append("dark")
    elif np.quantile(shown, 0.05) > BRIGHT:
        found.append("bright")
    if spread < FLAT:
        found.append("flat")
    elif min(shown.shape) >= 3 and max(header.width, header.height) >= SIDE // 2:
        inner = shown[1:-1, 1:-1]
        edges = 4 * inner - shown[:-2, 1:-1] - shown[2:, 1:-1] - shown[1:-1, :-2] - shown[1:-1, 2:]
        if np.quantile(np.abs(edges), 0.99) < SHARP * spread:
            found.append("blurred")
    if min(header.width, header.height) < NARROW * max(header.width, header.height):
        found.append("odd aspect ratio")
    if header.mode == "CMYK":
        found.append("CMYK")
    if header.depth != "uint8":
        found.append("more than 8 bits per channel")
    return found
