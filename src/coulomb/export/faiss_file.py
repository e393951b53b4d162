"""Exports an index as a Faiss file."""

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from coulomb.export.extras import library, new_path
from coulomb.export.vectors import ROWS, Recall, Vectors, require_rows
from coulomb.ground.checked import require_option
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.rows import blocks, unit_rows

KINDS = ("flat", "hnsw", "ivf")
HNSW_FROM, IVF_FROM = 100_000, 300_000  # images; a graph of 100,000 × 256 takes 2 minutes on two cores, lists 15 s
WANTED = 0.99  # recall; the effort of a search is doubled until it is reached
LINKS = 32  # links per node of the HNSW graph, as Faiss's guidelines recommend
TRAINED_ON = 64  # vectors per list of IVF; Faiss warns below 39


def to_faiss(index: Vectors, out: str | Path, *, kind: str | None = None) -> dict[str, Any]:
    """Writes an index for ``faiss.read_index``: inner products of unit vectors, which are cosine similarities.

    =======  ==============================  ==================================================================
    kind     default                         search
    =======  ==============================  ==================================================================
    flat     below 100,000 images            exact
    hnsw     100,000 to 299,999              approximate, a graph; fastest, 256 bytes per image more
    ivf      from 300,000                    approximate, √N lists; faster to build than a graph of that size
    =======  ==============================  ==================================================================

    Faiss numbers the vectors by their row. ``OUT.ids.json`` lists the id of each row. For hnsw and ivf, the effort of a search
    (efSearch, nprobe) is doubled until recall@10 is .99 and stored in the file. Recall is measured on 100 images of the index,
    with the file as written. All vectors are in memory, 4·D bytes per image.

    Returns:
        ``out``, ``ids``, ``images``, ``features``, ``kind``, ``effort`` and ``recall``.

    Raises:
        InputError: Faiss is missing, ``out`` exists, ``kind`` is unknown or the index is empty.
    """
    faiss: Any = library("faiss", "faiss", "faiss")
    require_rows(index)
    path = new_path(out)
    ids = new_path(path.with_name(path.name + ".ids.json"))
    require_option("kind", kind, str | None, choices=KINDS)
    count, dim = index.features.shape
    kind = kind or ("flat" if count < HNSW_FROM else "hnsw" if count < IVF_FROM else "ivf")
    product = faiss.METRIC_INNER_PRODUCT
    lists = max(1, min(round(math.sqrt(count)), count // TRAINED_ON))
    made = {
        "flat": lambda: faiss.IndexFlatIP(dim),
        "hnsw": lambda: faiss.IndexHNSWFlat(dim, LINKS, product),
        "ivf": lambda: faiss.index_factory(dim, f"IVF{lists},Flat", product),
    }[kind]()
    if kind == "ivf":
        sample = np.sort(numpy_generator(0, "ivf").permutation(count)[: lists * TRAINED_ON])
        made.cp.min_points_per_centroid = 1  # no warning for a small index
        made.train(unit_rows(index.features, sample).numpy())
    for block in blocks(count, ROWS):
        made.add(unit_rows(index.features, block).numpy())
    recall = Recall(index)
    effort, share = _tuned(made, kind, recall, lists)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        faiss.write_index(made, str(temporary))
        share = recall.of(faiss.read_index(str(temporary)).search(recall.queries.numpy(), recall.top)[1])
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        raise InputError(
            f"out={str(out)!r}: cannot be written ({str(error).splitlines()[0]}); free some space"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    write_atomically(ids, json.dumps(index.ids, ensure_ascii=False).encode())
    return {
        "out": str(path),
        "ids": str(ids),
        "images": count,
        "features": dim,
        "kind": kind,
        "effort": effort,
        "recall": share,
    }


def _tuned(made: Any, kind: str, recall: Recall, lists: int) -> tuple[dict[str, int], float]:
    """Doubles the effort of a search until recall is high enough; returns it by its name in Faiss, and the recall."""
    owner, name, effort, most = (made.hnsw, "efSearch", 16, 1024) if kind == "hnsw" else (made, "nprobe", 1, lists)
    while True:
        if kind != "flat":
            setattr(owner, name, effort)
        share = recall.of(made.search(recall.queries.numpy(), recall.top)[1])
        if kind == "flat":
            return {}, share
        if share >= WANTED or effort >= most:
            return {name: effort}, share
        effort = min(2 * effort, most)
