"""Groups of near-duplicates, the strongest pairs first, and which images of a group to keep."""

from dataclasses import dataclass, field

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.metrics.pairs import Pairs, strongest_pairs
from coulomb.metrics.rows import check_rows, cosines

MOST_PARTNERS = 16  # pairs per row that are kept where there are more
MOST_CENTERS = 4  # of a group: members that resemble all others
NONE: frozenset[tuple[int, int]] = frozenset()


def duplicate_groups(
    x: np.ndarray, above: float = 0.95, order: np.ndarray | None = None, also: frozenset[tuple[int, int]] = NONE
) -> list[np.ndarray]:
    """Returns groups of similar rows, the positions of each in ``order``; the largest group first.

    Pairs of rows with a cosine of at least ``above`` are visited, the most similar first. The groups of both rows are merged
    if one row, a center, resembles all others of both. So no chain of neighbors joins rows that are not alike. At the end a
    row that has partners, but is in no group because they all belong to centers that it does not resemble, joins the group
    of its most similar partner. Therefore

    - every row that resembles another one is in a group, and a lower ``above`` never drops a row from the groups;
    - a pair is never parted for a weaker one: if two rows that resemble each other are in different groups, one of them is
      with a row that it resembles at least as much.

    Memory is linear in N for any number of similar pairs: of each row the 16 strongest pairs are visited, and the centers
    of groups with more are compared again. At most N²/2 products, decided in fp64.

    Args:
        x: features [N,D]; a memory-mapped array is read in blocks. Rows of zeros resemble nothing.
        above: the least cosine.
        order: positions of the rows to compare; of equal pairs, the pair of earlier rows is visited first. Default: all.
        also: pairs (i, j), i < j, of positions that count as similar whatever their cosine.

    Raises:
        InputError: ``above`` is outside (0, 1], a position in ``order`` is repeated or out of range, NaN or infinite values.
    """
    check_rows(x)
    order = np.arange(len(x)) if order is None else np.asarray(order, np.int64)
    if (
        order.ndim != 1
        or len(np.unique(order)) != len(order)
        or (len(order) and not 0 <= order.min() <= order.max() < len(x))
    ):
        raise InputError(f"order: must be different positions from 0 to {len(x) - 1}.")
    pairs = strongest_pairs(x, above, order, MOST_PARTNERS)
    growing = _Growing(x, above, order, also)
    growing.visit(pairs)
    ends = np.concatenate([pairs.rows[pairs.own[:, 0]], pairs.columns[pairs.own[:, 1]]])
    growing.merge_crowds(np.bincount(ends, minlength=len(order)) >= MOST_PARTNERS)
    groups = [np.sort(np.array(group.rows + group.attached)) for group in growing.groups()]
    return [order[rows] for rows in sorted(groups, key=lambda rows: (-len(rows), rows[0]))]


def keep_best(
    x: np.ndarray, rows: np.ndarray, above: float, also: frozenset[tuple[int, int]] = NONE
) -> tuple[np.ndarray, np.ndarray]:
    """Chooses the rows of a group to keep: the first, and each that resembles none of those kept so far.

    Args:
        x: features [N,D].
        rows: positions of the group, best first [n].
        above: the least cosine.
        also: see `duplicate_groups`.

    Returns:
        For each row the kept row that it resembles most, itself if it is kept, [n]; and their cosine in fp64, [n]. The cosine
        of kept rows is that with the first.
    """
    kept: list[int] = []
    like, similarity = np.array(rows), np.ones(len(rows))
    for place, row in enumerate(rows.tolist()):
        if kept:
            values = cosines(x, np.repeat(row, len(kept)), x, np.array(kept))
            alike = (values >= above) | np.array([(min(row, other), max(row, other)) in also for other in kept])
            if alike.any():
                best = int(np.where(alike, values, -np.inf).argmax())
                like[place], similarity[place] = kept[best], values[best]
                continue
            similarity[place] = values[0]
        kept.append(row)
    return like, similarity


@dataclass
class _Group:
    """Rows, of which each of the ``centers`` resembles all others; ``attached`` rows resemble another row of the group."""

    number: int
    rows: list[int]
    centers: list[int]
    attached: list[int] = field(default_factory=list)


class _Growing:
    """Groups that grow while pairs are visited. Rows are positions in ``order``.

    Args:
        x: features [N,D].
        above: the least cosine.
        order: positions in ``x``.
        also: pairs of positions in ``x`` that count as similar.
    """

    def __init__(self, x: np.ndarray, above: float, order: np.ndarray, also: frozenset[tuple[int, int]]) -> None:
        self.x, self.above, self.order = x, above, order
        place = {row: number for number, row in enumerate(order.tolist())} if also else {}
        inside = [sorted((place[i], place[j])) for i, j in also if i in place and j in place]
        self.also = np.array(sorted(inside), np.int64).reshape(-1, 2)
        self.also_set = set(map(tuple, self.also.tolist()))
        self.group: list[_Group | None] = [None] * len(order)
        self.steps = np.zeros(len(order), np.int64)  # from a center, of attached rows
        self.refused: set[tuple[int, int, int, int]] = set()

    def groups(self) -> list[_Group]:
        """Returns the groups."""
        return list({id(group): group for group in self.group if group is not None}.values())

    def visit(self, pairs: Pairs) -> None:
        """Merges the groups of both rows of each pair, the most similar first, and attaches what is left."""
        rows, columns = np.concatenate([pairs.rows, self.also[:, 0]]), np.concatenate([pairs.columns, self.also[:, 1]])
        more = cosines(self.x, self.order[self.also[:, 0]], self.x, self.order[self.also[:, 1]])
        values = np.concatenate([pairs.cosines, more])
        own = np.concatenate([pairs.own, np.ones((len(more), 2), bool)])
        order = np.lexsort((columns, rows, -values))
        rows, columns, own = rows[order], columns[order], own[order]
        # Partners of each row by its own pairs, the most similar first.
        ends = np.concatenate([rows[own[:, 0]], columns[own[:, 1]]])
        others = np.concatenate([columns[own[:, 0]], rows[own[:, 1]]])
        rank = np.concatenate([np.flatnonzero(own[:, 0]), np.flatnonzero(own[:, 1])])
        sort = np.lexsort((rank, ends))
        self.partners = others[sort]
        self.starts = np.searchsorted(ends[sort], np.arange(len(self.order) + 1))
        for i, j, mine, its in zip(rows.tolist(), columns.tolist(), *own.T.tolist(), strict=True):
            for row, among_own in ((i, mine), (j, its)):
                if self.group[row] is None and not among_own:  # all its own, stronger pairs were visited
                    self.attach(row)
            self.merge(i, j)
        for row in range(len(self.order)):
            if self.group[row] is None and self.starts[row] < self.starts[row + 1]:
                self.attach(row)

    def merge(self, i: int, j: int) -> bool:
        """Merges the groups of two rows that resemble each other, if a row is the center of both."""
        first, second = self.group[i] or _Group(i, [i], [i]), self.group[j] or _Group(j, [j], [j])
        if first is second:
            return False
        if len(first.rows) < len(second.rows):
            first, second = second, first
        if len(first.rows) == 1:
            centers = [i, j]
        else:
            state = (first.number, len(first.rows), second.number, len(second.rows))
            if state in self.refused:
                return False
            centers = [c for c in first.centers if self.resembles(c, second.rows)]
            if not centers or len(first.rows) < MOST_CENTERS:
                centers += [c for c in second.centers if self.resembles(c, first.rows)]
            if not centers:
                self.refused.add(state)
                return False
        first.rows += second.rows
        first.attached += second.attached
        first.centers = sorted(centers)[:MOST_CENTERS]
        for row in (first.rows[0], *second.rows, *second.attached):
            self.group[row] = first
        return True

    def resembles(self, center: int, rows: list[int]) -> bool:
        """Returns whether a row resembles all the ``rows``."""
        many = np.array(rows)
        values = cosines(self.x, np.repeat(self.order[center], len(many)), self.x, self.order[many])
        return all(
            value >= self.above or (min(center, row), max(center, row)) in self.also_set
            for value, row in zip(values.tolist(), rows, strict=True)
        )

    def attach(self, row: int) -> None:
        """Adds a row to the group of its partner that is nearest to a center; of these, the most similar."""
        partners = self.partners[self.starts[row] : self.starts[row + 1]]
        partner = int(partners[self.steps[partners].argmin()])
        group = self.group[partner]
        assert group is not None  # otherwise the two would have become a group
        group.attached.append(row)
        self.group[row], self.steps[row] = group, self.steps[partner] + 1

    def merge_crowds(self, crowded: np.ndarray) -> None:
        """Merges groups whose centers resemble each other, where rows have more partners than were visited."""
        while True:
            groups = [group for group in self.groups() if crowded[group.rows].any()]
            centers = np.array(sorted(group.centers[0] for group in groups), np.int64)
            if len(centers) < 2:
                return
            pairs = strongest_pairs(self.x, self.above, self.order[centers], MOST_PARTNERS)
            merged = [
                self.merge(int(centers[i]), int(centers[j])) for i, j in zip(pairs.rows, pairs.columns, strict=True)
            ]
            if not any(merged):
                return
