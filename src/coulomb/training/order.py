"""The order of the images: a pure function of (seed, step), so that a run can resume at any step on any processes."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator, numpy_generator
from coulomb.kinds.image.views import Share, ViewMaker
from coulomb.tables.shards.ahead import reading_ahead
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.split import epoch_order
from coulomb.tables.workers import ErrorsAsData, no_change
from coulomb.training.plan.plan import batches_per_epoch


class RunOrder(Sampler[list[int]]):
    """Yields batches of image indices for a whole run, all epochs in one sequence.

    Every epoch is a new permutation of ``indices`` (or a draw by the ``sampler``, see `coulomb.tables.split.epoch_order`),
    divided into full batches. The remainder, less than one batch, is dropped for that epoch. Process r of W has the r-th
    contiguous share of each batch, so that the images of a step do not depend on W; shares differ by at most one image.

    Args:
        indices: the training images.
        batch_size: images per step, of all processes together.
        epochs: passes over the images.
        seed: seed of the permutations.
        rank, world_size: index of this process and number of processes.
        start: first step to yield; earlier steps count as done.
        sampler: ``uniform``, ``square_root`` or ``class_balanced``.
        labels: labels of ``indices``, in the same order (−1 unknown); required by samplers other than ``uniform``.
        blocks: of a data set in shards; an epoch then visits them in windows, see
        `coulomb.tables.shards.blocks.Blocks.arrange`.
    """

    def __init__(
        self,
        indices: np.ndarray,
        batch_size: int,
        epochs: int,
        seed: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        start: int = 0,
        sampler: str = "uniform",
        labels: np.ndarray | None = None,
        blocks: Blocks | None = None,
    ):
        self.indices, self.batch_size, self.epochs, self.seed = np.asarray(indices), batch_size, epochs, seed
        self.rank, self.world_size, self.start = rank, world_size, start
        self.sampler, self.labels, self.blocks = sampler, labels, blocks
        self.steps_per_epoch = batches_per_epoch(len(self.indices), batch_size)
        self.share = slice(batch_size * rank // world_size, batch_size * (rank + 1) // world_size)
        self._latest: tuple[int, np.ndarray] = (-1, self.indices)  # of `epoch`

    @property
    def own_images(self) -> int:
        """Images of this process in a step."""
        return self.share.stop - self.share.start

    @property
    def weight(self) -> float:
        """Images of this process relative to the mean over processes: 1 if shares are even."""
        return self.own_images * self.world_size / self.batch_size

    def __len__(self) -> int:
        """Returns the number of steps in the whole run, including those before ``start``."""
        return self.epochs * self.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.start, len(self)):
            yield self.images(step).tolist()

    def images(self, step: int) -> np.ndarray:
        """Returns the images of this process in a step."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        return self.epoch(epoch)[batch * self.batch_size :][self.share]

    def epoch(self, epoch: int) -> np.ndarray:
        """Returns the images of one epoch, in order; those of the epoch asked for last are kept."""
        known, shuffled = self._latest
        if known != epoch:
            shuffled = epoch_order(self.indices, self.labels, self.sampler, numpy_generator(self.seed, "order", epoch))
            if self.blocks is not None:
                shuffled = self.blocks.arrange(shuffled, numpy_generator(self.seed, "blocks", epoch))
            self._latest = epoch, shuffled
        return shuffled

    def rows(self, step: int, failed: list[tuple[int, str]]) -> Tensor:
        """Returns the positions in the batch of all processes of this process's images [b], without the ``failed`` ones."""
        rows = np.arange(self.share.start, self.share.stop)
        if failed:
            rows = rows[~np.isin(self.images(step), [index for index, _ in failed])]
        return torch.from_numpy(rows)


class RunLoader(DataLoader):
    """A loader over a ``RunOrder`` that counts trained steps (not fetched ones), so that it can resume there.

    ``pinned``: batches are copied to pinned memory by a thread, from which copies to a GPU overlap with its work.
    """

    def __init__(self, images: Dataset, order: RunOrder, workers: int, *, pinned: bool = False):
        super().__init__(
            ErrorsAsData(images),
            batch_sampler=reading_ahead(images, order),
            collate_fn=no_change,
            num_workers=workers,
            pin_memory=pinned,
            persistent_workers=workers > 0,
            generator=generator(order.seed, "workers"),  # the default would advance the global generator
        )
        self.order = order
        self.trained = order.start

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, InputError):
                raise batch
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of trained steps, and the images per step."""
        return {"trained": self.trained, "batch_size": self.order.batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Starts the next iteration after the steps in ``state``.

        Raises:
            InputError: these steps were of another number of images.
        """
        if (before := state.get("batch_size", self.order.batch_size)) != self.order.batch_size:
            raise InputError(
                f"batch_size: the checkpoint was trained with {before} images per step, and config.yaml gives "
                f"{self.order.batch_size} (batch_size · devices · num_nodes); restore config.yaml"
            )
        self.trained = self.order.start = int(state["trained"])


def draw_views(views: ViewMaker, batch: dict[str, Any], order: RunOrder, step: int, n: int) -> list[Tensor]:
    """Returns ``n`` views of the images of a step, drawn by the position of each image in the batch of all processes.

    Views without ``by_row`` (`coulomb.kinds.image.views.ViewMaker`), such as a user's function, draw for the images of
    this process, so that their draws depend on the number of processes.
    """
    by_row = getattr(views, "by_row", False)
    draw = generator(order.seed, "views", step, 0 if by_row else order.rank)
    rows = {"share": Share(order.rows(step, batch["failed"]), order.batch_size)} if by_row else {}
    return views(batch["image"], draw, n=n, aspect=batch["aspect"], **rows)
