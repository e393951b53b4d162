"""Crop, flip and the small affine map composed into one 2×3 matrix per sample."""

import math

import torch
from torch import Tensor

from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.uniforms import Uniforms, between


def sampling_matrices(spec: ViewSpec, uniforms: Uniforms, rectangles_B4: Tensor) -> Tensor:
    """θ [B, 2, 3]: where in the canvas a view's point is read, q = crop(flip(affine⁻¹(p))).

    p and q run over [−1, 1]², x to the right, y downwards, ±1 at the outer edges of the outer pixels
    (``align_corners=False``).
    """
    left_top, sides = rectangles_B4[:, :2], rectangles_B4[:, 2:]
    mirrored = uniforms["flip"] < torch.tensor([spec.flip, spec.flip_vertical])
    scale = torch.where(mirrored, -sides, sides)
    centre = 2 * left_top + sides - 1
    if spec.affine == 0:
        return torch.cat([torch.diag_embed(scale), centre[:, :, None]], 2)
    forward, shift = affine_maps(spec, uniforms)
    linear = scale[:, :, None] * torch.linalg.inv(forward)
    return torch.cat([linear, centre[:, :, None] - linear @ shift], 2)


def affine_maps(spec: ViewSpec, uniforms: Uniforms) -> tuple[Tensor, Tensor]:
    """The content's own motion v ↦ A v + t: A [B, 2, 2] = zoom · rotation · shear, t [B, 2, 1]; identity for a no.

    A positive angle turns the content counter-clockwise as seen (as kornia and OpenCV do).
    """
    rotate, shear_x, shear_y, zoom, shift_x, shift_y = uniforms["affine"].unbind(1)
    angle = math.radians(spec.rotate) * (2 * rotate - 1)
    slope_x = (math.radians(spec.shear) * (2 * shear_x - 1)).tan()
    slope_y = (math.radians(spec.shear) * (2 * shear_y - 1)).tan()
    one = torch.ones_like(angle)
    turn = torch.stack([angle.cos(), angle.sin(), -angle.sin(), angle.cos()], 1).view(-1, 2, 2)
    slant = torch.stack([one, slope_x, slope_y, one], 1).view(-1, 2, 2)
    size = between(zoom, math.log(spec.zoom[0]), math.log(spec.zoom[1])).exp()
    linear = size[:, None, None] * (turn @ slant)
    # A side is 2 in these coordinates.
    shift = 2 * spec.translate * (2 * torch.stack([shift_x, shift_y], 1) - 1)[:, :, None]
    on = uniforms.chance("affine", spec.affine)[:, None, None]
    return torch.where(on, linear, torch.eye(2, dtype=linear.dtype)), torch.where(on, shift, 0.0)
