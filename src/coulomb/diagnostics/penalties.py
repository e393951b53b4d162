"""The relative penalty of negatives, from a strip of cosines: sums over anchors, and their means."""

from dataclasses import asdict, dataclass, fields

import torch
from torch import Tensor


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
