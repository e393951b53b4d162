"""Accuracy per class, and of classes with many, a medium number of and few training images."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import Labels

# Liu et al. (2019): many-shot classes have more than 100 training images, few-shot classes fewer than 20.
MANY_ABOVE, FEW_BELOW = 100, 20


def class_table(
    train_y: Labels, test_y: Labels, predicted: Mapping[str, Labels], names: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """One row per class: its training and test images, and the accuracy of each classifier.

    Args:
        train_y, test_y: classes of the labeled images; rows labeled −1 are left out.
        predicted: name of a classifier (such as "knn") → predicted class of each row of ``test_y``.
        names: class names by number; default: the numbers.

    Returns:
        Rows ``{"label", "class", "train", "test", NAME: accuracy, ...}`` sorted by class; the accuracy of a class
        without test images is None.

    Raises:
        InputError: a prediction and ``test_y`` differ in length.

    Shape:
        train_y: [n].
        test_y: [m].
        predicted: [m] each.

    >>> class_table([0, 0, 1], [0, 1], {"knn": [0, 0]}, names=["cat", "dog"])[1]
    {'label': 1, 'class': 'dog', 'train': 1, 'test': 1, 'knn': 0.0}
    """
    train, test = (torch.as_tensor(y).detach().cpu().long() for y in (train_y, test_y))
    right: dict[str, Tensor] = {}
    for name, values in predicted.items():
        guess = torch.as_tensor(values).detach().cpu()
        if guess.shape != test.shape:
            raise InputError(f"predicted[{name!r}] has shape {list(guess.shape)}, test_y {list(test.shape)}.")
        right[name] = (guess == test)[test >= 0]
    train, test = train[train >= 0], test[test >= 0]
    classes, row_of = torch.cat([train, test]).unique(return_inverse=True)
    in_train, in_test = (part.bincount(minlength=len(classes)) for part in row_of.split([len(train), len(test)]))
    rows: list[dict[str, Any]] = [
        {"label": label, "class": str(names[label]) if names is not None and label < len(names) else str(label)}
        | {"train": trained, "test": tested}
        for label, trained, tested in zip(classes.tolist(), in_train.tolist(), in_test.tolist(), strict=True)
    ]
    for name, hits in right.items():
        right_per_class = row_of[len(train) :].bincount(hits.double(), minlength=len(classes))
        for row, hit in zip(rows, right_per_class.tolist(), strict=True):
            row[name] = hit / row["test"] if row["test"] else None
    return rows


def confusions(test_y: Labels, guess: Labels) -> dict[int, dict[str, int]]:
    """Sparse confusion matrix of the labeled rows: class → {predicted class, as a string for JSON: images}."""
    truth, predicted = (torch.as_tensor(y).detach().cpu().long() for y in (test_y, guess))
    pairs, counts = torch.stack([truth, predicted], dim=1)[truth >= 0].unique(dim=0, return_counts=True)
    table: dict[int, dict[str, int]] = {}
    for (label, other), n in zip(pairs.tolist(), counts.tolist(), strict=True):
        table.setdefault(label, {})[str(other)] = n
    return table


def by_frequency(
    table: Sequence[Mapping[str, Any]], many_above: int = MANY_ABOVE, few_below: int = FEW_BELOW
) -> dict[str, dict[str, Any] | None]:
    """Accuracy of many-, medium- and few-shot classes, averaged over the classes of a group (Liu et al., 2019).

    Args:
        table: rows of `class_table`; classes without test images are left out.
        many_above: classes with more training images than this are "many".
        few_below: classes with fewer than this, or none, are "few"; the others are "medium".

    Returns:
        ``{"many": {"classes", "train", "test", NAME: accuracy, ...}, "medium": ..., "few": ...}``; a group without
        classes is None.

    Raises:
        InputError: a threshold is negative, or ``few_below`` is above ``many_above`` + 1, so that groups overlap.

    >>> table = class_table([0] * 150 + [1], [0, 1], {"knn": [0, 0]})
    >>> groups = by_frequency(table)
    >>> groups["many"]["knn"], groups["few"]["knn"], groups["medium"]
    (1.0, 0.0, None)
    """
    check_thresholds(many_above, few_below)
    groups: dict[str, list[Mapping[str, Any]]] = {"many": [], "medium": [], "few": []}
    for row in table:
        if row["test"]:
            groups[frequency_group(row["train"], many_above, few_below)].append(row)
    return {name: _group_means(rows) if rows else None for name, rows in groups.items()}


def frequency_group(images: int, many_above: int = MANY_ABOVE, few_below: int = FEW_BELOW) -> str:
    """Returns the group of a class with ``images`` training images: "many", "medium" or "few"; see `by_frequency`."""
    return "many" if images > many_above else "few" if images < few_below else "medium"


def check_thresholds(many_above: int, few_below: int) -> None:
    """Raises InputError if a class could be both many- and few-shot."""
    if few_below < 0 or many_above < 0 or few_below > many_above + 1:
        raise InputError(
            f"many_above={many_above}, few_below={few_below}: neither may be negative, and few_below must be at most "
            "many_above + 1, so that no class is both."
        )


def _group_means(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    names = [key for key in rows[0] if key not in ("label", "class", "train", "test", "taken_for", "frequency")]
    counts = {"classes": len(rows), "train": sum(r["train"] for r in rows), "test": sum(r["test"] for r in rows)}
    return counts | {name: sum(r[name] for r in rows) / len(rows) for name in names}
