"""Embeds the images of one process, and keeps their features, thumbnails and facts as unfinished work."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from coulomb.ground.progress import progress_bar
from coulomb.index.photos import PhotoKind, Photos, ReadOnce
from coulomb.index.table import Photo
from coulomb.index.work import ZERO, Outcome, PartWriter
from coulomb.kinds.image.canvas import Canvas
from coulomb.kinds.image.views import plain_view
from coulomb.models import ImageNetwork
from coulomb.models.encode import prepared_images
from coulomb.models.features import embedded, frozen
from coulomb.models.folding import folded
from coulomb.tables import Samples


class Embedded(NamedTuple):
    """An image with its features [D] of unit length."""

    image: int  # its index in the source
    photo: Photo
    features: np.ndarray
    thumbnail: bytes


@dataclass
class Embedder:
    """Embeds images of a source.

    Attributes:
        encoder: images → features.
        canvas: how a run prepares its images; None for published weights.
        once: the images.
        hashes: SHA-256 of the stored images, which are not embedded again.
        thumbnail: side of thumbnails in pixels.
        batch_size: images per forward pass.
        workers: processes that decode, and compute features if there is one for each core, see `compute_in_workers`.
    """

    encoder: ImageNetwork
    canvas: Canvas | None
    once: ReadOnce
    hashes: frozenset[bytes]
    thumbnail: int
    batch_size: int
    workers: int

    def write(self, indices: list[int], part: Path, precision: str, *, progress: bool) -> Outcome:
        """Embeds the images at ``indices`` into a part of the unfinished work."""
        outcome = Outcome()
        if not indices:
            return outcome
        writer = PartWriter(part)
        with progress_bar(len(indices), "indexing", progress) as advance:
            for found in self.embed(indices, outcome):
                for each in found:
                    features = each.features.astype(precision)
                    writer.add(self.once.item_id(each.image), each.photo, features, each.thumbnail)
                advance(len(found))
        writer.write()
        return outcome

    def embed(self, indices: list[int], outcome: Outcome) -> Iterator[list[Embedded]]:
        """Yields batches of embedded images; adds the other images to ``outcome``."""
        size, quick = self.encoder.image_size, folded(self.encoder)
        device = next(self.encoder.parameters()).device
        parts, failures, batch_size = prepared_images(
            self.encoder, self.once, self.canvas, indices, batch_size=self.batch_size, workers=self.workers
        )

        def embed(photos: Photos) -> Photos:
            if photos.photos:
                photos.images = quick(plain_view(photos.images.to(device), size)).float().cpu()
            return photos

        outcome.failed |= failures
        with frozen(quick):
            for images, members in parts:
                recorded = Samples(self.once, {"image": PhotoKind(images.kind, self.hashes, self.thumbnail)})
                for batch in embedded(recorded, members, batch_size, self.workers, device, embed):
                    photos: Photos = batch.stack
                    outcome.add(Outcome(photos.known, dict(batch.failed)))
                    if not photos.photos:
                        continue
                    features = photos.images.numpy()
                    # NumPy computes in this thread; torch would wait for cores that the workers use.
                    lengths = np.linalg.norm(features, axis=1, keepdims=True)
                    usable = (np.isfinite(lengths) & (lengths > 0)).ravel()
                    units = np.divide(features, lengths, out=features, where=usable[:, None])
                    rows = zip(units, usable, strict=True)
                    found = [
                        (Embedded(index, photo, row, thumbnail), good)
                        for (index, (photo, thumbnail)), (row, good) in zip(photos.photos.items(), rows, strict=True)
                    ]
                    outcome.failed |= {each.image: ZERO for each, good in found if not good}
                    yield [each for each, good in found if good]


def place(encoder: ImageNetwork, device: torch.device) -> ImageNetwork:
    """Moves an encoder to the device, in the order of weights in which convolutions of a CPU are up to 1.5 times as fast."""
    return encoder.to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
