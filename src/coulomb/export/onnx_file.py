"""Exports an encoder of images as one ONNX file that takes photos as they are."""

import time
from pathlib import Path
from typing import Any

from coulomb.export.extras import library, new_path
from coulomb.export.int8 import measured_loss, quantized
from coulomb.export.network_graph import joined, network_graph
from coulomb.export.onnx_check import check_model
from coulomb.export.onnx_session import open_session, serialized
from coulomb.export.photos import some_photos
from coulomb.export.plain_code import band_reading_code, reading_code
from coulomb.export.preparation import preparation
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.kinds.image.canvas import Canvas, margin_canvas
from coulomb.models.image_encoder import ImageEncoder
from coulomb.tables.sources import open_files

CALIBRATION, CHECKED = 64, 32  # real photos, at most

SCRIPT = '''"""Features of photos: python {script} a.jpg b.jpg. Needs onnxruntime, numpy and Pillow, which reads the files."""
import functools, pathlib, sys
import numpy as np, onnxruntime
from PIL import ExifTags, Image, ImageOps

{reading}


def read(path):
    """The photo of a file, uint8 [H, W, 3], read as coulomb does."""
    with Image.open(path, formats=formats()) as image:{draft}
        return eight_bits(to_channels(pixels(upright(image)), 3))


session = onnxruntime.InferenceSession(pathlib.Path(__file__).with_name({model!r}))


def encode(paths):
    """Features [N, {dim}] of files, float32; a batch of photos of one size is [B, H, W, 3]."""
    return np.concatenate([session.run(["features"], {{"images": read(path)[None]}})[0] for path in paths])


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path, *encode([path])[0])
'''
OF_BANDS = '''"""Features of TIFF and .npy files: python {script} a.tif b.tif. Needs onnxruntime, numpy and tifffile."""
import io, pathlib, sys
import numpy as np, onnxruntime

{reading}


def read(path):
    """All channels of a file with their stored values, {type} [H, W, {bands}]; NaN where they are missing."""
    values = as_stored(pathlib.Path(path).read_bytes())
    if (values.dtype == np.uint8) != ({type!r} == "uint8"):
        raise ValueError(f"{{path}}: its values are {{values.dtype}}; the encoder was trained on other ones")
    return values.astype({type!r})


session = onnxruntime.InferenceSession(pathlib.Path(__file__).with_name({model!r}))


def encode(paths):
    """Features [N, {dim}] of files, float32; a batch of images of one size is [B, H, W, {bands}]."""
    return np.concatenate([session.run(["features"], {{"images": read(path)[None]}})[0] for path in paths])


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path, *encode([path])[0])
'''
DRAFT = """
        image.draft(None, ({side}, {side}))  # large JPEG files are decoded at a reduced size"""


def image_to_onnx(
    encoder: ImageEncoder,
    out: str | Path,
    *,
    unit: bool = False,
    int8: bool = False,
    on: Any = None,
    labels: str | None = None,
) -> dict[str, Any]:
    """Writes an encoder of images as an ONNX file with its preprocessing, and next to it a script that uses it on files.

    Input ``images``, uint8 [B, H, W, 3] for any B, H and W (for encoders of other than 1 or 3 channels [B, H, W, C]); output
    ``features`` float32 [B, F]. The graph resizes with Pillow's filter, crops the center and normalizes, as
    `ImageEncoder.encode` does for arrays. The file is written only if onnxruntime returns the features of ``encode``,
    see `coulomb.export.onnx_check.check_model`.

    Args:
        encoder: what `coulomb.load` returns.
        out: file to write, such as ``model.onnx``; it must not exist.
        unit: features of unit length, so that their dot product is the cosine similarity.
        int8: weights and activations of 8 bits, see `coulomb.export.int8.quantized`; needs ``on``.
        on: images, as for training, on which the file is also checked; for ``int8`` they calibrate and measure the loss.
        labels: the column of a table that holds the labels of ``on``.

    Returns:
        ``out``, ``script``, ``encoder``, ``features`` (F), ``image_size``, ``unit``, ``bytes``, ``check`` (smallest cosine,
        largest relative difference of lengths, batch sizes, number of photos), ``seconds``, and with ``int8`` what
        `coulomb.export.int8.measured_loss` returns.

    Raises:
        InputError: a library is missing, the network cannot be converted, or features differ.
    """
    for module in ("onnx", "onnxruntime", "onnxscript"):
        library(module, "export", "onnx")
    path = new_path(out)
    if path.suffix != ".onnx":
        raise InputError(f"out={str(out)!r}: must end in .onnx")
    script = new_path(path.with_suffix(".py"))
    if int8 and on is None:
        raise InputError("int8=True: needs photos to calibrate and to measure the loss; give them as on (--on PHOTOS)")
    started, network, canvas, bands = time.perf_counter(), encoder.encoder, encoder.canvas, encoder.bands
    if bands is not None and bands.count in (1, 3):
        raise InputError(
            f"{encoder.name}: uses bands of images with {bands.count} channels, whose arrays mean photos elsewhere; "
            "export a run on images of other channels"
        )
    source = None if on is None else open_files(on, labels=labels)
    real = [] if source is None else some_photos(source, CALIBRATION, encoder)
    graph = network_graph(network, unit)
    content = _content(encoder, canvas, graph)
    session = open_session(content)
    result: dict[str, Any] = {"check": check_model(session, encoder, unit, real[:CHECKED])}
    if int8:
        assert source is not None
        content = _content(encoder, canvas, quantized(graph, preparation(network, canvas), real))
        result["int8"] = measured_loss(source, session, open_session(content), encoder)
    write_atomically(path, content)
    names = {"script": script.name, "model": path.name, "dim": network.feature_dim}
    if bands is not None:
        text = OF_BANDS.format(
            **names,
            reading=band_reading_code(),
            bands=bands.count,
            type="uint8" if bands.eight_bits else "float32",
        )
    else:
        draft = "" if canvas is None else DRAFT.format(side=2 * margin_canvas(network.image_size))
        text = SCRIPT.format(**names, reading=reading_code(), draft=draft)
    write_atomically(script, text.encode())
    return {
        "out": str(path),
        "script": str(script),
        "encoder": network.name,
        "features": network.feature_dim,
        "image_size": network.image_size,
        "unit": unit,
        "bytes": len(content),
        **result,
        "seconds": round(time.perf_counter() - started, 1),
    }


def _content(encoder: ImageEncoder, canvas: Canvas | None, graph: Any) -> bytes:
    """Returns the file: preparation and network, with a description of the input in its metadata."""
    network = encoder.encoder
    model = joined(preparation(network, canvas), graph)
    if canvas is None:
        assert network.preprocessing is not None
        how = network.preprocessing.describe()
    else:
        how = f"bilinear, short side to {network.image_size} pixels, center crop, by way of a square canvas"
    what = "uint8 [B, H, W, C] in RGB"
    if (bands := encoder.bands) is not None:
        what = f"{'uint8' if bands.eight_bits else 'float32'} [B, H, W, {bands.count}] as stored"
        how = f"{bands.describe()}; {how}"
    about = {"encoder": network.name, "image_size": str(network.image_size), "preparation": how}
    return serialized(model, about, f"{network.name}: images {what} → features")
