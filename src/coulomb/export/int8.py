"""Quantizes networks to 8-bit integers, and measures how the nearest neighbors change."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coulomb.export.extras import quiet
from coulomb.export.photos import drawn, session_features
from coulomb.metrics.knn import knn_accuracy
from coulomb.metrics.nearest import neighbors
from coulomb.models.image_encoder import ImageEncoder
from coulomb.tables import Source

COMPARED = 5_000  # images at most
NEIGHBORS, K = 10, 20


def quantized(network: Any, prepare: Any, photos: list[np.ndarray]) -> Any:
    """Returns the network with weights (per channel) and activations as 8-bit integers; the preparation stays in floats.

    Uses onnxruntime's static quantization, signed, with the ranges of the activations on ``photos``. For lite0, dynamic
    quantization is 4 times slower and keeps half as many neighbors.

    Args:
        network: ONNX model ``pixels`` → ``features``.
        prepare: ONNX model ``images`` → ``pixels``.
        photos: uint8 [H, W, 3], for calibration.
    """
    import onnx
    from onnxruntime import InferenceSession, quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    session = InferenceSession(prepare.SerializeToString())
    inputs = iter([{"pixels": session.run(["pixels"], {"images": each[None]})[0]} for each in photos])

    class Reader(quantization.CalibrationDataReader):
        """Yields the prepared photos."""

        def get_next(self) -> dict[str, np.ndarray] | None:
            """Returns the input of the next photo, None at the end."""
            return next(inputs, None)

    with tempfile.TemporaryDirectory() as folder, quiet("root"):
        whole, folded, small = (str(Path(folder) / f"{name}.onnx") for name in ("whole", "folded", "small"))
        onnx.save(network, whole)
        quant_pre_process(whole, folded, skip_symbolic_shape=True)
        kind = quantization.QuantType.QInt8
        quantization.quantize_static(folded, small, Reader(), per_channel=True, activation_type=kind, weight_type=kind)
        return onnx.load(small)


def measured_loss(source: Source, floats: Any, integers: Any, encoder: ImageEncoder) -> dict[str, Any]:
    """Returns how the nearest neighbors of images change from one onnxruntime session to another.

    Args:
        source: images, of which at most 5,000 are drawn.
        floats: session of the model in floats.
        integers: session of the quantized model.
        encoder: the encoder.

    Returns:
        ``neighbors_kept``, the mean share of the 10 nearest neighbors by cosine that are the same; ``images``; and with
        labels ``knn`` of both models, ``{"float", "int8", "k"}``: the accuracy of a kNN for a fifth of the images by the
        labels of the others.
    """
    indices = drawn(source, COMPARED, "int8")
    (before, readable), (after, _) = (session_features(each, source, indices, encoder) for each in (floats, integers))
    k = min(NEIGHBORS, len(before) - 1)
    result: dict[str, Any] = {"images": len(before), "neighbors_kept": None}
    if k > 0:
        near = [neighbors(features.numpy(), k)[1].tolist() for features in (before, after)]
        same = [len({*a} & {*b}) / k for a, b in zip(*near, strict=True)]
        result["neighbors_kept"] = sum(same) / len(same)
    labels = None if source.labels is None else torch.from_numpy(source.labels[readable])
    if labels is not None and int((labels >= 0).sum()) >= 5 * NEIGHBORS:
        test = torch.arange(len(labels)) % 5 == 0
        most = min(K, int((labels[~test] >= 0).sum()))
        accuracy = [knn_accuracy(x[~test], labels[~test], x[test], labels[test], k=most) for x in (before, after)]
        result["knn"] = {"float": accuracy[0], "int8": accuracy[1], "k": most}
    return result
