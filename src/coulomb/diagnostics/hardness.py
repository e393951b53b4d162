"""Which negatives push? The relative penalty of each, and how it gathers on the hardest."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

import torch
from torch import Tensor

from coulomb.diagnostics.strips import same, strips, unit, whole_numbers
from coulomb.errors import InputError


@dataclass(frozen=True)
class Hardness:
    """How the repulsive gradient of InfoNCE is shared among an anchor's negatives; means over anchors that have any.

    ∂L/∂s_j = P_j/τ, so that negative j's share is the relative penalty r_j = e^{s_j}/Σ_k e^{s_k} over negatives alone
    (Wang and Liu, 2021). The smaller τ, the more of it lies on the hardest.

    Attributes:
        temperature: τ.
        anchors: how many anchors have a negative.
        negatives: mean number of negatives.
        entropy: mean of H(r) = −Σ r_j ln r_j, from 0 to ln(negatives).
        effective_negatives: mean of e^{H(r)}: from 1 (one negative has all) to their number (all alike).
        top1: share of the hardest negative.
        top1pct, top10pct: share of the hardest hundredth and tenth, rounded up to whole negatives.
        same_class: share of negatives that have the anchor's label (over anchors with a label); None without labels.
    """

    temperature: float
    anchors: int
    negatives: float
    entropy: float
    effective_negatives: float
    top1: float
    top1pct: float
    top10pct: float
    same_class: float | None

    def as_dict(self) -> dict[str, float | None]:
        """For JSON."""
        return asdict(self)


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
    return Sums.of(cosines, counts, temperature, _hardest(cosines, counts), labelled).means(temperature)


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
        hardest = _hardest(cosines, counts)
        for total, temperature in zip(totals, temperatures, strict=True):
            total.add(Sums.of(cosines, counts, temperature, hardest, labelled))
    return [total.means(temperature) for total, temperature in zip(totals, temperatures, strict=True)]


def _hardest(cosines: Tensor, counts: Tensor) -> Tensor:
    """The hardest tenth of each row's negatives, descending, −∞ where a row has fewer."""
    k = (int(counts.sum(1).max()) + 9) // 10
    return cosines.masked_fill(~counts, -torch.inf).topk(max(k, 1), dim=1).values


@dataclass
class Sums:
    """Sums over anchors of what `Hardness` has the means of."""

    anchors: float = 0
    negatives: float = 0
    entropy: float = 0
    effective: float = 0
    top1: float = 0
    top1pct: float = 0
    top10pct: float = 0
    labelled: float = 0
    same_class: float = 0

    @classmethod
    def of(
        cls,
        cosines: Tensor,
        counts: Tensor,
        temperature: float,
        hardest: Tensor,
        labelled: tuple[Tensor, Tensor] | None,
    ) -> "Sums":
        """Of a strip [r,M]; ``labelled``: which anchors have a label [r], which pairs share it [r,M]."""
        number = counts.sum(1)
        has = number > 0
        scores = (cosines / temperature).masked_fill_(~counts, -torch.inf)
        lse = scores.logsumexp(1, keepdim=True)
        lse = lse.masked_fill(~has[:, None], 0)
        penalty = (scores - lse).exp_()
        entropy = torch.special.entr(penalty).sum(1).double()
        shares = (hardest / temperature - lse).exp().double().cumsum(1)

        def top(percent: int) -> float:
            last = ((number * percent + 99) // 100).clamp_min(1) - 1
            return float(shares.gather(1, last[:, None]).squeeze(1)[has].sum())

        found = cls(
            anchors=int(has.sum()),
            negatives=int(number.sum()),
            entropy=float(entropy[has].sum()),
            effective=float(entropy[has].exp().sum()),
            top1=float(shares[has, 0].sum()),
            top1pct=top(1),
            top10pct=top(10),
        )
        if labelled is not None:
            known, alike = labelled
            found.labelled = int((has & known).sum())
            found.same_class = float((penalty * alike).sum(1).double()[has & known].sum())
        return found

    def add(self, other: "Sums") -> None:
        """More anchors."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def means(self, temperature: float) -> Hardness | None:
        """Over anchors that have a negative; None where none has."""
        n = self.anchors
        if not n:
            return None
        return Hardness(
            temperature=float(temperature),
            anchors=int(n),
            negatives=self.negatives / n,
            entropy=self.entropy / n,
            effective_negatives=self.effective / n,
            top1=self.top1 / n,
            top1pct=self.top1pct / n,
            top10pct=self.top10pct / n,
            same_class=self.same_class / self.labelled if self.labelled else None,
        )
