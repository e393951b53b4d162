"""Groups of images, such as the photos of one house, that must not be on both sides of a split."""

import math
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from unicodedata import normalize

import numpy as np

from coulomb.ground.errors import InputError, counted, did_you_mean
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.text import first_few, visible
from coulomb.tables.labels import is_unknown
from coulomb.tables.split import check_fraction
from coulomb.tables.table import Columns, Labels, Table

FILE_GROUPS = ("name", "folder")  # groups by file name or folder; a column of that name takes precedence
_FOLDER_LEVEL = re.compile(r"folder:([1-9]\d?)")
_LAST_PART = re.compile(r"(?:[ _.\-]+[^ _.\-]*|\d+)$")
ORDERS = 32  # that are tried
MOST_MOVES = 20_000  # of groups, in all orders
PASSES = 5  # over all groups; the first one makes nearly all decisions


@dataclass(frozen=True)
class Groups:
    """Groups of images.

    Attributes:
        option: as given to `find_groups`.
        noun: what a group is, for messages: the name of the column, "folder" or "name stem".
        ids: group of each image, int64 [N], 0…G−1. An image whose group is unknown is a group of its own.
        names: names by id.
        alone: number of images whose group is unknown.
        unit: what the rows of the table are, for messages.
    """

    option: str
    noun: str
    ids: Labels
    names: list[str]
    alone: int = 0
    unit: str = "image"

    @property
    def sizes(self) -> Labels:
        """Images per group, int64 [G]."""
        return np.bincount(self.ids, minlength=len(self.names))


def find_groups(table: Table, group: str) -> Groups:
    """Returns the groups of a table.

    ================  ========================================================================================
    ``group``         images of one group share
    ================  ========================================================================================
    a column          the value of that column of a table, other than its labels (None, NaN, "" and −1: unknown); of a
                      column of pairs, equal cells (`coulomb.tables.table.Columns.cell_ids`)
    ``folder``        the name of the folder that contains the file
    ``folder:2``      the name of the folder at that level; 1 is the first below the data folder
    ``name``          the file name up to its last number, or last part after a space or one of ``_-.``:
                      ``house12`` for ``house12_kitchen.jpg`` and for ``house12-3.jpg``
    ================  ========================================================================================

    Raises:
        InputError: the table has no such column, or its images have no file names.
    """
    columns = table.other_columns()
    if group in columns:
        noun, values = group, [None if is_unknown(value) else str(value) for value in columns[group]]
    elif isinstance(table, Columns) and group in table.kinds:
        return _equal_cells(table, group)
    elif group in FILE_GROUPS or _FOLDER_LEVEL.fullmatch(group):
        noun = "name stem" if group == "name" else "folder"
        values = [_part_of_path(path, group) for path in _paths(table, group, columns)]
    else:
        used = [*table.kinds] if isinstance(table, Columns) else []
        known = [*used, *columns, *(FILE_GROUPS if table.has_paths else ())]
        remedy = f"use one of {first_few(known)}{did_you_mean(group, known)}" if known else "leave it out"
        raise InputError(
            f"group={visible(group)!r}: {visible(table.name)} has no such column besides its labels; {remedy}"
        )
    return _numbered(group, noun, values, "row" if isinstance(table, Columns) else "image")


def _equal_cells(table: Columns, group: str) -> Groups:
    """Returns the rows with equal cells of a column as groups, named by their text or by their first row."""
    ids = table.cell_ids(group)
    first = np.unique(ids, return_index=True)[1].tolist()
    is_text = table.kinds[group] == "text"
    cells = table.columns[group]
    names = [normalize("NFC", cells[row] or "").strip() if is_text else table.item_id(row) for row in first]
    return Groups(group, group, ids, names, unit="row")


def name_stem(path: str) -> str | None:
    """Returns the file name up to its last number or last part after a separator; None if nothing is left.

    >>> name_stem("kitchen/house12_kitchen.jpg"), name_stem("frame0031.png"), name_stem("0031.png")
    ('house12', 'frame', None)
    """
    return _LAST_PART.sub("", PurePosixPath(path).stem).strip(" _.-") or None


def _part_of_path(path: str, group: str) -> str | None:
    if group == "name":
        return name_stem(path)
    folders = path.split("/")[:-1]
    level = _FOLDER_LEVEL.fullmatch(group)
    position = len(folders) if level is None else int(level[1])
    return folders[position - 1] if 0 < position <= len(folders) else None


def file_paths(table: Table) -> list[str] | None:
    """Returns the POSIX paths of the images, relative to the data folder; None if the table does not know any."""
    return [table.item_id(index) for index in range(len(table))] if table.has_paths else None


def _paths(table: Table, group: str, columns: dict[str, Any]) -> list[str]:
    paths = file_paths(table)
    if paths is None:
        other = f"use a column: {first_few(list(columns))}" if columns else "give a folder, or a table with a column"
        raise InputError(f"group={group!r}: the images of {visible(table.name)} have no file names; {other}")
    return paths


def _numbered(option: str, noun: str, values: list[str | None], unit: str) -> Groups:
    names = sorted({value for value in values if value is not None})
    number = {name: position for position, name in enumerate(names)}
    alone = [position for position, value in enumerate(values) if value is None]
    number_of_rest = {position: len(names) + rank for rank, position in enumerate(alone)}
    ids = [number_of_rest[row] if value is None else number[value] for row, value in enumerate(values)]
    return Groups(
        option, noun, np.array(ids, dtype=np.int64), names + [f"{unit} {row}" for row in alone], len(alone), unit
    )


def grouped_split(labels: "Labels | None", groups: Groups, test_fraction: float, seed: int) -> tuple[Labels, Labels]:
    """Splits images into training and test indices, stratified by class, so that no group is on both sides.

    Groups are moved between the sides, in random order but those larger than the test part last, as long as this lowers
    Σ_c (x_c − f·n_c)² / n_c, where x_c of the n_c labeled images of class c are tested and f is ``test_fraction``. A class
    with f·n_c ≥ 1 and no tested image gets the group that raises the sum least, and so does an empty test part. At least one
    group of each class stays in training, and so do groups without labeled images. Images without a label follow their
    group. Of at most 32 random orders, the one with the smallest sum is taken.

    Args:
        labels: int64 [N], −1 unknown; None for a split without classes.
        groups: groups of the same images.
        test_fraction: f, between 0 and 1.
        seed: seed of the random order.

    Returns:
        Training indices and test indices, int64, sorted.

    Raises:
        InputError: all images or no two images are in one group, or fewer than f/2 of the labeled images can be held out
            without dividing a group.
    """
    check_fraction(test_fraction)
    _require_several(groups)
    classes = np.zeros(len(groups.ids), dtype=np.int64) if labels is None else labels
    counts = _counts_by_group(classes, groups)
    totals = np.bincount(classes[classes >= 0]).tolist()
    wanted = [test_fraction * total for total in totals]
    draw, large = numpy_generator(seed, "grouped split"), groups.sizes > test_fraction * len(classes)
    choices = []
    for _ in range(max(1, min(ORDERS, MOST_MOVES // max(1, len(counts))))):
        order = draw.permutation(np.array(list(counts), dtype=np.int64))
        choices.append(_choose(order[np.argsort(large[order], kind="stable")].tolist(), counts, totals, wanted))
    _, tested, chosen = min(choices, key=lambda choice: choice[0])
    if tested < test_fraction / 2 * sum(totals) or not totals:
        raise InputError(_refusal(groups, test_fraction, tested, sum(totals)))
    in_test = np.zeros(len(groups.names), dtype=bool)
    in_test[chosen] = True
    return np.flatnonzero(~in_test[groups.ids]), np.flatnonzero(in_test[groups.ids])


def _choose(
    order: list[int], counts: dict[int, list[tuple[int, int]]], totals: list[int], wanted: list[float]
) -> tuple[float, int, list[int]]:
    """Returns the sum for one order of the groups, the number of labeled test images, and the groups to test."""
    tested, taken = [0] * len(totals), dict.fromkeys(order, False)

    def change(group: int) -> float:
        """Returns the change of the sum when a group moves to the other side; infinity if it must not move."""
        sign, total = -1 if taken[group] else 1, 0.0
        for label, count in counts[group]:
            if sign > 0 and tested[label] + count >= totals[label]:
                return math.inf
            total += sign * count * (2 * (tested[label] - wanted[label]) + sign * count) / totals[label]
        return total

    def move(group: int) -> None:
        sign = -1 if taken[group] else 1
        taken[group] = not taken[group]
        for label, count in counts[group]:
            tested[label] += sign * count

    for _ in range(PASSES):
        moved = False
        for group in order:
            if change(group) < -1e-9:
                move(group)
                moved = True
        if not moved:
            break
    untested = [label for label, number in enumerate(wanted) if number >= 1 and not tested[label]]
    for members in [*([group for group in order if label in dict(counts[group])] for label in untested), order]:
        if not any(taken[group] for group in members):
            least = min(members, key=change, default=None)
            if least is not None and change(least) < math.inf:
                move(least)
    errors = ((have - want) ** 2 / max(1, total) for have, want, total in zip(tested, wanted, totals, strict=True))
    return sum(errors), sum(tested), [group for group, is_taken in taken.items() if is_taken]


def _counts_by_group(classes: Labels, groups: Groups) -> dict[int, list[tuple[int, int]]]:
    """Returns (class, number of images) for the classes of each group with labeled images."""
    known = classes >= 0
    pairs, numbers = np.unique(np.stack([groups.ids[known], classes[known]], axis=1), axis=0, return_counts=True)
    counts: dict[int, list[tuple[int, int]]] = {}
    for (group, label), number in zip(pairs.tolist(), numbers.tolist(), strict=True):
        counts.setdefault(group, []).append((label, number))
    return counts


def _require_several(groups: Groups) -> None:
    count, images = len(groups.names), len(groups.ids)
    remedy = "choose another group, or leave it out"
    if count == 1:
        raise InputError(
            f"group={visible(groups.option)!r}: all {images} {groups.unit}s are in one group, {visible(groups.names[0])!r}, "
            f"so that none can be held out; {remedy}"
        )
    if count == images:
        raise InputError(
            f"group={visible(groups.option)!r}: no two of the {images} {groups.unit}s share a {visible(groups.noun)}; {remedy}"
        )


def _refusal(groups: Groups, test_fraction: float, possible: int, labeled: int) -> str:
    largest = int(groups.sizes.argmax())
    share = groups.sizes[largest] / len(groups.ids)
    noun = visible(groups.noun)
    if share > 1 - test_fraction:
        why = f"{visible(groups.names[largest])!r} alone has {share:.0%} of the {groups.unit}s"
    else:
        why = f"most classes have one {noun} only, and one {noun} per class stays in training"
    return (
        f"group={visible(groups.option)!r}: only {possible} of {labeled} labeled {groups.unit}s can be held out without "
        f"dividing a {noun} (wanted {test_fraction:.0%}; {len(groups.names)} groups): {why}; give a test set, or "
        "choose another group"
    )


def grouped_sentence(labels: "Labels | None", groups: Groups, train: Labels, test: Labels, seed: int) -> str:
    """Describes a split by :func:`grouped_split` for the report."""
    held_out = len(np.unique(groups.ids[test]))
    how = "" if labels is None else ", stratified by class"
    total = len(train) + len(test)
    sentence = (
        f"{len(test)} of {total} {groups.unit}s held out ({len(test) / total:.0%}, seed {seed}"
        f"{how}), {held_out} of {len(groups.names)} groups; no {visible(groups.noun)} is in both."
    )
    if groups.alone:
        whose = "is a group of its own" if groups.alone == 1 else "are groups of their own"
        sentence += f" {counted(groups.alone, groups.unit)} without a {visible(groups.noun)} {whose}."
    if labels is not None:
        untested = np.setdiff1d(np.unique(labels[labels >= 0]), labels[test])
        if len(untested):
            sentence += f" {counted(len(untested), 'class has', 'classes have')} no test {groups.unit}."
        if unknown := int((labels < 0).sum()):
            out = int((labels[test] < 0).sum())
            held = f"{out} {'is' if out == 1 else 'are'} held out with their group"
            sentence += f" Of {counted(unknown, groups.unit)} without a label, {held}."
    return sentence


def require_apart(groups: Groups, test_groups: Groups) -> None:
    """Raises `InputError` if the data and the user's test set have images of the same group."""
    shared = sorted(set(groups.names[: _known(groups)]) & set(test_groups.names[: _known(test_groups)]))
    if shared:
        raise InputError(
            f"group={visible(groups.option)!r}: {len(shared)} groups are in both the data and the test set "
            f"({first_few(shared)}); remove their {groups.unit}s from one of them, or leave out group"
        )


def _known(groups: Groups) -> int:
    return len(groups.names) - groups.alone
