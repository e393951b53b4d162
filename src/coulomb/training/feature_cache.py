"""Features of several views of each training image in a memory-mapped file, computed once for a frozen backbone."""

import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError, LostProcessError, counted
from coulomb.ground.files import write_json
from coulomb.ground.progress import progress_bar
from coulomb.ground.randomness import generator
from coulomb.ground.reading import read_object, whole
from coulomb.kinds import ViewsOf
from coulomb.kinds.vector import StoredRows, StoredViews, Vector
from coulomb.metrics.nearest import neighbors
from coulomb.metrics.rows import blocks
from coulomb.models import Encoder
from coulomb.models.features import frozen
from coulomb.models.folding import folded
from coulomb.tables import Columns, Samples
from coulomb.training.order import position_tensor

log = logging.getLogger("coulomb")

BLOCK = 128  # images per block of the file, and per forward pass
PATIENCE = 600.0  # seconds without a new block after which a waiting process gives up
FEATURES = "features"  # the column of features that a frozen backbone computed
UNREADABLE = "could not be read when its features were computed"


class FeatureCache:
    """Features [N, V, F] of V views of some rows of a table, float32, in a file of the run folder.

    They are computed in blocks of 128 images. The ``.json`` file beside it counts the complete blocks and is written after
    each is on disk, so that a run resumes after its last complete block. Images that cannot be read have rows of NaN. With
    ``neighbors``, K, the K nearest other images of each are in ``neighbors.npy``, see `nearest_images`.

    Args:
        path: the file, such as ``features.f32`` of the run folder.
        indices: rows of the table, N.
        views: V.
        dim: F.
        seed: of the views.
        neighbors: K; 0 for none.
        of: what a row is called in messages.
    """

    def __init__(
        self, path: Path, indices: np.ndarray, *, views: int, dim: int, seed: int, neighbors: int = 0, of: str = "image"
    ):
        self.of = of
        self.path, self.marker = path, path.with_suffix(".json")
        self.indices, self.positions = indices, position_tensor(indices)
        self.shape, self.seed = (len(indices), views, dim), seed
        self.neighbors_path = path.with_name("neighbors.npy")
        self.n_neighbors = neighbors
        self.rows = np.empty(0)
        self.neighbors = torch.empty(0, 0, dtype=torch.int32)

    @property
    def nbytes(self) -> int:
        """Size of the file in bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * 4

    @property
    def blocks(self) -> int:
        """Number of blocks of the complete file."""
        return -(-len(self.indices) // BLOCK)

    def count_blocks(self) -> int:
        """Returns the number of complete blocks; 0 if there is no cache, or one of another run."""
        if not self.marker.exists() or not self.path.exists() or self.path.stat().st_size != self.nbytes:
            return 0
        entries = {"images": whole, "views": whole, "features": whole, "blocks": whole}
        known = read_object(self.marker, entries, remedy="delete it, and the features are computed again")
        if known != self._describe(known["blocks"]) or known["blocks"] > self.blocks:
            log.warning("%s: describes other features than this run's; they are computed again", self.marker)
            return 0
        return int(known["blocks"])

    def _describe(self, blocks: int) -> dict[str, int]:
        images, views, features = self.shape
        return {"images": images, "views": views, "features": features, "seed": self.seed, "blocks": blocks}

    def fill(
        self, encoder: Encoder, images: Samples, views: ViewsOf, device: torch.device, *, progress: bool = False
    ) -> None:
        """Computes the blocks that are missing, by an encoder on ``device``.

        Raises:
            InputError: the disk has too little space, or a feature is NaN or infinite.
        """
        done = self.count_blocks()
        if done < self.blocks:
            self.neighbors_path.unlink(missing_ok=True)
            self._compute(done, encoder, images, views, device, progress=progress)
        if self.n_neighbors and not self.neighbors_path.exists():
            rows = np.memmap(self.path, np.float32, "r", shape=self.shape)
            unfinished = self.neighbors_path.with_suffix(".unfinished.npy")
            np.save(unfinished, nearest_images(rows, self.n_neighbors))
            unfinished.replace(self.neighbors_path)

    def _compute(
        self, done: int, encoder: Encoder, images: Samples, views: ViewsOf, device: torch.device, *, progress: bool
    ) -> None:
        self._require_space(done)
        log.info(
            "computing the features of %s of %s once: %.3g MiB in %s%s",
            counted(self.shape[1], "view"), counted(len(self.indices), self.of), self.nbytes / 2**20, self.path,
            f", {done} of {self.blocks} blocks are there" if done else "",
        )  # fmt: skip
        missing, network = self.indices[done * BLOCK :], folded(encoder)
        with (
            self.path.open("r+b" if done else "wb") as file,
            frozen(network),
            progress_bar(len(missing), "computing features", progress) as advance,
        ):
            file.truncate(self.nbytes)
            for block, batch in enumerate(images.batches(missing, BLOCK, images.readers), done):
                first = block * BLOCK
                rows = np.full((min(BLOCK, len(self.indices) - first), *self.shape[1:]), np.nan, np.float32)
                if len(batch):
                    draw = generator(self.seed, "cached views", block)
                    drawn = views(batch.stack.to(device), draw, n=self.shape[1])
                    rows[self.positions[batch.sample].numpy() - first] = _features(network, drawn).cpu().numpy()
                file.seek(rows[0].nbytes * first)
                file.write(rows.tobytes())
                file.flush()
                os.fsync(file.fileno())
                write_json(self.marker, self._describe(block + 1))
                advance(len(rows))

    def _require_space(self, done: int) -> None:
        needed = self.nbytes * (self.blocks - done) // self.blocks
        free = shutil.disk_usage(self.path.parent).free
        if needed > free:
            raise InputError(
                f"cached_views={self.shape[1]}: the features of {len(self.indices)} images take {needed / 2**20:.3g} MiB, "
                f"and {self.path.parent} has {free / 2**20:.3g} MiB free; use fewer, free some space, or use tune='head'"
            )

    def opened(self) -> Self:
        """Returns itself, with the complete file mapped to memory; waits until the first process has written all files.

        Raises:
            LostProcessError: no new block within ten minutes.
        """
        done, since = -1, time.monotonic()
        while (now := self.count_blocks()) < self.blocks:
            if now != done:
                done, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise LostProcessError(f"{self.path}: the first process has written no features for ten minutes")
            time.sleep(0.2)
        while self.n_neighbors and not self.neighbors_path.exists():
            if time.monotonic() - since > PATIENCE:
                raise LostProcessError(f"{self.neighbors_path}: not written by the first process for ten minutes")
            time.sleep(0.2)
        self.rows = np.memmap(self.path, np.float32, "r", shape=self.shape)
        if self.n_neighbors:
            self.neighbors = torch.from_numpy(np.load(self.neighbors_path))
        return self

    def samples(self) -> Samples:
        """Returns the features as samples of one column, `FEATURES`; a sample has its number in the table of images."""
        views = StoredViews(self.rows, self.neighbors) if self.n_neighbors else StoredViews()
        cells = self.cells(np.arange(len(self.positions)))
        return Samples(Columns({FEATURES: cells}), {FEATURES: Vector(views, UNREADABLE)})

    def cells(self, computed: np.ndarray) -> StoredRows:
        """Returns cells of a column whose rows have the features of these rows [n] of the table, −1 for other rows."""
        at = np.full(max(len(self.positions), int(computed.max(initial=-1)) + 1), -1)
        at[: len(self.positions)] = self.positions.numpy()
        at[self.indices[np.isnan(self.rows[:, 0, 0])]] = -1
        return StoredRows(self.rows, at[computed])

    def delete(self) -> None:
        """Deletes the files."""
        self.neighbors_path.unlink(missing_ok=True)
        self.marker.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)


def _features(encoder: Encoder, views: list[Any]) -> Tensor:
    """Returns the features [b, V, F] of V views, each a stack of b cells."""
    features = [encoder.backbone_features(view).float() for view in views]
    if not all(bool(each.isfinite().all()) for each in features):
        raise InputError(f"encoder={encoder.name!r}: some features are NaN or infinite; check its weights")
    return torch.stack(features, dim=1)


def nearest_images(rows: np.ndarray, k: int) -> np.ndarray:
    """Returns the ``k`` nearest other images of each image, whose views are then its positives, int32 [N, k].

    Similarity is the cosine of the mean unit features over views, in float32, of all pairs. Rows of NaN are images that could
    not be read: they are nobody's neighbors, and have row 0 as theirs.

    Args:
        rows: features [N, V, F] of V views.
        k: at most the number of readable images minus 1.

    Raises:
        InputError: ``k`` is larger.
    """
    means = np.empty((len(rows), rows.shape[2]), np.float32)
    for block in blocks(len(rows)):
        means[block] = functional.normalize(torch.from_numpy(np.array(rows[block])), dim=2).mean(1).numpy()
    readable = np.flatnonzero(~np.isnan(means[:, 0]))
    if k >= len(readable):
        raise InputError(f"neighbors={k}: there are {len(readable)} readable training images; use fewer neighbors")
    found = np.zeros((len(rows), k), np.int32)
    found[readable] = readable[neighbors(means, k, readable)[1]]
    return found
