"""Features of any images, streamed into a Parquet file."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from coulomb.assessment.features import Canvas, features_of
from coulomb.data.given import open_files
from coulomb.data.progress import track
from coulomb.errors import InputError
from coulomb.models import Encoder

ROWS = 4_096  # images a row group


def embed_to_parquet(
    encoder: Encoder,
    data: Any,
    out: str | Path,
    *,
    canvas: Canvas | None = None,
    workers: int = 0,
    batch_size: int = 256,
    progress: bool = True,
) -> dict[str, Any]:
    """Write one row per image: ``id``, ``label`` (and ``class``) when known, ``features`` as a fixed-size list of float32.

    Memory does not grow with the data: images are decoded, embedded and written 4,096 at a time.

    Args:
        encoder: of a run.
        data: a data set as for training, one image file, or a list of images.
        out: Parquet file to write; it must not exist.
        canvas: how the run stores its images; default as it would store ``data``.
        workers: processes that decode.
        batch_size: images per forward pass.
        progress: show a bar on a terminal.

    Returns:
        ``{"rows", "features", "failed": [{"id", "reason"}]}``; unreadable images have no row and are listed.

    Raises:
        InputError: ``out`` exists or cannot be written, or none of the images can be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = Path(out)
    if out.exists():
        raise InputError(f"out={str(out)!r}: already exists; choose another file")
    source = open_files(data)
    canvas = canvas or Canvas.of(source, encoder)
    failures: dict[int, str] = {}
    schema = pa.schema(
        [("id", pa.string())]
        + ([] if source.labels is None else [("label", pa.int64())])
        + ([] if source.labels is None or source.class_names is None else [("class", pa.string())])
        + [("features", pa.list_(pa.float32(), encoder.feature_dim))]
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = encoder.to(device)

    def table_of(indices: np.ndarray) -> pa.Table:
        features, kept, failed = features_of(
            encoder, source, canvas, indices.tolist(), batch_size=batch_size, workers=workers, device=device
        )
        failures.update(failed)
        columns: dict[str, Any] = {"id": [source.item_id(int(index)) for index in kept]}
        if source.labels is not None:
            known = [None if label < 0 else int(label) for label in source.labels[kept]]
            columns["label"] = known
            if source.class_names is not None:
                columns["class"] = [None if label is None else source.class_names[label] for label in known]
        columns["features"] = pa.FixedSizeListArray.from_arrays(pa.array(features.numpy().ravel()), encoder.feature_dim)
        return pa.table(columns, schema=schema)

    temporary = out.with_name(out.name + ".tmp")
    rows = 0
    try:
        blocks = [np.arange(first, min(first + ROWS, len(source))) for first in range(0, len(source), ROWS)]
        with pq.ParquetWriter(temporary, schema) as writer:
            counted = ((len(block), table_of(block)) for block in blocks)
            for table in track(counted, len(source), "embedding", progress):
                writer.write_table(table)
                rows += table.num_rows
        if failures and not rows:
            temporary.unlink()
            index, reason = min(failures.items())
            raise InputError(
                f"data={source.name!r}: none of the {len(source)} images can be read ({source.item_id(index)}: {reason})"
            )
        temporary.replace(out)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"out={str(out)!r}: cannot be written ({error.strerror})") from None
    failed = [{"id": source.item_id(index), "reason": reason} for index, reason in sorted(failures.items())]
    return {"rows": rows, "features": encoder.feature_dim, "failed": failed}
