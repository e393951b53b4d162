"""`coulomb lab nce` and `two-infonce`: InfoNCE compared with NCE, and two implementations of it."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from coulomb.lab.arms import Arm, Settings
from coulomb.lab.claims import HEADLINES, Claim, Rows, at_least, chart, curve, sweep
from coulomb.lab.experiment import Experiment
from coulomb.lab.measure import trained
from coulomb.losses import InfoNCELoss, NCELoss, SoftmaxLoss
from coulomb.randomness import generator
from coulomb.runs.folder import RunFolder
from coulomb.runs.prepare import Prepared

COUNTS = (1, 4, 16, 64, 256, 1024, 4096)  # noise samples
DRAWS = 4


def gradient_cosines(
    query: Tensor, slots: Tensor, bank: Tensor, temperature: float, seed: int = 0
) -> list[dict[str, Any]]:
    """Rows {"noise", "nce", "infonce"}: cosines with the full softmax's gradient by all queries, mean over draws.

    query [N, D] with slots [N] in the bank [n, D], all of unit length. Noise is uniform, with replacement. NCE has the true Z,
    its mean over the queries; InfoNCE is the softmax of the own slot among the noise alone.
    """
    exact = _query_gradient(query, lambda q: SoftmaxLoss(temperature=temperature, normalize=True)(q, slots, bank))
    normalizer = float((query @ bank.T / temperature).exp().sum(1).mean())
    nce = NCELoss(len(bank), temperature, normalizer)
    rows = []
    for count in COUNTS:
        found = []
        for draw in range(DRAWS):
            drawn = torch.randint(len(bank), (len(query), count), generator=generator(seed, "lab noise", count, draw))
            noise, own = bank[drawn], bank[slots]

            def infonce(q: Tensor, own: Tensor = own, noise: Tensor = noise) -> Tensor:
                q = torch.nn.functional.normalize(q, dim=1)
                logits = torch.cat([(q * own).sum(1, keepdim=True), (noise @ q[:, :, None]).squeeze(2)], 1)
                return cross_entropy(logits / temperature, torch.zeros(len(q), dtype=torch.long))

            def by_nce(q: Tensor, own: Tensor = own, noise: Tensor = noise) -> Tensor:
                value: Tensor = nce(q, own, noise)
                return value

            found.append(
                [float(cosine_similarity(_query_gradient(query, loss), exact, dim=0)) for loss in (by_nce, infonce)]
            )
        first, second = torch.tensor(found).mean(0).tolist()
        rows.append({"noise": count, "nce": first, "infonce": second})
    return rows


def _query_gradient(query: Tensor, loss: Callable[[Tensor], Tensor]) -> Tensor:
    leaf = query.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf), leaf)
    return found.flatten()


SAMPLES, QUICK = (1, 16, 256, 4096), (1, 16, 256)
FULL = "full-softmax"
WU = "CIFAR-10: NCE is poor with few noise samples and comes up to the full softmax with 4,096 (Wu et al., 2018, table 2)"
GUTMANN = "by theory: as noise samples grow, NCE's gradient becomes maximum likelihood's (Gutmann & Hyvärinen, 2010)"
NEAR = 0.95  # cosine of gradients that point the same way


def nce_name(noise: float) -> str:
    """The run with so many noise samples."""
    return f"nce-m{noise:g}"


def samples(settings: Settings) -> tuple[int, ...]:
    """How many noise samples the runs have."""
    return QUICK if settings.quick else SAMPLES


def nce_arms(settings: Settings) -> list[Arm]:
    """Instance discrimination by NCE with more and more noise, and by the exact softmax."""
    shared = {"method": "instdisc"}

    def options(noise: float) -> dict[str, Any]:
        return shared | {"method_options": {"full": False, "noise_samples": int(noise)}}

    return [
        *sweep(samples(settings), nce_name, options, 24),
        Arm(FULL, shared | {"method_options": {"full": True}}, 24),
    ]


def measure_cosines(run: RunFolder, prepared: Prepared) -> dict[str, Any]:
    """The cosines, on the run's own bank."""
    found = trained(run, prepared, 64, seen=True)
    bank: Any = found.method.bank
    return {"cosines": gradient_cosines(found.first, found.slots, bank.keys().double(), found.temperature)}


def judge_nce(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Gradients and accuracy as noise grows."""
    key, most = settings.headline, samples(settings)[-1]
    table = rows.get(FULL, {}).get("cosines")
    claims = [
        *gradient_claims(table),
        at_least(rows, nce_name(most), nce_name(1), key, 0.0, f"More noise is better: {most:,} samples than one.", WU),
        at_least(
            rows, nce_name(most), FULL, key, -0.02, f"With {most:,} NCE comes within 2 points of the full softmax.", WU
        ),
    ]
    drawn = [
        {"name": name, "points": [(row["noise"], row[which]) for row in table or []]}
        for which, name in (("nce", "NCE"), ("infonce", "InfoNCE"))
    ]
    places = [(float(m), nce_name(m)) for m in samples(settings)]
    exact = rows.get(FULL, {}).get(key)
    level = (
        [] if exact is None else [{"name": "full softmax", "points": [(m, exact) for m, _ in places], "dashed": True}]
    )
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [
            chart("Gradients", "cosine", "noise samples", drawn, y_label="cosine with the full softmax's gradient"),
            chart("Accuracy", key, "noise samples in training", [curve(rows, places, key, "NCE"), *level]),
        ],
        "notes": [
            "The gradients are by 64 embeddings of training images, over the bank of the full softmax; means of four draws. "
            "NCE has the true Z there, one for all queries, so that it stays apart from the softmax, where each query has "
            "its own; in training Z is a moving average.",
            "Noise is drawn with replacement from a bank of as many slots as training images.",
        ],
    }


def gradient_claims(table: list[dict[str, Any]] | None) -> list[Claim]:
    """Both gradients become the full softmax's; which needs less noise."""
    nce, info = "NCE's gradient turns into the full softmax's.", "InfoNCE's gradient does so too."
    less = "InfoNCE needs less noise for it than NCE."
    if not table:
        return [Claim(text, GUTMANN, "not measured", None) for text in (nce, info, less)]
    claims = []
    for which, text in (("nce", nce), ("infonce", info)):
        told = ", ".join(f"{row[which]:.3f} with {row['noise']:,}" for row in table[::2])
        claims.append(Claim(text, GUTMANN, f"cosine {told}", table[-1][which] >= max(NEAR, table[0][which])))
    first = {w: next((row["noise"] for row in table if row[w] >= NEAR), None) for w in ("nce", "infonce")}
    told = "; ".join(
        f"{name} reaches a cosine of {NEAR:g} with {first[w]:,} noise samples"
        if first[w]
        else f"{name} does not reach {NEAR:g}"
        for w, name in (("infonce", "InfoNCE"), ("nce", "NCE"))
    )
    sooner = first["infonce"] is not None and (first["nce"] is None or first["infonce"] < first["nce"])
    return [*claims, Claim(less, "not published as such; both are in use with some thousands", told, sooner)]


NCE = Experiment(
    name="nce",
    title="NCE and InfoNCE, as noise grows",
    question="How many noise samples stand in for a softmax over all images?",
    arms=nce_arms,
    judge=judge_nce,
    more=measure_cosines,
    columns=(
        *HEADLINES,
        ("uniformity", "uniformity", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)


MOCO = "MoCo's code: cross-entropy with labels that are all 0; the papers: −log of a quotient of exponentials"
SHOWN = (2, 3, 4)  # queries, dimensions, negatives
PROBLEMS = ((256, 128, 4096, torch.float32, 1e-5), (256, 128, 4096, torch.float64, 1e-13))
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


def judge_two_infonce(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Nothing is trained: all of it is here."""
    found = [(dtype, most, compared(drawn(n, dim, keys, dtype), 0.2)) for n, dim, keys, dtype, most in PROBLEMS]
    cold = compared(drawn(*PROBLEMS[0][:3], torch.float32), COLDEST)
    alike = float(by_cross_entropy(torch.ones(1, 1), torch.ones(1, 1), torch.ones(65536, 1), 0.07))
    names = [str(dtype).removeprefix("torch.") for dtype, _, _ in found]
    told = [
        f"{name}: losses {one['value']:.1e} apart, gradients {one['gradient']:.1e}"
        for name, (_, _, one) in zip(names, found, strict=True)
    ]
    ours = [f"{name}: {one['ours']:.1e}" for name, (_, _, one) in zip(names, found, strict=True)]
    of = f"{PROBLEMS[0][0]} queries, {PROBLEMS[0][2]:,} negatives, τ = .2, relative to the largest, or to 1"
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
    return {"claims": [asdict(claim) for claim in claims], "charts": [], "tables": [tensor_table()], "notes": [
        "float64 in the table; two queries against their positives and a queue of four, all of unit length, τ = .5."
    ]}  # fmt: skip


def tensor_table() -> dict[str, Any]:
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
    judge=judge_two_infonce,
    columns=(),
    baselines=False,
)
