"""Columns of a table that are not used and could be labels."""

from typing import Any

import numpy as np

from coulomb.data.file_list import LABEL_COLUMNS
from coulomb.data.labels import read_labels
from coulomb.data.names import some
from coulomb.data.source import Source
from coulomb.errors import InputError


def label_like(source: Source) -> list[dict[str, Any]]:
    """The unused columns of ``source`` with at least two values, each of two rows or more on average.

    Returns:
        [{``name``, ``values`` (how many different ones), ``examples``, ``unlabelled`` (rows without a value)}], the most
        likely first: columns named like labels, then text, then numbers; fewer values first.
    """
    found = []
    for name, values in source.other_columns().items():
        try:
            labels, names = read_labels(values, len(source), name)
        except InputError:  # measurements, lists, …
            continue
        if labels is None:
            continue
        known = np.unique(labels[labels >= 0])
        rows = int((labels >= 0).sum())
        if 2 <= len(known) <= rows / 2:
            examples = [str(label) if names is None else names[label] for label in known[:5].tolist()]
            named = any(usual in name.lower() for usual in LABEL_COLUMNS)
            entry = {"name": name, "values": len(known), "examples": examples, "unlabelled": len(source) - rows}
            found.append(((not named, names is None, len(known)), entry))
    return [entry for _, entry in sorted(found, key=lambda each: each[0])]


def column_lines(columns: list[dict[str, Any]]) -> list[str]:
    """One line per column that could hold labels, and how to use it."""
    return [
        f"  {some([entry['name']])}: {entry['values']} values ({some(entry['examples'], 4)}"
        f"{', …' if entry['values'] > len(entry['examples']) else ''}); use it with --labels {some([entry['name']])}"
        for entry in columns
    ]
