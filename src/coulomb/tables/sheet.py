"""A data set before its columns are chosen: names of columns, each read when it is needed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PLAIN = (str, int, float, np.generic)


@dataclass
class Sheet:
    """Named columns of one length.

    Attributes:
        name: name of the data set, for display.
        kind: kind of source, for display.
        length: number of rows.
        names: names of the columns.
        read: returns a column by its name: an Arrow array, a NumPy array, a list of objects, or a `Source` of images with
            one image per row.
        root: the folder that paths in the columns are relative to and cannot leave; None: paths are used as given.
        notes: one sentence for each decision.
        hint: end of the message that a column does not exist.
        class_names: names of the classes, by the name of a column of class numbers.
    """

    name: str
    kind: str
    length: int
    names: list[str]
    read: Callable[[str], Any]
    root: Path | None = None
    notes: tuple[str, ...] = ()
    class_names: dict[str, list[str]] = field(default_factory=dict)
    hint: str = ""

    def plain(self, name: str) -> list[Any] | None:
        """Returns the values of a column of numbers, texts, booleans or dates; None for other columns."""
        import pyarrow as pa

        values = self.read(name)
        if isinstance(values, pa.ChunkedArray | pa.Array):
            return values.to_pylist() if is_plain(values.type) else None
        if isinstance(values, np.ndarray):
            return values.tolist() if values.ndim == 1 and values.dtype.kind in "iufbU" else None
        if isinstance(values, list) and all(value is None or isinstance(value, PLAIN) for value in values):
            return [value.item() if isinstance(value, np.generic) else value for value in values]
        return None


def is_plain(kind: Any) -> bool:
    """Returns True for Arrow types of numbers, text, booleans and dates."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return is_text or (pa.types.is_primitive(kind) and not pa.types.is_decimal(kind))
