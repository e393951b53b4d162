"""The crop rectangle of RandomResizedCrop, drawn in the original image's coordinates."""

import torch
from torch import Tensor

from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.uniforms import Uniforms, between


def crop_rectangles(spec: ViewSpec, uniforms: Uniforms, aspect_B: Tensor) -> Tensor:
    """Rectangles [B, 4] (left, top, width, height) as fractions of the image's width and height.

    As in Inception and SimCLR: area uniform, ratio log-uniform, ten tries, the first that fits in the image is taken
    and placed uniformly. If none fits: the largest centred rectangle whose ratio is the image's own, limited to
    ``crop_ratio``. The one difference: sides and places are real numbers, not whole pixels.
    """
    aspect = aspect_B[:, None]  # the image is aspect × 1
    area = aspect * between(uniforms["crop_area"], *spec.crop_area)
    low, high = torch.tensor(spec.crop_ratio).log().tolist()
    ratio = between(uniforms["crop_ratio"], low, high).exp()
    width, height = (area * ratio).sqrt() / aspect, (area / ratio).sqrt()  # fractions of the image's sides
    fits = (width <= 1) & (height <= 1)
    first = fits.byte().argmax(1, keepdim=True)

    limited = aspect.clamp(*spec.crop_ratio)
    fallback = torch.cat([(limited / aspect).clamp(max=1), (aspect / limited).clamp(max=1)], 1)
    drawn = torch.cat([width.gather(1, first), height.gather(1, first)], 1)
    fitted = fits.any(1, keepdim=True)
    sides = torch.where(fitted, drawn, fallback)
    place = torch.where(fitted, uniforms["crop_place"], 0.5)
    return torch.cat([place * (1 - sides), sides], 1)
