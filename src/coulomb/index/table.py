"""The table of an index: one row per image, in the order of the data."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from coulomb.ground.text import portable, visible
from coulomb.tables import Source

COMPARED = 5_000  # ids that are compared with an unknown one


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
    is the name of the class or its number; ``bytes``, ``sha256`` and ``mtime`` describe the file, or the encoded
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


def nearest_id(item_id: str, ids: Any) -> str:
    """Returns the end of a message about an unknown id: the most similar one of ``ids``, a column of text.

    Ids with the same file name are compared first, then those with the same beginning; a million would take minutes.
    """
    import pyarrow.compute as pc

    name = item_id.rpartition("/")[2]
    candidates: list[str] = []
    for part in (name, name.partition(".")[0], item_id[:4], "") if len(ids) > COMPARED else ("",):
        mask = pc.match_substring(ids, part, ignore_case=True)
        candidates = ids.filter(mask).slice(0, COMPARED).to_pylist()
        if candidates:
            break
    near = difflib.get_close_matches(item_id, candidates, n=1, cutoff=0)
    return f"the most similar id is {visible(near[0])!r}"


def file_path(source: Source, index: int) -> str | None:
    """Returns the path of an image: relative to the root of a folder, absolute in a list.

    Returns None if it is not a file, or its name is not UTF-8, the encoding of text in Parquet files.
    """
    if source.kind == "images":
        item = source.items[index]  # type: ignore[attr-defined]
        return str(item.resolve()) if isinstance(item, Path) else None
    path = source.paths[index] if hasattr(source, "paths") else None
    return path if path is None or portable(path) == path else None


def label_names(source: Any, indices: list[int]) -> list[str | None]:
    """Returns the name of each image's class, its number if classes have no names; None if it is unknown."""
    if source.labels is None:
        return [None] * len(indices)
    names, labels = source.class_names, source.labels[indices].tolist()
    return [None if label < 0 else str(label) if names is None else names[label] for label in labels]
