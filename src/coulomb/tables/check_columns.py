"""Checks a table of columns before a training run: what each column holds, cells that repeat, leaks of the split."""

from typing import Any

import numpy as np

from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import first_few, visible
from coulomb.tables.cell_split import joint_ids, shared_cells, split_rows
from coulomb.tables.check_labels import label_table
from coulomb.tables.columns import look_like_labels
from coulomb.tables.pictures import PictureRows
from coulomb.tables.survey import survey
from coulomb.tables.table import Columns
from coulomb.tables.texts import as_arrow

SHOWN = 40  # characters of a text in the table
OFTEN = 0.05  # of the rows with one cell, which is then a finding
CHUNK = 2**22  # values of vectors that are read at once


def check_columns(
    table: Columns,
    test: Columns | None = None,
    *,
    group: str | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> dict[str, Any]:
    """Reports what deserves attention in a table of columns.

    Headers of at most 512 pictures are read, texts and vectors all. To decode every picture, check its column alone
    (`coulomb.tables.check.check`).

    Args:
        table: opened by `coulomb.tables.columns.open_columns`.
        test: the held-out rows, if they are separate.
        group: see `coulomb.tables.cell_split.split_rows`.
        test_fraction: of the rows to hold out.
        seed: seed of the split.

    Returns:
        A JSON-serializable dictionary:

        - ``source`` (its description) and ``count``;
        - ``columns``: for each ``name``, ``kind``, ``negative``, ``distinct``, ``most`` (rows with its most frequent cell),
          ``example`` (that cell), ``lost`` (cells that cannot be used, by reason), and ``words``, ``characters`` [smallest,
          median, largest] of texts, ``survey`` of pictures (see `coulomb.tables.survey.Survey`), or ``width``, ``dtype``,
          ``range`` and ``constant`` (dimensions with one value) of vectors;
        - ``labels``: see :func:`coulomb.tables.check.check`;
        - ``copies``: rows of which all cells are in an earlier row;
        - ``same``: number of rows whose cells are equal, by pairs of columns of one kind;
        - ``right``: number of rows, by column of negatives, whose negative is a right answer of the row's first cell: a
          positive of this or of another row with the same first cell;
        - ``split``: ``train``, ``test`` (numbers of rows), ``sentence``; or ``refused``, why there is none;
        - ``leaks``: the sentence of `coulomb.tables.cell_split.SharedCells`, or None;
        - ``findings``: sentences on what deserves attention.

    >>> table = open_columns([(f"question {i}", f"answer {i}") for i in range(20)], "question,answer")
    >>> check_columns(table)["count"]
    20
    """
    names = list(table.columns)
    tables = [table] if test is None else [table, test]
    joint = joint_ids(tables, names)
    ids = joint[0]
    result: dict[str, Any] = {
        "source": table.describe(),
        "count": len(table),
        "columns": [_column(table, name, ids[:, place], seed) for place, name in enumerate(names)],
        "labels": label_table(table, list(range(len(table)))),
        "copies": len(table) - len(np.unique(ids, axis=0)),
        "same": _same(table, names, ids),
        "right": _right_answers(table, names, ids),
        "leaks": None,
    }
    if test is not None:
        positives = [place for place, name in enumerate(names) if name not in table.negatives]
        chosen = [names[place] for place in positives]
        alike = [table.kinds[name] for name in chosen]
        shared = shared_cells(ids[:, positives], joint[1][:, positives], chosen, alike=alike)
        result["split"] = {"train": len(table), "test": len(test), "sentence": "a separate test set is given."}
        result["leaks"] = shared.sentence(test.item_id)
    else:
        result["split"], result["leaks"] = _split(table, ids, group, test_fraction, seed)
    result["findings"] = _findings(table, result)
    return result


def _split(
    table: Columns, ids: Any, group: str | None, fraction: float, seed: int
) -> tuple[dict[str, Any], str | None]:
    """Returns the split that training would make, and what it would leak. ``ids``: of all columns."""
    try:
        train, test, sentence = split_rows(table, fraction, seed, group=group, ids=ids)
    except InputError as error:
        return {"refused": str(error)}, None
    places = [place for place, name in enumerate(table.columns) if name not in table.negatives]
    names = [name for name in table.columns if name not in table.negatives]
    used = ids[:, places]
    shared = shared_cells(used[train], used[test], names, alike=[table.kinds[name] for name in names])
    leak = shared.sentence(lambda row: table.item_id(int(test[row])))
    return {"train": len(train), "test": len(test), "sentence": sentence}, leak


def _column(table: Columns, name: str, ids: Any, seed: int) -> dict[str, Any]:
    kind, cells = table.kinds[name], table.columns[name]
    _, first, counts = np.unique(ids, return_index=True, return_counts=True)
    most = int(counts.argmax())
    row = int(first[most])
    entry: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "negative": name in table.negatives,
        "distinct": len(counts),
        "most": int(counts[most]),
        "example": visible(cells[row], 200) if kind == "text" else table.item_id(row),
        "lost": table.lost.get(name, {}),
    }
    return entry | {"text": _texts, "image": _pictures, "vector": _vectors}[kind](cells, seed)


def _texts(cells: Any, seed: int) -> dict[str, Any]:
    import pyarrow.compute as pc

    del seed
    texts = as_arrow(cells)
    words = pc.count_substring_regex(texts, r"\S+").to_numpy(zero_copy_only=False)
    characters = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    return {"words": _spread(words), "characters": _spread(characters)}


def _pictures(cells: Any, seed: int) -> dict[str, Any]:
    once = PictureRows(cells.source, np.unique(cells.at)) if isinstance(cells, PictureRows) else cells
    try:
        return {"survey": survey(once, seed=seed).to_dict()}
    except InputError as error:
        return {"survey": None, "unreadable": str(error)}


def _vectors(cells: Any, seed: int) -> dict[str, Any]:
    del seed
    low, high = np.full(cells.shape[1], np.inf), np.full(cells.shape[1], -np.inf)
    step = max(1, CHUNK // cells.shape[1])
    for start in range(0, len(cells), step):
        part = np.asarray(cells[start : start + step], dtype=np.float64)
        low, high = np.minimum(low, part.min(axis=0)), np.maximum(high, part.max(axis=0))
    constant = int((low == high).sum())
    return {
        "width": cells.shape[1],
        "dtype": str(cells.dtype),
        "range": [float(low.min()), float(high.max())],
        "constant": constant,
    }


def _spread(values: Any) -> list[float]:
    return [int(values.min()), float(np.median(values)), int(values.max())]


def _same(table: Columns, names: list[str], ids: Any) -> list[dict[str, Any]]:
    """Returns how many rows have equal cells in two columns of one kind."""
    found = []
    for second in range(len(names)):
        for first in range(second):
            if table.kinds[names[first]] == table.kinds[names[second]]:
                rows = int((ids[:, first] == ids[:, second]).sum())
                if rows:
                    found.append({"columns": [names[first], names[second]], "rows": rows})
    return found


def _right_answers(table: Columns, names: list[str], ids: Any) -> dict[str, int]:
    """Returns the number of rows whose hard negative belongs to the first cell of the row, by column of negatives."""
    places = {name: place for place, name in enumerate(names)}
    positives = [name for name in names if name not in table.negatives]
    if len(positives) < 2 or not table.negatives:
        return {}
    first = ids[:, places[positives[0]]]
    found = {}
    for name in table.negatives:
        other = next((each for each in positives[1:] if table.kinds[each] == table.kinds[name]), None)
        if other is None:
            continue
        pairs = np.stack([first, ids[:, places[other]]], axis=1)
        asked = np.stack([first, ids[:, places[name]]], axis=1)
        _, numbers = np.unique(np.concatenate([pairs, asked]), axis=0, return_inverse=True)
        numbers = numbers.reshape(-1)
        if rows := int(np.isin(numbers[len(pairs) :], numbers[: len(pairs)]).sum()):
            found[name] = rows
    return found


def _findings(table: Columns, result: dict[str, Any]) -> list[str]:
    findings, rows = [], result["count"]
    if "refused" in result["split"]:
        findings.append(f"The rows cannot be split: {result['split']['refused']}.")
    if result["leaks"] is not None:
        findings.append(f"{result['leaks']}.")
    for entry in result["columns"]:
        name = visible(entry["name"])
        few = look_like_labels(table, entry["name"])
        findings += few
        if entry["most"] > max(2, OFTEN * rows) and not few:
            what = f" ({visible(entry['example'], SHOWN)!r})" if entry["kind"] == "text" else ""
            findings.append(
                f"One {name}{what} is in {entry['most']} of {rows} rows. Rows that share a cell are not negatives of each "
                "other, and stay on one side of the split."
            )
        if entry["distinct"] == 1 and rows > 1:
            findings.append(f"All rows have the same {name}: there is nothing to learn from it.")
        if entry["kind"] == "vector" and entry["constant"]:
            has = counted(entry["constant"], "dimension has", "dimensions have")
            findings.append(f"{name}: {has} the same value in all rows.")
        surveyed = entry.get("survey")
        if surveyed is not None and surveyed["unreadable"]:
            unreadable = surveyed["unreadable"]
            item, reason = next(iter(unreadable.items()))
            findings.append(
                f"{name}: {len(unreadable)} of {surveyed['sampled']} pictures that were looked at cannot be read and would be "
                f"skipped, such as {visible(item)} ({visible(reason)})."
            )
        if "unreadable" in entry:
            findings.append(f"{name}: {entry['unreadable']}.")
    if result["copies"]:
        are = counted(result["copies"], "row is a copy of an earlier row", "rows are copies of earlier rows")
        findings.append(f"{are} in all columns.")
    positives = [name for name in table.columns if name not in table.negatives]
    for name, rows in result["right"].items():
        first = visible(positives[0])
        findings.append(
            f"In {counted(rows, 'row')} {visible(name)} is a right answer of {first}, in this row or in another one with the "
            f"same {first}: it is no negative. Remove these cells; coulomb mine finds others."
        )
    for entry in result["same"]:
        first, second = (visible(name) for name in entry["columns"])
        negative = entry["columns"][1] in table.negatives or entry["columns"][0] in table.negatives
        if set(entry["columns"]) & set(result["right"]) and set(entry["columns"]) & set(positives[1:]):
            continue  # said already
        why = "which cannot be apart" if negative else "which says nothing"
        findings.append(f"In {counted(entry['rows'], 'row')} {first} and {second} are the same, {why}.")
    return findings


def render_columns(result: dict[str, Any], training: list[str] | None = None) -> str:
    """Returns the result of `check_columns` as plain text; print it without markup, because names may contain brackets.

    Args:
        result: of `check_columns`.
        training: lines that say what training would do.

    >>> table = open_columns([(f"question {i}", f"answer {i}") for i in range(20)], "question,answer")
    >>> "question" in render_columns(check_columns(table))
    True
    """
    source = result["source"]
    rows = [("column", "kind", "different", "most frequent", "left out", "content")]
    for entry in result["columns"]:
        kind = entry["kind"] + (", negative" if entry["negative"] else "")
        most = counted(entry["most"], "row")
        if entry["kind"] == "text" and entry["most"] > 1:
            most += f": {visible(entry['example'], SHOWN)}"
        lost = sum(entry["lost"].values())
        rows.append((visible(entry["name"], SHOWN), kind, f"{entry['distinct']:,}", most, f"{lost:,}", _content(entry)))
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        f"{visible(source['name'])} ({source['kind']}): {counted(result['count'], 'row')}",
        *(f"  note: {visible(note, 400)}" for note in source["notes"]),
        "",
        *("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows),
        "",
        _label_line(result["labels"]),
        f"split     {result['split'].get('sentence') or 'none: ' + result['split']['refused']}",
        f"leaks     {result['leaks'] or 'none'}",
        *(training or []),
    ]
    if result["findings"]:
        lines += ["", "worth attention:", *(f"  - {finding}" for finding in result["findings"])]
    return "\n".join(lines)


def _content(entry: dict[str, Any]) -> str:
    if entry["kind"] == "text":
        words, characters = (", ".join(f"{value:,g}" for value in entry[what]) for what in ("words", "characters"))
        return f"words {words}; characters {characters} (fewest, median, most)"
    if entry["kind"] == "vector":
        low, high = entry["range"]
        return f"{counted(entry['width'], 'value')} ({entry['dtype']}) from {low:.3g} to {high:.3g}"
    surveyed = entry["survey"]
    if surveyed is None:
        return "not readable"
    modes = first_few([f"{mode} {count}" for mode, count in surveyed["modes"].items()])
    return f"width {_sides(surveyed, 'width')}, height {_sides(surveyed, 'height')}; {modes} of {surveyed['sampled']}"


def _sides(surveyed: dict[str, Any], side: str) -> str:
    low, high = surveyed[f"{side}_range"]
    return f"{low}" if low == high else f"{low}…{high} (median {surveyed[side]:g})"


def _label_line(labels: dict[str, Any] | None) -> str:
    if labels is None:
        return "labels    none"
    classes = counted(len(labels["classes"]), "class", "classes")
    return f"labels    {labels['labeled']} labeled, {labels['unlabeled']} unlabeled, {classes}"
