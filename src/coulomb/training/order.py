"""Which images make up which batch: a pure function of (seed, step, rank), so a run can start again at any step."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Dataset, Sampler

from coulomb.data.samplers import epoch_order
from coulomb.data.workers import ErrorsAsData, no_collate
from coulomb.errors import InputError
from coulomb.randomness import generator, numpy_generator
from coulomb.runs.plan import batches_per_epoch


class RunOrder(Sampler[list[int]]):
    """Batches of image indices for a whole run, all epochs in one sequence.

    Every epoch is a fresh permutation of ``indices`` (or what the ``sampler`` makes of them, see
    `coulomb.data.samplers.epoch_order`), cut into ``world_size`` shares and then into full batches; what is left over
    (less than one batch a process) waits for another epoch's permutation.

    Args:
        indices: the training images.
        batch_size: images a step and process.
        epochs: passes over the images.
        seed: of the permutations.
        rank, world_size: this process among all.
        start: first step to yield; the steps before are as if already taken.
        sampler: ``uniform``, ``square_root`` or ``class_balanced``.
        labels: of ``indices``, in their order (−1 unknown); the samplers other than ``uniform`` need them.
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
        """Steps in the whole run, those before ``start`` included."""
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
    """A loader over a ``RunOrder`` that knows how many steps were trained (not fetched), and starts again there."""

    def __init__(self, images: Dataset, order: RunOrder, workers: int):
        super().__init__(
            ErrorsAsData(images),
            batch_sampler=order,
            collate_fn=no_collate,
            num_workers=workers,
            persistent_workers=workers > 0,
            generator=generator(order.seed, "workers"),  # else it would read the global one
        )
        self.order = order
        self.trained = order.start

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, InputError):
                raise batch
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Steps trained so far."""
        return {"trained": self.trained}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next iteration after the steps of ``state``."""
        self.trained = self.order.start = int(state["trained"])
