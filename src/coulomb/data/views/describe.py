"""A specification in words and numbers."""

from typing import Any

from coulomb.data.views.blur import kernel_taps
from coulomb.data.views.spec import ViewSpec


def describe(spec: ViewSpec, size: int, channels: int) -> dict[str, Any]:
    """``{"size", "channels", "padding", "operations": [{"operation", "probability", …}], "left_out": [...]}``."""
    colour = channels == 3
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
        _row("jitter", spec.jitter, _jitter(spec, colour)),
        _row("grey", spec.grey if colour else 0.0, {}),
        _row(
            "blur",
            spec.blur,
            {"sigma": (spec.blur_sigma, "pixels"), "kernel": (kernel_taps(size, spec.blur_kernel), "pixels")},
        ),
        _row("solarise", spec.solarise, {"threshold": (spec.solarise_threshold, "of 1")}),
        _row("noise", spec.noise, {"std": (spec.noise_std, "of the full range")}),
        _row(
            "cutout",
            spec.cutout,
            {"side": (spec.cutout_side, "fraction of the side"), "fill": (spec.cutout_fill, "of 1")},
        ),
    ]
    reason = f"needs three channels (red, green, blue); these images have {channels}"
    asked = {"saturation": spec.jitter * spec.saturation, "hue": spec.jitter * spec.hue, "grey": spec.grey}
    return {
        "size": size,
        "channels": channels,
        "padding": spec.padding,
        "operations": [row for row in operations if row["probability"] > 0],
        "left_out": [{"operation": name, "reason": reason} for name, on in asked.items() if on > 0 and not colour],
    }


def _jitter(spec: ViewSpec, colour: bool) -> dict[str, tuple[Any, str]]:
    ranges: dict[str, tuple[Any, str]] = {
        "brightness": (_factor(spec.brightness), "times"),
        "contrast": (_factor(spec.contrast), "times, about the mean grey"),
    }
    if colour:
        ranges["saturation"] = (_factor(spec.saturation), "times")
        model = "exact, in HSV" if spec.hue_model == "hsv" else "rotation about the grey axis"
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
