"""The order of the samples: a pure function of (seed, step), so that a run can resume at any step on any processes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator, numpy_generator
from coulomb.kinds import ViewsOf
from coulomb.kinds.kind import Share
from coulomb.models import ViewRows
from coulomb.models.towers import join
from coulomb.tables import Batch, Samples
from coulomb.tables.shards.ahead import reading_ahead
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.split import epoch_order
from coulomb.tables.workers import ErrorsAsData, no_change
from coulomb.training.plan.resolved import batches_per_epoch


@dataclass(kw_only=True)
class TrainingBatch(Batch):
    """The readable samples of a process in a step, with their place among the training samples.

    Attributes:
        train_row: places among the training samples [B].
        labels: [B], −1 unknown; None without labels.
        share: places in the batch of all processes, on the host.
    """

    train_row: Tensor
    labels: Tensor | None
    share: Share

    def to(self, device: torch.device | str) -> Self:
        """Copies stacks, train_row and labels to ``device``, without waiting for a GPU. The rest is read on the host."""
        there: dict[str, Any] = {"device": device, "non_blocking": torch.device(device).type == "cuda"}
        labels = None if self.labels is None else self.labels.to(**there)
        return replace(super().to(device), train_row=self.train_row.to(**there), labels=labels)


class RunOrder(Sampler[list[int]]):
    """Yields batches of samples (rows of the table) for a whole run, all epochs in one sequence.

    Every epoch is a new permutation of ``samples`` (or a draw by the ``sampler``, see `coulomb.tables.split.epoch_order`),
    divided into full batches. The remainder, less than one batch, is dropped for that epoch. Process r of W has the r-th
    contiguous share of each batch, so that the samples of a step do not depend on W; shares differ by at most one sample.

    Args:
        samples: the training samples; the place of a sample among them is its ``train_row``.
        batch_size: samples per step, of all processes together.
        epochs: passes over the samples.
        seed: seed of the permutations.
        rank, world_size: index of this process and number of processes.
        start: first step to yield; earlier steps count as done.
        sampler: ``uniform``, ``square_root`` or ``class_balanced``.
        labels: labels of ``samples``, in the same order (−1 unknown); required by samplers other than ``uniform``.
        blocks: blocks of a data set in shards; an epoch then visits them in windows, see
            `coulomb.tables.shards.blocks.Blocks.arrange`.
    """

    def __init__(
        self,
        samples: np.ndarray,
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
        self.samples, self.batch_size, self.epochs, self.seed = np.asarray(samples), batch_size, epochs, seed
        self.rank, self.world_size, self.start = rank, world_size, start
        self.sampler, self.blocks = sampler, blocks
        self.labels = None if labels is None else torch.from_numpy(np.asarray(labels, dtype=np.int64))
        self.train_rows = position_tensor(self.samples)
        self.steps_per_epoch = batches_per_epoch(len(self.samples), batch_size)
        self.share = slice(batch_size * rank // world_size, batch_size * (rank + 1) // world_size)
        self._latest: tuple[int, np.ndarray] = (-1, self.samples)  # of `epoch`

    @property
    def own_images(self) -> int:
        """Samples of this process in a step."""
        return self.share.stop - self.share.start

    def __len__(self) -> int:
        """Returns the number of steps in the whole run, including those before ``start``."""
        return self.epochs * self.steps_per_epoch

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.start, len(self)):
            yield self.at(step).tolist()

    def at(self, step: int) -> np.ndarray:
        """Returns the samples of this process in a step."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        return self.epoch(epoch)[batch * self.batch_size :][self.share]

    def epoch(self, epoch: int) -> np.ndarray:
        """Returns the samples of one epoch, in order; the order of the latest epoch is kept."""
        known, shuffled = self._latest
        if known != epoch:
            labels = None if self.labels is None else self.labels.numpy()
            shuffled = epoch_order(self.samples, labels, self.sampler, numpy_generator(self.seed, "order", epoch))
            if self.blocks is not None:
                shuffled = self.blocks.arrange(shuffled, numpy_generator(self.seed, "blocks", epoch))
            self._latest = epoch, shuffled
        return shuffled

    def place(self, step: int, batch: Batch) -> TrainingBatch:
        """Adds to the batch of a step where its samples stand."""
        rows = np.arange(self.share.start, self.share.stop)
        if batch.failed:
            rows = rows[~np.isin(self.at(step), [failed for failed, _ in batch.failed])]
        train_row = self.train_rows[batch.sample]
        return TrainingBatch(
            batch.columns,
            batch.sample,
            batch.failed,
            batch.rounded,
            train_row=train_row,
            labels=None if self.labels is None else self.labels[train_row],
            share=Share(torch.from_numpy(rows), self.batch_size),
        )


def position_tensor(indices: np.ndarray) -> torch.Tensor:
    """Returns the position among ``indices`` (0 … len − 1) by image index; −1 for other images."""
    positions = torch.full((int(indices.max(initial=-1)) + 1,), -1)
    positions[torch.from_numpy(indices)] = torch.arange(len(indices))
    return positions


class RunLoader(DataLoader):
    """A loader of each `TrainingBatch` of a ``RunOrder``, which counts steps, so that a run can resume.

    A step counts as trained once its batch is handed out: Lightning takes a batch when the step before is complete, because
    the number of batches is known. Batches that workers have read ahead do not count.

    ``pinned``: batches are copied to pinned memory by a thread, from which copies to a GPU overlap with its work.
    """

    def __init__(self, samples: Samples, order: RunOrder, workers: int, *, pinned: bool = False):
        super().__init__(
            ErrorsAsData(samples),
            batch_sampler=reading_ahead(samples, order),
            collate_fn=no_change,
            num_workers=workers,
            pin_memory=pinned,
            persistent_workers=workers > 0,
            generator=generator(order.seed, "workers"),  # the default would advance the global generator
        )
        self.order = order
        self.trained = order.start

    def __iter__(self) -> Iterator[TrainingBatch]:  # type: ignore[override]
        for step, batch in enumerate(super().__iter__(), self.order.start):
            if isinstance(batch, InputError):
                raise batch
            self.trained = step + 1
            yield self.order.place(step, batch)

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of trained steps, and the samples per step."""
        return {"trained": self.trained, "batch_size": self.order.batch_size}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Starts the next iteration after the steps in ``state``.

        Raises:
            InputError: these steps had another number of samples.
        """
        if (before := state["batch_size"]) != self.order.batch_size:
            raise InputError(
                f"batch_size: the checkpoint was trained with {before} images per step, and config.yaml gives "
                f"{self.order.batch_size} (batch_size · devices · num_nodes); restore config.yaml"
            )
        self.trained = self.order.start = int(state["trained"])


@dataclass(frozen=True)
class ColumnViews:
    """How the views of a column are drawn: ``n`` views by ``make``."""

    make: ViewsOf
    n: int


def draw_views(
    columns: Mapping[str, ColumnViews], batch: TrainingBatch, *, seed: int, step: int, rank: int
) -> ViewRows:
    """Returns the views of the samples of a batch, drawn by the place of each sample in the batch of all processes.

    Views without ``by_row`` (`coulomb.kinds.ViewsOf`), such as a user's function, draw for the samples of this process, so
    that their draws depend on the number of processes.
    """
    drawn = {}
    for name, views in columns.items():
        by_row = getattr(views.make, "by_row", False)
        draw = generator(seed, "views", step, 0 if by_row else rank, *([name] if len(columns) > 1 else []))
        share = {"share": batch.share} if by_row else {}
        drawn[name] = join(views.make(batch.columns[name], draw, n=views.n, **share))
    return ViewRows(drawn, len(batch))
