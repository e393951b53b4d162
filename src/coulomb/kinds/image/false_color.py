"""Pictures of bands that people can look at: three bands as red, green and blue, stretched."""

import numpy as np

from coulomb.kinds.image.bands import SHOWN, Bands
from coulomb.kinds.image.picture import Picture
from coulomb.kinds.image.pixels import eight_bits

STRETCH = (2, 98)  # percentiles of an image that become black and white, the default of GIS programs


def displayable(picture: Picture) -> Picture:
    """Returns an image [H, W, C] as uint8 [H, W, 1] or [H, W, 3] for the screen.

    Photos, 1 or 3 channels of 8 or 16 bits or in [0, 1], keep their values (`eight_bits`). Of other images the first three
    channels are shown, or the first of two: 8 bits as they are, others stretched per channel from the percentiles 2 and 98 of
    this image, with missing values in black.
    """
    channels = picture.shape[2]
    shown = picture[..., : 1 if channels < SHOWN else SHOWN]
    if picture.dtype == np.uint8:
        return shown
    photo = picture.dtype == np.uint16 or (picture.dtype.kind == "f" and _is_unit(picture))
    return eight_bits(shown) if photo and channels in (1, SHOWN) else stretched(shown)


def false_color(picture: Picture, bands: Bands) -> Picture:
    """Returns the first bands that a network uses as uint8 [H, W, 1] or [H, W, 3], stretched as `displayable` does."""
    count = 1 if len(bands.chosen) < SHOWN else SHOWN
    shown = picture[..., [band - 1 for band in bands.chosen[:count]]]
    return shown if picture.dtype == np.uint8 else stretched(shown)


def _is_unit(picture: Picture) -> bool:
    """Returns True if all values lie in [0, 1]; False with NaN."""
    return bool(picture.min() >= 0 and picture.max() <= 1)


def stretched(shown: Picture) -> Picture:
    """Returns [H, W, c] as uint8, each channel stretched from its percentiles 2 and 98."""
    out = np.zeros(shown.shape, np.uint8)
    for channel in range(shown.shape[2]):
        values = shown[..., channel].astype(np.float64)
        known = np.isfinite(values)
        if not known.any():
            continue
        low, high = np.percentile(values[known], STRETCH)
        if not high > low:
            low, high = values[known].min(), values[known].max()
        scale = 255 / (high - low) if high > low else 0.0
        out[..., channel] = np.round(np.clip((np.where(known, values, low) - low) * scale, 0, 255))
    return out
