"""Pictures of squares with captions, for runs on columns."""

import io

import numpy as np
from PIL import Image

COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 60, 230), "yellow": (230, 220, 40)}
SIZES = {"small": 6, "large": 14}
WHERE = {"left": 4, "right": 16}


def picture(color, size, x, noise):
    """A square of a color on a noisy gray background, as PNG."""
    draw = np.random.default_rng(noise)
    pixels = draw.integers(90, 160, (32, 32, 3), dtype=np.uint8)
    pixels[8 : 8 + size, x : x + size] = color
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def squares(copies=3):
    """Pictures of squares, and captions, some of which repeat."""
    images, captions = [], []
    for color, rgb in COLORS.items():
        for size, side in SIZES.items():
            for where, x in WHERE.items():
                for copy in range(copies):
                    images.append(picture(rgb, side, x, len(images)))
                    captions.append(f"a {size} {color} square on the {where}, picture {copy % 2}")
    return {"image": images, "caption": captions}
