"""Features of arbitrary images, in memory or streamed into a Parquet file."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.progress import differences, progress_bar
from coulomb.kinds.image import Canvases, OriginalImage
from coulomb.kinds.image.canvas import Canvas, canvas_size, margin_canvas
from coulomb.kinds.image.picture import CorruptImage
from coulomb.kinds.image.views import plain_view
from coulomb.models import ImageNetwork
from coulomb.models.features import extract_features
from coulomb.tables import Samples, Source, image_samples, survey
from coulomb.tables.images import BATCH_BYTES, WORKER_BYTES, images_per_batch
from coulomb.tables.sources import open_files
from coulomb.tables.workers import compute_in_workers

Stores = list[tuple[Samples, list[int]]]  # images prepared in the same way, and their indices
ROWS = 4_096  # images per row group of the Parquet file


def canvas_for(source: Source, image_size: int) -> Canvas:
    """Returns the canvas that a run on ``source`` would choose."""
    facts = survey(source)
    return Canvas(canvas_size(facts.square, image_size), facts.dtype)


def source_features(
    encoder: ImageNetwork,
    source: Source,
    canvas: Canvas | None = None,
    indices: Iterable[int] | None = None,
    *,
    batch_size: int = 256,
    workers: int = 0,
    device: torch.device | None = None,
    advance: Callable[[int], object] = lambda images: None,
) -> tuple[Tensor, np.ndarray, dict[int, str]]:
    """Features of images of any size; the features of an image do not depend on the other images.

    Images are prepared as for the figures of the run (``canvas``); for an encoder outside a run, by its own preprocessing at
    their original resolution (`OriginalImage`), so that features equal the features of the library that published the weights.

    Args:
        encoder: images [B, C, S, S] in [0, 1] → features [B, F].
        source: the images.
        canvas: the canvas of the run: square images of its size or of the network's input are used as they are; all others
            are resized to a square canvas a third larger than the input. Then the evaluation view is applied: short side
            to ``image_size``, center crop. Default: ``encoder.preprocessing``, or without one the canvas that a run on
            ``source`` would have.
        indices: which images; default: all.
        batch_size: images per forward pass, fewer if they take more than 16 MB; does not affect the result.
        workers: processes that decode; on a CPU, if there is one for each core, they also compute the features.
        device: where the encoder is; default: the device of its parameters.
        advance: called with the number of images of each batch that was processed.

    Returns:
        Features float32 [n, F] on the CPU in the order of the indices, the indices [n] of the readable images, and the
        reasons for the unreadable ones by index.
    """
    chosen = sorted(range(len(source)) if indices is None else indices)
    features, readable = [torch.empty(0, encoder.feature_dim)], [np.empty(0, dtype=np.int64)]
    parts, failures, batch_size = prepared_images(
        encoder, source, canvas, chosen, batch_size=batch_size, workers=workers
    )
    advance(len(failures))

    def plain(images: Canvases) -> Tensor:
        return plain_view(images, encoder.image_size)

    for images, members in parts:
        group, which = extract_features(
            encoder,
            images,
            members,
            plain,
            batch_size=batch_size,
            device=device,
            workers=workers,
            progress=differences(advance),
        )
        failures |= images.failures
        if len(which):
            features.append(group)
            readable.append(which)
    positions = np.concatenate(readable)
    order = np.argsort(positions)
    return torch.cat(features)[torch.from_numpy(order)], positions[order], dict(sorted(failures.items()))


def prepared_images(
    encoder: ImageNetwork,
    source: Source,
    canvas: Canvas | None,
    indices: list[int],
    *,
    batch_size: int,
    workers: int = 0,
) -> tuple[Stores, dict[int, str], int]:
    """Returns images as ``encoder`` takes them, see `source_features`.

    Returns:
        Data sets of equally prepared images, each with its indices; the reasons for images without a readable header; and
        the batch size, smaller than the given one if images are large.
    """
    limit = WORKER_BYTES if compute_in_workers(next(encoder.parameters()).device, workers) else BATCH_BYTES
    batch_size = min(batch_size, images_per_batch(encoder.channels, encoder.image_size, limit))
    if canvas is None and encoder.preprocessing is not None:
        kind = OriginalImage(encoder.channels, encoder.preprocessing.pixels)
        return [(Samples(source, {"image": kind}), indices)], {}, batch_size
    return *_canvases(encoder, source, canvas or canvas_for(source, encoder.image_size), indices, workers), batch_size


def _canvases(
    encoder: ImageNetwork, source: Source, canvas: Canvas, indices: list[int], workers: int
) -> tuple[Stores, dict[int, str]]:
    """Returns images by the size and type of their canvas, with their indices, and the reasons for unreadable headers."""
    groups: dict[tuple[int, str], list[int]] = defaultdict(list)
    failures: dict[int, str] = {}
    for index in indices:
        try:
            header = source.header(index)
        except CorruptImage as error:
            failures[index] = error.reason
            continue
        fits = header.width == header.height and header.width in (canvas.size, encoder.image_size)
        size = header.width if fits else margin_canvas(encoder.image_size)
        deep = header.depth == "float32" and canvas.bands is None
        groups[size, "float32" if deep else canvas.dtype].append(index)
    shared: dict[str, Any] = {"cache_bytes": 0, "workers": workers, "bands": canvas.bands}
    return [
        (image_samples(source, size, encoder.channels, dtype=dtype, **shared), members)
        for (size, dtype), members in groups.items()
    ], failures


def embed_to_parquet(
    encoder: ImageNetwork,
    data: Any,
    out: str | Path,
    *,
    canvas: Canvas | None = None,
    workers: int = 0,
    batch_size: int = 256,
    progress: bool = True,
) -> dict[str, Any]:
    """Writes one row per image: ``id``, ``label`` (and ``class``) if known, ``features``, a fixed-size list of float32.

    Memory does not grow with the data: images are decoded, embedded and written 4,096 at a time.

    Args:
        encoder: the encoder of a run.
        data: a data set as for training, one image file, or a list of images.
        out: Parquet file to write; it must not exist.
        canvas: how the run stores its images; default: see `source_features`.
        workers: processes that decode; on a CPU, if there is one for each core, they also compute the features.
        batch_size: images per forward pass.
        progress: show a progress bar on a terminal.

    Returns:
        ``{"rows", "features", "failed": [{"id", "reason"}]}``; unreadable images have no row and are listed.

    Raises:
        InputError: ``out`` exists, does not end in .parquet or cannot be written, or none of the images can be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = Path(out)
    if out.suffix.lower() not in (".parquet", ".pq"):
        raise InputError(
            f"out={str(out)!r}: embed writes Parquet; give a name that ends in .parquet, or make an index and export it: "
            "coulomb export INDEX --to csv or npz"
        )
    if out.exists():
        raise InputError(f"out={str(out)!r}: already exists; choose another file")
    source = open_files(data)
    if canvas is None and encoder.preprocessing is None:
        canvas = canvas_for(source, encoder.image_size)  # the same for all blocks
    failures: dict[int, str] = {}
    schema = pa.schema(
        [("id", pa.string())]
        + ([] if source.labels is None else [("label", pa.int64())])
        + ([] if source.labels is None or source.class_names is None else [("class", pa.string())])
        + [("features", pa.list_(pa.float32(), encoder.feature_dim))]
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = encoder.to(device)

    def embed(indices: np.ndarray, advance: Callable[[int], object]) -> pa.Table:
        features, readable, failed = source_features(
            encoder,
            source,
            canvas,
            indices.tolist(),
            batch_size=batch_size,
            workers=workers,
            device=device,
            advance=advance,
        )
        failures.update(failed)
        columns: dict[str, Any] = {"id": [source.item_id(int(index)) for index in readable]}
        if source.labels is not None:
            labels = [None if label < 0 else int(label) for label in source.labels[readable]]
            columns["label"] = labels
            if source.class_names is not None:
                columns["class"] = [None if label is None else source.class_names[label] for label in labels]
        columns["features"] = pa.FixedSizeListArray.from_arrays(pa.array(features.numpy().ravel()), encoder.feature_dim)
        return pa.table(columns, schema=schema)

    temporary = out.with_name(out.name + ".tmp")
    rows = 0
    try:
        blocks = [np.arange(first, min(first + ROWS, len(source))) for first in range(0, len(source), ROWS)]
        with (
            pq.ParquetWriter(temporary, schema) as writer,
            progress_bar(len(source), "embedding", progress) as advance,
        ):
            for block in blocks:
                table = embed(block, advance)
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
