"""An encoder that takes images of any kind."""

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from coulomb.data import Source, visible
from coulomb.data.sources import open_images
from coulomb.errors import InputError
from coulomb.evaluation.encode import Canvas, embed_to_parquet, source_features
from coulomb.models import Encoder
from coulomb.models.encoder import check_input


class ImageEncoder:
    """An encoder by its name, with the preparation of its images; `Run` is one that was trained.

    Attributes:
        encoder: the encoder in eval mode: images [B, C, S, S] in [0, 1] → features [B, F]. It refuses images of another size
            and values clearly outside [0, 1]; use `encode` for other images.
        canvas: how a run stored its images; None for other encoders.
    """

    encoder: Encoder
    canvas: Canvas | None = None

    def __init__(self, encoder: Encoder, name: str):
        self.encoder = with_check(encoder)
        self.name = name

    def encode(self, images: Any, *, batch_size: int = 256, workers: int = 0) -> Tensor:
        """Returns the features [N, F] of any images, prepared as in the run's evaluation; float32, on the CPU.

        Each image is resized (short side to ``encoder.image_size``, centre crop), converted to the encoder's channels and
        scaled to [0, 1], independently of the other images. An image that already has the encoder's size is not resized.
        `embed` writes the same features to a file.

        Args:
            images: a path, a Pillow image, an array ([H, W] or [H, W, C]) or a tensor ([C, H, W]); a list of these; a
                batch as one array or tensor; or a data set as for training. Arrays and tensors hold uint8, uint16, or
                floats in [0, 1].
            batch_size: images per forward pass; does not change the result.
            workers: processes that decode images.

        Raises:
            InputError: an image cannot be read, or floats are outside [0, 1].

        Example:
            >>> run = coulomb.load("runs/photos")
            >>> run.encode(["a.jpg", "b.png"]).shape
            torch.Size([2, 512])
        """
        source = open_images(images)
        features, _, failures = self._features(source, batch_size, workers)
        require_all(source, failures)
        return features

    def _features(self, source: Source, batch_size: int, workers: int) -> tuple[Tensor, np.ndarray, dict[int, str]]:
        canvas = self.canvas
        return source_features(self.encoder, source, canvas, batch_size=batch_size, workers=workers)

    def embed(self, data: Any, out: str | Path, **options: Any) -> dict[str, Any]:
        """Writes features of any images to a Parquet file; see ``embed_to_parquet``."""
        return embed_to_parquet(self.encoder, data, out, **{"canvas": self.canvas} | options)

    def __repr__(self) -> str:
        return f"ImageEncoder({self.name!r})"


def with_check(encoder: Encoder) -> Encoder:
    """Puts an encoder into eval mode, where it checks its input from now on; see `check_input`."""
    encoder.eval().register_forward_pre_hook(check_input)
    return encoder


def require_all(source: Source, failures: dict[int, str]) -> None:
    """Raises `InputError` with the first reason if an image could not be read."""
    if failures:
        index, reason = next(iter(failures.items()))
        more = f" (and {len(failures) - 1} more of {len(source)} images)" if len(failures) > 1 else ""
        raise InputError(f"{visible(source.item_id(index))}: {reason}{more}; leave out unreadable images")
