"""The table of an index: one row per image, in the order of the data."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from coulomb.data import Source


class Photo(NamedTuple):
    """What was found out about one image when it was read."""

    bytes: int
    sha256: str
    mtime: int | None  # of its file, in ns
    width: int
    height: int


def schema() -> Any:
    """Returns the columns of ``images.parquet``.

    ``path`` is relative to the folder of the data, absolute if they have none, null for images that are not files; ``label``
    is the name of the class or its number; ``bytes``, ``sha256`` and ``mtime`` are those of the file, or of the encoded
    bytes in a table; ``width`` and ``height`` in pixels, upright.
    """
    import pyarrow as pa

    return pa.schema(
        [
            ("id", pa.string()),
            ("path", pa.string()),
            ("label", pa.string()),
            ("bytes", pa.int64()),
            ("sha256", pa.string()),
            ("mtime", pa.timestamp("ns", tz="UTC")),
            ("width", pa.int32()),
            ("height", pa.int32()),
        ]
    )


def make_table(source: Source, indices: Iterable[int], photos: Iterable[Photo]) -> Any:
    """Returns the table of the images of ``source`` at ``indices``."""
    import pyarrow as pa

    indices, photos = list(indices), list(photos)
    columns: dict[str, Any] = {
        "id": [source.item_id(index) for index in indices],
        "path": [file_path(source, index) for index in indices],
        "label": label_names(source, indices),
        **{name: [getattr(photo, name) for photo in photos] for name in Photo._fields},
    }
    kinds = schema()
    return pa.table([pa.array(columns[field.name], field.type) for field in kinds], schema=kinds)


def file_path(source: Source, index: int) -> str | None:
    """Returns the path of an image: relative to the root of a folder, absolute in a list; None if it is not a file."""
    if source.kind == "images":
        item = source.items[index]  # type: ignore[attr-defined]
        return str(item.resolve()) if isinstance(item, Path) else None
    return source.paths[index] if hasattr(source, "paths") else None


def label_names(source: Source, indices: list[int]) -> list[str | None]:
    """Returns the name of each image's class, its number if classes have no names; None if it is unknown."""
    if source.labels is None:
        return [None] * len(indices)
    names, labels = source.class_names, source.labels[indices].tolist()
    return [None if label < 0 else str(label) if names is None else names[label] for label in labels]
