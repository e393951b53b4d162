"""An encoder that takes images of any kind."""

import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.progress import progress_bar
from coulomb.ground.text import visible
from coulomb.kinds.image.bands import Bands
from coulomb.kinds.image.canvas import Canvas
from coulomb.models.classification import Classification
from coulomb.models.encode import embed_to_parquet, source_features
from coulomb.models.image_network import ImageNetwork, check_input
from coulomb.models.named_encoder import NamedEncoder, finished
from coulomb.tables import Source
from coulomb.tables.sources import open_images


class ImageEncoder(NamedEncoder):
    """An encoder by its name, with the preparation of its images; a `Run` is one that was trained.

    Args:
        encoder: with ``preprocessing``.
        name: for messages, and to build its architecture again.

    >>> encoder = coulomb.load("lite0", image_size=64)
    >>> encoder.encode(np.zeros((2, 64, 64, 3), np.uint8)).shape
    torch.Size([2, 1280])
    """

    def __init__(self, encoder: ImageNetwork, name: str):
        self._encoder = encoder
        self.name = name
        self.device: torch.device | None = None  # where the encoder is to be; None: where it was built

    @cached_property
    def encoder(self) -> ImageNetwork:
        """The encoder in eval mode: images [B, C, S, S] in [0, 1] → features [B, F].

        It refuses images of another size and values clearly outside [0, 1]; use `encode` for other images.
        """
        return with_check(self._encoder).to(self.device)

    @cached_property
    def canvas(self) -> Canvas | None:
        """How a run stored its images; None for other encoders, which prepare them by ``encoder.preprocessing``."""
        return None

    @property
    def bands(self) -> Bands | None:
        """The bands of the images of a run; None for photos."""
        return None if self.canvas is None else self.canvas.bands

    def with_canvas(self, canvas: Canvas | None) -> "ImageEncoder":
        """Returns the same encoder for images that are stored as ``canvas``."""
        if canvas == self.canvas:
            return self
        other = copy.copy(self)
        other.__dict__["canvas"] = canvas
        return other

    def encode(
        self,
        images: Any,
        batch_size: int = 256,
        show_progress_bar: bool = False,
        *,
        convert_to_numpy: bool = False,
        normalize_embeddings: bool = False,
        workers: int = 0,
    ) -> Any:
        """Returns the features [N, F] of any images, prepared as for the figures of the run; float32, on the CPU.

        For a run, each image is resized (short side to ``encoder.image_size``, center crop), converted to the encoder's
        channels and scaled to [0, 1]; an image that already has the encoder's size is not resized. Published weights have
        their own preprocessing, ``encoder.preprocessing``. An image does not depend on the others. `embed` writes the same
        features to a file.

        Args:
            images: a path, a Pillow image, an array ([H, W] or [H, W, C]) or a tensor ([C, H, W]); a list of these; a
                batch as one array or tensor; or a data set as for training. Arrays and tensors hold uint8, uint16, or
                floats in [0, 1].
            batch_size: images per forward pass; does not change the result.
            show_progress_bar: show a progress bar, or lines if stderr is no terminal.
            convert_to_numpy: return an array instead of a tensor.
            normalize_embeddings: divide each row by its length; zeros stay zeros.
            workers: processes that decode; on a CPU, if there is one for each core, they also compute the features.

        Raises:
            InputError: an image cannot be read, or floats are outside [0, 1].

        Example:
            >>> coulomb.load("runs/photos").encode(["a.jpg", "b.png"]).shape
            torch.Size([2, 512])
            >>> coulomb.load("lite0", image_size=128).encode("a.jpg").shape
            torch.Size([1, 1280])
        """
        features, _, _ = self._read(images, batch_size=batch_size, workers=workers, progress=show_progress_bar)
        return finished(features, convert_to_numpy=convert_to_numpy, normalize_embeddings=normalize_embeddings)

    def _read(
        self,
        images: Any,
        *,
        batch_size: int,
        workers: int,
        skip_unreadable: bool = False,
        progress: bool | None = False,
    ) -> tuple[Tensor, list[str], list[dict[str, str]]]:
        """Returns the features [n, F] of the readable images and their ids, and ``id`` and ``reason`` of the unreadable.

        Raises `InputError` for an unreadable image unless ``skip_unreadable``.
        """
        source = open_images(images)
        with progress_bar(len(source), "encoding", progress) as advance:
            features, indices, failures = source_features(
                self.encoder, source, self.canvas, batch_size=batch_size, workers=workers, advance=advance
            )
        if not skip_unreadable:
            require_all(source, failures)
        failed = [{"id": source.item_id(index), "reason": reason} for index, reason in failures.items()]
        return features, [source.item_id(int(index)) for index in indices], failed

    def classify(
        self, images: Any, *, skip_unreadable: bool = False, batch_size: int = 256, workers: int = 0
    ) -> Classification:
        """Raises `InputError` with what to do: only a run has a classifier."""
        raise InputError(
            f"{self.name!r}: has no classifier, only features; train one on labeled images: coulomb train DATA "
            f"--method supcon --encoder {self.name}, or fit your own on encode(images)"
        )

    def embed(self, data: Any, out: str | Path, **options: Any) -> dict[str, Any]:
        """Writes features of any images to a Parquet file; see ``embed_to_parquet``."""
        return embed_to_parquet(self.encoder, data, out, **{"canvas": self.canvas} | options)


def with_check(encoder: ImageNetwork) -> ImageNetwork:
    """Puts an encoder into eval mode, where it checks its input from now on; see `check_input`."""
    encoder.eval().register_forward_pre_hook(check_input)
    return encoder


def require_all(source: Source, failures: dict[int, str]) -> None:
    """Raises `InputError` with the first reason if an image could not be read."""
    if failures:
        index, reason = next(iter(failures.items()))
        more = f" (and {len(failures) - 1} more of {len(source)} images)" if len(failures) > 1 else ""
        remedy = "check the path" if reason == "no such file" else "leave out unreadable images"
        raise InputError(f"{visible(source.item_id(index))}: {reason}{more}; {remedy}")
