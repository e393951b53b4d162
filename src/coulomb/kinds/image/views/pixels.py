"""Operations on the pixels of a view: color jitter, blur, solarization, noise, cutout."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from coulomb.kinds.image.views.spec import ViewSpec
from coulomb.kinds.image.views.uniforms import Uniforms, between, where_on

IDENTITY = torch.eye(3, dtype=torch.float32)
# Every channel becomes the gray of ITU-R BT.601, as in PIL, torchvision and kornia.
TO_GRAY = torch.tensor([(0.299, 0.587, 0.114)] * 3, dtype=torch.float32)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Color:
    """Color jitter in a random order per sample, then gray, for three channels.

    Every factor is linear in the pixel x and the mean m of its image. With x = m + d, contrast c scales d by c and maps m
    to c·m + (1 − c)·gray(m); the other factors act on both alike. A product of factors is therefore
    x ↦ L·x + (P − L)·m, where L is the product of the parts that act on d and P of those that act on m: 3×3 matrices
    computed before any pixel is read.

    The exact hue (``hue_model="hsv"``) is not linear: the factors before it form one such map, those after it another.
    Values are clamped to [0, 1] before an exact hue and at the end. torchvision and kornia clamp after every factor;
    here pixels that leave the range and are brought back by a later factor keep their detail.
    """

    def __init__(self, spec: ViewSpec, uniforms: Uniforms) -> None:
        jittered = uniforms.chance("jitter", spec.jitter)
        draws = uniforms["jitter"]
        self.exact = spec.hue_model == "hsv" and spec.hue > 0 and spec.jitter > 0
        self.turned = jittered
        self.turn = torch.where(jittered, spec.hue * (2 * draws[:, HUE] - 1), 0.0)
        on_d, on_m = factors(spec, draws, self.turn, self.exact)
        unchanged = ~jittered[:, None, None, None]
        on_d, on_m = torch.where(unchanged, IDENTITY, on_d), torch.where(unchanged, IDENTITY, on_m)
        order = uniforms["jitter_order"].argsort(dim=1)
        self.before, self.after = compose(on_d, on_m, order, HUE if self.exact else None)
        gray = torch.where(uniforms.chance("gray", spec.gray)[:, None, None], TO_GRAY, IDENTITY)
        self.after = (gray @ self.after[0], gray @ self.after[1])

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """Applies the operation to images [b, 3, H, W] in [0, 1], rows ``rows`` of the batch."""
        if self.exact:
            images = _apply(images, self.before[0][rows], self.before[1][rows])
            images = where_on(images, self.turned, rows, lambda part, at: turn_hue(part, self.turn[at]))
        return _apply(images, self.after[0][rows], self.after[1][rows])


class Intensity:
    """Brightness and contrast for any number of channels, x ↦ b·c·x + b·(1 − c)·mean(x); they commute."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms) -> None:
        self.on = uniforms.chance("jitter", spec.jitter)
        self.brightness = factor(uniforms["jitter"][:, BRIGHTNESS], spec.brightness)
        self.contrast = factor(uniforms["jitter"][:, CONTRAST], spec.contrast)

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """Applies the operation to images [b, C, H, W] in [0, 1], rows ``rows`` of the batch."""

        def change(part: Tensor, at: Tensor) -> Tensor:
            b, c = (values[at].to(part.device)[:, None, None, None] for values in (self.brightness, self.contrast))
            mean = part.mean((1, 2, 3), keepdim=True)
            return (part * (b * c)).add_(b * (1 - c) * mean).clamp_(0, 1)

        return where_on(images, self.on, rows, change)


def factor(uniform: Tensor, strength: float) -> Tensor:
    """Maps U[0, 1) to U[max(0, 1 − strength), 1 + strength)."""
    return between(uniform, max(0.0, 1 - strength), 1 + strength)


def factors(spec: ViewSpec, draws_B4: Tensor, turn_B: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
    """Matrices [B, 4, 3, 3] of the four factors, acting on deviations from the mean and on the mean."""
    b, c, s = (
        factor(draws_B4[:, i], strength)[:, None, None]
        for i, strength in enumerate((spec.brightness, spec.contrast, spec.saturation))
    )
    saturation = s * IDENTITY + (1 - s) * TO_GRAY
    hue = IDENTITY.expand(len(turn_B), 3, 3) if exact else hue_rotation(turn_B)
    on_d = torch.stack([b * IDENTITY, c * IDENTITY, saturation, hue], 1)
    on_m = torch.stack([b * IDENTITY, c * IDENTITY + (1 - c) * TO_GRAY, saturation, hue], 1)
    return on_d, on_m


Pair = tuple[Tensor, Tensor]


def compose(on_d: Tensor, on_m: Tensor, order_B4: Tensor, split: int | None) -> tuple[Pair, Pair]:
    """Multiplies the factors in the order of each sample: (L, P) of those before factor ``split``, and of those after it.

    Without a split the first pair is the identity and the second the product of all factors.
    """
    rows = torch.arange(len(order_B4))
    eye = IDENTITY.expand(len(rows), 3, 3)
    before, after = (eye, eye), (eye, eye)
    passed = torch.full((len(rows), 1, 1), split is None)
    for position in range(order_B4.shape[1]):
        which = order_B4[:, position]
        if split is not None:
            passed = passed | (which == split)[:, None, None]
        step = on_d[rows, which], on_m[rows, which]
        before = _step(~passed, step, before)
        after = _step(passed, step, after)
    return before, after


def _step(on: Tensor, step: Pair, done: Pair) -> Pair:
    return torch.where(on, step[0] @ done[0], done[0]), torch.where(on, step[1] @ done[1], done[1])


def _apply(images: Tensor, on_d: Tensor, on_m: Tensor) -> Tensor:
    """clamp(L·x + (P − L)·m), by three multiply-adds: faster than a batched 3×3 product, same bits for any chunk."""
    linear = on_d.to(images.device)[:, :, :, None, None]
    of_mean = (on_m - on_d).to(images.device)
    offset = (of_mean * images.mean((2, 3))[:, None, :]).sum(2)
    out = images[:, 0:1] * linear[:, :, 0]
    out.addcmul_(images[:, 1:2], linear[:, :, 1]).addcmul_(images[:, 2:3], linear[:, :, 2])
    return out.add_(offset[:, :, None, None]).clamp_(0, 1)


SHIFTS = torch.tensor([3.0, 1.0, -1.0], dtype=torch.float32)[:, None, None]  # of R, G, B, in sextants
CROSS = torch.tensor([[0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=torch.float32) / math.sqrt(3)  # (1, 1, 1)/√3 ×
ALONG = torch.full((3, 3), 1 / 3, dtype=torch.float32)  # projection onto the gray axis


def turn_hue(images: Tensor, turn_b: Tensor) -> Tensor:
    """Rotates the HSV hue of RGB images [b, 3, H, W] by ``turn_b`` full circles; keeps saturation and value.

    With the hue h in sextants (red 0, green 2, blue 4), a channel is min + (max − min)·clamp(|wrap(h + s)| − 1, 0, 1),
    where s = 3, 1, −1 for R, G, B and wrap maps to [−3, 3].
    """
    red, green, blue = images.unbind(1)
    high, low = images.amax(1), images.amin(1)
    chroma = high - low
    inverse = 1 / chroma.clamp(min=1e-12)
    # Comparisons written to floats and blended: five times as fast as boolean masks and torch.where.
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
    """Matrices [B, 3, 3] that rotate RGB about its gray axis by ``turn_B`` full circles (Rodrigues' formula).

    They keep grays and R + G + B, and equal the rotation in HSV at 0, 1/3 and 2/3 of a circle. In between HSV follows a
    hexagon instead of a circle: after clamping, channels differ by at most the pixel's chroma (max − min) / 3.
    """
    angle = 2 * math.pi * turn_B[:, None, None]
    return angle.cos() * (torch.eye(3, dtype=torch.float32) - ALONG) + ALONG + angle.sin() * CROSS


FEW_TAPS = 15  # up to this width, shifted multiply-adds are faster than a grouped convolution


class Blur:
    """Separable Gaussian blur by ``taps`` pixels with reflected edges, with its own width per sample."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, size: int) -> None:
        self.on = uniforms.chance("blur", spec.blur)
        self.sigma = between(uniforms["blur"][:, 0], *spec.blur_sigma)
        self.taps = kernel_taps(size, spec.blur_kernel)

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """Applies the operation to images [b, C, H, W], rows ``rows`` of the batch."""
        return where_on(images, self.on, rows, lambda part, at: gaussian_blur(part, self.sigma[at], self.taps))


def kernel_taps(size: int, fraction: float) -> int:
    """SimCLR's kernel width, 2·⌊⌊fraction · size⌋ / 2⌋ + 1 and at least 3 (224 → 23, 32 → 3), limited by reflection."""
    radius = max(1, int(fraction * size + 1e-9) // 2)
    return 2 * min(radius, size - 1) + 1


def gaussian_kernels(sigma_b: Tensor, taps: int) -> Tensor:
    """Gaussian kernels [b, taps] whose rows sum to 1."""
    offset = torch.arange(taps, device=sigma_b.device) - taps // 2
    return torch.softmax(-0.5 * (offset / sigma_b[:, None]) ** 2, dim=1)


def gaussian_blur(images: Tensor, sigma_b: Tensor, taps: int) -> Tensor:
    """Blurs images [b, C, H, W]: sample i by a Gaussian of ``sigma_b[i]`` pixels truncated to ``taps`` (odd)."""
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


class Solarize:
    """Solarization, x ↦ 1 − x where x ≥ threshold (BYOL, Grill et al., 2020)."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms) -> None:
        self.on = uniforms.chance("solarize", spec.solarize)
        self.threshold = spec.solarize_threshold

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """Applies the operation to images [b, C, H, W] in [0, 1], rows ``rows`` of the batch."""
        return where_on(images, self.on, rows, lambda part, _: torch.where(part < self.threshold, part, 1 - part))


class Noise:
    """Gaussian noise, x ↦ clamp(x + σ·n) with n standard normal per value.

    The noise of the whole view is drawn from the caller's generator on the CPU, so that it depends neither on the device
    nor on chunks.
    """

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, channels: int, size: int) -> None:
        self.on = uniforms.chance("noise", spec.noise)
        self.std = between(uniforms["noise"][:, 0], *spec.noise_std)
        noisy = uniforms.whole["noise_on"][:, 0] < spec.noise
        self.row = (noisy.cumsum(0) - 1)[uniforms.rows]  # of each sample in the field
        self.field = torch.randn(
            int(noisy.sum()), channels, size, size, generator=uniforms.generator, dtype=torch.float32
        )

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """Applies the operation to images [b, C, S, S] in [0, 1], rows ``rows`` of the batch."""

        def change(part: Tensor, at: Tensor) -> Tensor:
            field = self.field[self.row[at]].to(part.device)
            return torch.addcmul(part, field, self.std[at].to(part.device)[:, None, None, None]).clamp_(0, 1)

        return where_on(images, self.on, rows, change)


class Cutout:
    """Cutout: a square of the fill value, centered anywhere in the view (DeVries & Taylor, 2017)."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms, size: int) -> None:
        self.on = uniforms.chance("cutout", spec.cutout)
        side, self.center_x, self.center_y = uniforms["cutout"].unbind(1)
        self.half = between(side, *spec.cutout_side) / 2
        self.fill = spec.cutout_fill
        self.pixels = (torch.arange(size) + 0.5) / size  # pixel centers, fractions of the side

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """Applies the operation to images [b, C, S, S], rows ``rows`` of the batch."""

        def change(part: Tensor, at: Tensor) -> Tensor:
            half = self.half[at][:, None]
            in_x = (self.pixels - self.center_x[at][:, None]).abs() < half
            in_y = (self.pixels - self.center_y[at][:, None]).abs() < half
            return part.masked_fill((in_y[:, None, :, None] & in_x[:, None, None, :]).to(part.device), self.fill)

        return where_on(images, self.on, rows, change)
