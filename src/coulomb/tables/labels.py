"""Converts labels of any form to int64 class numbers, −1 = unknown."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, natural_key, visible
from coulomb.tables.table import Labels, Table

LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "target")
# Class numbers start at 0; a larger one is an id or a measurement.
MOST_CLASSES = 2**20
_UNKNOWN_WORDS = {"", "nan", "-1"}


def read_labels(
    values: Sequence[Any] | np.ndarray, count: int, where: str, class_names: list[str] | None = None
) -> tuple[Labels | None, list[str] | None]:
    """Converts labels given as integers, strings or floats to class numbers.

    Numbers (also as text, ``3`` or ``3.0``) are class numbers; any other text is a class name, and names are numbered in
    natural order. None, NaN, an empty string and −1 mean unknown.

    Args:
        values: one label per image.
        count: number of images.
        where: origin of the labels, for errors.
        class_names: names of all classes, if they are known.

    Returns:
        Labels int64 [count], or None if all are unknown; and the class names, or None if classes have no names.

    Raises:
        InputError: the number of labels is wrong, or a label is neither a class number nor a class name.
    """
    array = np.asarray(values.tolist() if isinstance(values, np.ndarray) else _plain(values), dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            f"{where}: labels have shape {list(array.shape)}; give one label per image "
            "(convert one-hot rows by labels.argmax(1); several labels per image are not supported)"
        )
    if len(array) != count:
        raise InputError(f"{where}: {len(array)} labels for {count} images; give one label per image (−1 = unknown)")
    cleaned = [None if is_unknown(value) else value for value in array]
    known = [value for value in cleaned if value is not None]
    if not known:
        return None, class_names
    if class_names is not None and all(isinstance(value, str) for value in known) and set(known) <= set(class_names):
        number = {name: index for index, name in enumerate(class_names)}
        return _numbers([-1 if value is None else number[value] for value in cleaned]), class_names
    if all(_as_number(value) is not None for value in known):
        return _checked_integers(cleaned, where, class_names), class_names
    if class_names is not None:
        unknown = next(value for value in known if str(value) not in class_names)
        raise InputError(f"{where}: label {visible(unknown)!r} is not one of the classes {first_few(class_names)}")
    unsupported = [value for value in known if not isinstance(value, (str, int, float, bool, np.generic))]
    if unsupported:
        raise InputError(f"{where}: a label is a {type(unsupported[0]).__name__}; labels must be integers or strings")
    names = sorted({str(value) for value in known}, key=natural_key)
    number = {name: index for index, name in enumerate(names)}
    return _numbers([-1 if value is None else number[str(value)] for value in cleaned]), names


def choose_label_column(
    columns: Sequence[str], requested: str | None, class_columns: Sequence[str], where: str
) -> str | None:
    """Returns the label column of a table, or None.

    It is the ``requested`` one; by default the first with a name of ``LABEL_COLUMNS``, or the only one of
    ``class_columns``, those that are known to hold classes.

    Raises:
        InputError: the requested column does not exist, or several columns hold classes.
    """
    if requested is not None:
        if requested not in columns:
            raise InputError(f"{where}: no label column {visible(requested)!r}; there are {first_few(list(columns))}")
        return requested
    usual = next((name for name in LABEL_COLUMNS if name in columns), None)
    if usual is None and len(class_columns) > 1:
        raise InputError(f"{where}: several label columns ({first_few(class_columns)}); choose one with labels=")
    return usual or next(iter(class_columns), None)


def match_classes(table: Table, class_names: list[str] | None) -> Labels | None:
    """Renumbers the labels of a test set by the class names of its training set.

    A folder tree without one of the classes numbers the others differently, so that numbers cannot be compared. If either
    side has no names, labels are returned unchanged.

    Raises:
        InputError: ``table`` has images of a class that is not in ``class_names``.

    >>> source = open_source(np.arange(64, dtype=np.uint8).reshape(4, 4, 4), labels=[0, 0, 1, 1])
    >>> match_classes(source, None)
    array([0, 0, 1, 1])
    """
    if table.labels is None or class_names is None or table.class_names is None or table.class_names == class_names:
        return table.labels
    used = np.unique(table.labels[table.labels >= 0])
    missing = [table.class_names[index] for index in used if table.class_names[index] not in class_names]
    if missing:
        raise InputError(
            f"{visible(table.name)}: class {first_few(missing)} is not among the training classes {first_few(class_names)}; "
            "rename or remove it"
        )
    number = {name: index for index, name in enumerate(class_names)}
    renumbered = np.array([number.get(name, -1) for name in table.class_names] + [-1], dtype=np.int64)
    return renumbered[table.labels]


def _plain(values: Sequence[Any]) -> list[Any]:
    return [value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value for value in values]


def _numbers(values: list[int]) -> Labels:
    return np.array(values, dtype=np.int64)


def is_unknown(value: object) -> bool:
    """Returns True for None, NaN, −1 and an empty string, which mean an unknown label or group."""
    if value is None:
        return True
    if isinstance(value, str):
        return value.strip().lower() in _UNKNOWN_WORDS
    if isinstance(value, float):
        return math.isnan(value) or value == -1
    return isinstance(value, int) and value == -1


def _as_number(value: object) -> float | int | None:
    if isinstance(value, (bool, int, float)):
        return value
    try:
        return int(value) if isinstance(value, str) else None
    except ValueError:
        pass
    try:
        return float(str(value))
    except ValueError:
        return None


def _checked_integers(values: list[Any], where: str, class_names: list[str] | None) -> Labels:
    limit = MOST_CLASSES if class_names is None else len(class_names)
    labels = []
    for index, value in enumerate(values):
        number = -1 if value is None else _as_number(value)
        assert number is not None
        if not math.isfinite(number) or number != int(number):
            raise InputError(
                f"{where}: label {visible(value)} of image {index} is not an integer; "
                "labels must be class numbers from 0 or class names (measurements are not supported)"
            )
        if not -1 <= number < limit:
            why = "" if class_names is None else f" of the {limit} class names"
            raise InputError(
                f"{where}: label {int(number)} of image {index} is outside the range 0…{limit - 1}{why}; "
                "number classes from 0, use −1 for unknown, or give class names"
            )
        labels.append(int(number))
    return _numbers(labels)
