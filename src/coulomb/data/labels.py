"""Labels as strangers write them → int64 class numbers with −1 = unknown."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from coulomb.data.names import natural_key, some, visible
from coulomb.data.source import Labels, Source
from coulomb.errors import InputError

LABEL_COLUMNS = ("label", "labels", "class", "class_name", "category", "target")
# An integer label counts classes from 0; beyond this it is an id or a measurement, not a class.
MOST_CLASSES = 2**20
_UNKNOWN_WORDS = {"", "nan", "-1"}


def read_labels(
    values: Sequence[Any] | np.ndarray, count: int, where: str, class_names: list[str] | None = None
) -> tuple[Labels | None, list[str] | None]:
    """(labels int64 [count] or None, class names or None) from integers, strings, floats with NaN, or a mixture with None.

    Unknown: None, NaN, an empty string, −1. Numbers (also as text, ``3`` or ``3.0``) are class numbers as they stand;
    anything else is a class name, numbered in natural order. All unknown is the same as no labels. ``class_names`` fixes
    the range. Raises :class:`InputError` naming ``where``, the value and the remedy.
    """
    array = np.asarray(values.tolist() if isinstance(values, np.ndarray) else _plain(values), dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise InputError(
            f"{where}: labels have shape {list(array.shape)}; one label an image is needed "
            "(for one-hot rows pass labels.argmax(1); several labels an image are not supported)"
        )
    if len(array) != count:
        raise InputError(f"{where}: {len(array)} labels for {count} images; there must be one for each (−1 = unknown)")
    kept = [None if _is_unknown(value) else value for value in array]
    known = [value for value in kept if value is not None]
    if not known:
        return None, class_names
    if class_names is not None and all(isinstance(value, str) for value in known) and set(known) <= set(class_names):
        number = {name: index for index, name in enumerate(class_names)}
        return _numbers([-1 if value is None else number[value] for value in kept]), class_names
    if all(_as_number(value) is not None for value in known):
        return _checked_integers(kept, where, class_names), class_names
    if class_names is not None:
        strange = [value for value in known if str(value) not in class_names]
        raise InputError(f"{where}: label {visible(strange[0])!r} is none of the classes {some(class_names)}")
    if not all(isinstance(value, (str, int, float, bool, np.generic)) for value in known):
        strange = [value for value in known if not isinstance(value, (str, int, float, bool, np.generic))]
        raise InputError(f"{where}: a label is a {type(strange[0]).__name__}; integers or strings are needed")
    names = sorted({str(value) for value in known}, key=natural_key)
    number = {name: index for index, name in enumerate(names)}
    return _numbers([-1 if value is None else number[str(value)] for value in kept]), names


def match_classes(source: Source, class_names: list[str] | None) -> Labels | None:
    """``source.labels`` renumbered to the classes of another source (a test set to its training set), by name.

    A folder tree that lacks a class numbers the others differently, so numbers alone must not be compared. Where neither
    side has names, numbers stand. Raises :class:`InputError` for a class that the other source does not have.
    """
    if source.labels is None or class_names is None or source.class_names is None or source.class_names == class_names:
        return source.labels
    used = np.unique(source.labels[source.labels >= 0])
    strange = [source.class_names[index] for index in used if source.class_names[index] not in class_names]
    if strange:
        raise InputError(
            f"{visible(source.name)}: class {some(strange)} is not among the training classes {some(class_names)}; "
            "rename or remove it"
        )
    number = {name: index for index, name in enumerate(class_names)}
    table = np.array([number.get(name, -1) for name in source.class_names] + [-1], dtype=np.int64)
    return table[source.labels]


def _plain(values: Sequence[Any]) -> list[Any]:
    return [value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value for value in values]


def _numbers(values: list[int]) -> Labels:
    return np.array(values, dtype=np.int64)


def _is_unknown(value: object) -> bool:
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


def _checked_integers(kept: list[Any], where: str, class_names: list[str] | None) -> Labels:
    limit = MOST_CLASSES if class_names is None else len(class_names)
    labels = []
    for index, value in enumerate(kept):
        number = -1 if value is None else _as_number(value)
        assert number is not None
        if not math.isfinite(number) or number != int(number):
            raise InputError(
                f"{where}: label {visible(value)} of image {index} is not an integer; "
                "classes are integers from 0 or strings (a measurement is not a class)"
            )
        if not -1 <= number < limit:
            known = "" if class_names is None else f": there are {limit} class names"
            raise InputError(
                f"{where}: label {int(number)} of image {index} is outside the range 0…{limit - 1}{known}; "
                "number classes from 0, use −1 for unknown, or give names as strings"
            )
        labels.append(int(number))
    return _numbers(labels)
