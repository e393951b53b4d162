"""What a run was made with (versions, device) and from (fingerprints of the data)."""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from coulomb.ground import machine
from coulomb.ground.text import first_few
from coulomb.ground.version import __version__
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import Columns, Source
from coulomb.tables.survey import one_by_one


def environment() -> dict[str, Any]:
    """Returns versions, device and threads, for ``environment.json`` and the report."""
    packages = ("torch", "numpy", "lightning", "scikit-learn", "pillow", "pyarrow")
    cuda = torch.cuda.is_available()
    return {
        "coulomb": __version__,
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in packages},
        "device": torch.cuda.get_device_name() if cuda else platform.machine() + " CPU",
        "processor": machine.processor(),
        "products": machine.KERNEL,
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }


SAMPLED = 256  # images whose content is hashed
ENDS = 2**16  # bytes that are hashed at the beginning and at the end of each


def fingerprints(sources: tuple[Source, Source | None]) -> dict[str, Any]:
    """Returns the `fingerprint` of the training data, and of the separate test data, if any."""
    return {
        name: None if source is None else fingerprint(source)
        for name, source in zip(("data", "test"), sources, strict=True)
    }


def fingerprint(source: Source) -> dict[str, Any]:
    """Returns number, names, labels and total size of the images, and hashes of 256 evenly spaced ones.

    Paths are relative to the data's folder, and modification times are ignored, so that a copy of a folder has the same
    fingerprint. For a large file, the first and last 64 KiB and the size are hashed. For Parquet, shards are hashed in place
    of images. It does not detect an image outside the sample that was replaced by one of the same size.
    """
    if source.files:
        sampled = {path.name: _hash(path) for path in source.files}
        names = None
    else:
        chosen = np.unique(np.linspace(0, len(source) - 1, SAMPLED).astype(int))
        sampled = {source.item_id(index): _hash_of_image(source, index) for index in one_by_one(source, chosen)}
        names = _digest("\n".join(map(source.item_id, range(len(source)))).encode())
    labels = None if source.labels is None else source.labels.tobytes() + json.dumps(source.class_names).encode()
    return {
        "images": len(source),
        "bytes": source.stored_bytes(),
        "names": names,
        "labels": None if labels is None else _digest(labels),
        "sampled": sampled,
    }


def column_fingerprint(table: Columns, names: Sequence[str]) -> dict[str, Any]:
    """Returns number and names of the rows of a table, its labels, and hashes of 256 evenly spaced rows of some columns."""
    chosen = np.unique(np.linspace(0, len(table) - 1, SAMPLED).astype(int)).tolist()
    sampled = {}
    for row in chosen:
        content = b"".join(_hash_of_cell(table.columns[name], row).encode() for name in names)
        sampled[table.item_id(row)] = _digest(content)
    return {
        "rows": len(table),
        "names": _digest("\n".join(map(table.item_id, range(len(table)))).encode()),
        "labels": None if table.labels is None else _digest(table.labels.tobytes()),
        "sampled": sampled,
    }


def _hash_of_cell(cells: Any, row: int) -> str:
    if hasattr(cells, "content"):
        return _hash_of_image(cells, row)
    cell = cells[row]
    return _digest(cell.encode() if isinstance(cell, str) else np.ascontiguousarray(cell).tobytes())


def changed(before: Any, now: dict[str, Any]) -> str:
    """Describes the differences between two `fingerprints` for a message; empty if there are none."""
    changes = []
    for part, new in now.items():
        old = before.get(part) if isinstance(before, dict) else None
        if old == new:
            continue
        if not isinstance(old, dict) or new is None:
            changes.append(f"{part}: {'there was none' if new else 'it is missing'}")
            continue
        hashes = old.get("sampled")
        hashes = hashes if isinstance(hashes, dict) else {}
        differ = [name for name, value in new["sampled"].items() if hashes.get(name, value) != value]
        details = [f"content of {first_few(differ)}"] if differ else []
        details += [
            f"{old.get(key)} {key} then, {new[key]} now"
            for key in ("images", "rows", "bytes")
            if old.get(key) != new.get(key)
        ]
        details += [f"other {key}" for key in ("names", "labels") if old.get(key) != new[key]]
        changes.append(f"{part}: {', '.join(details) or 'other files'}")
    return "; ".join(changes)


def _hash_of_image(source: Source, index: int) -> str:
    try:
        return _hash(source.content(index))
    except (CorruptImage, OSError):
        return "unreadable"


def _hash(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return _digest(content[:ENDS] + content[-ENDS:] + str(len(content)).encode())
    with content.open("rb") as file:
        begin, size = file.read(ENDS), file.seek(0, 2)
        file.seek(max(0, size - ENDS))
        return _digest(begin + file.read(ENDS) + str(size).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
