"""Gaussian noise."""

import torch
from torch import Tensor

from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.subset import where_on
from coulomb.data.views.uniforms import Uniforms, between


class Noise:
    """x ↦ clamp(x + σ·n), n standard normal per value, for those who drew yes.

    The one draw that is not a few numbers per sample: the whole view's noise comes from the caller's generator on the
    CPU, before any chunk is cut, so neither the device nor the chunks change it.
    """

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, channels: int, size: int) -> None:
        self.on = uniforms.chance("noise", spec.noise)
        self.std = between(uniforms["noise"][:, 0], *spec.noise_std)
        self.place = self.on.cumsum(0) - 1  # a sample's row in the field
        self.field = torch.randn(
            int(self.on.sum()), channels, size, size, generator=uniforms.generator, dtype=torch.float32
        )

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """[b, C, S, S] in [0, 1] → the same, rows ``rows`` of the batch."""

        def change(part: Tensor, which: Tensor) -> Tensor:
            field = self.field[self.place[which]].to(part.device)
            return torch.addcmul(part, field, self.std[which].to(part.device)[:, None, None, None]).clamp_(0, 1)

        return where_on(images, self.on, rows, change)
