"""Geometry of a view: crop, flip, affine map and elastic warp in one bilinear resampling."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from coulomb.kinds.image.views.spec import ViewSpec
from coulomb.kinds.image.views.uniforms import Uniforms, between


class Geometry:
    """Crop at the original aspect ratio, flip, affine map and elastic warp of one view of a batch in one ``grid_sample``.

    The canvas is the whole image resized to a square; ``aspect_B`` is the original width/height.
    """

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, aspect_B: Tensor, size: int) -> None:
        self.size = size
        self.padding = spec.padding
        self.theta = sampling_matrices(spec, uniforms, crop_rectangles(spec, uniforms, aspect_B))
        self.points = control_points(spec, uniforms) if spec.elastic > 0 and spec.elastic_amplitude > 0 else None

    def __call__(self, canvas: Tensor, rows: slice) -> Tensor:
        """Returns views [b, C, size, size] of float canvases [b, C, H, W], rows ``rows`` of the batch."""
        theta = self.theta[rows]
        grid = self._grid(theta.to(canvas.device), rows)
        return sample(canvas, grid, pooling(theta, canvas.shape[-2:], self.size), self.padding)

    def _grid(self, theta: Tensor, rows: slice) -> Tensor:
        axis = (torch.arange(self.size, device=theta.device) * 2 + 1) / self.size - 1
        grid = torch.empty(len(theta), self.size, self.size, 2, device=theta.device, dtype=torch.float32)
        for i in (0, 1):
            along_x = theta[:, i, 0, None] * axis + theta[:, i, 2, None]
            along_y = theta[:, i, 1, None] * axis
            torch.add(along_x[:, None, :], along_y[:, :, None], out=grid[..., i])
        if self.points is not None:
            basis = spline_basis(self.size, self.points.shape[-1], theta.device)
            dx, dy = displacement(self.points[rows].to(theta.device), basis).unbind(1)
            for i in (0, 1):
                grid[..., i].addcmul_(theta[:, i, 0, None, None], dx).addcmul_(theta[:, i, 1, None, None], dy)
        return grid


def pooling(theta_B23: Tensor, canvas_HW: torch.Size, size: int) -> Tensor:
    """Factors [B, 2] (x, y), powers of two, by which each canvas axis is averaged before sampling, against aliasing.

    Each is the largest one that does not exceed the step in canvas pixels between neighboring view pixels, so that
    bilinear sampling skips less than two pixels. It is 1 if the crop has less than twice as many pixels as the view.
    """
    height, width = canvas_HW
    step = theta_B23[:, :, :2].norm(dim=2) * torch.tensor([width, height]) / size
    # After the inverse, a step of 2 may be 1.9999999.
    return (step * (1 + 1e-5)).clamp(min=1).log2().floor().exp2().to(torch.int64)


def sample(canvas: Tensor, grid: Tensor, pool_B2: Tensor, padding: str) -> Tensor:
    """Applies ``grid_sample`` to canvases averaged by ``pool_B2``, in groups of samples with the same factors."""
    if bool((pool_B2 == 1).all()):
        return F.grid_sample(canvas, grid, mode="bilinear", padding_mode=padding, align_corners=False)
    out = canvas.new_empty(*canvas.shape[:2], *grid.shape[1:3])
    for by_x, by_y in pool_B2.unique(dim=0).tolist():
        group = ((pool_B2[:, 0] == by_x) & (pool_B2[:, 1] == by_y)).nonzero()[:, 0].to(canvas.device)
        height, width = canvas.shape[-2:]
        # Adaptive pooling covers the canvas exactly, so normalized coordinates stay valid.
        pooled = F.adaptive_avg_pool2d(canvas[group], (-(-height // by_y), -(-width // by_x)))
        out[group] = F.grid_sample(pooled, grid[group], mode="bilinear", padding_mode=padding, align_corners=False)
    return out


def crop_rectangles(spec: ViewSpec, uniforms: Uniforms, aspect_B: Tensor) -> Tensor:
    """Rectangles [B, 4] (left, top, width, height) of RandomResizedCrop, as fractions of the original width and height.

    As in Inception and SimCLR, the area is uniform and the ratio log-uniform; of ten candidates the first that fits the
    image is used, at a uniform position. If none fits, the rectangle is the largest centered one with the ratio of the
    image, clamped to ``crop_ratio``. Unlike there, sides and positions are real numbers instead of whole pixels.
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


def sampling_matrices(spec: ViewSpec, uniforms: Uniforms, rectangles_B4: Tensor) -> Tensor:
    """Matrices θ [B, 2, 3] that map a point p of the view to the point q = crop(flip(affine⁻¹(p))) of the canvas.

    p and q are in [−1, 1]², x to the right and y downwards; ±1 are the outer edges of the outer pixels
    (``align_corners=False``).
    """
    left_top, sides = rectangles_B4[:, :2], rectangles_B4[:, 2:]
    mirrored = uniforms["flip"] < torch.tensor([spec.flip, spec.flip_vertical])
    scale = torch.where(mirrored, -sides, sides)
    center = 2 * left_top + sides - 1
    if spec.affine == 0:
        return torch.cat([torch.diag_embed(scale), center[:, :, None]], 2)
    forward, shift = affine_maps(spec, uniforms)
    linear = scale[:, :, None] * torch.linalg.inv(forward)
    return torch.cat([linear, center[:, :, None] - linear @ shift], 2)


def affine_maps(spec: ViewSpec, uniforms: Uniforms) -> tuple[Tensor, Tensor]:
    """The affine map v ↦ A v + t of the content: A [B, 2, 2] = zoom · rotation · shear and t [B, 2, 1].

    It is the identity for samples that are not transformed. A positive angle is counter-clockwise, as in kornia and OpenCV.
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
    # A side has length 2 in these coordinates.
    shift = 2 * spec.translate * (2 * torch.stack([shift_x, shift_y], 1) - 1)[:, :, None]
    on = uniforms.chance("affine", spec.affine)[:, None, None]
    return torch.where(on, linear, torch.eye(2, dtype=linear.dtype)), torch.where(on, shift, 0.0)


def control_points(spec: ViewSpec, uniforms: Uniforms) -> Tensor:
    """Displacements [B, 2, grid, grid] (x, y) at the control points, in [−1, 1] coordinates; zero without a warp."""
    points = (2 * uniforms["elastic"] - 1).view(-1, 2, spec.elastic_grid, spec.elastic_grid)
    on = uniforms.chance("elastic", spec.elastic)[:, None, None, None]
    return torch.where(on, 2 * spec.elastic_amplitude * points, 0.0)


def spline_basis(size: int, grid: int, device: torch.device | None = None) -> Tensor:
    """Uniform cubic B-spline basis [size, grid] at the centers of ``size`` pixels.

    Rows are non-negative and sum to 1, so no displacement exceeds the largest control point; the field is twice
    continuously differentiable.
    """
    at = (torch.arange(size, device=device) + 0.5) * ((grid - 3) / size)
    distance = (at[:, None] + 1 - torch.arange(grid, device=device)).abs()
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = (2 - distance).clamp(min=0) ** 3 / 6
    return torch.where(distance < 1, near, far).float()


def displacement(points_B2gg: Tensor, basis_Sg: Tensor) -> Tensor:
    """The displacement field [B, 2, S, S] = U · points · Uᵀ for the basis U."""
    return basis_Sg @ points_B2gg @ basis_Sg.T
