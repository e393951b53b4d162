"""How the gradient is shared among the negatives, at one temperature or several."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from coulomb.errors import InputError
from coulomb.metrics.cosines import cosine_strips, equal_labels, unit_vectors, whole_numbers


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


def hardest_tenth(cosines: Tensor, counts: Tensor) -> Tensor:
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
    labelled = None if labels is None or key_labels is None else (labels >= 0, equal_labels(labels, key_labels))
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
    anchors = unit_vectors(x, "x")
    others = anchors if keys is None else unit_vectors(keys, "keys")
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
    for rows, cosines, counts in cosine_strips(anchors, others, ids, key_ids):
        labelled = None
        if labels is not None and key_labels is not None:
            labelled = labels[rows] >= 0, equal_labels(labels[rows], key_labels)
        hardest = hardest_tenth(cosines, counts)
        for total, temperature in zip(totals, temperatures, strict=True):
            total.add(Sums.of(cosines, counts, temperature, hardest, labelled))
    return [total.means(temperature) for total, temperature in zip(totals, temperatures, strict=True)]


TAUS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
HALF = 0.5  # of the gradient …
FEWEST = 20  # negatives: below, a tenth of them is one or two

RULE = "the temperature at which the hardest tenth of the negatives carries half of their gradient"


@dataclass(frozen=True)
class TemperatureSweep:
    """`Hardness` at each temperature, ascending, and the temperature that the rule picks from the curve.

    ``suggestion`` is None where the curve does not answer; ``why`` says what was found, in a sentence.
    """

    curve: list[Hardness]
    suggestion: float | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"curve": [point.as_dict() for point in self.curve], "suggestion": self.suggestion, "why": self.why}


def temperature_sweep(
    embeddings: Tensor,
    taus: Sequence[float] = TAUS,
    keys: Tensor | None = None,
    *,
    ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    labels: Tensor | None = None,
    key_labels: Tensor | None = None,
) -> TemperatureSweep:
    """How the negatives of ``embeddings`` [n,D] would share the gradient at each τ of ``taus``; arguments as in `hardness`.

    For two views hand over ``cat([view0, view1])`` and ``ids=arange(n).repeat(2)``, so that no view is a negative of its
    own image.

    The rule for ``suggestion``: the τ at which the hardest tenth carries half of the repulsive gradient, between two
    points of the curve by a straight line in log τ, to two digits. Neither then do a few negatives decide (at small τ these
    are the likeliest to be of the anchor's class), nor are all alike. The share falls as τ grows, so there is at most one. On
    normally distributed cosines it is τ = deviation/1.28. It is a rule of thumb: the embeddings were shaped by the τ they
    were trained at, so move there in steps. None where fewer than 20 negatives or the range does not hold it.

    One pass over the cosines for all τ: O(n·M·(D + taus)) time, memory of a strip. Raises `InputError` naming what is wrong.
    """
    if len(taus) < 2 or sorted(set(taus)) != list(taus):
        raise InputError(f"taus={list(taus)}: give at least two, ascending")
    found = hardness_at(embeddings, taus, keys, ids=ids, key_ids=key_ids, labels=labels, key_labels=key_labels)
    curve = [point for point in found if point is not None]
    return TemperatureSweep(curve, *_suggested(curve))


def _suggested(curve: list[Hardness]) -> tuple[float | None, str]:
    if not curve or curve[0].negatives < FEWEST:
        return None, f"fewer than {FEWEST} negatives: too few to tell"
    least, most = curve[0], curve[-1]
    if least.top10pct < HALF:
        return None, (
            f"even at {least.temperature:g} the hardest tenth carries {least.top10pct:.0%}: the negatives are all alike"
        )
    if most.top10pct > HALF:
        return None, (
            f"even at {most.temperature:g} the hardest tenth carries {most.top10pct:.0%}: a few negatives are far nearer"
        )
    for low, high in pairwise(curve):
        if low.top10pct >= HALF >= high.top10pct:
            span = low.top10pct - high.top10pct
            along = (low.top10pct - HALF) / span if span > 0 else 0.0
            tau = low.temperature * (high.temperature / low.temperature) ** along
            return float(f"{tau:.2g}"), RULE
    raise AssertionError("the share falls as the temperature grows")
