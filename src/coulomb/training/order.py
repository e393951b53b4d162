"""The order of the images: a pure function of (seed, step, rank), so that a run can resume at any step."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from coulomb.data.split import epoch_order
from coulomb.data.workers import ErrorsAsData, no_collate
from coulomb.errors import InputError
from coulomb.randomness import generator, numpy_generator
from coulomb.runs.plan import batches_per_epoch


class RunOrder(Sampler[list[int]]):
    """Yields batches of image indices for a whole run, all epochs in one sequence.

    Every epoch is a new permutation of ``indices`` (or a draw by the ``sampler``, see `coulomb.data.split.epoch_order`),
    divided among ``world_size`` processes and then into full batches. The remainder, less than one batch per process, is
    dropped for that epoch.

    Args:
        indices: the training images.
        batch_size: images per step and process.
        epochs: passes over the images.
        seed: seed of the permutations.
        rank, world_size: index of this process and number of processes.
        start: first step to yield; earlier steps count as done.
        sampler: ``uniform``, ``square_root`` or ``class_balanced``.
        labels: labels of ``indices``, in the same order (−1 unknown); required by samplers other than ``uniform``.
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
    ):
        self.indices, self.batch_size, self.epochs, self.seed = np.asarray(indices), batch_size, epochs, seed
        self.rank, self.world_size, self.start = rank, world_size, start
        self.sampler, self.labels = sampler, labels
        self.steps_per_epoch = batches_per_epoch(len(self.indices), batch_size, world_size)

    def __len__(self) -> int:
        """Returns the number of steps in the whole run, including those before ``start``."""
        return self.epochs * self.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.start, len(self)):
            epoch, batch = divmod(step, self.steps_per_epoch)
            if batch == 0 or step == self.start:
                draw = numpy_generator(self.seed, "order", epoch)
                shuffled = epoch_order(self.indices, self.labels, self.sampler, draw)
                mine = shuffled[self.rank :: self.world_size]
            yield mine[batch * self.batch_size : (batch + 1) * self.batch_size].tolist()


class RunLoader(DataLoader):
    """A loader over a ``RunOrder`` that counts trained steps (not fetched ones), so that it can resume there."""

    def __init__(self, images: Dataset, order: RunOrder, workers: int):
        super().__init__(
            ErrorsAsData(images),
            batch_sampler=order,
            collate_fn=no_collate,
            num_workers=workers,
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
        """Returns the number of trained steps."""
        return {"trained": self.trained}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Starts the next iteration after the steps in ``state``."""
        self.trained = self.order.start = int(state["trained"])
