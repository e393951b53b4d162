"""Checks the labels of a data set: counts, classes without positives in a batch, unused label columns."""

from typing import Any

import numpy as np

from coulomb.data.labels import LABEL_COLUMNS, read_labels
from coulomb.data.names import some
from coulomb.data.samplers import batch_for, class_probabilities, p_no_positive
from coulomb.data.source import Source
from coulomb.errors import InputError

HIGH = 0.5  # P(no positive) from which a class is named: every second of its anchors has only its own other view
NAMED = 5  # classes


def label_table(
    source: Source,
    readable: list[int],
    batch_size: int | None = None,
    learned: np.ndarray | None = None,
    sampler: str = "uniform",
) -> dict[str, Any] | None:
    """Counts of each class over the readable images; None without labels.

    With ``batch_size`` also ``p_no_positive`` of each class (None for a class that is not in ``learned``) and on average
    over labelled anchors, for batches that ``sampler`` draws from the images ``learned`` (default: all readable ones).
    """
    if source.labels is None:
        return None
    labels = source.labels[readable]
    known, counts = np.unique(labels[labels >= 0], return_counts=True)
    names = source.class_names
    classes: list[dict[str, Any]] = [
        {"label": label, "name": names[label] if names is not None else str(label), "count": count}
        for label, count in zip(known.tolist(), counts.tolist(), strict=True)
    ]
    labelled = int(counts.sum())
    empty = [] if names is None else [name for label, name in enumerate(names) if label not in set(known.tolist())]
    table = {"labelled": labelled, "unlabelled": len(readable) - labelled, "classes": classes, "empty_classes": empty}
    if batch_size is None:
        return table
    drawn = labels if learned is None else source.labels[np.intersect1d(learned, readable)]
    size = min(batch_size, len(drawn))
    seen = np.array([(drawn == label).sum() for label in known])
    shares = class_probabilities(seen, sampler)
    for entry, count, share in zip(classes, seen.tolist(), shares.tolist(), strict=True):
        if sampler == "uniform":
            entry["p_no_positive"] = p_no_positive(count, len(drawn), size) if count else None
        else:  # each of the batch's other images is of the class with this probability
            entry["p_no_positive"] = (1 - share * seen.sum() / len(drawn)) ** (size - 1) if count else None
    overall = sum(share * (c["p_no_positive"] or 0) for c, share in zip(classes, shares.tolist(), strict=True))
    return table | {
        "p_no_positive": float(overall) if labelled else None,
        "batch_size": size,
        "drawn_from": len(drawn),
        "sampler": sampler,
    }


def label_findings(labels: dict[str, Any]) -> list[str]:
    """Sentences on what deserves attention in the table of :func:`label_table`."""
    said = []
    if labels["empty_classes"]:
        said.append(f"{len(labels['empty_classes'])} named classes have no image.")
    single = sum(entry["count"] == 1 for entry in labels["classes"])
    if single:
        said.append(f"{single} classes have a single image: it can be trained on, but not tested.")
    if labels.get("batch_size") is None:
        return said
    size = labels["batch_size"]
    if labels["p_no_positive"] is not None and labels["p_no_positive"] > 0.1:
        said.append(
            f"In a batch of {size}, {labels['p_no_positive']:.0%} of labelled anchors meet no other "
            "image of their class (their own second view remains): use a larger batch or a class-balanced sampler."
        )
    rare = sorted(
        (entry for entry in labels["classes"] if (entry["p_no_positive"] or 0) > HIGH and entry["count"] > 1),
        key=lambda entry: -entry["p_no_positive"],
    )
    if rare:
        said.append(rare_classes(rare, labels))
    if size == labels["drawn_from"]:
        said.append(f"The batch holds the whole training set ({size} images).")
    return said


def rare_classes(rare: list[dict[str, Any]], labels: dict[str, Any]) -> str:
    """One sentence that names the classes without positives (worst first), and says what would help, with figures."""
    named = some([f"{entry['name']} {entry['p_no_positive']:.0%} ({entry['count']} images)" for entry in rare], NAMED)
    sentence = (
        f"Supervised contrast would hardly reach {len(rare)} rare classes (most anchors meet no positive): {named}."
    )
    remedies = []
    total = labels["drawn_from"]
    if labels["sampler"] == "uniform":
        batch = batch_for(min(entry["count"] for entry in rare), total, HIGH)
        if batch is not None and batch <= 8 * labels["batch_size"]:
            remedies.append(f"batches of {batch} bring them all below {HIGH:.0%}")
    # Each of the batch's other images is of the class with probability 1/C then.
    share = min(labels["labelled"] / total, 1.0) / len(labels["classes"])
    balanced = (1 - share) ** (labels["batch_size"] - 1)
    if balanced < HIGH and labels["sampler"] != "class_balanced":
        remedies.append(f"--sampler class_balanced brings them to {balanced:.0%}")
    remedies.append("--method paco has a centre for every class, which is always a positive")
    return f"{sentence} What helps: {'; '.join(remedies)}."


def label_like(source: Source) -> list[dict[str, Any]]:
    """The unused columns of ``source`` with at least two values, each of two rows or more on average.

    Returns:
        [{``name``, ``values`` (how many different ones), ``examples``, ``unlabelled`` (rows without a value)}], the most
        likely first: columns named like labels, then text, then numbers; fewer values first.
    """
    found = []
    for name, values in source.other_columns().items():
        try:
            labels, names = read_labels(values, len(source), name)
        except InputError:  # measurements, lists, …
            continue
        if labels is None:
            continue
        known = np.unique(labels[labels >= 0])
        rows = int((labels >= 0).sum())
        if 2 <= len(known) <= rows / 2:
            examples = [str(label) if names is None else names[label] for label in known[:5].tolist()]
            named = any(usual in name.lower() for usual in LABEL_COLUMNS)
            entry = {"name": name, "values": len(known), "examples": examples, "unlabelled": len(source) - rows}
            found.append(((not named, names is None, len(known)), entry))
    return [entry for _, entry in sorted(found, key=lambda each: each[0])]


def column_lines(columns: list[dict[str, Any]]) -> list[str]:
    """One line per column that could hold labels, and how to use it."""
    return [
        f"  {some([entry['name']])}: {entry['values']} values ({some(entry['examples'], 4)}"
        f"{', …' if entry['values'] > len(entry['examples']) else ''}); use it with --labels {some([entry['name']])}"
        for entry in columns
    ]
