"""What check says about labels: counts, and the classes whose images would meet no positive in their batch."""

from typing import Any

import numpy as np

from coulomb.data.names import some
from coulomb.data.positives import batch_for, p_no_positive
from coulomb.data.source import Source

HIGH = 0.5  # P(no positive) from which a class is named: every second of its anchors has only its own other view
NAMED = 5  # classes


def label_table(source: Source, readable: list[int], batch_size: int) -> dict[str, Any] | None:
    """Counts and P(no positive) of each class over the readable images, at the batch size; None without labels."""
    if source.labels is None:
        return None
    labels = source.labels[readable]
    known, counts = np.unique(labels[labels >= 0], return_counts=True)
    size = min(batch_size, len(readable))
    names = source.class_names
    classes = [
        {
            "label": label,
            "name": names[label] if names is not None else str(label),
            "count": count,
            "p_no_positive": p_no_positive(count, len(readable), size),
        }
        for label, count in zip(known.tolist(), counts.tolist(), strict=True)
    ]
    labelled = int(counts.sum())
    overall = sum(c["count"] * c["p_no_positive"] for c in classes) / labelled if labelled else None
    empty = [] if names is None else [name for label, name in enumerate(names) if label not in set(known.tolist())]
    return {
        "labelled": labelled,
        "unlabelled": len(readable) - labelled,
        "classes": classes,
        "empty_classes": empty,
        "p_no_positive": overall,
        "batch_size": size,
    }


def label_findings(labels: dict[str, Any], readable: int) -> list[str]:
    """Sentences on what deserves attention in the table of :func:`label_table`."""
    said = []
    if labels["empty_classes"]:
        said.append(f"{len(labels['empty_classes'])} named classes have no image.")
    single = sum(entry["count"] == 1 for entry in labels["classes"])
    if single:
        said.append(f"{single} classes have a single image: it can be trained on, but not tested.")
    size = labels["batch_size"]
    if labels["p_no_positive"] is not None and labels["p_no_positive"] > 0.1:
        said.append(
            f"In a batch of {size}, {labels['p_no_positive']:.0%} of labelled anchors meet no other "
            "image of their class (their own second view remains): use a larger batch or a class-balanced sampler."
        )
    rare = sorted(
        (entry for entry in labels["classes"] if entry["p_no_positive"] > HIGH and entry["count"] > 1),
        key=lambda entry: -entry["p_no_positive"],
    )
    if rare:
        said.append(rare_classes(rare, labels, readable))
    if size == readable:
        said.append(f"The batch holds the whole data set ({size} images).")
    return said


def rare_classes(rare: list[dict[str, Any]], labels: dict[str, Any], readable: int) -> str:
    """One sentence that names the classes without positives (worst first), and says what would help, with figures."""
    named = some([f"{entry['name']} {entry['p_no_positive']:.0%} ({entry['count']} images)" for entry in rare], NAMED)
    sentence = (
        f"Supervised contrast would hardly reach {len(rare)} rare classes (most anchors meet no positive): {named}."
    )
    remedies = []
    batch = batch_for(min(entry["count"] for entry in rare), readable, HIGH)
    if batch is not None and batch <= 8 * labels["batch_size"]:
        remedies.append(f"batches of {batch} bring them all below {HIGH:.0%}")
    classes = len(labels["classes"])
    # Each of the batch's other images is of the class with probability 1/C then.
    balanced = (1 - labels["labelled"] / readable / classes) ** (labels["batch_size"] - 1)
    if balanced < HIGH:
        remedies.append(f"--sampler class_balanced brings them to {balanced:.0%}")
    remedies.append("--method paco has a centre for every class, which is always a positive")
    return f"{sentence} What helps: {'; '.join(remedies)}."
