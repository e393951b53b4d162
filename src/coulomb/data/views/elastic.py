"""The elastic warp: a random smooth displacement field."""

import torch
from torch import Tensor

from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.uniforms import Uniforms


def control_points(spec: ViewSpec, uniforms: Uniforms) -> Tensor:
    """Displacements [B, 2, grid, grid] (x, y) at the control points, in [−1, 1] coordinates; zero for a no."""
    points = (2 * uniforms["elastic"] - 1).view(-1, 2, spec.elastic_grid, spec.elastic_grid)
    on = uniforms.chance("elastic", spec.elastic)[:, None, None, None]
    return torch.where(on, 2 * spec.elastic_amplitude * points, 0.0)


def spline_basis(size: int, grid: int, device: torch.device | None = None) -> Tensor:
    """Uniform cubic B-spline basis [size, grid] at the centres of ``size`` pixels.

    Rows are non-negative and sum to 1, so no displacement exceeds the largest control point; the field is twice
    continuously differentiable.
    """
    at = (torch.arange(size, device=device) + 0.5) * ((grid - 3) / size)
    distance = (at[:, None] + 1 - torch.arange(grid, device=device)).abs()
    near = 2 / 3 - distance**2 + distance**3 / 2
    far = (2 - distance).clamp(min=0) ** 3 / 6
    return torch.where(distance < 1, near, far).float()


def displacement(points_B2gg: Tensor, basis_Sg: Tensor) -> Tensor:
    """The field [B, 2, S, S]: U · points · Uᵀ."""
    return basis_Sg @ points_B2gg @ basis_Sg.T
