"""All of a view's geometry in one bilinear resampling."""

import torch
from torch import Tensor
from torch.nn import functional as F

from coulomb.data.views.affine import sampling_matrices
from coulomb.data.views.crop import crop_rectangles
from coulomb.data.views.elastic import control_points, displacement, spline_basis
from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.uniforms import Uniforms


class Geometry:
    """Crop, squash undone, flip, affine map and elastic warp of one view of a batch: one ``grid_sample``.

    The canvas holds the whole image squashed to a square, ``aspect_B`` is the original width/height.
    """

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, aspect_B: Tensor, size: int) -> None:
        self.size = size
        self.padding = spec.padding
        self.theta = sampling_matrices(spec, uniforms, crop_rectangles(spec, uniforms, aspect_B))
        self.points = control_points(spec, uniforms) if spec.elastic > 0 and spec.elastic_amplitude > 0 else None

    def __call__(self, canvas: Tensor, rows: slice) -> Tensor:
        """Floats [b, C, H, W], rows ``rows`` of the batch → views [b, C, size, size]."""
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
    """Powers of two [B, 2] (x, y) by which each canvas axis is averaged before sampling, against aliasing.

    The largest one not above the step, in canvas pixels, between neighbouring view pixels: bilinear sampling then skips
    less than two pixels. 1 everywhere as long as the crop has fewer than twice the view's pixels along a side.
    """
    height, width = canvas_HW
    step = theta_B23[:, :, :2].norm(dim=2) * torch.tensor([width, height]) / size
    # A step of 2 may come out of the inverse as 1.9999999.
    return (step * (1 + 1e-5)).clamp(min=1).log2().floor().exp2().to(torch.int64)


def sample(canvas: Tensor, grid: Tensor, pool_B2: Tensor, padding: str) -> Tensor:
    """``grid_sample``, samples grouped by how much their canvas is averaged first."""
    if bool((pool_B2 == 1).all()):
        return F.grid_sample(canvas, grid, mode="bilinear", padding_mode=padding, align_corners=False)
    out = canvas.new_empty(*canvas.shape[:2], *grid.shape[1:3])
    for by_x, by_y in pool_B2.unique(dim=0).tolist():
        which = ((pool_B2[:, 0] == by_x) & (pool_B2[:, 1] == by_y)).nonzero()[:, 0].to(canvas.device)
        height, width = canvas.shape[-2:]
        # Adaptive pooling spans the canvas exactly, so normalised coordinates keep their meaning.
        pooled = F.adaptive_avg_pool2d(canvas[which], (-(-height // by_y), -(-width // by_x)))
        out[which] = F.grid_sample(pooled, grid[which], mode="bilinear", padding_mode=padding, align_corners=False)
    return out
