"""`coulomb lab two-infonce`: the two usual implementations of InfoNCE, number by number."""

import math
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from coulomb.lab.claims import Claim, Rows
from coulomb.lab.experiment import Experiment
from coulomb.lab.settings import Settings
from coulomb.losses import InfoNCELoss
from coulomb.randomness import generator

MOCO = "MoCo's code: cross-entropy with labels that are all 0; the papers: −log of a quotient of exponentials"
SHOWN = (2, 3, 4)  # queries, dimensions, negatives
SIZES = ((256, 128, 4096, torch.float32, 1e-5), (256, 128, 4096, torch.float64, 1e-13))
COLDEST = 0.01  # e^{1/τ} is beyond float32 below 1/88.7


def by_cross_entropy(query: Tensor, positive: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """The positive's logit in front, labels all 0; [N]."""
    logits = torch.cat([(query * positive).sum(1, keepdim=True), query @ queue.T], 1) / temperature
    return cross_entropy(logits, torch.zeros(len(query), dtype=torch.long), reduction="none")


def by_quotient(query: Tensor, positive: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """−log(e^{s⁺}/(e^{s⁺} + Σ e^{s⁻})), as it is written; [N]."""
    own = ((query * positive).sum(1) / temperature).exp()
    others = (query @ queue.T / temperature).exp().sum(1)
    return -(own / (own + others)).log()


def compared(inputs: tuple[Tensor, Tensor, Tensor], temperature: float) -> dict[str, float]:
    """Largest differences, relative to the largest loss or gradient, or to 1: of the two, and of ours with the first."""
    ours = InfoNCELoss(temperature=temperature, normalize=False, reduction="none")
    values, gradients = [], []
    for loss in (by_cross_entropy, by_quotient, lambda *arguments: ours(*arguments[:3])):
        query = inputs[0].clone().requires_grad_()
        found = loss(query, *inputs[1:], temperature)
        (gradient,) = torch.autograd.grad(found.sum(), query)
        values.append(found.detach())
        gradients.append(gradient)
    return {
        "value": _apart(values[1], values[0]),
        "gradient": _apart(gradients[1], gradients[0]),
        "ours": max(_apart(values[2], values[0]), _apart(gradients[2], gradients[0])),
        "finite": float(values[1].isfinite().double().mean()),
    }


def _apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1))


def drawn(n: int, dim: int, keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [n, dim], positives near them, a queue [keys, dim]; unit length."""
    random = torch.randn(2 * n + keys, dim, generator=generator(0, "two-infonce", n, keys), dtype=torch.float64).to(
        dtype
    )
    query, away, queue = random.split([n, n, keys])
    return normalize(query, dim=1), normalize(query + 0.5 * away, dim=1), normalize(queue, dim=1)


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Nothing is trained: all of it is here."""
    found = [(dtype, most, compared(drawn(n, dim, keys, dtype), 0.2)) for n, dim, keys, dtype, most in SIZES]
    cold = compared(drawn(*SIZES[0][:3], torch.float32), COLDEST)
    alike = float(by_cross_entropy(torch.ones(1, 1), torch.ones(1, 1), torch.ones(65536, 1), 0.07))
    names = [str(dtype).removeprefix("torch.") for dtype, _, _ in found]
    told = [
        f"{name}: losses {one['value']:.1e} apart, gradients {one['gradient']:.1e}"
        for name, (_, _, one) in zip(names, found, strict=True)
    ]
    ours = [f"{name}: {one['ours']:.1e}" for name, (_, _, one) in zip(names, found, strict=True)]
    of = f"{SIZES[0][0]} queries, {SIZES[0][2]:,} negatives, τ = .2, relative to the largest, or to 1"
    claims = [
        Claim("They are one function: equal to rounding, value and gradient.", MOCO, f"{of}: {'; '.join(told)}",
              all(max(one["value"], one["gradient"]) <= most for _, most, one in found)),
        Claim("coulomb's InfoNCELoss is the same function.", MOCO, f"{of}: {', '.join(ours)}",
              all(one["ours"] <= most for _, most, one in found)),
        Claim("So either may be used, at any temperature.", "they are shown side by side as alternatives",
              f"float32, τ = {COLDEST:g}: {cold['finite']:.0%} of the quotient's losses are finite (e^(1/τ) overflows below "
              f"τ = 1/88.7); coulomb's are {cold['ours']:.1e} from cross-entropy's", cold["finite"] == 1.0),
        Claim("Equal logits with 65,536 negatives cost ln 65,537 = 11.0904.", "by arithmetic", f"{alike:.4f}",
              abs(alike - math.log(65537)) < 1e-4),
    ]  # fmt: skip
    return {"claims": [asdict(claim) for claim in claims], "charts": [], "tables": [shown()], "notes": [
        "float64 in the table; two queries against their positives and a queue of four, all of unit length, τ = .5."
    ]}  # fmt: skip


def shown() -> dict[str, Any]:
    """All tensors of a small problem, from the inputs to both losses."""
    n, dim, keys = SHOWN
    query, positive, queue = drawn(n, dim, keys, torch.float64)
    own, others = (query * positive).sum(1, keepdim=True) / 0.5, query @ queue.T / 0.5
    logits = torch.cat([own, others], 1)
    first, second = (loss(query, positive, queue, 0.5) for loss in (by_cross_entropy, by_quotient))
    steps: list[tuple[str, Tensor]] = [
        ("queries q", query),
        ("positives k⁺", positive),
        ("queue", queue),
        ("logits [q·k⁺, q·queue]/τ", logits),
        ("log-sum-exp of each row", logits.logsumexp(1)),
        ("cross-entropy with label 0", first),
        ("e^logits", logits.exp()),
        ("e^{s⁺}/(e^{s⁺} + Σ e^{s⁻})", own.exp().squeeze(1) / logits.exp().sum(1)),
        ("−log of it", second),
        ("difference", first - second),
    ]
    return {
        "title": "Every tensor on the way",
        "lead": "The first way never leaves logarithms; the second exponentiates, divides, and takes the logarithm.",
        "head": ["", "shape", "values"],
        "mono": True,
        "rows": [[name, str(list(tensor.shape)), _written(tensor)] for name, tensor in steps],
    }


def _written(tensor: Tensor) -> str:
    """A line a row."""
    rows = tensor if tensor.ndim == 2 else tensor[:, None]
    return "\n".join(" ".join(_number(x) for x in row) for row in rows.tolist())


def _number(x: float) -> str:
    text = f"{x:8.4f}" if abs(x) > 1e-6 or x == 0 else f"{x:8.1e}"
    return text.replace("-", "−")


TWO_INFONCE = Experiment(
    name="two-infonce",
    title="InfoNCE, implemented twice",
    question="Are cross-entropy with zero labels and −log of a quotient the same loss?",
    arms=lambda settings: [],
    judge=judge,
    columns=(),
    baselines=False,
)
