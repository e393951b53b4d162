"""Features of images, computed batch by batch without changing the encoder."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from coulomb.ground.machine import keep_freed_memory
from coulomb.tables.workers import Then, compute_in_workers, no_change

Plain = Callable[[Any], Tensor]
Indices = Sequence[int] | np.ndarray | Tensor

WORKER_BATCH = 64  # a new process writes to new memory, and the last batches should end together


class Batches(Protocol):
    """The part of `coulomb.tables.Samples` that evaluation uses."""

    def batches(self, indices: Indices, batch_size: int, workers: int = 0, then: Then = no_change) -> Iterable[Any]:
        """``then`` of the `coulomb.tables.Batch` of these samples, in order; unreadable ones are left out."""
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
    """Returns features float32 [n,F] on the CPU and the indices [n] of their images, without the unreadable ones.

    The encoder runs in eval mode without gradients, so that BatchNorm statistics do not change; the mode of every
    submodule is restored. The encoder is not moved between devices.

    Args:
        encoder: images [b,C,S,S] in [0,1] → features [b,F].
        images: `coulomb.tables.Samples` of one column.
        indices: which images.
        plain: the deterministic view, ``views.plain``: stack → [b,C,S,S] in [0,1].
        batch_size: images per forward pass, at most 64 where workers compute; does not affect the result.
        device: where the batches are moved; default: the device of the encoder's parameters.
        workers: processes that decode, and compute features if there is one for each core, see `compute_in_workers`.
        progress: called after each batch with the number of images processed so far.

    Shape:
        output: [n, F] and [n].

    >>> encoder = build_encoder("convnet", channels=1, image_size=16, width=4)
    >>> from coulomb.tables import image_samples, open_source
    >>> from coulomb.kinds.image.views import plain_view
    >>> images = image_samples(open_source(np.zeros((5, 16, 16), np.uint8)), size=16, channels=1)
    >>> features, rows = extract_features(encoder, images, range(5), lambda stack: plain_view(stack, 16))
    >>> features.shape
    torch.Size([5, 32])
    """
    if device is None:
        parameter = next(encoder.parameters(), None)
        device = torch.device("cpu") if parameter is None else parameter.device
    if compute_in_workers(torch.device(device), workers):
        batch_size = min(batch_size, WORKER_BATCH)
    with frozen(encoder):
        batches = embedded(
            images,
            indices,
            batch_size,
            workers,
            torch.device(device),
            lambda stack: encoder(plain(stack.to(device))).float().cpu(),
        )
        return concatenate(batches, progress)


def embedded(
    images: Batches, indices: Indices, batch_size: int, workers: int, device: torch.device, embed: Callable[[Any], Any]
) -> Iterator[Any]:
    """Yields the batches of ``images``, which have one column, with ``embed(stack)`` in place of its stack.

    ``device`` is where ``embed`` computes. It is not called for batches without samples.
    """

    @torch.no_grad()
    def then(batch: Any) -> Any:
        (name,) = batch.columns
        if len(batch):
            batch.columns[name] = embed(batch.stack)
        return batch

    if compute_in_workers(device, workers):
        yield from images.batches(indices, batch_size, workers, then)
    else:
        yield from map(then, images.batches(indices, batch_size, workers))


def pixel_features(
    images: Batches,
    indices: Indices,
    plain: Plain,
    *,
    batch_size: int = 512,
    workers: int = 0,
    progress: Callable[[int], object] | None = None,
) -> tuple[Tensor, np.ndarray]:
    """Returns the flattened pixels of the plain view [n, C·S·S], the baseline without a network, and the indices [n].

    Shape:
        output: [n, C·S·S] and [n].

    >>> from coulomb.tables import image_samples, open_source
    >>> from coulomb.kinds.image.views import plain_view
    >>> images = image_samples(open_source(np.zeros((5, 16, 16), np.uint8)), size=16, channels=1)
    >>> pixel_features(images, range(5), lambda stack: plain_view(stack, 16))[0].shape
    torch.Size([5, 256])
    """
    cpu = torch.device("cpu")

    def flat(stack: Any) -> Tensor:
        return plain(stack).flatten(1).float()

    return concatenate(embedded(images, indices, batch_size, workers, cpu, flat), progress)


def concatenate(batches: Iterable[Any], progress: Callable[[int], object] | None) -> tuple[Tensor, np.ndarray]:
    """Returns the features of all batches and their indices."""
    features, indices, done = [], [], 0
    for batch in batches:
        done += len(batch) + len(batch.failed)
        if len(batch):
            features.append(batch.stack)
            indices.append(batch.sample.numpy())
        if progress is not None:
            progress(done)
    if not features:
        return torch.empty(0, 0), np.empty(0, dtype=np.int64)
    return torch.cat(features), np.concatenate(indices).astype(np.int64)


@contextmanager
def frozen(*modules: nn.Module) -> Iterator[None]:
    """Context in which ``modules`` are in eval mode and no gradients are recorded; restores each submodule's mode.

    In eval mode BatchNorm neither uses nor updates batch statistics and dropout is off. Modes are restored one by one,
    since ``module.train()`` would also change layers that their owner has set to eval mode.

    >>> layer = torch.nn.BatchNorm1d(2)
    >>> with frozen(layer):
    ...     layer.training, layer(torch.rand(3, 2)).requires_grad
    (False, False)
    >>> layer.training
    True
    """
    keep_freed_memory()
    modes = [(part, part.training) for module in modules for part in module.modules()]
    for module in modules:
        module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training
