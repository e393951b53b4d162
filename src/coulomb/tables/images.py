"""A source as a torch data set of square canvases, which are decoded once and cached if they fit."""

from collections.abc import Iterator, Sequence
from typing import Any, TypedDict

import numpy as np
import torch
from torch.utils.data import Dataset

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import visible
from coulomb.kinds.image.decode import to_canvas
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables.source import Labels, Source
from coulomb.tables.survey import canvas_dtype
from coulomb.tables.workers import Then, cores, no_change, read_batches, split_batches, track


class Batch(TypedDict):
    """A batch of :meth:`Images.__getitems__`. Images that cannot be decoded are listed in ``failed`` only."""

    image: torch.Tensor  # [b, C, S, S] uint8, or float32 in [0, 1]: the whole image resized to a square
    aspect: torch.Tensor  # [b] float32: original width / height
    index: torch.Tensor  # [b] int64: position in this Images
    failed: list[tuple[int, str]]  # (position, reason)
    rounded: list[int]  # positions of images with more than 8 bits that were rounded to 8


class Images(Dataset[dict[str, torch.Tensor]]):
    """A map-style data set of the canvases [C, S, S] of a source.

    Items are addressed by position 0…len−1; ``indices[position]`` is the index in the source. Results depend neither on
    the number of workers nor on whether the cache is filled.

    Args:
        source: the images.
        size: S in pixels.
        channels: C; 1 or 3 for files, the number that they have for arrays.
        indices: images of the source to use, in this order; default all.
        cache_bytes: largest size of all canvases that :meth:`load` caches.
        workers: processes that decode; at most the number of cores.
        progress: default for :meth:`load`.
        dtype: "uint8" or "float32"; default as for training, see `Survey`.
    """

    def __init__(
        self,
        source: Source,
        size: int = 32,
        channels: int = 3,
        indices: Sequence[int] | np.ndarray | None = None,
        cache_bytes: int = 2**30,
        workers: int = 0,
        progress: bool | None = None,
        dtype: str | None = None,
    ) -> None:
        if size < 1 or channels < 1 or workers < 0:
            raise InputError(f"size={size}, channels={channels}, workers={workers}: must be ≥ 1, ≥ 1 and ≥ 0")
        if dtype not in (None, "uint8", "float32"):
            raise InputError(f"dtype={dtype!r}: must be 'uint8', 'float32' or None")
        self.source = source
        self.size = size
        self.channels = channels
        self.indices = np.arange(len(source)) if indices is None else np.asarray(indices, dtype=np.int64)
        if self.indices.size and not (self.indices.min() >= 0 and self.indices.max() < len(source)):
            raise InputError(
                f"indices: {self.indices.max()} is out of range for the {len(source)} images of {visible(source.name)}"
            )
        self.cache_bytes = cache_bytes
        self.workers = min(workers, cores())
        self.progress = progress
        self.dtype = dtype or canvas_dtype(source)
        self.failures: dict[int, str] = {}
        self.rounded: set[int] = set()
        self._canvases: torch.Tensor | None = None
        self._aspects = torch.empty(0)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def labels(self) -> torch.Tensor | None:
        """Labels int64 [N] by position (−1 unknown); None if the source has no labels."""
        labels: Labels | None = self.source.labels
        return None if labels is None else torch.from_numpy(labels[self.indices])

    @property
    def nbytes(self) -> int:
        """Size of all decoded canvases in bytes."""
        return len(self) * self.channels * self.size**2 * (1 if self.dtype == "uint8" else 4)

    @property
    def cached(self) -> bool:
        """Whether :meth:`load` has filled the cache."""
        return self._canvases is not None

    @property
    def readers(self) -> int:
        """Number of processes that should read batches: ``workers``, or 0 once the images are cached."""
        return 0 if self.cached else self.workers

    @property
    def usable(self) -> torch.Tensor:
        """Positions int64 of the images that have not failed to decode."""
        usable = torch.ones(len(self), dtype=torch.bool)
        usable[list(self.failures)] = False
        return usable.nonzero().squeeze(1)

    def item_id(self, position: int) -> str:
        """Returns the id of the image at a position."""
        return self.source.item_id(int(self.indices[position]))

    def __getitem__(self, position: int) -> dict[str, torch.Tensor]:
        """Returns one canvas with its aspect and position; raises :class:`CorruptImage`."""
        batch = self.__getitems__([position])
        if batch["failed"]:
            raise CorruptImage(self.item_id(position), batch["failed"][0][1])
        return {"image": batch["image"][0], "aspect": batch["aspect"][0], "index": batch["index"][0]}

    def __getitems__(self, positions: Sequence[int]) -> Batch:
        """Returns the canvases at these positions, in this order."""
        if self._canvases is None:
            return self._decode(positions)
        index = np.asarray(positions, dtype=np.int64)
        failed: list[tuple[int, str]] = []
        if self.failures:
            failed = [(p, self.failures[p]) for p in index.tolist() if p in self.failures]
            index = index[~np.isin(index, [position for position, _ in failed])]
        # NumPy copies in this thread; torch's index_select would wake all threads for less than a millisecond of work.
        return {
            "image": torch.from_numpy(np.take(self._canvases.numpy(), index, axis=0)),
            "aspect": torch.from_numpy(np.take(self._aspects.numpy(), index)),
            "index": torch.from_numpy(index),
            "failed": failed,
            "rounded": [],
        }

    def _decode(self, positions: Sequence[int]) -> Batch:
        canvases = np.empty((len(positions), self.size, self.size, self.channels), dtype=self.dtype)
        aspects = np.empty(len(positions), dtype=np.float32)
        reasons: dict[int, str] = {}
        rounded: list[int] = []
        # In source order, because neighbors share a row group in a Parquet file.
        for row in np.argsort(self.indices[np.asarray(positions, dtype=np.int64)], kind="stable").tolist():
            index = int(self.indices[positions[row]])
            try:
                picture, aspects[row] = self.source.picture(index, at_least=self.size)
            except CorruptImage as error:
                reasons[row] = error.reason
                continue
            try:
                canvases[row], was_rounded = to_canvas(picture, self.size, self.channels, self.dtype)
            except InputError as error:
                raise InputError(f"{visible(self.source.item_id(index))}: {error}") from None
            if was_rounded:
                rounded.append(int(positions[row]))
        decoded = np.asarray(positions, dtype=np.int64)
        if reasons:
            rows = [row for row in range(len(positions)) if row not in reasons]
            canvases, aspects, decoded = canvases[rows], aspects[rows], decoded[rows]
        return {
            "image": torch.from_numpy(np.ascontiguousarray(canvases.transpose(0, 3, 1, 2))),
            "aspect": torch.from_numpy(aspects),
            "index": torch.from_numpy(decoded),
            "failed": [(int(positions[row]), reasons[row]) for row in sorted(reasons)],
            "rounded": rounded,
        }

    def load(self, progress: bool | None = True) -> bool:
        """Decodes all images into the cache if they take at most ``cache_bytes``; returns whether they did.

        Images that cannot be decoded are added to ``failures`` and left out of all later batches. ``progress``: show a
        bar on a terminal; None takes the default of this object.
        """
        if self.cached:
            return True
        if self.nbytes > self.cache_bytes:
            return False
        kind = torch.uint8 if self.dtype == "uint8" else torch.float32
        canvases = torch.zeros((len(self), self.channels, self.size, self.size), dtype=kind)
        aspects = torch.ones(len(self))
        shown = self.progress if progress is None else progress and self.progress
        # Batches of about 8 MB: small enough for a container's shared memory, large enough to make transfer costs small.
        size = max(1, min(1024, 2**23 // max(1, self.nbytes // max(1, len(self)))))
        for batch in self._read(range(len(self)), size, self.workers, "decoding", shown):
            canvases[batch["index"]] = batch["image"]
            aspects[batch["index"]] = batch["aspect"]
        self._canvases, self._aspects = canvases, aspects
        self.source.release()
        return True

    def batches(
        self,
        indices: Sequence[int] | np.ndarray | torch.Tensor,
        batch_size: int,
        workers: int = 0,
        then: Then = no_change,
    ) -> Iterator[Batch]:
        """Yields batches of the images at these positions, in order; adds images that fail to ``failures``.

        ``then``: see `read_batches`.
        """
        return self._read(indices, batch_size, workers, "reading", False, then)

    def _read(
        self, positions: Any, size: int, workers: int, what: str, progress: bool | None, then: Then = no_change
    ) -> Iterator[Batch]:
        parts = split_batches(positions, size)
        read = read_batches(self, parts, 0 if self.cached else workers, then)
        counted = ((len(part), batch) for part, batch in zip(parts, read, strict=True))
        for batch in track(counted, len(positions), what, progress):
            self.failures.update(batch["failed"])
            self.rounded.update(batch["rounded"])
            yield batch

    def normalization(
        self, sample: int = 2048, seed: int = 0, indices: Sequence[int] | np.ndarray | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the mean [C] and standard deviation [C] of the pixels of a sample of canvases, for values in [0, 1].

        The standard deviation is at least 1/255, so that constant images can be divided by it.

        Args:
            sample: largest number of canvases.
            seed: of the sample.
            indices: positions to draw from (the training images); default all.
        """
        positions = np.arange(len(self)) if indices is None else np.asarray(indices, dtype=np.int64)
        if len(positions) > sample:
            positions = np.sort(numpy_generator(seed, "normalisation").choice(positions, sample, replace=False))
        total = torch.zeros(self.channels, dtype=torch.float64)
        squares = torch.zeros(self.channels, dtype=torch.float64)
        pixels = 0
        for batch in self.batches(positions, 256, self.workers):
            values = batch["image"].double().div_(255 if self.dtype == "uint8" else 1)
            total += values.sum((0, 2, 3))
            squares += values.square().sum((0, 2, 3))
            pixels += values.numel() // self.channels
        if not pixels:
            raise InputError(f"{visible(self.source.name)}: none of {len(positions)} images can be decoded")
        mean = total / pixels
        deviation = (squares / pixels - mean.square()).clamp_min(0).sqrt().clamp_min(1 / 255)
        return mean.float(), deviation.float()
