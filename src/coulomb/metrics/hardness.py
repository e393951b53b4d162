"""How the repulsive gradient is distributed over the negatives, at one temperature or several."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.metrics.cosines import cosine_strips
from coulomb.metrics.inputs import check_integers, equal_labels, unit_vectors

TAUS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0)
HALF = 0.5  # share of the gradient on the hardest tenth at the suggested temperature
FEWEST = 20  # negatives; a tenth of fewer is only one or two
RULE = "the temperature at which the hardest tenth of the negatives carries half of their gradient"


@dataclass(frozen=True)
class Hardness:
    """How the repulsive gradient of InfoNCE is distributed over an anchor's negatives; means over anchors with negatives.

    ∂L/∂s_j = P_j/τ, so the share of negative j is the relative penalty r_j = e^{s_j}/Σ_k e^{s_k} over the negatives
    (Wang and Liu, 2021). The smaller τ, the more of it falls on the hardest negatives.

    Attributes:
        temperature: τ.
        anchors: number of anchors with at least one negative.
        negatives: mean number of negatives.
        entropy: mean of H(r) = −Σ r_j ln r_j, from 0 to ln(negatives).
        effective_negatives: mean of e^{H(r)}, from 1 (one negative carries everything) to their number (all equal).
        top1: share of the hardest negative.
        top1pct, top10pct: share of the hardest 1% and 10%, rounded up to whole negatives.
        same_class: share of the negatives with the anchor's label (over anchors with a label); None without labels.

    >>> round(hardness(torch.eye(5), 0.5).effective_negatives, 3)  # all are equally hard
    4.0
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
        """Returns the fields as a dict for JSON."""
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
        x: anchors; normalized here, like the keys.
        temperature: τ > 0.
        keys: negatives; default: the other anchors.
        ids, key_ids: [n], [M], the image of each row; pairs of one image are not negatives. The id −1 equals none.
        labels, key_labels: [n], [M] for ``same_class``; −1 is unknown. With ``keys=None`` the first of each is used for both.

    Computed in strips of whole rows: O(n·M·D) time, memory linear in n. Raises `InputError` naming the invalid argument.

    Shape:
        x: [n, D].
        keys: [M, D].
        ids, labels: [n].
        key_ids, key_labels: [M].

    >>> round(hardness(torch.eye(5), 0.1).effective_negatives, 3)  # all are equally hard
    4.0
    """
    options = {"ids": ids, "key_ids": key_ids, "labels": labels, "key_labels": key_labels}
    return hardness_at(x, [temperature], keys, **options)[0]


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
    """`hardness` at several temperatures, from one pass over the cosines.

    Shape:
        as in `hardness`.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    >>> [round(point.top1, 2) for point in hardness_at(x, [0.1, 1.0, 100.0])]
    [0.99, 0.73, 0.5]
    """
    for temperature in temperatures:
        if not 0 < temperature < math.inf:
            raise InputError(f"temperature={temperature}: must be positive and finite.")
    anchors = unit_vectors(x, "x")
    others = anchors if keys is None else unit_vectors(keys, "keys")
    if others.shape[1] != anchors.shape[1]:
        raise InputError(f"keys have {others.shape[1]} dimensions, x has {anchors.shape[1]}.")
    ids = None if ids is None else check_integers(ids, "ids", anchors)
    labels = None if labels is None else check_integers(labels, "labels", anchors)
    if keys is None:
        ids = torch.arange(len(anchors), device=anchors.device) if ids is None else ids
        key_ids, key_labels = ids, labels
    else:
        key_ids = None if key_ids is None else check_integers(key_ids, "key_ids", others)
        key_labels = None if key_labels is None else check_integers(key_labels, "key_labels", others)
    if (ids is None) != (key_ids is None) or (labels is None) != (key_labels is None):
        raise InputError("ids and key_ids, labels and key_labels: pass both of a pair or neither.")
    totals = [_Sums() for _ in temperatures]
    for rows, cosines, counts in cosine_strips(anchors, others, ids, key_ids):
        alike = None
        if labels is not None and key_labels is not None:
            alike = labels[rows] >= 0, equal_labels(labels[rows], key_labels)
        hardest = _hardest_tenth(cosines, counts)
        for total, temperature in zip(totals, temperatures, strict=True):
            total.add(_Sums.from_strip(cosines, counts, temperature, hardest, alike))
    return [total.means(temperature) for total, temperature in zip(totals, temperatures, strict=True)]


def hardness_of(
    cosines: Tensor,
    temperature: float,
    counts: Tensor | None = None,
    labels: Tensor | None = None,
    key_labels: Tensor | None = None,
) -> Hardness | None:
    """`hardness` from a small matrix of cosines [n,M]; ``counts`` [n,M] is True for negatives (default: all pairs).

    Shape:
        cosines, counts: [n, M].
        labels: [n].
        key_labels: [M].

    >>> round(hardness_of(torch.zeros(2, 6), 0.2).effective_negatives, 3)
    6.0
    """
    counts = torch.ones_like(cosines, dtype=torch.bool) if counts is None else counts
    alike = None if labels is None or key_labels is None else (labels >= 0, equal_labels(labels, key_labels))
    return _Sums.from_strip(cosines, counts, temperature, _hardest_tenth(cosines, counts), alike).means(temperature)


def _hardest_tenth(cosines: Tensor, counts: Tensor) -> Tensor:
    """The hardest tenth of each row's negatives, descending; −∞ where a row has fewer."""
    k = (int(counts.sum(1).max()) + 9) // 10
    return cosines.masked_fill(~counts, -torch.inf).topk(max(k, 1), dim=1).values


@dataclass
class _Sums:
    """Sums over anchors, of which `Hardness` holds the means."""

    anchors: float = 0
    negatives: float = 0
    entropy: float = 0
    effective: float = 0
    top1: float = 0
    top1pct: float = 0
    top10pct: float = 0
    labeled: float = 0
    same_class: float = 0

    @classmethod
    def from_strip(
        cls,
        cosines: Tensor,
        counts: Tensor,
        temperature: float,
        hardest: Tensor,
        alike: tuple[Tensor, Tensor] | None,
    ) -> "_Sums":
        """Sums of a strip [r,M]; ``alike``: which anchors have a label [r], and which pairs have equal labels [r,M]."""
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

        sums = cls(
            anchors=int(has.sum()),
            negatives=int(number.sum()),
            entropy=float(entropy[has].sum()),
            effective=float(entropy[has].exp().sum()),
            top1=float(shares[has, 0].sum()),
            top1pct=top(1),
            top10pct=top(10),
        )
        if alike is not None:
            labeled, equal = alike
            sums.labeled = int((has & labeled).sum())
            sums.same_class = float((penalty * equal).sum(1).double()[has & labeled].sum())
        return sums

    def add(self, other: "_Sums") -> None:
        """Adds the sums of further anchors in place."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def means(self, temperature: float) -> Hardness | None:
        """Returns the means over anchors with negatives, None if there are none."""
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
            same_class=self.same_class / self.labeled if self.labeled else None,
        )


@dataclass(frozen=True)
class TemperatureSweep:
    """`Hardness` at each temperature, ascending, and the suggested temperature.

    ``suggestion`` is None if the curve has no answer; ``why`` gives the reason in either case.

    >>> temperature_sweep(torch.eye(4)).why
    'fewer than 20 negatives are too few for a suggestion'
    """

    curve: list[Hardness]
    suggestion: float | None
    why: str

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict for JSON."""
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
    """How the gradient would be distributed over the negatives of ``embeddings`` [n,D] at each τ of ``taus``.

    Arguments as in `hardness`. For two views pass ``cat([view0, view1])`` and ``ids=arange(n).repeat(2)``, so that views
    of the same image are not negatives.

    ``suggestion`` is the τ at which the hardest tenth carries half of the repulsive gradient, interpolated linearly in
    log τ between two points of the curve, to two digits. At that τ neither do a few negatives dominate (at small τ these
    are the most likely false negatives), nor do all push equally. The share falls as τ grows, so there is at most one such
    τ; for normally distributed cosines it is their standard deviation/1.28. It is a rule of thumb: embeddings depend on
    the τ of their training, so change it in steps. None with fewer than 20 negatives, or if τ is outside the range.

    One pass over the cosines for all τ: O(n·M·(D + taus)) time, memory linear in n. Raises `InputError` naming the
    invalid argument.

    Shape:
        embeddings: [n, D].
        keys: [M, D].
        ids, labels: [n].
        key_ids, key_labels: [M].

    >>> x = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
    >>> sweep = temperature_sweep(x)
    >>> len(sweep.curve), 0.1 < sweep.suggestion < 0.3
    (11, True)
    """
    if len(taus) < 2 or sorted(set(taus)) != list(taus):
        raise InputError(f"taus={list(taus)}: must be at least two values in ascending order.")
    points = hardness_at(embeddings, taus, keys, ids=ids, key_ids=key_ids, labels=labels, key_labels=key_labels)
    curve = [point for point in points if point is not None]
    return TemperatureSweep(curve, *_suggest(curve))


def _suggest(curve: list[Hardness]) -> tuple[float | None, str]:
    if not curve or curve[0].negatives < FEWEST:
        return None, f"fewer than {FEWEST} negatives are too few for a suggestion"
    least, most = curve[0], curve[-1]
    if least.top10pct < HALF:
        return None, (
            f"even at {least.temperature:g} the hardest tenth carries {least.top10pct:.0%}: the negatives are all alike"
        )
    if most.top10pct > HALF:
        return None, (
            f"even at {most.temperature:g} the hardest tenth carries {most.top10pct:.0%}: "
            "a few negatives are much more similar"
        )
    for low, high in pairwise(curve):
        if low.top10pct >= HALF >= high.top10pct:
            span = low.top10pct - high.top10pct
            fraction = (low.top10pct - HALF) / span if span > 0 else 0.0
            tau = low.temperature * (high.temperature / low.temperature) ** fraction
            return float(f"{tau:.2g}"), RULE
    raise AssertionError("the share falls as the temperature grows")
