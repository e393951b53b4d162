"""The canvas, input of all views: checks, conversion to float, chunks, and the evaluation view."""

from collections.abc import Iterator

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.kinds.image.image import Canvases


def unstacked(images: Tensor | Canvases, aspect: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Returns the canvases [B, C, H, W] and their original width/height [B]; a stack brings its own."""
    return (images.canvas, images.aspect) if isinstance(images, Canvases) else (images, aspect)


def check_canvas(canvas: Tensor, channels: int | None) -> None:
    """Raises InputError unless ``canvas`` is [B, C, H, W], B ≥ 1, C = ``channels``, uint8 or floats in [0, 1]."""
    if not isinstance(canvas, Tensor):
        raise InputError(f"canvas is a {type(canvas).__name__}: must be a torch tensor [B, C, H, W]")
    if canvas.ndim != 4 or canvas.numel() == 0:
        raise InputError(f"canvas has shape {tuple(canvas.shape)}: must be [B, C, H, W] with at least one image")
    if channels is not None and canvas.shape[1] != channels:
        raise InputError(
            f"canvas has {canvas.shape[1]} channels, and these views were made for {channels}: "
            f"use make_views(..., channels={canvas.shape[1]})"
        )
    if canvas.dtype == torch.uint8:
        return
    if not canvas.is_floating_point():
        raise InputError(f"canvas is {canvas.dtype}: must be uint8 in 0…255 or floats in [0, 1]")
    low, high = canvas.aminmax()
    if not (low >= 0 and high <= 1):  # false for NaN too
        raise InputError(
            f"canvas ranges from {low:g} to {high:g}: floats must lie in [0, 1]; divide them by the full range"
        )


def check_aspect(aspect: Tensor | None, canvas: Tensor) -> Tensor:
    """Returns the original width/height per sample, float32 [B] on the CPU; by default of the canvas."""
    batch, _, height, width = canvas.shape
    if aspect is None:
        return torch.full((batch,), width / height, dtype=torch.float32)
    if not isinstance(aspect, Tensor) or aspect.shape != (batch,):
        shape = tuple(aspect.shape) if isinstance(aspect, Tensor) else type(aspect).__name__
        raise InputError(f"aspect is {shape}: must be a tensor of shape ({batch},), one width/height per image")
    aspect = aspect.detach().to("cpu", torch.float32)
    if not bool((torch.isfinite(aspect) & (aspect > 0)).all()):
        raise InputError(f"aspect has values from {aspect.min():g} to {aspect.max():g}: width/height must be above 0")
    return aspect


def to_float(canvas: Tensor) -> Tensor:
    """Returns the canvas as float32 in [0, 1]; uint8 is divided by 255."""
    return canvas.to(torch.float32).div_(255) if canvas.dtype == torch.uint8 else canvas.to(torch.float32)


VALUES_PER_THREAD = 300_000  # floats, 1.2 MB: fits the second-level cache of a core (1 to 2 MB); 100 images of 32×32×3
VALUES_ON_DEVICE = 2**27  # half a gigabyte; on other devices only memory is limited


def chunks(batch: int, values_per_image: int, device: torch.device) -> Iterator[slice]:
    """Yields slices of ``range(batch)`` whose images fit the processor's second-level cache; results do not depend on them."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        step = max(threads, threads * VALUES_PER_THREAD // values_per_image)
    else:
        step = max(1, VALUES_ON_DEVICE // values_per_image)
    for start in range(0, batch, step):
        yield slice(start, min(batch, start + step))


def plain_view(canvas: Tensor | Canvases, size: int, aspect: Tensor | None = None) -> Tensor:
    """The evaluation view: original aspect ratio, short side resized to ``size``, center crop.

    Resampling is bilinear with antialiasing (a triangle filter as wide as the step, as in PIL's ``resize(..., BILINEAR,
    box=...)``). A canvas that has this size and aspect 1 is returned as exactly canvas/255.

    Args:
        canvas: [B, C, H, W], uint8 or floats in [0, 1]; or a stack of them, which has its aspects.
        size: size of the view in pixels.
        aspect: [B], original width/height; default: of the canvas.

    Returns:
        float32 [B, C, size, size] in [0, 1].

    Shape:
        canvas: [B, C, H, W].
        aspect: [B].
        output: [B, C, size, size].

    >>> plain_view(torch.rand(2, 3, 20, 20), 16).shape
    torch.Size([2, 3, 16, 16])
    """
    canvas, aspect = unstacked(canvas, aspect)
    check_canvas(canvas, None)
    aspect_B = check_aspect(aspect, canvas)
    height, width = canvas.shape[-2:]
    if (height, width) == (size, size) and bool((aspect_B == 1).all()):
        unchanged = to_float(canvas)
        return unchanged.clone() if unchanged is canvas else unchanged
    shared = bool((aspect_B == aspect_B[0]).all())  # then one pair of matrices is used for all images
    aspects = aspect_B[:1] if shared else aspect_B
    across = resize_weights(width, size, (1 / aspects).clamp(max=1)).to(canvas.device).transpose(1, 2)[:, None]
    down = resize_weights(height, size, aspects.clamp(max=1)).to(canvas.device)[:, None]
    out = torch.empty(*canvas.shape[:2], size, size, device=canvas.device, dtype=torch.float32)
    with torch.no_grad(), torch.autocast(canvas.device.type, enabled=False):
        for rows in chunks(len(canvas), canvas.shape[1] * max(height * width, size * size), canvas.device):
            x, y = (across, down) if shared else (across[rows], down[rows])
            out[rows] = (y @ (to_float(canvas[rows]) @ x)).clamp_(0, 1)
    return out


def resize_weights(length: int, size: int, fraction_B: Tensor) -> Tensor:
    """Returns weights [B, size, length] that resize the central ``fraction`` of an axis of ``length`` pixels to ``size``.

    Pixel j has weight max(0, 1 − |j + ½ − center| / max(step, 1)) around each output pixel's center; rows sum to 1.
    """
    step = fraction_B.double()[:, None] * length / size
    start = (1 - fraction_B.double()[:, None]) * length / 2
    center = start + (torch.arange(size, dtype=torch.float64) + 0.5) * step
    distance = (torch.arange(length, dtype=torch.float64) + 0.5 - center[:, :, None]).abs()
    weights = (1 - distance / step.clamp(min=1)[:, :, None]).clamp(min=0)
    return (weights / weights.sum(2, keepdim=True)).float()
