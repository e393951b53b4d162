"""Exports an index as a LanceDB table."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.export.extras import library, new_path
from coulomb.export.vectors import ROWS, Recall, Vectors, require_rows
from coulomb.metrics.rows import blocks, unit_rows

TABLE = "images"


def to_lance(index: Vectors, out: str | Path) -> dict[str, Any]:
    """Writes an index as the table ``images`` of a LanceDB database.

    Its columns are ``vector`` (of unit length), ``row``, ``id``, ``path`` and ``label``.

    Open it by ``lancedb.connect(OUT).open_table("images").search(vector).distance_type("cosine")``; the search is exact until
    you create an index there. Memory does not grow with the index. Recall@10 is measured on 100 images, as the table answers.

    Returns:
        ``out``, ``table``, ``images``, ``features`` and ``recall``.

    Raises:
        InputError: LanceDB is missing, ``out`` exists, or the index is empty.
    """
    import pyarrow as pa

    require_rows(index)
    path = new_path(out)
    lancedb: Any = library("lancedb", "lance", "lance")
    count, dim = index.features.shape
    about = index.table.select(index.table.column_names[:3])  # id, path or text, label
    vector = pa.list_(pa.float32(), dim)
    text = [(name, pa.string()) for name in about.column_names]
    schema = pa.schema([("vector", vector), ("row", pa.int64()), *text])

    def batches() -> Iterator[Any]:
        for block in blocks(count, ROWS):
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(unit_rows(index.features, block).numpy().ravel()), dim)
            part = about.slice(block.start, block.stop - block.start)
            columns = [column.combine_chunks().cast(pa.string()) for column in part.columns]
            yield pa.record_batch([vectors, pa.array(np.arange(block.start, block.stop)), *columns], schema=schema)

    table = lancedb.connect(str(path)).create_table(
        TABLE, data=pa.RecordBatchReader.from_batches(schema, batches()), schema=schema
    )
    recall, found = Recall(index), []
    for query in recall.queries.numpy():
        search = table.search(query).distance_type("cosine").select(["row", "_distance"]).limit(recall.top)
        found.append(search.to_arrow().column("row").to_pylist())
    return {"out": str(path), "table": TABLE, "images": count, "features": dim, "recall": recall.of(found)}
