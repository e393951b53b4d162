"""Preprocessing of published weights, read from transformers and timm and compared with theirs on random pictures."""

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.models.preprocessing import FILTERS, Preprocessing

SUPPORTED = {"do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb"}
PROBES = ((1.0, 1.0), (1.5, 1.17), (1.31, 2.1))  # width and height of the pictures, in sides of the network's input
SAME = 1e-4  # largest difference of normalized pixels; float32 rounding gives 1e-6, another filter 1e-1


def of_transformers(transformers: ModuleType, name: str, text: str, channels: int) -> Preprocessing:
    """Returns the preprocessing of ``preprocessor_config.json``, by the Pillow version of transformers.

    Supported are resizing (short side, or to a square), center crop, rescaling and normalization.

    Args:
        transformers: the library.
        name: repository of the hub or folder.
        text: description of the encoder, for errors.
        channels: that the weights take.

    Raises:
        InputError: the file is missing, or asks for something else.
    """
    newer = int(transformers.__version__.partition(".")[0]) >= 5
    try:
        processor = transformers.AutoImageProcessor.from_pretrained(
            name, **({"backend": "pil"} if newer else {"use_fast": False})
        )
    except Exception as error:  # OSError, ValueError, ImportError, and what a damaged file raises
        raise InputError(
            f"encoder={text!r}: has no readable preprocessor_config.json, so the normalization of its weights is unknown "
            f"({first_line(error)}); save it next to the weights: AutoImageProcessor.from_pretrained(…).save_pretrained(…)"
        ) from error
    preprocessing = _from_processor(processor, text, channels)

    def library(picture: Any) -> Tensor:
        values: Tensor = processor(images=picture, return_tensors="pt")["pixel_values"][0]
        return values

    return _checked(preprocessing, library, text, f"its image processor {type(processor).__name__}")


def _from_processor(processor: Any, text: str, channels: int) -> Preprocessing:
    options = dict(vars(processor))
    others = [name for name in options if name.startswith("do_") and options[name] and name not in SUPPORTED]
    others += ["rescale_offset"] * bool(options.get("rescale_offset"))
    if others:
        raise _unsupported(text, f"the image processor's {', '.join(others)}")
    size, crop = (dict(options.get(name) or {}) for name in ("size", "crop_size"))
    size, crop = ({key: value for key, value in each.items() if value is not None} for each in (size, crop))
    side, resize, squash = 0, 0, False
    crops = options.get("do_center_crop") and crop.get("height") == crop.get("width")
    if options.get("do_center_crop") and not crops:
        raise _unsupported(text, f"crop_size={crop} of the image processor, which is not square")
    if options.get("do_resize") and set(size) == {"shortest_edge"} and options.get("crop_pct"):  # ConvNeXT
        side = size["shortest_edge"]
        resize, squash = (int(side / options["crop_pct"]), False) if side < 384 else (side, True)
    elif options.get("do_resize") and set(size) == {"shortest_edge"} and crops:
        side, resize = crop["height"], size["shortest_edge"]
    elif options.get("do_resize") and set(size) == {"height", "width"} and size["height"] == size["width"]:
        side, resize, squash = (crop["height"] if crops else size["height"]), size["height"], True
    else:
        found = f"do_resize={options.get('do_resize')}, size={size}, do_center_crop={options.get('do_center_crop')}"
        raise _unsupported(text, f"{found} of the image processor, which does not give squares of one size")
    scale = 255 * (options["rescale_factor"] if options.get("do_rescale") else 1)
    normalizes = options.get("do_normalize")
    mean, std = (
        _per_channel(options.get(name) if normalizes else default, channels, text)
        for name, default in (("image_mean", 0.0), ("image_std", 1.0))
    )
    return Preprocessing(
        side=side,
        resize=resize,
        squash=squash,
        resample=FILTERS[int(options["resample"])],
        offset_down=True,
        mean=tuple(value / scale for value in mean),
        std=tuple(value / scale for value in std),
    )


def of_timm(timm: ModuleType, config: Mapping[str, Any], text: str, channels: int) -> Preprocessing:
    """Returns the preprocessing of a model's ``pretrained_cfg``, as ``timm.data.resolve_data_config`` returns it.

    Supported are ``crop_mode`` center and squash, as in ``timm.data.create_transform`` for evaluation.

    Raises:
        InputError: the configuration asks for something else.
    """
    _, height, width = config["input_size"]
    mode = config.get("crop_mode") or "center"
    if height != width or mode not in ("center", "squash"):
        raise _unsupported(text, f"input_size={config['input_size']} with crop_mode={mode!r}")
    preprocessing = Preprocessing(
        side=height,
        resize=math.floor(height / config["crop_pct"]),
        squash=mode == "squash",
        resample=str(config["interpolation"]),
        mean=_per_channel(config["mean"], channels, text),
        std=_per_channel(config["std"], channels, text),
    )
    return _checked(preprocessing, timm.data.create_transform(**config), text, "its evaluation transform")


def _per_channel(value: Any, channels: int, text: str) -> tuple[float, ...]:
    values = (float(value),) * channels if isinstance(value, int | float) else tuple(float(each) for each in value)
    if len(values) != channels:
        raise _unsupported(text, f"normalization of {len(values)} channels for {channels}")
    return values


def _checked(
    preprocessing: Preprocessing, library: Callable[[Any], Tensor], text: str, described: str
) -> Preprocessing:
    """Returns the preprocessing after comparing it with the library's own on random pictures, square, tall and wide."""
    from PIL import Image

    draw, side, channels = np.random.default_rng(0), preprocessing.side, len(preprocessing.mean)
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (preprocessing.mean, preprocessing.std))
    for width, height in PROBES:
        shape = (round(side * height), round(side * width), *([3] if channels == 3 else []))
        picture = Image.fromarray(draw.integers(0, 256, shape, dtype=np.uint8))
        ours, theirs = (preprocessing(picture) - mean) / std, torch.as_tensor(library(picture))
        if ours.shape != theirs.shape or (ours - theirs).abs().max() > SAME * max(1.0, float(1 / std.min())):
            raise _unsupported(text, f"{described}, which does more than resize, crop and normalize")
    return preprocessing


def _unsupported(text: str, what: str) -> InputError:
    return InputError(
        f"encoder={text!r}: {what}, is not supported; wrap the model in a module of your own, file.py:Class"
    )


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
