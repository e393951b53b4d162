"""Features of any images, prepared as in the evaluation of a run."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from coulomb.data import CorruptImage, Images, Source, survey
from coulomb.data.views import plain_view
from coulomb.evaluation import extract_features
from coulomb.models import Encoder
from coulomb.runs.prepare import canvas_size, margin_canvas


@dataclass(frozen=True)
class Canvas:
    """How the training images of a run are stored: squares of ``size`` pixels, ``dtype`` "uint8" or "float32"."""

    size: int
    dtype: str

    @classmethod
    def of(cls, source: Source, encoder: Encoder) -> "Canvas":
        """What a run would choose for ``source``."""
        found = survey(source)
        return cls(canvas_size(found, encoder.image_size), found.dtype)


def features_of(
    encoder: Encoder,
    source: Source,
    canvas: Canvas,
    indices: Iterable[int] | None = None,
    *,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | None = None,
) -> tuple[Tensor, np.ndarray, dict[int, str]]:
    """Features of images of any size, each independent of the others.

    An image that is as large as the run's canvases, or as the network's input, is used as it is; any other is resized to
    a square canvas a third larger than the input. Then the evaluation view follows: short side to ``image_size``, centre
    crop.

    Args:
        encoder: images [B, C, S, S] in [0, 1] → features [B, F].
        source: the images.
        canvas: of the run.
        indices: which images; default all.
        batch_size: images per forward pass; no influence on the result.
        workers: processes that decode.
        device: where the encoder is; default that of its parameters.

    Returns:
        Features float32 [n, F] on the CPU in the order of the indices, the indices [n] of the readable images, and
        the reasons by index for the unreadable ones.
    """
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    failures: dict[int, str] = {}
    for index in range(len(source)) if indices is None else indices:
        try:
            header = source.header(index)
        except CorruptImage as error:
            failures[index] = error.reason
            continue
        same = header.width == header.height and header.width in (canvas.size, encoder.image_size)
        size = header.width if same else margin_canvas(encoder.image_size)
        groups[size, "uint8" if header.depth == canvas.dtype == "uint8" else "float32"].append(index)

    def plain(picture: Tensor, aspect: Tensor) -> Tensor:
        return plain_view(picture, encoder.image_size, aspect)

    found, kept = [torch.empty(0, encoder.feature_dim)], [np.empty(0, dtype=np.int64)]
    for (size, dtype), members in groups.items():
        images = Images(source, size, encoder.channels, cache_bytes=0, workers=workers, dtype=dtype)
        features, which = extract_features(
            encoder, images, members, plain, batch_size=batch_size, device=device, workers=workers
        )
        failures |= images.failures
        if len(which):
            found.append(features)
            kept.append(which)
    positions = np.concatenate(kept)
    order = np.argsort(positions)
    return torch.cat(found)[torch.from_numpy(order)], positions[order], dict(sorted(failures.items()))
