"""What the files of a run folder must hold for the commands that compute with them."""

from typing import Any

from coulomb.errors import InputError
from coulomb.reading import MIB, RESTORE, Shape, list_of, maybe, number, read_object, table, text, whole
from coulomb.runs.run_folder import RunFolder

MOST_SPLIT = 256 * MIB  # ten million images
EVALUATE = "write it again with: coulomb evaluate RUN"

_row = Shape(
    "the figures of a class",
    lambda row: isinstance(row, dict) and number.fits(row.get("train")) and maybe(number).fits(row.get("knn")),
)
_contestant = Shape(
    "an object of figures, with per_class a list of objects",
    lambda found: isinstance(found, dict) and maybe(list_of(_row)).fits(found.get("per_class")),
)
_canvas = Shape(
    "an object with size, a positive whole number, and dtype, uint8 or float32",
    lambda found: (
        isinstance(found, dict)
        and set(found) == {"size", "dtype"}
        and whole.fits(found["size"])
        and found["size"] > 0
        and found["dtype"] in ("uint8", "float32")
    ),
)
DATA = {"train": maybe(whole), "class_counts": maybe(list_of(whole)), "split": maybe(text), "canvas": maybe(_canvas)}
SPLIT = {"train": list_of(whole), "test": list_of(whole)}
EVALUATION = {name: maybe(_contestant) for name in ("trained", "random_init", "raw_pixels")} | {
    "protocol": table,
    "comparison": maybe(list_of(table)),
    "verdict": maybe(table),
}


def read_data(folder: RunFolder) -> dict[str, Any]:
    """The content of ``data.json``; empty if the run has not written it yet. Raises `InputError` if it is malformed."""
    return read_object(folder.data, DATA) if folder.data.exists() else {}


def read_split(folder: RunFolder) -> dict[str, Any] | None:
    """The content of ``split.json``, None if there is none. Raises `InputError` if it is malformed."""
    remedy = f"{RESTORE}, or start a new run"
    return read_object(folder.split, SPLIT, most=MOST_SPLIT, remedy=remedy) if folder.split.exists() else None


def read_evaluation(folder: RunFolder) -> dict[str, Any]:
    """The content of ``evaluation.json``. Raises `InputError` if it is missing or malformed."""
    found = read_object(folder.evaluation, EVALUATION, remedy=EVALUATE)
    if not all(isinstance(value, dict) for name, value in found.items() if name != "comparison" and value is not None):
        raise InputError(f"{folder.evaluation}: holds entries that are no objects of figures; {EVALUATE}")
    return found
