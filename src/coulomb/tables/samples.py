"""The data set of the loader: samples of a table, with their cells read and stacked by the kind of each column."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from coulomb.ground.errors import InputError
from coulomb.ground.progress import track
from coulomb.kinds import Kind, Stack, UnreadableCell
from coulomb.tables.table import Table
from coulomb.tables.workers import Then, cores, no_change, read_batches, split_batches

Rows = Sequence[int] | np.ndarray | Tensor


@dataclass
class Batch:
    """Samples of a table. Samples with an unreadable cell are listed in ``failed`` only.

    Attributes:
        columns: the stack of each column; all have B cells.
        sample: rows of the table, int64 [B], on the CPU.
        failed: samples that cannot be read, each with the reason.
        rounded: samples of which a value has lost something, see `coulomb.kinds.Cell`.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> (batch,) = image_samples(source, size=4, channels=1).batches([3, 1], batch_size=2)
    >>> batch.sample, batch.columns["image"].canvas.shape
    (tensor([3, 1]), torch.Size([2, 1, 4, 4]))
    """

    columns: dict[str, Any]
    sample: Tensor
    failed: list[tuple[int, str]] = field(default_factory=list)
    rounded: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sample)

    @property
    def stack(self) -> Any:
        """The stack of the only column."""
        (stack,) = self.columns.values()
        return stack

    def to(self, device: torch.device | str) -> Self:
        """Returns the batch with its stacks on ``device``, without waiting for a GPU; ``sample`` stays on the CPU."""
        waits = torch.device(device).type != "cuda"
        return replace(
            self, columns={name: each.to(device, non_blocking=not waits) for name, each in self.columns.items()}
        )

    def pin_memory(self) -> Self:
        """Returns the batch with its stacks in pinned memory."""
        return replace(self, columns={name: each.pin_memory() for name, each in self.columns.items()})


class Samples(Dataset[Batch]):
    """The samples of a table, as batches of the chosen columns.

    Results depend neither on the number of workers nor on whether the cache is filled.

    Args:
        table: the data.
        kinds: the kind of each column to read, by its name.
        cache_bytes: largest size of all stacked cells that `load` caches.
        workers: processes that read; at most the number of cores.
        progress: default for `load`.

    Attributes:
        failures: reasons by sample of those that could not be read so far.
        rounded: samples of which a value was rounded so far, see `coulomb.kinds.Cell`.
    """

    def __init__(
        self,
        table: Table,
        kinds: Mapping[str, Kind],
        *,
        cache_bytes: int = 2**30,
        workers: int = 0,
        progress: bool | None = None,
    ) -> None:
        if workers < 0:
            raise InputError(f"workers={workers}: must be ≥ 0")
        if not kinds or (unknown := set(kinds) - set(table.columns)):
            raise InputError(
                f"columns: {sorted(unknown) if kinds else 'none'}; {table.name!r} has {sorted(table.columns)}"
            )
        self.table, self.kinds = table, dict(kinds)
        self.cache_bytes, self.workers, self.progress = cache_bytes, min(workers, cores()), progress
        self.failures: dict[int, str] = {}
        self.rounded: set[int] = set()
        self._stacks: dict[str, Stack] | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def kind(self) -> Any:
        """The kind of the only column."""
        (kind,) = self.kinds.values()
        return kind

    @property
    def nbytes(self) -> int | None:
        """Size of all stacked cells in bytes; None if it is not known."""
        sizes = [kind.nbytes for kind in self.kinds.values()]
        return None if None in sizes else len(self) * sum(size for size in sizes if size is not None)

    @property
    def cached(self) -> bool:
        """Whether `load` has filled the cache."""
        return self._stacks is not None

    @property
    def readers(self) -> int:
        """Number of processes that should read batches: ``workers``, or 0 once the cells are cached."""
        return 0 if self.cached else self.workers

    @property
    def usable(self) -> Tensor:
        """Samples int64 that have not failed."""
        usable = torch.ones(len(self), dtype=torch.bool)
        usable[list(self.failures)] = False
        return usable.nonzero().squeeze(1)

    def item_id(self, sample: int) -> str:
        """Returns the id of a sample."""
        return self.table.item_id(sample)

    def __getitems__(self, samples: Sequence[int]) -> Batch:
        """Returns the batch of these samples, in this order."""
        if self._stacks is None:
            return self._read_cells(samples)
        rows = np.asarray(samples, dtype=np.int64)
        failed: list[tuple[int, str]] = []
        if self.failures:
            failed = [(each, self.failures[each]) for each in rows.tolist() if each in self.failures]
            rows = rows[~np.isin(rows, [sample for sample, _ in failed])]
        return Batch({name: stack.take(rows) for name, stack in self._stacks.items()}, torch.from_numpy(rows), failed)

    def _read_cells(self, samples: Sequence[int]) -> Batch:
        columns = self.table.columns
        values: dict[str, dict[int, Any]] = {name: {} for name in self.kinds}
        reasons: dict[int, str] = {}
        rounded: list[int] = []
        # In the order of the table, because neighbors share a row group in a Parquet file.
        for place in np.argsort(np.asarray(samples, dtype=np.int64), kind="stable").tolist():
            sample = int(samples[place])
            try:
                cells = {name: kind.read(columns[name], sample) for name, kind in self.kinds.items()}
            except UnreadableCell as error:
                reasons[place] = error.reason
                continue
            for name, cell in cells.items():
                values[name][place] = cell.value
            if any(cell.rounded for cell in cells.values()):
                rounded.append(sample)
        readable = [place for place in range(len(samples)) if place not in reasons]
        return Batch(
            {name: kind.stack([values[name][place] for place in readable]) for name, kind in self.kinds.items()},
            torch.tensor([int(samples[place]) for place in readable], dtype=torch.int64),
            [(int(samples[place]), reasons[place]) for place in sorted(reasons)],
            rounded,
        )

    def load(self, progress: bool | None = True) -> bool:
        """Reads all cells into the cache if they take at most ``cache_bytes``; returns whether they did.

        Samples that cannot be read are added to ``failures`` and left out of all later batches. ``progress``: show a bar
        on a terminal; None takes the default of this object.
        """
        if self.cached:
            return True
        if self.nbytes is None or self.nbytes > self.cache_bytes:
            return False
        stacks = {name: kind.blank(len(self)) for name, kind in self.kinds.items()}
        shown = self.progress if progress is None else progress and self.progress
        # Batches of about 8 MB: small enough for a container's shared memory, large enough to make transfer costs small.
        size = max(1, min(1024, 2**23 // max(1, self.nbytes // max(1, len(self)))))
        for batch in self._read(range(len(self)), size, self.workers, "decoding", shown):
            for name, stack in stacks.items():
                stack.put(batch.sample, batch.columns[name])
        self._stacks = stacks
        self.table.release()
        return True

    def batches(self, samples: Rows, batch_size: int, workers: int = 0, then: Then = no_change) -> Iterator[Any]:
        """Yields ``then`` of the batches of these samples, in order; adds samples that fail to ``failures``.

        ``then``: see `read_batches`.
        """
        return self._read(samples, batch_size, workers, "reading", False, then)

    def _read(
        self, samples: Any, size: int, workers: int, what: str, progress: bool | None, then: Then = no_change
    ) -> Iterator[Batch]:
        parts = split_batches(samples, size)
        read = read_batches(self, parts, 0 if self.cached else workers, then)
        counted = ((len(part), batch) for part, batch in zip(parts, read, strict=True))
        for batch in track(counted, len(samples), what, progress):
            self.failures.update(batch.failed)
            self.rounded.update(batch.rounded)
            yield batch
