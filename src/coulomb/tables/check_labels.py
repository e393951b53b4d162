"""Checks the labels of a data set: counts, classes without positives in a batch, unused label columns."""

from typing import Any

import numpy as np

from coulomb.ground.errors import InputError, counted
from coulomb.ground.text import first_few
from coulomb.tables.labels import LABEL_COLUMNS, read_labels
from coulomb.tables.split import class_probabilities, p_no_positive, smallest_batch
from coulomb.tables.table import Table

HIGH = 0.5  # P(no positive) above which a class is listed: half of its anchors have only their own other view
LISTED = 5  # classes


def label_table(
    table: Table,
    readable: list[int],
    batch_size: int | None = None,
    learned: np.ndarray | None = None,
    sampler: str = "uniform",
) -> dict[str, Any] | None:
    """Returns the number of readable images per class, JSON-serializable; None without labels.

    Given a ``batch_size``, also ``p_no_positive`` of each class (None for classes without images in ``learned``) and its
    mean over labeled anchors, for batches that ``sampler`` draws from the images ``learned`` (default: all readable).
    """
    if table.labels is None:
        return None
    labels = table.labels[readable]
    known, counts = np.unique(labels[labels >= 0], return_counts=True)
    names = table.class_names
    classes: list[dict[str, Any]] = [
        {"label": label, "name": names[label] if names is not None else str(label), "count": count}
        for label, count in zip(known.tolist(), counts.tolist(), strict=True)
    ]
    labeled = int(counts.sum())
    empty = [] if names is None else [name for label, name in enumerate(names) if label not in set(known.tolist())]
    result = {"labeled": labeled, "unlabeled": len(readable) - labeled, "classes": classes, "empty_classes": empty}
    if batch_size is None:
        return result
    drawn = labels if learned is None else table.labels[np.intersect1d(learned, readable)]
    size = min(batch_size, len(drawn))
    seen = np.array([(drawn == label).sum() for label in known])
    shares = class_probabilities(seen, sampler)
    for entry, count, share in zip(classes, seen.tolist(), shares.tolist(), strict=True):
        if sampler == "uniform":
            entry["p_no_positive"] = p_no_positive(count, len(drawn), size) if count else None
        else:  # every other image of the batch is of the class with this probability
            entry["p_no_positive"] = (1 - share * seen.sum() / len(drawn)) ** (size - 1) if count else None
    overall = sum(share * (c["p_no_positive"] or 0) for c, share in zip(classes, shares.tolist(), strict=True))
    return result | {
        "p_no_positive": float(overall) if labeled else None,
        "batch_size": size,
        "drawn_from": len(drawn),
        "sampler": sampler,
    }


def label_findings(labels: dict[str, Any]) -> list[str]:
    """Returns sentences on what deserves attention in the table of :func:`label_table`."""
    findings = []
    if labels["empty_classes"]:
        findings.append(f"{counted(len(labels['empty_classes']), 'class has', 'classes have')} no image.")
    single = sum(entry["count"] == 1 for entry in labels["classes"])
    if single:
        findings.append(
            f"{counted(single, 'class has', 'classes have')} a single image, which is used for training and not for testing."
        )
    if labels.get("batch_size") is None:
        return findings
    size = labels["batch_size"]
    if labels["p_no_positive"] is not None and labels["p_no_positive"] > 0.1:
        findings.append(
            f"In a batch of {size}, {labels['p_no_positive']:.0%} of labeled anchors have no other image of their class, "
            "so that their own second view is the only positive: use a larger batch or a class-balanced sampler."
        )
    rare = sorted(
        (entry for entry in labels["classes"] if (entry["p_no_positive"] or 0) > HIGH and entry["count"] > 1),
        key=lambda entry: -entry["p_no_positive"],
    )
    if rare:
        findings.append(rare_classes(rare, labels))
    if size == labels["drawn_from"]:
        findings.append(f"The batch holds the whole training set ({size} images).")
    return findings


def rare_classes(rare: list[dict[str, Any]], labels: dict[str, Any]) -> str:
    """Lists classes that rarely have positives, worst first, and remedies with their effect."""
    listed = first_few(
        [f"{entry['name']} {entry['p_no_positive']:.0%} ({counted(entry['count'], 'image')})" for entry in rare], LISTED
    )
    named = counted(len(rare), "rare class", "rare classes")
    sentence = f"{named} would get little supervised signal (most anchors have no positive): {listed}."
    remedies = []
    total = labels["drawn_from"]
    if labels["sampler"] == "uniform":
        batch = smallest_batch(min(entry["count"] for entry in rare), total, HIGH)
        if batch is not None and batch <= 8 * labels["batch_size"]:
            remedies.append(f"batches of {batch} bring them all below {HIGH:.0%}")
    # Class-balanced, every other image of the batch is of the class with probability 1/C.
    share = min(labels["labeled"] / total, 1.0) / len(labels["classes"])
    balanced = (1 - share) ** (labels["batch_size"] - 1)
    if balanced < HIGH and labels["sampler"] != "class_balanced":
        remedies.append(f"--sampler class_balanced brings them to {balanced:.0%}")
    remedies.append("--method paco has a center per class, which is always a positive")
    return f"{sentence} Remedies: {'; '.join(remedies)}."


def label_like(table: Table) -> list[dict[str, Any]]:
    """Returns the unused columns of a table that could be labels: at least 2 values, with 2 rows or more on average.

    Returns:
        [{``name``, ``values`` (number of distinct ones), ``examples``, ``unlabeled`` (rows without a value)}], the most
        likely first: columns with a usual name, then text, then numbers; fewer values first.
    """
    candidates = []
    for name, values in table.other_columns().items():
        try:
            labels, names = read_labels(values, len(table), name)
        except InputError:  # measurements, lists, …
            continue
        if labels is None:
            continue
        known = np.unique(labels[labels >= 0])
        rows = int((labels >= 0).sum())
        if 2 <= len(known) <= rows / 2:
            examples = [str(label) if names is None else names[label] for label in known[:5].tolist()]
            usual = any(usual in name.lower() for usual in LABEL_COLUMNS)
            entry = {"name": name, "values": len(known), "examples": examples, "unlabeled": len(table) - rows}
            candidates.append(((not usual, names is None, len(known)), entry))
    return [entry for _, entry in sorted(candidates, key=lambda candidate: candidate[0])]


def column_lines(columns: list[dict[str, Any]]) -> list[str]:
    """Returns one line per column of `label_like`, with the option that uses it."""
    return [
        f"  {first_few([entry['name']])}: {entry['values']} values ({first_few(entry['examples'], 4)}"
        f"{', …' if entry['values'] > len(entry['examples']) else ''}); use it with --labels {first_few([entry['name']])}"
        for entry in columns
    ]
