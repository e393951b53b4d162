"""Inputs of the cases: seeded, correlated as views are, and the same for every contender."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.bench.cases import Case
from coulomb.randomness import generator

LABELS, NOISE = 10, 64


@dataclass(frozen=True)
class Inputs:
    """A loss's call arguments, and the positions of those whose gradient is asked for."""

    arguments: tuple[Tensor, ...]
    learning: tuple[int, ...]

    def to(self, dtype: torch.dtype) -> "Inputs":
        """The same with floating arguments in another type."""
        cast = (a.to(dtype) if a.is_floating_point() else a for a in self.arguments)
        return Inputs(tuple(cast), self.learning)


def make_inputs(case: Case, device: str = "cpu") -> Inputs:
    """The arguments of the case, on the device, in its type."""
    made = MAKERS[case.inputs](case)
    return Inputs(tuple(a.to(device) for a in made.arguments), made.learning).to(case.torch_dtype)


def _two(case: Case, rows: int) -> tuple[Tensor, Tensor]:
    draws = _draws("losses")
    first, noise = (torch.randn(rows, case.dim, generator=draws) for _ in range(2))
    return first, first + noise


def _views(case: Case) -> Inputs:
    return Inputs(_two(case, case.n // 2), (0, 1))


def _pairs(case: Case) -> Inputs:
    return Inputs(_two(case, case.n), (0, 1))


def _rows(case: Case) -> Inputs:
    return Inputs(_two(case, case.n)[:1], (0,))


def _labelled_views(case: Case) -> Inputs:
    features = torch.stack(_two(case, case.n // 2), 1)
    return Inputs((features, _labels(case.n // 2)), (0,))


def _queue(case: Case) -> Inputs:
    """Of unit length, as a momentum queue holds them."""
    negatives = normalize(torch.randn(case.m, case.dim, generator=_draws("queue")))
    return Inputs((*_two(case, case.n), negatives), (0,))


def _pairs_one_side(case: Case) -> Inputs:
    return Inputs(_two(case, case.n), (0,))


def _labelled(case: Case) -> Inputs:
    return Inputs((*_rows(case).arguments, _labels(case.n)), (0,))


def _classes(case: Case) -> Inputs:
    return Inputs((*_labelled(case).arguments, torch.randn(LABELS, case.dim, generator=_draws("centers"))), (0, 2))


def _logits(case: Case) -> Inputs:
    features = torch.cat(_two(case, case.n // 2))
    logits = torch.randn(case.n // 2, LABELS, generator=_draws("logits"))
    return Inputs((features, _labels(case.n // 2).repeat(2), logits), (0, 2))


def _noise(case: Case) -> Inputs:
    noise = torch.randn(case.n, NOISE, case.dim, generator=_draws("noise"))
    return Inputs((*_two(case, case.n), noise), (0,))


def _labels(count: int) -> Tensor:
    return torch.arange(count) % LABELS


def _draws(purpose: str) -> torch.Generator:
    return generator(0, "bench", purpose)


MAKERS = {
    "views": _views,
    "pairs": _pairs,
    "pairs, one side learning": _pairs_one_side,
    "labelled_views": _labelled_views,
    "queue": _queue,
    "rows": _rows,
    "labelled": _labelled,
    "classes": _classes,
    "logits": _logits,
    "noise": _noise,
}
