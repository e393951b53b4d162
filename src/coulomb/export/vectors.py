"""The contents of an index that exports use, and exact neighbors, with which their recall is measured."""

from typing import Any, Protocol

import numpy as np
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.nearest import nearest
from coulomb.metrics.rows import as_tensor, unit_rows

ROWS = 8192  # rows that are in memory at a time
QUERIES, TOP = 100, 10  # recall@10 is measured on 100 queries
SAME = 1e-4  # largest difference of cosines that counts as a tie; float16 features have 5e-4 per value


class Vectors(Protocol):
    """An index: unit ``features`` [N, D] with their ``ids``, ``labels`` and ``table``."""

    features: np.ndarray

    @property
    def ids(self) -> list[str]:
        """Names of the images [N]."""

    @property
    def labels(self) -> list[str | None]:
        """Labels [N], None where unknown."""

    @property
    def table(self) -> Any:
        """A ``pyarrow.Table`` with the columns id, path and label."""

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> Tensor:
        """Returns features [start:stop] as float32."""


def require_rows(index: Vectors) -> None:
    """Raises `InputError` for an index without images."""
    if not len(index):
        raise InputError("the index has no images; build it from images first: coulomb index PHOTOS")


class Recall:
    """The exact nearest neighbors of a sample of an index, to measure the recall of another search.

    Args:
        index: the index; 100 of its images are drawn as queries.

    Attributes:
        queries: float32 [Q, D].
        top: K, 10 unless the index is smaller; the first neighbor of a query is the query.
    """

    def __init__(self, index: Vectors) -> None:
        drawn = np.sort(numpy_generator(0, "recall").permutation(len(index))[:QUERIES])
        self.index, self.top = index, min(TOP, len(index))
        self.queries = unit_rows(index.features, drawn)  # the rounding of float16 makes lengths differ from 1
        best, _ = nearest(as_tensor(index.features), self.queries, self.top, unit=True)
        self._least = best[:, -1:] - SAME

    def of(self, positions: Any) -> float:
        """Returns the share of found neighbors among the K nearest; equally similar images count as the same.

        Args:
            positions: [Q, K], rows of the index, −1 where nothing was found.
        """
        shares = []
        for query, least, found in zip(self.queries, self._least, np.asarray(positions).tolist(), strict=True):
            rows = [row for row in dict.fromkeys(found) if row >= 0]
            cosines = unit_rows(self.index.features, np.array(rows, np.int64)) @ query
            shares.append(int((cosines >= least).sum()) / self.top)
        return sum(shares) / len(shares)
