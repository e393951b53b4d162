"""Solarisation: bright pixels inverted."""

import torch
from torch import Tensor

from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.subset import where_on
from coulomb.data.views.uniforms import Uniforms


class Solarise:
    """x ↦ 1 − x where x ≥ threshold, for those who drew yes (BYOL, Grill et al., 2020)."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms) -> None:
        self.on = uniforms.chance("solarise", spec.solarise)
        self.threshold = spec.solarise_threshold

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """[b, C, H, W] in [0, 1] → the same, rows ``rows`` of the batch."""
        return where_on(images, self.on, rows, lambda part, _: torch.where(part < self.threshold, part, 1 - part))
