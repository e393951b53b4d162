"""check: a data set is looked through, picture by picture, before hours are spent on it."""

import hashlib
from collections import defaultdict
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from coulomb.data.check_labels import label_findings, label_table
from coulomb.data.progress import track
from coulomb.data.source import CorruptImage, Header, Source
from coulomb.data.survey import suggest_image_size, summarise
from coulomb.data.workers import blocks, in_order
from coulomb.errors import InputError

Row = tuple[Header, bytes, int] | str  # header, hash of the pixels and their bytes; or the reason why there are none


class _Looked(Dataset[Row]):
    """Every picture decoded at full size, hashed and forgotten."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __getitems__(self, indices: list[int]) -> list[Row]:
        return [self._look(index) for index in indices]

    def _look(self, index: int) -> Row:
        try:
            header = self.source.header(index)
            image = self.source.image(index)
        except CorruptImage as error:
            return error.reason
        digest = hashlib.blake2b(f"{image.shape}{image.dtype}".encode(), digest_size=16)
        digest.update(np.ascontiguousarray(image).tobytes())
        return header, digest.digest(), image.nbytes


def check(
    source: Source, batch_size: int = 256, workers: int = 0, progress: bool | None = None, largest: int = 128
) -> dict[str, Any]:
    """Decode every image once and report, ready for JSON:

    - ``source`` (its description), ``count``, ``readable``, ``corrupt`` [{id, reason}], ``survey`` (sizes, modes, …),
      ``suggested`` {image_size, channels, dtype} with image_size ≤ ``largest``;
    - ``duplicates``: images with exactly the same pixels: ``groups`` [{ids, labels, cross_label}], ``redundant`` (copies
      beyond the first of each group), ``cross_label`` (groups whose known labels differ);
    - ``labels``: None, or ``labelled``, ``unlabelled``, ``classes`` [{label, name, count, p_no_positive}] over readable
      images, ``p_no_positive`` averaged over labelled anchors, ``batch_size`` it was computed for;
    - ``memory``: bytes decoded at full size, and as canvases of the suggested size;
    - ``findings``: sentences on what deserves attention; classes whose anchors would mostly find no positive in a batch
      (see :func:`coulomb.data.positives.p_no_positive`) are named, with remedies.
    """
    if batch_size < 1:
        raise InputError(f"batch_size={batch_size}: give at least 1")
    rows: list[Row] = []
    parts = blocks(range(len(source)), 64)
    read = in_order(_Looked(source), parts, workers)
    counted = ((len(part), found) for part, found in zip(parts, read, strict=True))
    for found in track(counted, len(source), "checking", progress):
        rows.extend(found)
    corrupt = {source.item_id(index): row for index, row in enumerate(rows) if isinstance(row, str)}
    readable = [(index, row) for index, row in enumerate(rows) if not isinstance(row, str)]
    summary = summarise(source, [row[0] for _, row in readable], corrupt)
    size = suggest_image_size(summary, largest)
    surveyed = summary.to_dict()
    del surveyed["unreadable"]  # they are in "corrupt"
    result: dict[str, Any] = {
        "source": source.describe(),
        "count": len(source),
        "readable": len(readable),
        "corrupt": [{"id": item_id, "reason": reason} for item_id, reason in corrupt.items()],
        "survey": surveyed,
        "suggested": {"image_size": size, "channels": summary.channels, "dtype": summary.dtype},
        "duplicates": _duplicates(source, readable),
        "labels": label_table(source, [index for index, _ in readable], batch_size),
        "memory": {
            "full_size": sum(row[2] for _, row in readable),
            "canvases": len(readable) * summary.channels * size**2 * (1 if summary.dtype == "uint8" else 4),
        },
    }
    result["findings"] = _findings(result)
    return result


def _duplicates(source: Source, readable: list[tuple[int, Any]]) -> dict[str, Any]:
    same: dict[bytes, list[int]] = defaultdict(list)
    for index, (_, digest, _) in readable:
        same[digest].append(index)
    groups: list[dict[str, Any]] = []
    for members in same.values():
        if len(members) < 2:
            continue
        labels = None if source.labels is None else source.labels[members].tolist()
        crossing = labels is not None and len({label for label in labels if label >= 0}) > 1
        groups.append({"ids": [source.item_id(i) for i in members], "labels": labels, "cross_label": crossing})
    return {
        "groups": groups,
        "redundant": sum(len(group["ids"]) - 1 for group in groups),
        "cross_label": sum(group["cross_label"] for group in groups),
    }


def _findings(result: dict[str, Any]) -> list[str]:
    said = []
    labels, duplicates, survey = result["labels"], result["duplicates"], result["survey"]
    bad = len(result["corrupt"])
    if bad:
        said.append(
            f"{bad} of {result['count']} images ({bad / result['count']:.2%}) cannot be decoded; they would be skipped."
        )
    if duplicates["redundant"]:
        said.append(
            f"{duplicates['redundant']} images are exact copies of others: as each other's negatives they pull apart "
            "what is the same, and between training and test they flatter the result."
        )
    if duplicates["cross_label"]:
        said.append(f"{duplicates['cross_label']} groups of identical images carry different labels.")
    if survey["transparent"]:
        said.append(f"{survey['transparent']} images have transparency and were laid over white.")
    deep = sum(number for mode, number in survey["modes"].items() if mode.startswith(("I", "F", "uint16", "float")))
    if 0 < deep < result["readable"]:
        said.append(f"{deep} images have more than 8 bits a channel and the others have 8; all become float32.")
    if labels is not None:
        said += label_findings(labels, result["readable"])
    return said
