"""The plan of a run on columns: a tower for each, one way of contrasting them, and what each tower begins from."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from coulomb.ground.errors import counted
from coulomb.methods import Method
from coulomb.metrics.matching import first_places
from coulomb.models.text_objects import module_of
from coulomb.tables import Columns, Samples
from coulomb.tables.columns import Column
from coulomb.tables.scored import ScoredPairs
from coulomb.tables.shards.blocks import Blocks
from coulomb.tables.workers import cores
from coulomb.training.plan.config import Config
from coulomb.training.plan.resolved import Resolved, Split, batches_per_epoch
from coulomb.training.plan.towers import KINDS, TowerKind, TowerPlan
from coulomb.training.record.provenance import column_fingerprint

log = logging.getLogger("coulomb")


@dataclass(frozen=True)
class ColumnsPlan(Resolved):
    """What a run on columns will do: every value decided, every name resolved.

    Attributes:
        config: the complete configuration, as in ``config.yaml``.
        table: the data.
        test_table: the held-out data, if they are separate.
        columns: the columns, in order.
        kinds: the kind of each.
        towers: the towers, each once.
        split: rows of both sides.
        cell_ids: ids [N, C] of the cells of the table; equal cells of columns of one kind have equal ids.
        test_ids: likewise for the held-out data; of the same table, the same array.
        scored: scored pairs, whose cells are the held-out data; None if held-out data are rows.
        method: the class of the method.
        processes: number of processes that the run begins with.
        learned: the training rows; of one column, one row for each distinct cell: a cell would repel its copies.
        steps_per_epoch: batches per epoch.

    Raises:
        InputError: there are fewer pairs than one batch.
    """

    config: Config
    table: Columns
    test_table: Columns | None
    columns: tuple[Column, ...]
    kinds: dict[str, str]
    towers: tuple[TowerPlan, ...]
    split: Split
    cell_ids: np.ndarray
    test_ids: np.ndarray
    method: type[Method]
    processes: int = 1
    scored: ScoredPairs | None = None
    module: nn.Module | None = None
    learned: np.ndarray = field(init=False)
    steps_per_epoch: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "learned", learned_rows(self.split, self.cell_ids))
        steps = batches_per_epoch(len(self.learned), self.config.batch_size, self.processes, "row")
        object.__setattr__(self, "steps_per_epoch", steps)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that are contrasted, without negatives."""
        return tuple(column.name for column in self.columns if not column.negative)

    @property
    def negatives(self) -> tuple[str, ...]:
        """The names of the columns of hard negatives."""
        return tuple(column.name for column in self.columns if column.negative)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The user's modules that this call gives, by the columns that they read."""
        given = ((name, tower.given) for tower in self.towers for name in tower.columns)
        return {name: module_of(each) for name, each in given if each is not None}

    @property
    def several(self) -> bool:
        """Whether columns are contrasted with each other; else views of one column."""
        return len(self.columns) > 1

    def place(self, column: str) -> int:
        """Returns the place of a column among all."""
        return [each.name for each in self.columns].index(column)

    def tower_of(self, column: str) -> TowerPlan:
        """Returns the tower of a column."""
        return next(tower for tower in self.towers if column in tower.columns)

    @property
    def held_out(self) -> Columns:
        """The table that holds the rows ``split.test``."""
        return self.table if self.test_table is None else self.test_table

    @property
    def held_out_labels(self) -> np.ndarray | None:
        """Labels of the rows ``split.test`` by the classes of the training rows, −1 for others; None without labels."""
        labels, names, own = self.held_out.labels, self.table.class_names, self.held_out.class_names
        if labels is None or self.table.labels is None:
            return None
        if names is not None and own is not None and own != names:
            number = {name: label for label, name in enumerate(names)}
            labels = np.array([number.get(name, -1) for name in own] + [-1], dtype=np.int64)[labels]
        return labels[self.split.test]

    @property
    def learned_labels(self) -> np.ndarray | None:
        """Labels of the training rows, −1 unknown; None without labels."""
        return None if self.table.labels is None else self.table.labels[self.learned]

    @property
    def blocks(self) -> Blocks | None:
        """None: cells are read one by one."""
        return None

    @property
    def epochs_of(self) -> int:
        """Steps from which on a checkpoint is written at the end of each epoch: those of cached features take milliseconds."""
        return 50

    def decoded(self, *, progress: bool = True) -> "ColumnsPlan":
        """Returns itself: cells are read when they are needed."""
        return self

    @property
    def stores(self) -> list[Samples]:
        """None yet: cells are read by the networks' kinds, which the training builds."""
        return []

    @property
    def closed_form(self) -> bool:
        """Whether the adapters begin as the best linear map: of two columns with frozen towers without a common space."""
        if any(tower.pair for tower in self.towers):
            return False
        apart = len(self.names) == len(self.towers) == 2 and len({self.tower_of(name).name for name in self.names}) == 2
        return apart and all(tower.cached for tower in self.towers)

    def first_rows(self, column: str) -> np.ndarray:
        """Returns for each row of the table the first training row with the same cell; the row itself if there is none."""
        ids = self.cell_ids[:, self.place(column)]
        train, first = self.split.train, np.arange(len(ids))
        _, at, inverse = np.unique(ids[train], return_index=True, return_inverse=True)
        first[train] = train[at[inverse]]
        return first

    def kind_of(self, column: str) -> TowerKind:
        """Returns what a run asks of the kind of a column."""
        return KINDS[self.kinds[column]]

    def workers(self, column: str) -> int:
        """Processes that read the cells of a column: pictures are decoded, other cells are in memory."""
        if not self.kind_of(column).decoded:
            return 0
        return cores() if self.config.workers is None else self.config.workers

    def announce(self) -> None:
        """Logs what was found in the data, and what each tower begins from."""
        for note in self.table.notes:
            log.info("%s", note)
        if copies := len(self.split.train) - len(self.learned):
            log.info("%s of cells that are there already: each cell is trained once", counted(copies, "row"))
        for tower in self.towers:
            log.info(
                "%s: %s begins from %s; tune=%s", ", ".join(tower.columns), tower.encoder, tower.begins, tower.tune
            )

    def describe(self, corrupt: list[dict[str, str]]) -> dict[str, Any]:
        """Returns the content of ``data.json``."""
        return {
            "source": self.table.describe(),
            "kind": "columns",
            "columns": {column.name: self.kinds[column.name] for column in self.columns},
            "negatives": list(self.negatives),
            "distinct": {
                column.name: len(np.unique(self.cell_ids[:, place])) for place, column in enumerate(self.columns)
            },
            **({} if self.table.labels is None else {"classes": self.table.class_names}),
            "train": len(self.split.train),
            "test": len(self.split.test),
            "split": self.split.sentence,
            "corrupt": corrupt,
        }

    def split_record(self) -> dict[str, Any]:
        """Returns the content of ``split.json``."""
        return {
            "seed": self.config.seed,
            "group": self.config.group,
            "train": [self.table.item_id(row) for row in self.split.train.tolist()],
            "test": [self.held_out.item_id(row) for row in self.split.test.tolist()],
            "fingerprints": self.fingerprints(),
        }

    def fingerprints(self) -> dict[str, Any]:
        """Returns the fingerprints of the data, and of separate held-out data."""
        return table_fingerprints(self.table, self.test_table, [column.name for column in self.columns])


def table_fingerprints(table: Columns, test_table: Columns | None, names: Sequence[str]) -> dict[str, Any]:
    """Returns the fingerprints of the columns ``names`` of the data, and of separate held-out data."""
    return {
        "data": column_fingerprint(table, names),
        "test": None if test_table is None else column_fingerprint(test_table, names),
    }


def learned_rows(split: Split, cell_ids: np.ndarray) -> np.ndarray:
    """Returns the training rows; of one column, the first of each distinct cell."""
    if cell_ids.shape[1] > 1:
        return split.train
    return split.train[first_places(cell_ids[split.train, 0])[0]]
