"""A data set as a table: ids, labels and named columns."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from coulomb.ground.errors import InputError
from coulomb.ground.text import portable
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


class Columns(Table):
    """A table of columns in memory, or mapped to it.

    Example:
        table = Columns({"caption": ["a cat", "a dog"], "features": np.load("features.npy", mmap_mode="r")})

    Args:
        columns: cells by name, all of one length.
        ids: unique names of the rows; default their numbers.
        labels: int [N], −1 where unknown.
        groups: values by row, such as the patient, by the name of the group; see `coulomb.tables.groups.find_groups`.
        name: for display.
    """

    kind = "columns"

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        ids: Sequence[str] | None = None,
        labels: Sequence[int] | npt.NDArray[Any] | None = None,
        groups: Mapping[str, Sequence[Any]] | None = None,
        name: str = "columns",
    ) -> None:
        lengths = {each: len(cells) for each, cells in columns.items()}
        others = {"ids": ids, "labels": labels} | dict(groups or {})
        lengths |= {each: len(given) for each, given in others.items() if given is not None}
        if not columns or len(set(lengths.values())) > 1:
            raise InputError(f"columns of lengths {lengths}: must be at least one, all of the same length")
        if ids is not None and len(set(ids)) < len(ids):
            raise InputError(f"ids: {len(ids) - len(set(ids))} of {len(ids)} are not unique")
        self._columns, self._ids, self._groups, self.name = dict(columns), ids, dict(groups or {}), name
        self._length = next(iter(lengths.values()))
        self.labels = None if labels is None else np.asarray(labels, dtype=np.int64)

    def __len__(self) -> int:
        return self._length

    def item_id(self, index: int) -> str:
        """Returns the id of a row."""
        return str(index) if self._ids is None else self._ids[index]

    @property
    def columns(self) -> Mapping[str, Any]:
        """The cells of each column, by its name."""
        return self._columns

    def other_columns(self) -> dict[str, list[Any]]:
        """Returns the groups."""
        return {name: list(values) for name, values in self._groups.items()}
