"""Labels that a user gives for images of an index, by their id."""

from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import first_few, visible
from coulomb.tables.labels import LABEL_COLUMNS, choose_label_column
from coulomb.tables.sources.files import PATH_COLUMNS, read_columns

SUFFIXES = (".csv", ".tsv", ".parquet")


def read_given_labels(path: Path) -> dict[str, Any]:
    """Returns id → label from a CSV, TSV or Parquet file with a column ``id`` (or of paths) and one of labels.

    Raises:
        InputError: no such file, a column is missing, or an id occurs twice with different labels.
    """
    path = path.expanduser()
    where = visible(path)
    if not path.is_file():
        raise InputError(f"labels={where}: no such file; give a CSV or Parquet file with columns id and label")
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"labels={where}: must be a .csv, .tsv or .parquet file with columns id and label")
    columns = read_columns(path)
    key = next((name for name in ("id", *PATH_COLUMNS) if name in columns), None)
    column = choose_label_column(list(columns), None, (), where)
    if key is None or column is None:
        missing = "id" if key is None else f"{LABEL_COLUMNS[0]} (or {', '.join(LABEL_COLUMNS[1:])})"
        raise InputError(
            f"{where}: no column {missing} among {first_few(list(columns))}; it needs columns id and label"
        )
    labels: dict[str, Any] = {}
    for id_, label in zip(map(str, columns[key]), columns[column], strict=True):
        if labels.setdefault(id_, label) != label:
            raise InputError(f"{where}: {visible(id_)} has two labels, {visible(labels[id_])} and {visible(label)}")
    if not labels:
        raise InputError(f"{where}: has no rows; it needs one per labeled image, with its id and label")
    return labels
