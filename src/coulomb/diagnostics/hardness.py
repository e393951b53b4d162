"""Which negatives push? The relative penalty of each, and how it gathers on the hardest."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from coulomb.diagnostics.penalties import Hardness, Sums, hardest_tenth
from coulomb.diagnostics.strips import same, strips, unit, whole_numbers
from coulomb.errors import InputError


def hardness(
    x: Tensor,
    temperature: float,
    keys: Tensor | None = None,
    *,
    ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    labels: Tensor | None = None,
    key_labels: Tensor | None = None,
) -> Hardness | None:
    """The `Hardness` of anchors ``x`` [n,D] against ``keys`` [M,D] at τ = ``temperature``; None without any negative.

    Args:
        x: anchors; normalised here, like the keys.
        temperature: τ > 0.
        keys: None: the anchors themselves, each but itself.
        ids, key_ids: [n], [M] which image each row shows: pairs of one image are no negatives. −1 equals nobody.
        labels, key_labels: [n], [M] for ``same_class``; −1 is unknown. With ``keys=None`` the first of each serves both.

    Strips of whole rows stream by: O(n·M·D) time, memory of a strip. Raises `InputError` naming what is wrong.
    """
    return _measured(x, [temperature], keys, ids, key_ids, labels, key_labels)[0]


def hardness_at(
    x: Tensor,
    temperatures: Sequence[float],
    keys: Tensor | None = None,
    *,
    ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    labels: Tensor | None = None,
    key_labels: Tensor | None = None,
) -> list[Hardness | None]:
    """`hardness` at several temperatures, from one pass over the cosines."""
    return _measured(x, temperatures, keys, ids, key_ids, labels, key_labels)


def hardness_of(
    cosines: Tensor,
    temperature: float,
    counts: Tensor | None = None,
    labels: Tensor | None = None,
    key_labels: Tensor | None = None,
) -> Hardness | None:
    """The same from cosines [n,M] themselves, where they are few; ``counts`` [n,M]: which pairs are negatives (None: all)."""
    counts = torch.ones_like(cosines, dtype=torch.bool) if counts is None else counts
    labelled = None if labels is None or key_labels is None else (labels >= 0, same(labels, key_labels))
    return Sums.of(cosines, counts, temperature, hardest_tenth(cosines, counts), labelled).means(temperature)


def _measured(
    x: Tensor,
    temperatures: Sequence[float],
    keys: Tensor | None,
    ids: Tensor | None,
    key_ids: Tensor | None,
    labels: Tensor | None,
    key_labels: Tensor | None,
) -> list[Hardness | None]:
    for temperature in temperatures:
        if not 0 < temperature < math.inf:
            raise InputError(f"temperature={temperature}: must be positive and finite")
    anchors = unit(x, "x")
    others = anchors if keys is None else unit(keys, "keys")
    if others.shape[1] != anchors.shape[1]:
        raise InputError(f"keys have {others.shape[1]} dimensions, x has {anchors.shape[1]}")
    ids, labels = whole_numbers(ids, "ids", anchors), whole_numbers(labels, "labels", anchors)
    if keys is None:
        ids = torch.arange(len(anchors), device=anchors.device) if ids is None else ids
        key_ids, key_labels = ids, labels
    else:
        key_ids, key_labels = whole_numbers(key_ids, "key_ids", others), whole_numbers(key_labels, "key_labels", others)
    if (ids is None) != (key_ids is None) or (labels is None) != (key_labels is None):
        raise InputError("ids and key_ids, labels and key_labels: give both of a pair, or neither")
    totals = [Sums() for _ in temperatures]
    for rows, cosines, counts in strips(anchors, others, ids, key_ids):
        labelled = None
        if labels is not None and key_labels is not None:
            labelled = labels[rows] >= 0, same(labels[rows], key_labels)
        hardest = hardest_tenth(cosines, counts)
        for total, temperature in zip(totals, temperatures, strict=True):
            total.add(Sums.of(cosines, counts, temperature, hardest, labelled))
    return [total.means(temperature) for total, temperature in zip(totals, temperatures, strict=True)]
