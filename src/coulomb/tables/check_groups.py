"""Suggests groups of images that should not be on both sides of a split: photos of one house, patient or video."""

import math
import re
from typing import Any

import numpy as np

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.ground.text import visible
from coulomb.tables.groups import FILE_GROUPS, Groups, find_groups
from coulomb.tables.labels import LABEL_COLUMNS
from coulomb.tables.table import Table

# Words in column names that mean a group, and those that mean a group or a class.
ALWAYS = set(
    "apartment building camera case clip customer donor exam family group home house identity individual listing "
    "participant patient player plot property recording session shot site slide sequence series speaker specimen study "
    "subject tile track trip user video visit worker".split()
)
SOMETIMES = set("animal id ids location object owner person place plant product scan scene tree uid".split())
LEAST_GROUPS = 5
LARGEST = 0.25  # of the images in one group
SMALL = 30  # images per group on average; larger groups that are not surely groups are mostly kinds of things
MOST_COPIES = 0.5  # of the sets of identical images, above which a column that keeps them together is a group
GROUPED = 0.5  # least fraction of the images that share their group with another one


def group_like(table: Table, copies: list[list[int]]) -> list[dict[str, Any]]:
    """Returns the columns, and whether file names or folders, that look like groups of similar images; the best first.

    A candidate has at least 5 groups, none with more than a quarter of the images, and most images share their group with
    another. With labels, there are more groups than classes. File names, folders, and columns without a name in ``ALWAYS``
    may also contain kinds of things: they need three times as many groups as classes, and at most 30 images per group on
    average; a column also needs a name in ``SOMETIMES``, or must keep together most of the ``copies``.

    Args:
        table: the images.
        copies: indices of identical images, a list for each picture that occurs several times.

    Returns:
        [{``option`` (for ``--group``), ``noun``, ``groups``, ``images_per_group``, ``copies`` (fraction of the lists of
        copies within one group, None without copies)}].
    """
    labels = table.labels
    classes = 0 if labels is None else len(np.unique(labels[labels >= 0]))
    suggestions = []
    for option in [*table.other_columns(), *(FILE_GROUPS if table.has_paths else ())]:
        try:
            groups = find_groups(table, option)
        except DataUnavailableError:
            raise
        except InputError:
            continue
        is_column = groups.noun == option and option not in FILE_GROUPS
        together = _kept_together(groups, copies)
        surely = is_column and _has_word(option, ALWAYS)
        maybe = not is_column or _has_word(option, SOMETIMES) or (together or 0) > MOST_COPIES
        if (surely and _fits(groups, classes)) or (maybe and _fits(groups, 3 * classes, SMALL)):
            suggestions.append(
                {
                    "option": option,
                    "noun": groups.noun,
                    "groups": len(groups.names),
                    "images_per_group": round(len(table) / len(groups.names), 2),
                    "copies": together,
                }
            )
    return sorted(suggestions, key=lambda entry: -(entry["copies"] or 0))  # stable: columns before names and folders


def group_finding(suggestions: list[dict[str, Any]]) -> str | None:
    """Returns a sentence that recommends the first of the ``suggestions``, or None if there are none."""
    if not suggestions:
        return None
    first = suggestions[0]
    option = visible(first["option"])
    what = {"name": "file names share", "folder": "deeper folders are"}.get(option, f"column {option!r} has")
    also = "; exact copies are in the same group" if (first["copies"] or 0) > MOST_COPIES else ""
    noun = visible(first["noun"])
    return (
        f"The images come in groups: {what} {first['groups']} {'stems' if option == 'name' else 'values'}, with "
        f"{first['images_per_group']:.3g} images each on average{also}. Similar images in both the training and the test set "
        f"flatter the evaluation: --group {option} keeps every {noun} on one side."
    )


def _has_word(column: str, words: set[str]) -> bool:
    """Returns True if a word of ``patient_id``, ``videoNumber`` or the like is among ``words``, and none means a class."""
    parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", column)}
    return not parts & set(LABEL_COLUMNS) and bool((parts | {part.removesuffix("s") for part in parts}) & words)


def _fits(groups: Groups, more_than: int, most_on_average: float = math.inf) -> bool:
    sizes = groups.sizes
    images = len(groups.ids)
    return bool(
        len(sizes) >= LEAST_GROUPS
        and len(sizes) > more_than
        and sizes.max() <= LARGEST * images
        and sizes[sizes > 1].sum() >= GROUPED * images
        and images / len(sizes) <= most_on_average
    )


def _kept_together(groups: Groups, copies: list[list[int]]) -> float | None:
    if not copies:
        return None
    return float(np.mean([len(np.unique(groups.ids[members])) == 1 for members in copies]))
