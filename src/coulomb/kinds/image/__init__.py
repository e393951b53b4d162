"""Images: decoding, canvases and views."""

from coulomb.kinds.image.image import Canvases, Image, OriginalImage

__all__ = ["Canvases", "Image", "OriginalImage"]
