"""Checks a data set image by image before a training run."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from coulomb.data.check_labels import column_lines, label_findings, label_like, label_table
from coulomb.data.names import some, visible
from coulomb.data.source import CorruptImage, Header, Source
from coulomb.data.survey import detail_finding, measure_detail, suggest_image_size, summarise, survey
from coulomb.data.workers import blocks, in_order, track
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


@dataclass(frozen=True)
class Look:
    """One pass over all images of a source."""

    source: Source
    rows: list[Row]

    @property
    def readable(self) -> list[int]:
        """Indices of the images that can be decoded."""
        return [index for index, row in enumerate(self.rows) if not isinstance(row, str)]

    @property
    def corrupt(self) -> dict[int, str]:
        """Reasons by index for the images that cannot be decoded."""
        return {index: row for index, row in enumerate(self.rows) if isinstance(row, str)}

    def listed(self) -> list[dict[str, str]]:
        """Id and reason of each image that cannot be decoded."""
        return [{"id": self.source.item_id(index), "reason": reason} for index, reason in self.corrupt.items()]

    def hashes(self, indices: Iterable[int]) -> list[bytes]:
        """Hashes of the pixels of these images, which must be readable."""
        return [self.rows[index][1] for index in indices]  # type: ignore[misc]

    def rounded(self) -> int:
        """Readable images with more than 8 bits per channel."""
        return sum(row[0].depth != "uint8" for row in self.rows if not isinstance(row, str))


def look(source: Source, workers: int = 0, progress: bool | None = None) -> Look:
    """Decode every image of ``source`` once, with ``workers`` processes."""
    rows: list[Row] = []
    parts = blocks(range(len(source)), 64)
    read = in_order(_Looked(source), parts, workers)
    counted = ((len(part), found) for part, found in zip(parts, read, strict=True))
    for found in track(counted, len(source), "checking", progress):
        rows.extend(found)
    return Look(source, rows)


def check(
    source: Source,
    batch_size: int | None = None,
    workers: int = 0,
    progress: bool | None = None,
    *,
    largest: int = 96,
    image_size: int | None = None,
    seed: int = 0,
    learned: np.ndarray | None = None,
    sampler: str = "uniform",
    looked: Look | None = None,
) -> dict[str, Any]:
    """Decode every image once and report, ready for JSON:

    - ``source`` (its description), ``count``, ``readable``, ``corrupt`` [{id, reason}], ``survey`` (sizes, modes, …),
      ``suggested`` {image_size, channels, dtype} with image_size ≤ ``largest``, which is what training chooses;
    - ``duplicates``: images with exactly the same pixels: ``groups`` [{ids, labels, cross_label}], ``redundant`` (copies
      beyond the first of each group), ``cross_label`` (groups whose known labels differ);
    - ``labels``: None, or ``labelled``, ``unlabelled``, ``classes`` [{label, name, count}] over readable images; with
      ``batch_size`` also P(no positive) of each class and on average, see :func:`coulomb.data.samplers.p_no_positive`;
    - ``other_columns``: columns of the table that are not used and could be labels, see
      :func:`coulomb.data.check_labels.label_like`;
    - ``detail``: whether the images look enlarged, see :func:`coulomb.data.survey.measure_detail`;
    - ``memory``: bytes decoded at full size, and as canvases of the suggested size;
    - ``findings``: sentences on what deserves attention.

    Args:
        source: the images.
        batch_size: images per step, for methods whose positives are the other images of a class; None for others.
        workers: processes that decode.
        progress: show a bar on a terminal.
        largest: largest image size to suggest, in pixels.
        image_size: side in pixels that the network will see; default the suggested one.
        seed: of the samples that are drawn.
        learned: indices of the images that batches are drawn from; default all.
        sampler: how batches are drawn, see :mod:`coulomb.data.samplers`.
        looked: a `look` at the source, if there was one already.

    Raises:
        InputError: no image can be read, or ``batch_size`` is below 1.
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size={batch_size}: give at least 1")
    looked = looked or look(source, workers, progress)
    readable = [(index, row) for index, row in enumerate(looked.rows) if not isinstance(row, str)]
    corrupt = {entry["id"]: entry["reason"] for entry in looked.listed()}
    summary = summarise(source, [row[0] for _, row in readable], corrupt)
    surveyed = summary.to_dict()
    del surveyed["unreadable"]  # they are in "corrupt"
    size = suggest_image_size(survey(source, seed=seed), largest)
    result: dict[str, Any] = {
        "source": source.describe(),
        "count": len(source),
        "readable": len(readable),
        "corrupt": looked.listed(),
        "survey": surveyed,
        "suggested": {"image_size": size, "channels": summary.channels, "dtype": summary.dtype},
        "duplicates": _duplicates(source, readable),
        "labels": label_table(source, looked.readable, batch_size, learned, sampler),
        "other_columns": label_like(source),
        "detail": measure_detail(source, looked.readable, seed),
        "memory": {
            "full_size": sum(row[2] for _, row in readable),
            "canvases": len(readable) * summary.channels * size**2 * (1 if summary.dtype == "uint8" else 4),
            "canvas": size,
        },
    }
    result["findings"] = _findings(result, image_size or size)
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


def _findings(result: dict[str, Any], image_size: int) -> list[str]:
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
        said += label_findings(labels)
    elif result["other_columns"]:
        named = result["other_columns"][0]["name"]
        said.append(f"No labels are used, but column {visible(named)!r} could hold them: --labels {visible(named)}.")
    if (finding := detail_finding(result["detail"], image_size)) is not None:
        said.append(finding)
    return said


MOST = 20  # lines of one list; the dictionary holds them all


def render_check(result: dict[str, Any]) -> str:
    """Plain text without markup (print it with markup off: names may hold brackets)."""
    source, survey, memory = result["source"], result["survey"], result["memory"]
    suggested = result["suggested"]
    lines = [
        f"{visible(source['name'])} ({source['kind']}): {result['count']} images, {result['readable']} readable",
        *(f"  note: {visible(note, 400)}" for note in source["notes"]),
        "",
        f"size      width {_spread(survey, 'width')}, height {_spread(survey, 'height')}"
        + (", all the same" if survey["uniform"] else ""),
        "modes     " + ", ".join(f"{visible(mode)} {count}" for mode, count in survey["modes"].items()),
        f"suggested image size {suggested['image_size']}, channels {suggested['channels']}, {suggested['dtype']}",
        f"memory    {_bytes(memory['full_size'])} decoded at full size, {_bytes(memory['canvases'])} as "
        f"{memory['canvas']}×{memory['canvas']} canvases",
        "",
        *_label_lines(result["labels"]),
        *(["columns   not used, and could be labels:"] if result["other_columns"] else []),
        *column_lines(result["other_columns"]),
        "",
        *_corrupt_lines("corrupt  ", result["corrupt"]),
        *(_corrupt_lines("corrupt test images", result["test"]["corrupt"]) if "test" in result else []),
        *_duplicate_lines(result["duplicates"]),
    ]
    if result["findings"]:
        lines += ["", "worth attention:", *(f"  - {finding}" for finding in result["findings"])]
    return "\n".join(lines)


def _label_lines(labels: dict[str, Any] | None) -> list[str]:
    if labels is None:
        return ["labels    none"]
    classes = labels["classes"]
    lines = [f"labels    {labels['labelled']} labelled, {labels['unlabelled']} unlabelled, {len(classes)} classes"]
    if labels.get("p_no_positive") is not None:
        lines[0] += (
            f"; P(no other image of its class in a batch of {labels['batch_size']}) = {labels['p_no_positive']:.2g}"
        )
    most = max(entry["count"] for entry in classes)
    by_count = sorted(classes, key=lambda entry: -entry["count"])
    shown = by_count if len(by_count) <= MOST else by_count[: MOST // 2] + by_count[-MOST // 2 :]
    width = max(len(visible(entry["name"], 24)) for entry in shown)
    for row, entry in enumerate(shown):
        if len(by_count) > MOST and row == MOST // 2:
            lines.append(f"  … {len(by_count) - MOST} classes between these …")
        bar = "█" * max(1, round(24 * entry["count"] / most))
        name = visible(entry["name"], 24)
        chance = entry.get("p_no_positive")
        shown_chance = "" if chance is None else f" P(no positive) {chance:.2g}"
        lines.append(f"  {name:<{width}} {entry['count']:>8} {bar:<24}{shown_chance}".rstrip())
    return lines


def _corrupt_lines(title: str, corrupt: list[dict[str, str]]) -> list[str]:
    lines = [f"{title} {len(corrupt) or 'none'}"]
    lines += [f"  {visible(entry['id'])}: {visible(entry['reason'])}" for entry in corrupt[:MOST]]
    return lines if len(corrupt) <= MOST else [*lines, f"  … and {len(corrupt) - MOST} more"]


def _duplicate_lines(duplicates: dict[str, Any]) -> list[str]:
    groups = sorted(duplicates["groups"], key=lambda group: not group["cross_label"])
    if not groups:
        return ["copies    none"]
    lines = [f"copies    {duplicates['redundant']} in {len(groups)} groups of identical pixels"]
    for group in groups[:MOST]:
        lines.append(f"  {some(group['ids'])}" + ("  (different labels!)" if group["cross_label"] else ""))
    return lines if len(groups) <= MOST else [*lines, f"  … and {len(groups) - MOST} more groups"]


def _spread(survey: dict[str, Any], side: str) -> str:
    low, high = survey[f"{side}_range"]
    return f"{low}" if low == high else f"{low}…{high} (median {survey[side]:g})"


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
