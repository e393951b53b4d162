"""Answers of an index as tables: in pandas, in CSV or Parquet files, and as a script that deletes duplicates."""

import csv
import io
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.ground.reading.cells import to_cell
from coulomb.ground.text import visible

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]

SCRIPT = ".sh"
EMPTY = ["id", "path", "label"]  # columns of a table without rows


class Rows(list[dict[str, Any]]):
    """An answer with one dict per image, a list that can be converted to a table.

    Attributes:
        note: a sentence about the answer, such as what it leaves out; empty if there is nothing to say.
    """

    note = ""

    def to_pandas(self) -> "pd.DataFrame":
        """Returns a ``pandas.DataFrame`` with one row per image; raises `InputError` if pandas is not installed."""
        return _frame(self)


class Answer(dict[str, Any]):
    """The answer of `Index.duplicates` or `Index.classify`: a dict that can be converted to a table."""

    def to_pandas(self) -> "pd.DataFrame":
        """Returns a ``pandas.DataFrame`` with one row per image, the columns of `list_rows`."""
        return _frame(self)


def _frame(answer: Any) -> "pd.DataFrame":
    try:
        import pandas as pd
    except ImportError:
        raise InputError("to_pandas: pandas is not installed; pip install pandas") from None
    rows = list_rows(answer)
    return pd.DataFrame(rows, columns=list(rows[0]) if rows else EMPTY)


def check_list(out: str | Path, *endings: str) -> Path:
    """Returns the path of a list; raises `InputError` unless it ends in .csv, .parquet or ``endings`` and does not exist."""
    path = Path(out).expanduser()
    allowed = (".csv", ".parquet", *endings)
    if path.suffix.lower() not in allowed:
        raise InputError(f"out={visible(out)!r}: must end in {', '.join(allowed[:-1])} or {allowed[-1]}")
    if path.exists():
        raise InputError(f"out={visible(out)!r}: already exists; choose another file")
    return path


def write_script(out: str | Path, answer: dict[str, Any]) -> int:
    """Writes a shell script that deletes the duplicates that need not be kept; nothing runs it. Returns their number.

    Each line has the absolute path of a file, of the kept file that it resembles, and the reason as a comment. When the
    script is run, a file is deleted only if the kept file still exists and is another file.

    Raises:
        InputError: the file exists, or the images are not files.
    """
    path = check_list(out, SCRIPT)
    if any("text" in group for group in (*answer["copies"], *answer["groups"])):
        raise InputError(
            f"out={visible(out)!r}: texts are no files that a script could delete; write a list as .csv instead"
        )
    groups = [
        *answer["copies"],
        *answer["groups"],
    ]  # copies first: the file that they equal may be dropped for another one
    file_of = {group["keep"]: group["path"] for group in groups}
    file_of |= {member["id"]: member["path"] for group in groups for member in group["members"]}
    lines, count, without = [], 0, 0
    for number, group in enumerate(groups):
        same = number < len(answer["copies"])
        lines += ["", f"# {'exact copies of' if same else 'keep'} {visible(group['keep'])}: {visible(group['reason'])}"]
        for member in group["members"]:
            if member["keep"]:
                lines.append(f"# keep {visible(member['id'])}: {visible(member['reason'])}")
                continue
            kept = file_of[member["like"]]
            if member["path"] is None or kept is None:
                without += 1
                continue
            count += 1
            reason = f"similarity {member['similarity']:.3f} to {visible(member['like'])}: {visible(member['reason'])}"
            lines.append(f"drop {shlex.quote(member['path'])} {shlex.quote(kept)}  # {reason}")
    if without and not count:
        raise InputError(f"out={visible(out)!r}: the images of this index are not files; write a list as .csv instead")
    left = (
        [f"# {without} images are not files, or their names are not UTF-8; they are not in this list."]
        if without
        else []
    )
    head = [
        "#!/bin/sh",
        f"# Deletes {count} duplicates when you run it; nothing has been deleted so far.",
        "# Remove the lines of images that you want to keep, then run: sh " + shlex.quote(visible(path.name)),
        *left,
        "drop() {  # deletes $1 if $2, which it resembles, exists and is another file",
        '    if [ -f "$2" ] && ! [ "$1" -ef "$2" ]; then rm -- "$1"; else echo "not deleted: $1" >&2; fi',
        "}",
    ]
    write_atomically(path, "\n".join([*head, *lines, ""]).encode("utf-8", "surrogateescape"))
    return count


def write_list(out: str | Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Writes the ``columns`` of ``rows``; an empty field in CSV and null in Parquet stand for None.

    Text in CSV that a spreadsheet would run as a formula begins with an apostrophe, see `coulomb.ground.reading.cells`.

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

    Of duplicates: ``group``, ``kind`` ("near" or "copy"), ``keep``, ``similarity`` to the kept image ``like``, and
    ``reason``, the image to keep first; of classes: one column ``p(NAME)`` per class. Answers that are lists are returned as
    they are.
    """
    if isinstance(answer, dict) and "groups" in answer:
        rows, number = [], 0
        shown = "text" if any("text" in group for group in (*answer["groups"], *answer["copies"])) else "path"
        for kind, groups in (("near", answer["groups"]), ("copy", answer["copies"])):
            for group in groups:
                shared = {"group": number, "kind": kind}
                first = {"keep": True, "similarity": 1.0, "like": group["keep"], "reason": group["reason"]}
                rows.append({"id": group["keep"], shown: group[shown], **shared, **first})
                for member in group["members"]:
                    own = {name: member[name] for name in ("keep", "similarity", "like", "reason")}
                    rows.append({"id": member["id"], shown: member[shown], **shared, **own})
                number += 1
        return rows
    if isinstance(answer, dict):
        return [
            {name: value for name, value in image.items() if name != "probabilities"}
            | {f"p({name})": value for name, value in image["probabilities"].items()}
            for image in answer["images"]
        ]
    return list(answer)
