"""What would another temperature do to the negatives as they are? No training needed to see it."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch import Tensor

from coulomb.diagnostics.hardness import hardness_at
from coulomb.diagnostics.penalties import Hardness
from coulomb.errors import InputError

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
