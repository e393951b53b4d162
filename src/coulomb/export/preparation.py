"""The preparation of photos as an ONNX graph: uint8 [B, H, W, C] of any size → pixels [B, C, S, S] in [0, 1].

Bands of more than 8 bits are float32 [B, H, W, c] with their stored values, see `coulomb.kinds.image.bands`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from coulomb.export.graph import Graph, Value
from coulomb.ground.errors import InputError
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.canvas import Canvas, margin_canvas
from coulomb.models import ImageNetwork
from coulomb.models.preprocessing import Preprocessing

OPSET = 18
UNIT = 2.0**22  # Pillow's fixed-point weights are multiples of 1/UNIT
FLOAT, UINT8, DOUBLE, INT64 = 1, 2, 11, 7  # types in onnx.TensorProto


def preparation(encoder: ImageNetwork, canvas: Canvas | None) -> Any:
    """Returns the ONNX model ``images`` → ``pixels`` that prepares photos as `ImageEncoder.encode` does.

    Resampling is a matrix product along each axis with the weights of Pillow's filters, which are computed in the graph from
    H and W, in Pillow's fixed-point arithmetic and with its rounding after each axis, so that pixels are equal to Pillow's.
    ONNX's Resize with antialias differs from Pillow by up to 9 of 255 in onnxruntime.

    Args:
        encoder: determines channels, size and preprocessing.
        canvas: canvas of the run; None for published weights. See `coulomb.models.encode.source_features`.

    Raises:
        InputError: the preprocessing is unknown, or uses a filter without antialiasing.
    """
    from onnx import helper

    graph, side = Graph("prepare_"), encoder.image_size
    images = Value(graph, "images")
    bands = None if canvas is None else canvas.bands
    deep = bands is not None and not bands.eight_bits
    if bands is not None:
        picture = graph("Transpose", _scaled(images, bands), perm=[0, 3, 1, 2]).cast(DOUBLE)
    else:
        picture = graph("Transpose", images, perm=[0, 3, 1, 2]).cast(DOUBLE)
        if encoder.channels == 1:
            picture = _luma(picture)
    size = graph("Shape", images).cast(DOUBLE)
    height, width = (graph("Gather", size, np.array(axis)) for axis in (1, 2))
    if canvas is not None:
        pixels = _canvas_view(picture, height, width, side, canvas, deep)
    elif encoder.preprocessing is not None:
        pixels = _published(picture, height, width, encoder.preprocessing)
    else:
        raise InputError(
            f"{encoder.name}: the preparation of its images is unknown, because data.json is missing; export the complete "
            "run folder"
        )
    graph("Div", pixels.cast(FLOAT), np.array(1 if deep else 255, np.float32), name="pixels")
    colors = 3 if encoder.channels == 1 else encoder.channels
    if bands is not None:
        colors = bands.count
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "prepare",
            [helper.make_tensor_value_info("images", FLOAT if deep else UINT8, ["batch", "height", "width", colors])],
            [helper.make_tensor_value_info("pixels", FLOAT, ["batch", encoder.channels, side, side])],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
    )


def _scaled(images: Value, bands: Bands) -> Value:
    """Returns the chosen bands [B, H, W, C], of more than 8 bits in [0, 1], see `coulomb.kinds.image.bands.scaled`."""
    graph = images.graph
    chosen = graph("Gather", images, np.array(bands.chosen, np.int64) - 1, axis=3)
    if bands.eight_bits:
        return chosen
    low, high, fill = (np.array(each, np.float32) for each in (bands.low, bands.high, bands.fill))
    unit = graph("Clip", (chosen - low) / (high - low), np.array(0, np.float32), np.array(1, np.float32))
    missing = graph("Or", graph("IsNaN", chosen), graph("IsInf", chosen))
    return graph("Where", missing, fill, unit)


def _luma(picture: Value) -> Value:
    """Returns one channel, ITU-R BT.601 in the fixed-point arithmetic of `coulomb.kinds.image.decode.to_channels`."""
    factors = np.array([19595.0, 38470.0, 7471.0]).reshape(1, 3, 1, 1)
    graph = picture.graph
    return graph("Floor", graph("ReduceSum", picture * factors, np.array([1])) / 65536 + 0.5)


def _published(picture: Value, height: Value, width: Value, chosen: Preprocessing) -> Value:
    """Returns the photo as `Preprocessing` makes it, values 0 to 255: resized, and only the crop is computed."""
    graph, axes = picture.graph, []
    if chosen.resample not in FILTERS:
        raise InputError(
            f"preprocessing: resample={chosen.resample!r} has no ONNX counterpart; it must be one of {', '.join(FILTERS)}"
        )
    short, sizes = graph("Min", height, width), []
    for length in (height, width):
        resized = length * 0 + chosen.resize if chosen.squash else graph("Floor", chosen.resize * length / short)
        half = (resized - chosen.side) / 2
        offset = graph("Floor" if chosen.offset_down else "Round", half)  # both round halves to even, as Python does
        step = length / resized
        axes.append(_weights(chosen.resample, length, offset, step, _whole(length * 0 + chosen.side)))
        sizes.append(resized)
    down, across = axes
    return _resized(picture, down, across, _vertical_first(height, width, *sizes))


def _canvas_view(picture: Value, height: Value, width: Value, side: int, canvas: Canvas, deep: bool) -> Value:
    """Returns the evaluation view of a run's canvas, values 0 to 255 or of ``deep`` bands 0 to 1.

    See `source_features` and `plain_view`. Pillow resizes deep images in floats, without rounding.
    """
    graph = picture.graph
    stored = graph("Or", *(graph("Equal", width, float(size)) for size in (canvas.size, side)))
    length = (graph("Equal", height, width) & stored).where(width, margin_canvas(side))
    zero, count = length * 0, _whole(length)
    down, across = (_weights("bilinear", n, zero, n / length, count) for n in (height, width))
    if deep:
        picture = graph("MatMul", down, graph("MatMul", picture, graph("Transpose", across, perm=[1, 0])))
    else:
        picture = _resized(picture, down, across, _vertical_first(height, width, length, length))
    short, axes = graph("Min", height, width), []
    for n in (height, width):
        fraction = short / n
        first = (1 - fraction) * side / (2 * fraction)
        axes.append(_weights("bilinear", length, first, fraction * length / side, _whole(zero + side)))
    down, across = axes
    seen = graph("MatMul", down, graph("MatMul", picture, graph("Transpose", across, perm=[1, 0])))
    return graph("Clip", seen, np.array(0.0), np.array(1.0 if deep else 255.0))


def _resized(picture: Value, down: Value, across: Value, vertical: Value) -> Value:
    """Returns the picture resampled along both axes in the fixed-point arithmetic of Pillow, which doubles represent exactly.

    Args:
        picture: [B, C, H, W], whole numbers.
        down: weights [h, H].
        across: weights [w, W].
        vertical: whether Pillow begins with the vertical axis.
    """
    graph = picture.graph
    parts = picture, _fixed_point(down), graph("Transpose", _fixed_point(across), perm=[1, 0])
    return graph(
        "If", vertical, then_branch=_passes(*parts, vertical=True), else_branch=_passes(*parts, vertical=False)
    )


def _passes(picture: Value, down: Value, across: Value, *, vertical: bool) -> Any:
    """Returns a subgraph with one pass per axis, rounded after each."""
    from onnx import helper

    branch = Graph(f"{picture.name}_{'vertical' if vertical else 'horizontal'}_")
    picture, down, across = (Value(branch, each.name) for each in (picture, down, across))
    for along in (vertical, not vertical):
        picture = branch("MatMul", down, picture) if along else branch("MatMul", picture, across)
        picture = branch("Clip", branch("Floor", (picture + UNIT / 2) / UNIT), np.array(0.0), np.array(255.0))
    output = helper.make_tensor_value_info(picture.name, DOUBLE, None)
    return helper.make_graph(branch.nodes, branch.prefix, [], [output], branch.constants)


def _vertical_first(height: Value, width: Value, new_height: Value, new_width: Value) -> Value:
    """Returns whether Pillow resizes vertically first: from version 13 on, if the height shrinks more than twice as much."""
    import PIL

    begins = 1.0 if int(PIL.__version__.partition(".")[0]) >= 13 else 0.0
    shrinks = (new_height < height) & ((width - new_width) * 2 < height - new_height)
    return shrinks & (height * 0 < begins)


def _fixed_point(weights: Value) -> Value:
    graph = weights.graph  # halves are rounded away from 0
    return graph("Sign", weights) * graph("Floor", graph("Abs", weights) * UNIT + 0.5)


def _weights(name: str, length: Value, first: Value, step: Value, count: Value) -> Value:
    """Returns weights [count, length] of the pixels of an axis for outputs ``step`` pixels apart.

    Output j is centered at pixel coordinate (``first`` + j + ½)·``step``. Rows sum to 1. The filter is as wide as the step if
    that is more than a pixel (antialiasing).
    """
    graph = length.graph
    centers = (_range(count) + first + 0.5) * step
    distances = _range(_whole(length)) - graph("Unsqueeze", centers, np.array([1])) + 0.5
    weights = FILTERS[name](distances * graph("Div", 1.0, graph("Max", step, 1.0)))
    return weights / graph("ReduceSum", weights, np.array([1]))


def _whole(number: Value) -> Value:
    return number.graph("Round", number).cast(INT64)


def _range(count: Value) -> Value:
    return count.graph("Range", np.array(0), count, np.array(1)).cast(DOUBLE)


def _bilinear(x: Value) -> Value:
    return x.graph("Max", 1 - x.graph("Abs", x), 0.0)


def _hamming(x: Value) -> Value:
    return (x.graph("Abs", x) < 1).where(_sinc(x) * (0.54 + 0.46 * x.graph("Cos", np.pi * x)), 0.0)


def _bicubic(x: Value) -> Value:
    d = x.graph("Abs", x)
    near, far = (1.5 * d - 2.5) * d * d + 1, ((2.5 - 0.5 * d) * d - 4) * d + 2
    return (d < 1).where(near, (d < 2).where(far, 0.0))


def _lanczos(x: Value) -> Value:
    return (x.graph("Abs", x) < 3).where(_sinc(x) * _sinc(x / 3), 0.0)


def _sinc(x: Value) -> Value:
    near = x.graph("Abs", x) < 1e-12
    turned = np.pi * near.where(1.0, x)
    return near.where(1.0, x.graph("Sin", turned) / turned)


# Weights at signed distances x from the center, in units of the filter's width; as in Pillow, cubic with a = −½.
FILTERS: dict[str, Callable[[Value], Value]] = {
    "bilinear": _bilinear,
    "hamming": _hamming,
    "bicubic": _bicubic,
    "lanczos": _lanczos,
}
