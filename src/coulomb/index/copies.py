"""Copies the images of clusters into folders; the originals stay where they are."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.text import visible


def copy_into_folders(clusters: Sequence[dict[str, Any]], out: str | Path) -> tuple[int, int]:
    """Copies images into ``out/cluster-000/``, ``out/cluster-001/``, …; those in no cluster into ``out/none/``.

    Names begin with the place of the image in its cluster, typical images first, so that no two are equal.

    Args:
        clusters: what `Index.cluster` returns.
        out: a folder that does not exist yet.

    Returns:
        How many were copied, and how many skipped because they are no files or cannot be read.

    Raises:
        InputError: ``out`` exists, or none of the images is a file.
    """
    folder = Path(out).expanduser()
    if folder.exists():
        raise InputError(
            f"folders={visible(out)!r}: already exists; choose a new folder, so that nothing is overwritten"
        )
    if any("text" in row for row in clusters):
        raise InputError(
            f"folders={visible(out)!r}: texts are no files that could be copied; write a list with out instead"
        )
    if not any(row.get("path") for row in clusters):
        raise InputError(
            f"folders={visible(out)!r}: the images of this index are not files; write a list with out instead"
        )
    places: dict[int, int] = {}
    skipped = 0
    for row in clusters:
        place = places[row["cluster"]] = places.get(row["cluster"], -1) + 1
        within = folder / ("none" if row["cluster"] < 0 else f"cluster-{row['cluster']:03d}")
        within.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copy2(row["path"], within / f"{place:06d}-{Path(row['path']).name[-150:]}")
        except (OSError, TypeError):
            skipped += 1
    return len(clusters) - skipped, skipped
