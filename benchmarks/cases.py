"""The cases of `benchmarks.losses` with their inputs and targets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from coulomb.ground.randomness import generator


@dataclass(frozen=True)
class Target:
    """A target of a case.

    Args:
        kind: ``"speedup"`` (at least ``value`` times faster than dense eager), ``"floor"`` (at most ``value`` times the matrix
            products alone), ``"ratio"`` (at most ``value`` times the case ``other``), ``"memory"`` (at most ``value`` MB above
            the inputs).
        value: the limit.
        other: name of the other case, for a ratio.
    """

    kind: str
    value: float
    other: str = ""

    def text(self) -> str:
        """Returns the target in words."""
        return {
            "speedup": f"≥ {self.value:g}× faster than dense",
            "floor": f"≤ {self.value:g} × floor",
            "ratio": f"≤ {self.value:g} × {self.other}",
            "memory": f"≤ {self.value:g} MB above the inputs",
        }[self.kind]


@dataclass(frozen=True)
class Case:
    """A problem, as plain data that can be passed to a fresh process.

    Args:
        name, title: for the command line and for readers.
        loss: class in `coulomb.losses`; ``options`` are the arguments of the loss and of the dense reference.
        inputs: a function of `benchmarks.cases`.
        n, m, dim: rows and columns of the similarity matrix, and dimensions.
        dense: a function of `benchmarks.dense`, the usual implementation, which stores the matrix.
        products: flops of the floor in units of u = n·m·dim (a product is 2u; 4u where S = Sᵀ).
        dtype: of the inputs.
        targets: for two CPU cores.
        quick: part of the quick run.
    """

    name: str
    title: str
    loss: str
    options: Mapping[str, Any]
    inputs: str
    n: int
    m: int
    dim: int
    dense: str
    products: int
    dtype: str = "float32"
    targets: tuple[Target, ...] = ()
    quick: bool = False

    @property
    def torch_dtype(self) -> torch.dtype:
        """``dtype`` as a torch.dtype."""
        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype

    @property
    def flops(self) -> int:
        """Flops of the floor."""
        return self.products * self.n * self.m * self.dim


def ntxent(n: int, dim: int, **options: Any) -> Case:
    """Returns a case of NT-Xent on n/2 pairs of views."""
    dtype = options.get("dtype", "float32")
    suffix = "" if dtype == "float32" else "-bf16"
    name = f"ntxent-{n}x{dim}{suffix}"
    title = f"NT-Xent, {n:,} × {dim}" + ("" if not suffix else ", bf16 inputs")
    return Case(name, title, "NTXentLoss", {"temperature": 0.5}, "views", n, n, dim, "ntxent", 4, **options)


CASES = (
    ntxent(8192, 128, targets=(Target("speedup", 4.5), Target("floor", 1.4)), quick=True),
    ntxent(8192, 512, targets=(Target("speedup", 3.5), Target("floor", 1.2))),
    Case(
        "supcon-8192x128", "SupCon, 8,192 × 128, 10 labels", "SupConLoss", {"temperature": 0.5}, "labeled_views",
        8192, 8192, 128, "supcon", 4, targets=(Target("ratio", 1.1, "ntxent-8192x128"),),
    ),
    Case(
        "hardnegative-8192x128", "Hard negatives, 8,192 × 128", "HardNegativeLoss",
        {"temperature": 0.5, "beta": 1.0, "tau_plus": 0.1}, "views", 8192, 8192, 128, "hard_negative", 4,
        targets=(Target("ratio", 1.35, "ntxent-8192x128"),),
    ),
    Case(
        "infonce-both-8192x128", "InfoNCE, both directions, 8,192 × 128", "InfoNCELoss",
        {"temperature": 0.07, "symmetric": True}, "pairs", 8192, 8192, 128, "infonce", 8,
        targets=(Target("floor", 1.3),),
    ),
    Case(
        "queue-256x65536x128", "InfoNCE with a queue, 256 × 65,536 × 128", "InfoNCELoss", {"temperature": 0.07},
        "queue", 256, 65536, 128, "infonce", 4, targets=(Target("floor", 1.3), Target("speedup", 2.5)), quick=True,
    ),
    ntxent(8192, 512, dtype="bfloat16", targets=(Target("ratio", 0.5, "ntxent-8192x512"),)),
    ntxent(65536, 128, targets=(Target("ratio", 70, "ntxent-8192x128"), Target("memory", 200))),
    Case(
        "infonce-4096x512", "InfoNCE, one direction, 4,096 × 512", "InfoNCELoss", {"temperature": 0.07}, "pairs",
        4096, 4096, 512, "infonce", 6,
    ),
    Case(
        "infonce-both-16384x256", "InfoNCE, both directions, 16,384 × 256", "InfoNCELoss",
        {"temperature": 0.07, "symmetric": True}, "pairs", 16384, 16384, 256, "infonce", 8,
    ),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}


LABELS, NOISE = 10, 64


@dataclass(frozen=True)
class Inputs:
    """Arguments of a loss, and the positions of those that need a gradient."""

    arguments: tuple[Tensor, ...]
    learning: tuple[int, ...]

    def to(self, dtype: torch.dtype) -> "Inputs":
        """Returns the inputs with floating-point arguments in another type."""
        cast = (a.to(dtype) if a.is_floating_point() else a for a in self.arguments)
        return Inputs(tuple(cast), self.learning)


def make_inputs(case: Case, device: str = "cpu") -> Inputs:
    """Returns the seeded inputs of a case on a device, in its type."""
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


def _labeled_views(case: Case) -> Inputs:
    features = torch.stack(_two(case, case.n // 2), 1)
    return Inputs((features, _labels(case.n // 2)), (0,))


def _queue(case: Case) -> Inputs:
    """The queue has unit length, as in MoCo."""
    negatives = normalize(torch.randn(case.m, case.dim, generator=_draws("queue")))
    return Inputs((*_two(case, case.n), negatives), (0,))


def _pairs_one_side(case: Case) -> Inputs:
    return Inputs(_two(case, case.n), (0,))


def _labeled(case: Case) -> Inputs:
    return Inputs((*_rows(case).arguments, _labels(case.n)), (0,))


def _classes(case: Case) -> Inputs:
    return Inputs((*_labeled(case).arguments, torch.randn(LABELS, case.dim, generator=_draws("centers"))), (0, 2))


def _logits(case: Case) -> Inputs:
    features = torch.cat(_two(case, case.n // 2))
    logits = torch.randn(case.n // 2, LABELS, generator=_draws("logits"))
    return Inputs((features, _labels(case.n // 2).repeat(2), logits), (0, 2))


def _pairs_with_ids(case: Case) -> Inputs:
    """Every id occurs twice, as a repeated caption."""
    return Inputs((*_two(case, case.n), torch.arange(case.n) // 2), (0, 1))


def _pairs_with_guide(case: Case) -> Inputs:
    """The guide's cosines are multiples of a quarter, so that a margin of 0.1 leaves none at the limit."""
    signs = torch.randint(0, 2, (case.n, 8), generator=_draws("guide")) * 2.0 - 1
    flipped = signs * torch.tensor([-1.0, *[1.0] * 7])
    return Inputs((*_two(case, case.n), signs, flipped), (0, 1))


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
    "pairs with ids": _pairs_with_ids,
    "pairs with a guide": _pairs_with_guide,
    "labeled_views": _labeled_views,
    "queue": _queue,
    "rows": _rows,
    "labeled": _labeled,
    "classes": _classes,
    "logits": _logits,
    "noise": _noise,
}
