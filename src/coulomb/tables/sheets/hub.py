"""Data sets of the ``datasets`` library as sheets."""

from typing import Any

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible
from coulomb.tables.pictures import PictureRows
from coulomb.tables.sheets.sheet import Sheet
from coulomb.tables.sources.hub import HubPictures, load_hub

_ROWS = 1000  # that are read together to find missing images


def open_hub_sheet(name: str) -> Sheet:
    """Opens a data set of the hub, ``user/name`` or ``user/name:split``, see `coulomb.tables.sources.hub.load_hub`."""
    dataset, name, notes = load_hub(name)
    return open_dataset(dataset, name, notes)


def open_dataset(dataset: Any, name: str = "datasets.Dataset", notes: tuple[str, ...] = ()) -> Sheet:
    """Opens a ``datasets.Dataset``; images stay in its memory-mapped tables.

    Raises:
        InputError: it is a dictionary of splits.
    """
    from datasets import ClassLabel, Image

    if not hasattr(dataset, "features") or not hasattr(dataset, "with_format"):
        raise InputError(f"data={type(dataset).__name__}: choose one split, for example data['train']")
    if dataset.features is None or not hasattr(dataset, "__len__"):
        raise InputError(f"{visible(name)}: a stream has no rows to choose from; load the data set without streaming")
    features = dataset.features
    pictures = [column for column, feature in features.items() if isinstance(feature, Image)]
    names = {column: list(feature.names) for column, feature in features.items() if isinstance(feature, ClassLabel)}
    plain = dataset.with_format("arrow")

    def read(column: str) -> Any:
        if column not in pictures:
            return plain.select_columns([column])[:].column(column)
        source = HubPictures(dataset, name=name, column=column)
        if not dataset.data.column(column).null_count:
            return source
        cells = plain.select_columns([column])
        missing = [batch.column(column).is_null().to_numpy() for batch in cells.iter(_ROWS)]
        return PictureRows(source, np.where(np.concatenate(missing), -1, np.arange(len(source))))

    return Sheet(name, "hub", len(dataset), list(features), read, notes=notes, class_names=names)
