"""Gaussian blur, each sample its own width."""

import torch
from torch import Tensor
from torch.nn import functional as F

from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.subset import where_on
from coulomb.data.views.uniforms import Uniforms, between

FEW_TAPS = 15  # up to here shifted multiply-adds beat a grouped convolution


class Blur:
    """Separable Gaussian of ``taps`` pixels, edges reflected, for those who drew yes."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, size: int) -> None:
        self.on = uniforms.chance("blur", spec.blur)
        self.sigma = between(uniforms["blur"][:, 0], *spec.blur_sigma)
        self.taps = kernel_taps(size, spec.blur_kernel)

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """[b, C, H, W] → the same, rows ``rows`` of the batch."""
        return where_on(images, self.on, rows, lambda part, which: gaussian_blur(part, self.sigma[which], self.taps))


def kernel_taps(size: int, fraction: float) -> int:
    """2·⌊⌊fraction · size⌋ / 2⌋ + 1, at least 3: SimCLR's rule (224 → 23, 32 → 3), as far as reflection allows."""
    radius = max(1, int(fraction * size + 1e-9) // 2)
    return 2 * min(radius, size - 1) + 1


def gaussian_kernels(sigma_b: Tensor, taps: int) -> Tensor:
    """Kernels [b, taps], rows summing to 1."""
    offset = torch.arange(taps, device=sigma_b.device) - taps // 2
    return torch.softmax(-0.5 * (offset / sigma_b[:, None]) ** 2, dim=1)


def gaussian_blur(images: Tensor, sigma_b: Tensor, taps: int) -> Tensor:
    """[b, C, H, W] blurred, sample i by the Gaussian of ``sigma_b[i]`` pixels cut to ``taps`` (odd)."""
    kernels = gaussian_kernels(sigma_b, taps).to(images.device)
    radius = taps // 2
    padded = F.pad(images, (radius,) * 4, mode="reflect")
    if taps <= FEW_TAPS:
        return _shifted_sum(_shifted_sum(padded, kernels, 2), kernels, 3)
    b, channels, height, width = padded.shape
    groups = b * channels
    weights = kernels.repeat_interleave(channels, 0)
    flat = padded.reshape(1, groups, height, width)
    down = F.conv2d(flat, weights.view(groups, 1, taps, 1), groups=groups)
    return F.conv2d(down, weights.view(groups, 1, 1, taps), groups=groups).view_as(images)


def _shifted_sum(padded: Tensor, kernels: Tensor, dim: int) -> Tensor:
    taps = kernels.shape[1]
    length = padded.shape[dim] - taps + 1
    weights = kernels[:, :, None, None, None]
    out = padded.narrow(dim, 0, length) * weights[:, 0]
    for k in range(1, taps):
        out.addcmul_(padded.narrow(dim, k, length), weights[:, k])
    return out
