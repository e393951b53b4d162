"""Brightness, contrast, saturation, hue and grey as one matrix per sample (two around an exact hue)."""

import torch
from torch import Tensor

from coulomb.data.views.hue import hue_rotation, turn_hue
from coulomb.data.views.spec import ViewSpec
from coulomb.data.views.subset import where_on
from coulomb.data.views.uniforms import Uniforms, between

IDENTITY = torch.eye(3, dtype=torch.float32)
# Every channel becomes the grey of ITU-R BT.601, as in PIL, torchvision and kornia.
TO_GREY = torch.tensor([(0.299, 0.587, 0.114)] * 3, dtype=torch.float32)
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)


class Colour:
    """Colour jitter in a random order per sample, then grey, on three channels.

    Every factor is linear in the pixel x and its picture's mean m. Writing x = m + d, contrast c scales d by c and
    moves m to c·m + (1 − c)·grey(m); the others act alike on both. So a product of factors is x ↦ L·x + (P − L)·m, L
    the product of the parts that act on d, P of those that act on m: 3×3 matrices known before any pixel is read.

    An exact hue (``hue_model="hsv"``) is not linear: the factors before it make one such map, those after it another.
    Values are clamped to [0, 1] before an exact hue and at the end; torchvision and kornia clamp after every factor, so
    pixels that one factor drives out of range and the next brings back come out differently (brighter or darker detail
    is kept here).
    """

    def __init__(self, spec: ViewSpec, uniforms: Uniforms) -> None:
        jittered = uniforms.chance("jitter", spec.jitter)
        draws = uniforms["jitter"]
        self.exact = spec.hue_model == "hsv" and spec.hue > 0 and spec.jitter > 0
        self.turned = jittered
        self.turn = torch.where(jittered, spec.hue * (2 * draws[:, HUE] - 1), 0.0)
        on_d, on_m = factors(spec, draws, self.turn, self.exact)
        no = ~jittered[:, None, None, None]
        on_d, on_m = torch.where(no, IDENTITY, on_d), torch.where(no, IDENTITY, on_m)
        order = uniforms["jitter_order"].argsort(dim=1)
        self.before, self.after = compose(on_d, on_m, order, HUE if self.exact else None)
        grey = torch.where(uniforms.chance("grey", spec.grey)[:, None, None], TO_GREY, IDENTITY)
        self.after = (grey @ self.after[0], grey @ self.after[1])

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """[b, 3, H, W] in [0, 1] → the same, rows ``rows`` of the batch."""
        if self.exact:
            images = _apply(images, self.before[0][rows], self.before[1][rows])
            images = where_on(images, self.turned, rows, lambda part, which: turn_hue(part, self.turn[which]))
        return _apply(images, self.after[0][rows], self.after[1][rows])


class Intensity:
    """Brightness and contrast on any number of channels: x ↦ b·c·x + b·(1 − c)·mean(x). They commute."""

    def __init__(self, spec: ViewSpec, uniforms: Uniforms) -> None:
        self.on = uniforms.chance("jitter", spec.jitter)
        self.brightness = factor(uniforms["jitter"][:, BRIGHTNESS], spec.brightness)
        self.contrast = factor(uniforms["jitter"][:, CONTRAST], spec.contrast)

    def __call__(self, images: Tensor, rows: slice) -> Tensor:
        """[b, C, H, W] in [0, 1] → the same, rows ``rows`` of the batch."""

        def change(part: Tensor, which: Tensor) -> Tensor:
            b, c = (values[which].to(part.device)[:, None, None, None] for values in (self.brightness, self.contrast))
            mean = part.mean((1, 2, 3), keepdim=True)
            return (part * (b * c)).add_(b * (1 - c) * mean).clamp_(0, 1)

        return where_on(images, self.on, rows, change)


def factor(uniform: Tensor, strength: float) -> Tensor:
    """Uniform in [max(0, 1 − strength), 1 + strength]."""
    return between(uniform, max(0.0, 1 - strength), 1 + strength)


def factors(spec: ViewSpec, draws_B4: Tensor, turn_B: Tensor, exact: bool) -> tuple[Tensor, Tensor]:
    """The four factors' matrices [B, 4, 3, 3], as they act on deviations from the mean and on the mean."""
    b, c, s = (
        factor(draws_B4[:, i], strength)[:, None, None]
        for i, strength in enumerate((spec.brightness, spec.contrast, spec.saturation))
    )
    saturation = s * IDENTITY + (1 - s) * TO_GREY
    hue = IDENTITY.expand(len(turn_B), 3, 3) if exact else hue_rotation(turn_B)
    on_d = torch.stack([b * IDENTITY, c * IDENTITY, saturation, hue], 1)
    on_m = torch.stack([b * IDENTITY, c * IDENTITY + (1 - c) * TO_GREY, saturation, hue], 1)
    return on_d, on_m


Pair = tuple[Tensor, Tensor]


def compose(on_d: Tensor, on_m: Tensor, order_B4: Tensor, split: int | None) -> tuple[Pair, Pair]:
    """Multiply the factors in each sample's order: (L, P) of those before factor ``split`` and of those after it.

    Without a split the first pair is the identity and the second holds everything.
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
    """clamp(L·x + (P − L)·m). Three multiply-adds beat a batched 3×3 product and give the same bits in any chunk."""
    linear = on_d.to(images.device)[:, :, :, None, None]
    of_mean = (on_m - on_d).to(images.device)
    offset = (of_mean * images.mean((2, 3))[:, None, :]).sum(2)
    out = images[:, 0:1] * linear[:, :, 0]
    out.addcmul_(images[:, 1:2], linear[:, :, 1]).addcmul_(images[:, 2:3], linear[:, :, 2])
    return out.add_(offset[:, :, None, None]).clamp_(0, 1)
