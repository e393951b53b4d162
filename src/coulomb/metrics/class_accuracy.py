"""Accuracy per class, and of classes with many, a medium number of and few training images."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.metrics.inputs import Labels

MANY_ABOVE, FEW_BELOW = (
    100,
    20,
)  # Liu et al. (2019): many-shot has more than 100 training images, few-shot fewer than 20


def class_table(
    train_y: Labels, test_y: Labels, predicted: Mapping[str, Labels], names: Sequence[str] | None = None
) -> list[dict[str, Any]]:
    """One row a class: its images in training and in the test, and the accuracy of each way of predicting.

    Args:
        train_y, test_y: classes of the labelled images; −1 is left out.
        predicted: a name (such as "knn") → the class predicted for each row of ``test_y``.
        names: class names by number; without them a class is called by its number.

    Returns:
        Rows ``{"label", "class", "train", "test", NAME: accuracy, ...}`` in the order of classes; an accuracy is None for a
        class without test images.

    Raises:
        InputError: a prediction has another length than ``test_y``.
    """
    train, test = (torch.as_tensor(y).detach().cpu().long() for y in (train_y, test_y))
    right: dict[str, Tensor] = {}
    for name, values in predicted.items():
        guess = torch.as_tensor(values).detach().cpu()
        if guess.shape != test.shape:
            raise InputError(f"predicted[{name!r}] has shape {list(guess.shape)}, test_y {list(test.shape)}.")
        right[name] = (guess == test)[test >= 0]
    train, test = train[train >= 0], test[test >= 0]
    classes, place = torch.cat([train, test]).unique(return_inverse=True)
    in_train, in_test = (part.bincount(minlength=len(classes)) for part in place.split([len(train), len(test)]))
    rows: list[dict[str, Any]] = [
        {"label": label, "class": str(names[label]) if names is not None and label < len(names) else str(label)}
        | {"train": trained, "test": tested}
        for label, trained, tested in zip(classes.tolist(), in_train.tolist(), in_test.tolist(), strict=True)
    ]
    for name, hits in right.items():
        counted = place[len(train) :].bincount(hits.double(), minlength=len(classes))
        for row, hit in zip(rows, counted.tolist(), strict=True):
            row[name] = hit / row["test"] if row["test"] else None
    return rows


def taken_for(test_y: Labels, guess: Labels) -> dict[int, dict[str, int]]:
    """Confusions, sparse: class → {predicted class (its number as text, as JSON has it): images}, of rows with a label."""
    truth, found = (torch.as_tensor(y).detach().cpu().long() for y in (test_y, guess))
    pairs, counts = torch.stack([truth, found], dim=1)[truth >= 0].unique(dim=0, return_counts=True)
    confusions: dict[int, dict[str, int]] = {}
    for (label, other), n in zip(pairs.tolist(), counts.tolist(), strict=True):
        confusions.setdefault(label, {})[str(other)] = n
    return confusions


def by_frequency(
    table: Sequence[Mapping[str, Any]], many_above: int = MANY_ABOVE, few_below: int = FEW_BELOW
) -> dict[str, dict[str, Any] | None]:
    """Accuracy of many-, medium- and few-shot classes: the mean over the classes of a group, as in Liu et al. (2019).

    Args:
        table: rows of `class_table`; classes without test images do not count.
        many_above: "many" are classes with more training images than this.
        few_below: "few" are classes with fewer than this, those without any included; the others are "medium".

    Returns:
        ``{"many": {"classes", "train", "test", NAME: accuracy, ...}, "medium": ..., "few": ...}``; a group without
        classes is None.

    Raises:
        InputError: ``few_below`` is above ``many_above`` + 1, so that a class would be in two groups, or one is negative.
    """
    require_thresholds(many_above, few_below)
    groups: dict[str, list[Mapping[str, Any]]] = {"many": [], "medium": [], "few": []}
    for row in table:
        if row["test"]:
            name = "many" if row["train"] > many_above else "few" if row["train"] < few_below else "medium"
            groups[name].append(row)
    return {name: _summary(rows) if rows else None for name, rows in groups.items()}


def require_thresholds(many_above: int, few_below: int) -> None:
    """`InputError` where a class would be both many- and few-shot."""
    if few_below < 0 or many_above < 0 or few_below > many_above + 1:
        raise InputError(
            f"many_above={many_above}, few_below={few_below}: neither may be negative, and few_below at most many_above + 1, "
            "so that no class is both."
        )


def _summary(rows: list[Mapping[str, Any]]) -> dict[str, Any]:
    ways = [key for key in rows[0] if key not in ("label", "class", "train", "test", "taken_for")]
    counts = {"classes": len(rows), "train": sum(r["train"] for r in rows), "test": sum(r["test"] for r in rows)}
    return counts | {way: sum(r[way] for r in rows) / len(rows) for way in ways}
