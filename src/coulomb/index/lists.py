"""Writes lists of images as CSV or Parquet files, which `train`, `check` and `browse` read."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coulomb.data.source import visible
from coulomb.errors import InputError
from coulomb.models.saving import write_atomically
from coulomb.reading.cells import to_cell


def check_list(out: str | Path) -> Path:
    """Returns the path of a list; raises `InputError` unless it ends in .csv or .parquet and does not exist yet."""
    path = Path(out).expanduser()
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"out={visible(out)!r}: must end in .csv or .parquet")
    if path.exists():
        raise InputError(f"out={visible(out)!r}: already exists; choose another file")
    return path


def write_list(out: str | Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Writes the ``columns`` of ``rows``; an empty field in CSV and null in Parquet stand for None.

    Text in CSV that a spreadsheet would run as a formula begins with an apostrophe, see `coulomb.reading.cells`.

    Raises:
        InputError: the file exists, has another ending, or cannot be written.
    """
    path = check_list(out)
    if path.suffix.lower() == ".csv":
        file = io.StringIO(newline="")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(map(to_cell, columns))
        writer.writerows([["" if row[name] is None else to_cell(row[name]) for name in columns] for row in rows])
        write_atomically(path, file.getvalue().encode("utf-8"))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({name: [row[name] for row in rows] for name in columns}), sink)
        write_atomically(path, sink.getvalue().to_pybytes())


def list_rows(answer: Any) -> list[dict[str, Any]]:
    """Returns one row per image of an answer of `coulomb.Index`.

    Of duplicates: ``group``, ``kind`` ("near" or "copy"), ``keep`` and ``similarity``, the image to keep first; of
    classes: one column ``p(NAME)`` per class. Answers that are lists are returned as they are.
    """
    if isinstance(answer, dict) and "groups" in answer:
        rows, number = [], 0
        for kind, groups in (("near", answer["groups"]), ("copy", answer["copies"])):
            for group in groups:
                shared = {"group": number, "kind": kind}
                rows.append({"id": group["keep"], "path": group["path"], **shared, "keep": True, "similarity": 1.0})
                for member in group["members"]:
                    own = {"keep": False, "similarity": member["similarity"]}
                    rows.append({"id": member["id"], "path": member["path"], **shared, **own})
                number += 1
        return rows
    if isinstance(answer, dict):
        return [
            {name: value for name, value in image.items() if name != "probabilities"}
            | {f"p({name})": value for name, value in image["probabilities"].items()}
            for image in answer["images"]
        ]
    return list(answer)
