"""Turning the hue: exactly, in HSV, or linearly, about the grey axis."""

import math

import torch
from torch import Tensor

SHIFTS = torch.tensor([3.0, 1.0, -1.0], dtype=torch.float32)[:, None, None]  # of R, G, B, in sextants
CROSS = torch.tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=torch.float32) / math.sqrt(3)  # (1, 1, 1)/√3 ×
ALONG = torch.full((3, 3), 1 / 3, dtype=torch.float32)  # projection onto the grey axis


def turn_hue(images: Tensor, turn_b: Tensor) -> Tensor:
    """RGB [b, 3, H, W] with the HSV hue turned by ``turn_b`` full circles; saturation and value kept.

    With the hue h in sextants (red 0, green 2, blue 4), a channel is min + (max − min)·clamp(|wrap(h + s)| − 1, 0, 1),
    s = 3, 1, −1 for R, G, B, wrap bringing its argument into [−3, 3].
    """
    red, green, blue = images.unbind(1)
    high, low = images.amax(1), images.amin(1)
    chroma = high - low
    inverse = 1 / chroma.clamp(min=1e-12)
    # Comparisons written into floats and blended: five times as fast as bool masks and torch.where.
    is_red, is_green = torch.empty_like(high), torch.empty_like(high)
    torch.eq(high, red, out=is_red)
    torch.eq(high, green, out=is_green)
    hue = ((red - green) * inverse).add_(4)
    hue = hue.lerp_(((blue - red) * inverse).add_(2), is_green).lerp_((green - blue) * inverse, is_red)
    hue += 6 * turn_b.to(images.device)[:, None, None]
    wrapped = hue[:, None] + SHIFTS.to(images.device)
    wrapped.sub_((wrapped / 6).round_(), alpha=6).abs_().sub_(1).clamp_(0, 1)
    return torch.addcmul(low[:, None], chroma[:, None], wrapped)


def hue_rotation(turn_B: Tensor) -> Tensor:
    """Matrices [B, 3, 3] rotating RGB about its grey axis by ``turn_B`` full circles (Rodrigues' formula).

    Keeps greys and R + G + B, and equals the turn in HSV at 0, 1/3 and 2/3 of a circle. In between HSV walks a hexagon
    where this walks a circle: a channel differs by at most the pixel's chroma (max − min) / 3, the result clamped.
    """
    angle = 2 * math.pi * turn_B[:, None, None]
    return angle.cos() * (torch.eye(3, dtype=torch.float32) - ALONG) + ALONG + angle.sin() * CROSS
