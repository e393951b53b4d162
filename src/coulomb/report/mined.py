"""The page of mined hard negatives: some rows with their right cell and the negatives that were found."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.ground.version import __version__
from coulomb.kinds.image.decode import decode
from coulomb.kinds.image.thumbnail import make_thumbnail
from coulomb.report.cells import THUMBNAIL, Cell, Preview, Previews
from coulomb.report.pages.page import ChartList, check_target, render_page, write_page
from coulomb.report.pair_section import cosine_text


@dataclass(frozen=True)
class Mined:
    """A row: its first cell, its right cell with the cosine of the best right one, and (negative, cosine)."""

    first: Cell
    right: Cell
    cosine: float
    negatives: list[tuple[Cell, float]]


def write_mined(found: Mapping[str, Any], out: Path | str) -> Path:
    """Writes the page of what `coulomb.mine` returned, whose Parquet file must exist, and returns its path.

    Raises:
        InputError: ``out`` is a folder, or its folder does not exist.
    """
    return write_page(check_target(out), render_mined(found))


def render_mined(found: Mapping[str, Any]) -> str:
    """Returns the page as text."""
    from pyarrow import dataset

    first, second, *negatives = found["columns"]
    shown = [*found["hardest"], *found["random"]]
    places = [each["row"] for each in shown]
    table = dataset.dataset(found["out"]).take(places, columns=found["columns"]).to_pylist()  # not all pictures at once
    left = _previews([row[first] for row in table])
    right = _previews([row[name] for name in (second, *negatives) for row in table])  # column by column
    rows = []
    for place, each in enumerate(shown):
        here = [replace(right.cell(place + at * len(table)), row=each["row"]) for at in range(1 + len(negatives))]
        rows.append(
            Mined(
                replace(left.cell(place), row=each["row"]),
                here[0],
                each["positive"],
                list(zip(here[1:], each["negatives"], strict=False)),  # a row may have fewer
            )
        )
    hardest = len(found["hardest"])
    content = {
        "found": found,
        "columns": (first, second),
        "parts": [("Hardest", rows[:hardest]), ("At random", rows[hardest:])],
        "sheets": (left.sheet(), right.sheet()),
        "version": __version__,
    }
    return render_page(
        "coulomb.report",
        "mined.html",
        content,
        charts=ChartList(),
        styles=("report.css", "pairs.css"),
        filters={"cosine": cosine_text},
    )


def _previews(values: list[Any]) -> Previews:
    """Returns texts, and small versions of pictures; vectors are shown by the numbers of their rows."""
    found: dict[int, Preview] = {}
    for place, value in enumerate(values):
        if isinstance(value, str):
            found[place] = value, None
        elif isinstance(value, dict) and value.get("bytes"):
            picture, _ = decode(value["bytes"], str(value.get("path")), THUMBNAIL)
            found[place] = None, make_thumbnail(picture, THUMBNAIL)
    return Previews(np.arange(len(values)), np.arange(len(values)), found)
