"""What the page says about the data: counts, split, unreadable images, the histogram of classes."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from coulomb.report.collect import Run, finite
from coulomb.report.wording import count, plural

MAX_LISTED = 100
MAX_CLASSES = 40


@dataclass(frozen=True)
class DataSection:
    """Ready for the template."""

    facts: list[tuple[str, str]]
    split: str
    corrupt: list[tuple[str, str]]
    corrupt_total: int
    histogram: list[tuple[str, int, float]]  # name, images, share of the largest class
    histogram_note: str


def data_section(run: Run) -> DataSection:
    """From ``data.json``, and the class histogram from the samples where the data's own counts were not recorded."""
    data = run.data
    facts = [(name, _count(data.get(key))) for name, key in (("training images", "train"), ("held-out images", "test"))]
    facts.append(("with a label", _labelled(run)))
    if run.class_names:
        facts.append(("classes", count(len(run.class_names))))
    size, channels = finite(data.get("image_size")), finite(data.get("channels"))
    if size is not None:
        shape = f"{size:.0f}×{size:.0f} pixels"
        facts.append(
            ("seen by the network at", shape + (f", {plural(round(channels), 'channel')}" if channels else ""))
        )
    recorded = data.get("corrupt")
    entries = recorded if isinstance(recorded, list) else []
    corrupt = [
        (str(entry.get("id", "?")), str(entry.get("reason", ""))) if isinstance(entry, dict) else (str(entry), "")
        for entry in entries
    ]
    if data:
        facts.append(("could not be decoded", count(len(corrupt))))
    duplicates = finite(data.get("duplicates"))
    if duplicates is not None:
        facts.append(("exact duplicates", count(duplicates)))
    if rounded := finite(data.get("rounded")):
        facts.append(("rounded from 16 bits to 8", count(rounded)))
    source = data.get("source")
    notes = source.get("notes") if isinstance(source, dict) else None
    facts += [("note", str(note)) for note in notes] if isinstance(notes, list) else []
    split = data.get("split")
    histogram, note = _histogram(run)
    return DataSection(
        [(name, value) for name, value in facts if value],
        split if isinstance(split, str) else "",
        corrupt[:MAX_LISTED],
        len(corrupt),
        histogram,
        note,
    )


def _count(value: Any) -> str:
    number = finite(value)
    return "" if number is None else count(number)


def _labelled(run: Run) -> str:
    labelled, total = finite(run.data.get("labelled")), finite(run.data.get("train"))
    if labelled is None:
        return ""
    if labelled == 0:
        return "none"
    whole = (total or 0) + (finite(run.data.get("test")) or 0)
    return "all" if total and labelled in (total, whole) else count(labelled)


def _histogram(run: Run) -> tuple[list[tuple[str, int, float]], str]:
    counts = run.data.get("class_counts")
    if isinstance(counts, list) and counts and all(isinstance(n, int) and n >= 0 for n in counts):
        pairs, note = list(enumerate(counts)), "Images of each class, in all of the data."
    elif run.samples is not None and (run.samples.labels >= 0).any():
        found, sizes = np.unique(run.samples.labels[run.samples.labels >= 0], return_counts=True)
        pairs = list(zip(found.tolist(), sizes.tolist(), strict=True))
        note = f"Images of each class among the {plural(len(run.samples), 'held-out sample')} of this page."
    else:
        return [], ""
    if len(pairs) > MAX_CLASSES:
        pairs.sort(key=lambda pair: (-pair[1], pair[0]))
        note += f" The {MAX_CLASSES} largest of {len(pairs)} classes; the smallest has {plural(pairs[-1][1], 'image')}."
        pairs = pairs[:MAX_CLASSES]
    largest = max(n for _, n in pairs) or 1
    return [(run.class_name(label), n, round(100 * n / largest, 1)) for label, n in pairs], note
