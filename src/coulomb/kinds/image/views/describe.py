"""Views in words and numbers, and as a contact sheet."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.kinds.image.image import Canvases
from coulomb.kinds.image.views.pixels import kernel_taps
from coulomb.kinds.image.views.spec import ViewSpec

if TYPE_CHECKING:
    from PIL import Image


def describe(spec: ViewSpec, size: int, channels: int) -> dict[str, Any]:
    """Describes a specification: ``{"size", "channels", "padding", "operations": [{"operation", …}], "left_out": […]}``."""
    color = channels == 3
    operations = [
        _row(
            "crop", 1.0, {"area": (spec.crop_area, "fraction of the image"), "ratio": (spec.crop_ratio, "width/height")}
        ),
        _row("flip", spec.flip, {}),
        _row("flip vertically", spec.flip_vertical, {}),
        _row(
            "affine",
            spec.affine,
            {
                "rotate": (_around(spec.rotate), "degrees"),
                "translate": (_around(spec.translate), "fraction of the side"),
                "zoom": (spec.zoom, "times"),
                "shear": (_around(spec.shear), "degrees"),
            },
        ),
        _row(
            "elastic warp",
            spec.elastic,
            {
                "displacement": (_around(spec.elastic_amplitude * size), "pixels, at most"),
                "grid": (spec.elastic_grid, ""),
            },
        ),
        _row("jitter", spec.jitter, _jitter(spec, color)),
        _row("gray", spec.gray if color else 0.0, {}),
        _row(
            "blur",
            spec.blur,
            {"sigma": (spec.blur_sigma, "pixels"), "kernel": (kernel_taps(size, spec.blur_kernel), "pixels")},
        ),
        _row("solarize", spec.solarize, {"threshold": (spec.solarize_threshold, "of 1")}),
        _row("noise", spec.noise, {"std": (spec.noise_std, "of the full range")}),
        _row(
            "cutout",
            spec.cutout,
            {"side": (spec.cutout_side, "fraction of the side"), "fill": (spec.cutout_fill, "of 1")},
        ),
    ]
    reason = f"needs three channels (red, green, blue); these images have {channels}"
    color_operations = {"saturation": spec.jitter * spec.saturation, "hue": spec.jitter * spec.hue, "gray": spec.gray}
    return {
        "size": size,
        "channels": channels,
        "padding": spec.padding,
        "operations": [row for row in operations if row["probability"] > 0],
        "left_out": [
            {"operation": name, "reason": reason} for name, on in color_operations.items() if on > 0 and not color
        ],
    }


def _jitter(spec: ViewSpec, color: bool) -> dict[str, tuple[Any, str]]:
    ranges: dict[str, tuple[Any, str]] = {
        "brightness": (_factor(spec.brightness), "times"),
        "contrast": (_factor(spec.contrast), "times, about the mean gray"),
    }
    if color:
        ranges["saturation"] = (_factor(spec.saturation), "times")
        model = "exact, in HSV" if spec.hue_model == "hsv" else "rotation about the gray axis"
        ranges["hue"] = (_around(spec.hue), f"of the full circle, {model}")
    return ranges


def _row(operation: str, probability: float, parameters: dict[str, tuple[Any, str]]) -> dict[str, Any]:
    named = {
        name: {"range": list(value) if isinstance(value, tuple) else value, "unit": unit}
        for name, (value, unit) in parameters.items()
    }
    return {"operation": operation, "probability": probability, "parameters": named}


def _around(value: float) -> tuple[float, float]:
    return (-value, value)


def _factor(strength: float) -> tuple[float, float]:
    return (max(0.0, 1 - strength), 1 + strength)


SMALLEST_TILE = 96  # pixels; smaller images are enlarged by a whole factor
GAP = 4
HEADER = 18
BACKGROUND = (250, 250, 250)
INK = (70, 70, 70)


def contact_sheet(
    canvas: Tensor | Canvases, views: Any, generator: torch.Generator, n: int = 8, aspect: Tensor | None = None
) -> "Image.Image":
    """Draws one row per image: the evaluation view and ``n`` random views; small images are enlarged without smoothing.

    Of images with neither 1 nor 3 channels, the first three are shown as red, green and blue, or the first of two, which the
    header states.

    Shape:
        canvas: [B, C, S, S].

    >>> views = make_views("natural", size=16)
    >>> contact_sheet(torch.rand(2, 3, 16, 16), views, torch.Generator().manual_seed(0), n=3).mode
    'RGB'
    """
    from PIL import Image, ImageDraw

    made = views(canvas, generator, n=n, aspect=aspect)
    if any(view.shape != made[0].shape for view in made):
        raise InputError("a contact sheet needs views of one size: make one sheet per size")
    columns = [views.plain(canvas, aspect), *made]
    size = columns[0].shape[-1]
    tile = size * max(1, -(-SMALLEST_TILE // size))
    sheet = Image.new(
        "RGB", (GAP + len(columns) * (tile + GAP) + GAP, HEADER + len(columns[0]) * (tile + GAP)), BACKGROUND
    )
    draw = ImageDraw.Draw(sheet)
    draw.text((GAP, 3), "original", fill=INK)
    channels = columns[0].shape[1]
    which = "channel 1" if channels < 3 else "channels 1, 2, 3"
    note = "" if channels in (1, 3) else f"  ({which} of {channels})"
    draw.text((3 * GAP + tile, 3), f"{n} views{note}", fill=INK)
    for column, images in enumerate(columns):
        left = GAP + column * (tile + GAP) + (GAP if column else 0)
        for row, pixels in enumerate(displayable(images)):
            picture = Image.fromarray(pixels).resize((tile, tile), Image.Resampling.NEAREST)
            sheet.paste(picture, (left, HEADER + row * (tile + GAP)))
    return sheet


def displayable(images: Tensor) -> np.ndarray:
    """Converts images [B, C, H, W] in [0, 1] to uint8 [B, H, W, 3]."""
    shown = images[:, :3] if images.shape[1] >= 3 else images[:, :1].expand(-1, 3, -1, -1)
    return (shown * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy()
