"""Cutout: one square blanked."""

import torch
from torch import Tensor

from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.subset import where_on
from coulomb.data.views.uniforms import Uniforms, between


class Cutout:
    """A square of the fill value, centred anywhere in the view (DeVries & Taylor, 2017), for those who drew yes."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, size: int) -> None:
        self.on = uniforms.chance("cutout", spec.cutout)
        side, self.centre_x, self.centre_y = uniforms["cutout"].unbind(1)
        self.half = between(side, *spec.cutout_side) / 2
        self.fill = spec.cutout_fill
        self.at = (torch.arange(size) + 0.5) / size  # pixel centres, fractions of the side

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """[b, C, S, S] → the same, rows ``rows`` of the batch."""

        def change(part: Tensor, which: Tensor) -> Tensor:
            half = self.half[which][:, None]
            in_x = (self.at - self.centre_x[which][:, None]).abs() < half
            in_y = (self.at - self.centre_y[which][:, None]).abs() < half
            return part.masked_fill((in_y[:, None, :, None] & in_x[:, None, None, :]).to(part.device), self.fill)

        return where_on(images, self.on, rows, change)
