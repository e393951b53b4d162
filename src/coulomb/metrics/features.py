"""From images to features, batch by batch, leaving the encoder unchanged."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

Plain = Callable[[Tensor, Tensor], Tensor]
Indices = Sequence[int] | np.ndarray | Tensor


class Batches(Protocol):
    """What `coulomb.data.Images` offers to evaluation."""

    def batches(self, indices: Indices, batch_size: int, workers: int = 0) -> Iterable[Any]:
        """Dicts of "image" [b,C,S,S], "aspect" [b] and "index" [b], in order; unreadable images are missing."""
        ...


def extract_features(
    encoder: nn.Module,
    images: Batches,
    indices: Indices,
    plain: Plain,
    *,
    batch_size: int = 512,
    device: str | torch.device | None = None,
    workers: int = 0,
    progress: Callable[[int], object] | None = None,
) -> tuple[Tensor, np.ndarray]:
    """Features float32 [n,F] on the CPU, and the positions [n] of the images they are of (unreadable ones are missing).

    The encoder runs in eval mode without gradients, so BatchNorm statistics do not move; every submodule's mode is put
    back. It is not moved between devices: ``device`` is where batches go, default where its parameters are.

    Args:
        encoder: images [b,C,S,S] in [0,1] → features [b,F].
        images: a `coulomb.data.Images`.
        indices: positions of the images wanted.
        plain: the deterministic view, ``views.plain``: (canvas, aspect) → [b,C,S,S] in [0,1].
        batch_size: images at a time; no influence on the result.
        workers: processes that decode.
        progress: called after each batch with the number of images done so far.
    """
    if device is None:
        parameter = next(encoder.parameters(), None)
        device = torch.device("cpu") if parameter is None else parameter.device
    with frozen(encoder):
        return collect(
            lambda canvas, aspect: encoder(plain(canvas.to(device), aspect.to(device))),
            images.batches(indices, batch_size, workers),
            progress,
        )


def pixel_features(
    images: Batches,
    indices: Indices,
    plain: Plain,
    *,
    batch_size: int = 512,
    workers: int = 0,
    progress: Callable[[int], object] | None = None,
) -> tuple[Tensor, np.ndarray]:
    """The baseline that learned nothing: the pixels of the plain view in [0,1], flattened, [n, C·S·S]."""
    return collect(
        lambda canvas, aspect: plain(canvas, aspect).flatten(1),
        images.batches(indices, batch_size, workers),
        progress,
    )


@torch.no_grad()
def collect(
    features_of: Callable[[Tensor, Tensor], Tensor],
    batches: Iterable[Any],
    progress: Callable[[int], object] | None,
) -> tuple[Tensor, np.ndarray]:
    """All batches' features and positions, one below the other."""
    features, kept, done = [], [], 0
    for batch in batches:
        done += len(batch["index"]) + len(batch["failed"])
        if len(batch["index"]):
            features.append(features_of(batch["image"], batch["aspect"]).float().cpu())
            kept.append(batch["index"].cpu().numpy())
        if progress is not None:
            progress(done)
    if not features:
        return torch.empty(0, 0), np.empty(0, dtype=np.int64)
    return torch.cat(features), np.concatenate(kept).astype(np.int64)


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Within it, ``modules`` are in eval mode and nothing records gradients; every submodule's own mode is put back.

    In eval mode BatchNorm neither uses nor moves batch statistics, and dropout is off. Modes are put back one by one, since
    ``module.train()`` would also wake the layers that their owner had put to sleep.
    """
    modes = [(part, part.training) for module in modules for part in module.modules()]
    for module in modules:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training
