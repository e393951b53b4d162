"""A data set as a table: ids, labels and named columns."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from coulomb.ground.errors import InputError
from coulomb.ground.text import portable
from coulomb.tables.equal_cells import Ids, equal_cells
from coulomb.tables.shards.blocks import Blocks

Labels = npt.NDArray[np.int64]


class Table(ABC):
    """A data set with stable ids, named columns and optional labels. Subclasses must be picklable: workers receive a copy.

    A **sample** is the number of a row. The cells of a column are what its kind reads (`coulomb.kinds`): a `Source` for
    images, strings for texts, an array or memory map for vectors. Groups of samples come from ids that are paths, or from
    `other_columns`; see `coulomb.tables.groups`.

    Attributes:
        name: name of the data set, for display.
        kind: kind of source, for display.
        labels: int64 [N], −1 where unknown; None if there are no labels.
        class_names: names by label; None if the classes have no names.
        root: the folder that ids are relative to.
        has_paths: whether ids are paths, from which groups can be read.
        notes: one sentence for each decision that was made, or kind of file that was skipped, when it was opened.
        blocks: parts of shards that are read at once, by which epochs are ordered; None where cells are read one by one.
        remote: whether cells come through the cache of `coulomb.tables.shards`, so that they are worth reading ahead.
        single_images: whether an image of a remote source can be fetched without the rest of its block.

    >>> table = open_columns({"question": ["blue?", "red?"], "answer": ["sky", "rose"]}, "question,answer")
    >>> len(table), table.kinds
    (2, {'question': 'text', 'answer': 'text'})
    """

    kind: str
    name: str
    labels: Labels | None = None
    class_names: list[str] | None = None
    root: Path | None = None
    has_paths: bool = False
    notes: tuple[str, ...] = ()
    blocks: Blocks | None = None
    remote: bool = False
    single_images: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def item_id(self, index: int) -> str:
        """Returns a stable, unique name of a row; for files, their POSIX path relative to ``root``."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Any]:
        """The cells of each column, by its name."""

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the columns of a file that are neither ``columns`` nor the labels in use; ``{}`` for other tables."""
        return {}

    def fetch(self, unit: int) -> None:
        """Puts a block b ≥ 0, or a single image i given as −1 − i, of a remote source into its cache."""
        raise NotImplementedError

    def unit_size(self, unit: int) -> int:
        """Returns the size in bytes of what `fetch` would fetch."""
        raise NotImplementedError

    def release(self) -> None:  # noqa: B027  most sources buffer nothing
        """Frees read buffers; later reads fill them again."""

    def describe(self) -> dict[str, Any]:
        """Returns kind, size, labels and notes, JSON-serializable."""
        labels = self.labels
        return {
            "name": self.name,
            "kind": self.kind,
            "count": len(self),
            "root": None if self.root is None else portable(str(self.root)),
            "labeled": 0 if labels is None else int((labels >= 0).sum()),
            "classes": 0 if labels is None else len(np.unique(labels[labels >= 0])),
            "class_names": self.class_names,
            "notes": list(self.notes),
        }


class RowNames(Sequence[str]):
    """Names of the rows of a table, made when they are needed.

    The name is the number of the row in the file, or the name of its image. If several rows share it, ``#0``, ``#1``, …
    follow.

    Args:
        row: number in the file of each row of the table, int64 [N].
        pictures: the images of the rows, if the table has any; their names must differ for different images.
        picture: number of the image of each row, int64 [N].
    """

    def __init__(self, row: Ids, pictures: Any = None, picture: Ids | None = None) -> None:
        self.row, self.pictures = row, pictures
        shared = row if picture is None else picture
        order = np.argsort(shared, kind="stable")
        first = np.flatnonzero(np.diff(shared[order], prepend=-1))  # of each run of equal numbers
        counts = np.diff(np.append(first, len(order)))
        self.repeat: Ids | None = None
        if len(first) < len(order):
            self.repeat = np.empty(len(order), dtype=np.int64)
            self.repeat[order] = np.arange(len(order)) - np.repeat(first, counts)
            single = np.repeat(counts == 1, counts)
            self.repeat[order[single]] = -1

    def __len__(self) -> int:
        return len(self.row)

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        """Returns the name of a row, or the names of a slice."""
        if isinstance(row, slice):
            return [self[each] for each in range(len(self))[row]]
        name = str(self.row[row]) if self.pictures is None else str(self.pictures.item_id(row))
        repeat = -1 if self.repeat is None else int(self.repeat[row])
        return name if repeat < 0 else f"{name}#{repeat}"


def kind_of_cells(cells: Any) -> str:
    """Returns the name of the kind that reads ``cells``: image, text or vector."""
    if hasattr(cells, "picture"):
        return "image"
    return "vector" if len(getattr(getattr(cells, "rows", cells), "shape", ())) > 1 else "text"


class Columns(Table):
    """A table of columns in memory, or mapped to it.

    Example:
        table = Columns({"caption": ["a cat", "a dog"], "features": np.load("features.npy", mmap_mode="r")})

    Args:
        columns: cells by name, all of one length.
        ids: unique names of the rows; default their numbers.
        labels: int [N], −1 where unknown.
        groups: values by row, such as the patient, by the name of the group; see `coulomb.tables.groups.find_groups`. Or a
            function that reads them.
        name: for display.
        kinds: "image", "text" or "vector" for each column; default what `kind_of_cells` returns.
        kind: kind of source, for display.
        class_names: names by label.
        root: the folder that ids are relative to.
        notes: one sentence for each decision that was made.
        negatives: names of the columns of hard negatives.
        lost: number of cells that could not be used, by column and reason, in the rows that were left out.
    """

    kind = "columns"

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        ids: Sequence[str] | None = None,
        labels: Sequence[int] | npt.NDArray[Any] | None = None,
        groups: Mapping[str, Sequence[Any]] | Callable[[], dict[str, list[Any]]] | None = None,
        name: str = "columns",
        kinds: Mapping[str, str] | None = None,
        kind: str = "columns",
        class_names: list[str] | None = None,
        root: Path | None = None,
        notes: tuple[str, ...] = (),
        negatives: tuple[str, ...] = (),
        lost: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        lengths = {each: len(cells) for each, cells in columns.items()}
        others = {"ids": ids, "labels": labels} | ({} if callable(groups) else dict(groups or {}))
        lengths |= {each: len(given) for each, given in others.items() if given is not None}
        if not columns or len(set(lengths.values())) > 1:
            raise InputError(f"columns of lengths {lengths}: must be at least one, all of the same length")
        if ids is not None and not isinstance(ids, RowNames) and len(set(ids)) < len(ids):
            raise InputError(f"ids: {len(ids) - len(set(ids))} of {len(ids)} are not unique")
        self._columns, self._ids, self.name, self.kind = dict(columns), ids, name, kind
        self._groups = groups if callable(groups) else dict(groups or {})
        self._cell_ids: dict[str, Ids] = {}
        self._length = next(iter(lengths.values()))
        self.kinds = {each: kind_of_cells(cells) for each, cells in columns.items()} if kinds is None else dict(kinds)
        self.negatives, self.root, self.notes, self.class_names = negatives, root, notes, class_names
        self.lost = {each: dict(reasons) for each, reasons in (lost or {}).items()}
        self.labels = None if labels is None else np.asarray(labels, dtype=np.int64)
        pictures = next((cells for cells in columns.values() if kind_of_cells(cells) == "image"), None)
        self._pictures: Any = pictures if isinstance(pictures, Table) else None
        if self._pictures is not None:  # rows are read in the order in which their images lie in the files
            self.blocks, self.remote = self._pictures.blocks, self._pictures.remote
            self.single_images, self.has_paths = self._pictures.single_images, self._pictures.has_paths

    def __getstate__(self) -> dict[str, Any]:
        # Workers read cells; groups and ids stay in the first process.
        return {**self.__dict__, "_groups": {}, "_cell_ids": {}}

    def __len__(self) -> int:
        return self._length

    def item_id(self, index: int) -> str:
        """Returns the id of a row."""
        return str(index) if self._ids is None else self._ids[index]

    @property
    def columns(self) -> Mapping[str, Any]:
        """The cells of each column, by its name."""
        return self._columns

    def with_cells(self, cells: Mapping[str, Any]) -> "Columns":
        """Returns a table of these columns with the same ids: cells of other kinds for the same rows, such as features."""
        return Columns(cells, ids=self._ids, name=self.name)

    def cell_ids(self, name: str) -> Ids:
        """Returns an id for each cell of a column, int64 [N]; equal cells share one, see `equal_cells`."""
        if name not in self._cell_ids:
            (self._cell_ids[name],) = equal_cells(self.kinds[name], [self._columns[name]])
        return self._cell_ids[name]

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the groups."""
        groups = self._groups() if callable(self._groups) else self._groups
        return {name: list(values) for name, values in groups.items()}

    def fetch(self, unit: int) -> None:
        """Puts a block, or the image of a row, of a remote source into its cache, see `Table.fetch`."""
        self._pictures.fetch(unit)

    def unit_size(self, unit: int) -> int:
        """Returns the size in bytes of what `fetch` would fetch."""
        size: int = self._pictures.unit_size(unit)
        return size

    def release(self) -> None:
        """Frees the read buffers of the columns."""
        for cells in self._columns.values():
            if isinstance(cells, Table):
                cells.release()
