"""The evaluation view: nothing random."""

import torch
from torch import Tensor

from coulomb.data.views.canvas import check_aspect, check_canvas, to_float
from coulomb.data.views.chunks import chunks


def plain_view(canvas: Tensor, size: int, aspect: Tensor | None = None) -> Tensor:
    """The squash undone, short side → ``size``, centre crop: float32 [B, C, size, size] in [0, 1].

    Bilinear with antialiasing (a triangle as wide as the step, as PIL's ``resize(..., BILINEAR, box=...)``), so
    shrinking does not alias. A canvas of that size whose aspect is 1 comes back as exactly canvas/255.
    """
    check_canvas(canvas, None)
    aspect_B = check_aspect(aspect, canvas)
    height, width = canvas.shape[-2:]
    if (height, width) == (size, size) and bool((aspect_B == 1).all()):
        same = to_float(canvas)
        return same.clone() if same is canvas else same
    shared = bool((aspect_B == aspect_B[0]).all())  # one pair of matrices serves all
    kept = aspect_B[:1] if shared else aspect_B
    across = resize_weights(width, size, (1 / kept).clamp(max=1)).to(canvas.device).transpose(1, 2)[:, None]
    down = resize_weights(height, size, kept.clamp(max=1)).to(canvas.device)[:, None]
    out = torch.empty(*canvas.shape[:2], size, size, device=canvas.device, dtype=torch.float32)
    with torch.no_grad(), torch.autocast(canvas.device.type, enabled=False):
        for rows in chunks(len(canvas), canvas.shape[1] * max(height * width, size * size), canvas.device):
            x, y = (across, down) if shared else (across[rows], down[rows])
            out[rows] = (y @ (to_float(canvas[rows]) @ x)).clamp_(0, 1)
    return out


def resize_weights(length: int, size: int, fraction_B: Tensor) -> Tensor:
    """Weights [B, size, length] that resize the central ``fraction`` of an axis of ``length`` pixels to ``size``.

    Pixel j has weight max(0, 1 − |j + ½ − centre| / max(step, 1)) around each output pixel's centre; rows sum to 1.
    """
    step = fraction_B.double()[:, None] * length / size
    start = (1 - fraction_B.double()[:, None]) * length / 2
    centre = start + (torch.arange(size, dtype=torch.float64) + 0.5) * step
    distance = (torch.arange(length, dtype=torch.float64) + 0.5 - centre[:, :, None]).abs()
    weights = (1 - distance / step.clamp(min=1)[:, :, None]).clamp(min=0)
    return (weights / weights.sum(2, keepdim=True)).float()
