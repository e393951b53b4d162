"""Splits of pairs without leaks: rows that share any equal cell stay on one side."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError, counted
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import first_few, visible
from coulomb.tables.equal_cells import Ids, equal_cells
from coulomb.tables.groups import find_groups
from coulomb.tables.split import check_fraction
from coulomb.tables.table import Columns

Names = Sequence[str]
MANY = 0.5  # of the rows in one component, which is then named
ORDERS = 32  # that are tried
GROUP = "group"  # stands for the kind of a column of groups
CLOSE = 0.01  # relative to the number of rows to hold out


def joint_ids(tables: Sequence[Columns], names: Names) -> list[Ids]:
    """Returns the ids of cells, int64 [N, C] for each table: equal cells of a kind have equal ids in all columns and tables.

    Args:
        tables: tables with the same columns, such as training and test set.
        names: the C columns.

    Raises:
        InputError: a column is of different kinds.
    """
    for name in names:
        if len(kinds := {table.kinds[name] for table in tables}) > 1:
            raise InputError(f"column {visible(name)!r} is {' and '.join(sorted(kinds))} in {len(tables)} tables")
    kind_of = [tables[0].kinds[name] for name in names]
    ids = [np.empty((len(table), len(names)), dtype=np.int64) for table in tables]
    for columns in _together(len(names), kind_of):
        places = [(number, column) for number in range(len(tables)) for column in columns]
        cells = [tables[number].columns[names[column]] for number, column in places]
        for (number, column), numbered in zip(places, equal_cells(kind_of[columns[0]], cells), strict=True):
            ids[number][:, column] = numbered
    return ids


def equal_cells_split(
    ids: Ids, fraction: float, seed: int, *, names: Names | None = None, alike: Sequence[Any] | None = None
) -> tuple[Ids, Ids, str]:
    """Splits rows so that no cell of the test rows is in a training row.

    Rows that share a cell, directly or through other rows, form a component: the connected components of the graph of rows
    and cells. Whole components are drawn in random order and held out as long as they fit into ``fraction`` · N rows; if
    one more component comes closer to that number, it is added. If the number is missed by more than 1%, the best of 32
    orders is taken. Larger components stay in training.

    Args:
        ids: ids of the cells, int64 [N, C], equal where the cells of a column are, as `Columns.cell_ids` returns.
        fraction: of the rows to hold out, between 0 and 1.
        seed: seed of the random order.
        names: of the C columns, for messages.
        alike: a value for each of the C columns, such as its kind: columns of equal values are numbered together, so that a
            question in one column is equal to the same question in another. Default: each column by itself.

    Returns:
        Training rows and test rows, int64, sorted; and a sentence that describes the split.

    Raises:
        InputError: fewer than half of ``fraction`` · N rows can be held out.

    Shape:
        ids: [N, C].
        output: two arrays of rows, and a sentence.

    >>> ids = np.array([[0, 0], [0, 1], [1, 2], [2, 3], [3, 4]])  # rows 0 and 1 share a cell
    >>> train, test, sentence = equal_cells_split(ids, 0.2, seed=0)
    >>> len(train), len(test)
    (4, 1)
    """
    check_fraction(fraction)
    ids = ids[:, None] if ids.ndim == 1 else ids
    rows = len(ids)
    names = [f"column {number}" for number in range(ids.shape[1])] if names is None else list(names)
    component = components(ids, alike)
    sizes = np.bincount(component, minlength=1)
    chosen = _draw(sizes, min(max(1, round(fraction * rows)), rows - 1), seed)
    tested = int(sizes[chosen].sum())
    if tested < fraction / 2 * rows or rows < 2:
        raise InputError(_refusal(ids, names, sizes, component, fraction, tested, alike))
    in_test = np.zeros(len(sizes), dtype=bool)
    in_test[chosen] = True
    train, test = np.flatnonzero(~in_test[component]), np.flatnonzero(in_test[component])
    share = f"{len(test) / rows:.0%}"
    sentence = f"{len(test)} of {rows} rows held out ({share}, seed {seed}); no {_either(names)} is in both parts."
    if len(sizes) < rows:
        sentence += (
            f" Rows that share one stay together: {len(sizes)} groups, {len(chosen)} of them held out, the largest with "
            f"{sizes.max()} rows."
        )
    if sizes.max() > MANY * rows:
        sentence += f" {_largest(ids, names, sizes, component)}"
    return train, test, sentence


def split_rows(
    table: Columns, fraction: float, seed: int, *, group: str | None = None, ids: Ids | None = None
) -> tuple[Ids, Ids, str]:
    """Splits the rows of a table so that nothing leaks, as far as ``group`` allows.

    ==================  ============================================================================================
    ``group``           rows stay together that
    ==================  ============================================================================================
    None                share any cell, of columns that are not hard negatives
    a column in use     have equal cells of this column; cells of other columns may be in both parts
    anything else       share any cell, or are in one group, see `coulomb.tables.groups.find_groups`
    ==================  ============================================================================================

    Args:
        table: the rows.
        fraction: of the rows to hold out, between 0 and 1.
        seed: seed of the draw.
        group: see the table.
        ids: ids of the cells of all columns of the table, int64 [N, C], as `joint_ids` returns them, if they are known.

    Returns:
        Training rows and test rows, int64, sorted; and a sentence that describes the split.

    Raises:
        InputError: too few rows can be held out, or there is no such group.
    """
    every = list(table.columns)
    if group in every:
        return equal_cells_split(table.cell_ids(group), fraction, seed, names=[group])
    ids = joint_ids([table], every)[0] if ids is None else ids
    names = [name for name in every if name not in table.negatives]
    ids, alike = ids[:, [every.index(name) for name in names]], [table.kinds[name] for name in names]
    if group is None:
        return equal_cells_split(ids, fraction, seed, names=names, alike=alike)
    groups = find_groups(table, group)
    ids, names, alike = np.column_stack([ids, groups.ids]), [*names, groups.noun], [*alike, GROUP]
    train, test, sentence = equal_cells_split(ids, fraction, seed, names=names, alike=alike)
    if groups.alone:
        whose = "is a group of its own" if groups.alone == 1 else "are groups of their own"
        sentence += f" {counted(groups.alone, 'row')} without a {visible(groups.noun)} {whose}."
    return train, test, sentence


def components(ids: Ids, alike: Sequence[Any] | None = None) -> Ids:
    """Returns the connected component of each row, int64 [N], numbered from 0; see `equal_cells_split`."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    rows, cells, edges = len(ids), 0, []
    for columns in _together(ids.shape[1], alike):
        distinct, numbers = np.unique(ids[:, columns], return_inverse=True)
        edges += [each + rows + cells for each in numbers.reshape(rows, len(columns)).T]
        cells += len(distinct)
    start = np.tile(np.arange(rows), len(edges))
    end = np.concatenate(edges)
    graph = csr_array((np.ones(len(start), dtype=bool), (start, end)), shape=(rows + cells, rows + cells))
    _, labels = connected_components(graph, directed=False)
    return np.unique(labels[:rows], return_inverse=True)[1].astype(np.int64)


def _together(width: int, alike: Sequence[Any] | None) -> list[list[int]]:
    """Returns the columns that are numbered together, as lists of their places."""
    keys = list(range(width)) if alike is None else list(alike)
    return [[place for place in range(width) if keys[place] == key] for key in dict.fromkeys(keys)]


def _draw(sizes: Ids, wanted: int, seed: int) -> Ids:
    """Returns components that together have about ``wanted`` rows; of several orders, the choice that comes closest."""
    draw = numpy_generator(seed, "equal cells split")
    best, least = np.zeros(0, dtype=np.int64), wanted
    for _ in range(ORDERS):
        order = draw.permutation(len(sizes))
        chosen, gap = [], wanted
        for number, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
            if size <= gap:
                chosen.append(number)
                gap -= size
                if not gap:
                    break
        rest = np.setdiff1d(order, chosen) if gap else order[:0]
        if len(rest) > 1 and sizes[rest].min() < 2 * gap:
            chosen.append(int(rest[sizes[rest].argmin()]))
            gap = int(sizes[rest].min()) - gap
        if gap < least:
            best, least = np.array(chosen, dtype=np.int64), gap
        if gap <= CLOSE * wanted:
            break
    return best


def _either(names: Names) -> str:
    shown = [visible(name) for name in names]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"


def _largest(ids: Ids, names: Names, sizes: Ids, component: Ids) -> str:
    """Describes the largest component: its size, and the cell that most of its rows share."""
    inside = ids[component == sizes.argmax()]
    most = [int(np.unique(column, return_counts=True)[1].max()) for column in inside.T]
    worst = int(np.argmax(most))
    return (
        f"One group has {len(inside)} of the {len(ids)} rows ({len(inside) / len(ids):.0%}), joined by cells that repeat: the "
        f"most frequent {visible(names[worst])} is in {most[worst]} rows."
    )


def _refusal(
    ids: Ids, names: Names, sizes: Ids, component: Ids, fraction: float, tested: int, alike: Sequence[Any] | None
) -> str:
    if len(ids) < 2:
        return f"{counted(len(ids), 'row')} cannot be split; give at least 2 rows, or a test set (--test)"
    refusal = (
        f"test_fraction={fraction}: only {tested} of {len(ids)} rows can be held out so that no {_either(names)} is in both "
        f"parts. {_largest(ids, names, sizes, component)} "
    )
    alone = {
        name: int(np.unique(column, return_counts=True)[1].max()) for name, column in zip(names, ids.T, strict=True)
    }
    possible = {name: largest for name, largest in alone.items() if largest <= fraction * len(ids)}
    if len(names) > 1 and possible:
        best = min(possible, key=lambda name: possible[name])
        return (
            f"{refusal}Split by one column (--group {visible(best)}: its largest group has {counted(possible[best], 'row')}), "
            "leave out rows with cells that repeat that often, or give a test set"
        )
    return f"{refusal}Give a test set, or leave out rows with cells that repeat that often"


@dataclass(frozen=True)
class SharedCells:
    """Cells of a test set that are in the training set, too.

    Attributes:
        names: the C columns.
        rows: test rows whose cell of each column is in the training set, [C].
        pairs: test rows of which all cells are, in one training row.
        any: test rows of which at least one cell is.
        total: number of test rows.
        examples: the first few of these test rows, int64, counted from 0 in the test set.
    """

    names: tuple[str, ...]
    rows: tuple[int, ...]
    pairs: int
    any: int
    total: int
    examples: Ids

    def sentence(self, item_id: Callable[[int], str] = str) -> str | None:
        """Returns a sentence that counts what is shared; None if nothing is. ``item_id`` names a test row."""
        if not self.any:
            return None
        listed = ", ".join(
            f"{visible(name)} of {rows}" for name, rows in zip(self.names, self.rows, strict=True) if rows
        )
        whole = f", {self.pairs} with the whole row" if self.pairs and len(self.names) > 1 else ""
        first = first_few([item_id(row) for row in self.examples.tolist()])
        return (
            f"{self.any} of {counted(self.total, 'test row shares', 'test rows share')} a cell with the training set ({listed}"
            f"{whole}), so the evaluation is flattered: test rows {first}"
        )


def shared_cells(train: Ids, test: Ids, names: Names, *, alike: Sequence[Any] | None = None) -> SharedCells:
    """Counts cells of test rows that are in a training row.

    Args:
        train: ids of the training rows, int64 [N, C].
        test: ids of the test rows, int64 [M, C], by the same numbers, see `joint_ids`.
        names: the C columns.
        alike: which columns are numbered together, see `equal_cells_split`.
    """
    train, test = (each[:, None] if each.ndim == 1 else each for each in (train, test))
    inside = np.empty(test.shape, dtype=bool)
    for columns in _together(test.shape[1], alike):
        inside[:, columns] = np.isin(test[:, columns], train[:, columns])
    _, numbers = np.unique(np.concatenate([train, test]), axis=0, return_inverse=True)
    numbers = numbers.reshape(-1)
    pairs = np.isin(numbers[len(train) :], numbers[: len(train)])
    some = np.flatnonzero(inside.any(axis=1))
    return SharedCells(
        tuple(names), tuple(inside.sum(axis=0).tolist()), int(pairs.sum()), len(some), len(test), some[:5]
    )
