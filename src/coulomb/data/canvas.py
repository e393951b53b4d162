"""A picture of any size → the square canvas that views are cut from: the WHOLE picture, squashed to S×S.

Nothing is cropped away here; the views undo the squash with the aspect that travels along.
"""

import numpy as np
from PIL import Image

from coulomb.data.source import Picture
from coulomb.errors import InputError


def to_channels(picture: Picture, channels: int) -> Picture:
    """[H, W, c] → [H, W, ``channels``]. Grey → colour repeats it; colour → grey is luma (ITU-R BT.601, as Pillow's "L").

    Any other change of the number of channels raises :class:`InputError`: no channel is dropped or invented.
    """
    here = picture.shape[2]
    if here == channels:
        return picture
    if here == 1 and channels == 3:
        return np.repeat(picture, 3, axis=2)
    if here == 3 and channels == 1:
        if picture.dtype.kind == "f":
            return picture @ np.array([[0.299], [0.587], [0.114]], dtype=np.float32)
        weighted = picture.astype(np.uint64) @ np.array([[19595], [38470], [7471]], dtype=np.uint64)
        return ((weighted + 0x8000) >> 16).astype(picture.dtype)
    raise InputError(
        f"an image has {here} channels and {channels} are wanted; set channels={here} or convert the images"
    )


def to_canvas(picture: Picture, size: int, channels: int, dtype: str) -> tuple[np.ndarray, bool]:
    """The [S, S, C] canvas, and whether more than 8 bits were rounded to 8.

    Resizing is Pillow's antialiased bilinear filter; a picture that has the size already is untouched. ``dtype``:
    "uint8", or "float32" in [0, 1] (uint8 values over 255, uint16 over 65535).
    """
    if picture.ndim != 3 or picture.dtype not in (np.uint8, np.uint16, np.float32):
        raise InputError(
            f"a source returned {picture.dtype} {list(picture.shape)}; images are [H, W, C] uint8, uint16 or float32"
        )
    picture = to_channels(picture, channels)
    if picture.dtype == np.uint8:
        canvas = _resize_bytes(picture, size)
        return (canvas, False) if dtype == "uint8" else (canvas.astype(np.float32) / np.float32(255), False)
    unit = picture if picture.dtype == np.float32 else picture.astype(np.float32) / np.float32(65535)
    canvas = _resize_floats(unit, size)
    if dtype == "uint8":
        return np.round(canvas * 255).astype(np.uint8), True
    return canvas, False


def _resize_bytes(picture: Picture, size: int) -> Picture:
    if picture.shape[:2] == (size, size):
        return picture
    if picture.shape[2] == 3:
        return np.asarray(
            Image.fromarray(np.ascontiguousarray(picture)).resize((size, size), Image.Resampling.BILINEAR)
        )
    return _each_channel(picture, size)


def _resize_floats(picture: Picture, size: int) -> Picture:
    if picture.shape[:2] == (size, size):
        return picture
    return np.clip(_each_channel(picture, size), 0, 1)  # the filter's weights sum to 1 only up to rounding


def _each_channel(picture: Picture, size: int) -> Picture:
    planes = [Image.fromarray(np.ascontiguousarray(picture[..., channel])) for channel in range(picture.shape[2])]
    return np.stack([np.asarray(plane.resize((size, size), Image.Resampling.BILINEAR)) for plane in planes], axis=2)
