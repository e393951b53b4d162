"""`coulomb lab nce` and `two-infonce`: InfoNCE compared with NCE, and two implementations of InfoNCE."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy, normalize

from coulomb.ground.randomness import generator
from coulomb.losses import InfoNCELoss, NCELoss, SoftmaxLoss
from coulomb.training.plan.plan import Plan
from coulomb.training.record.folder import RunFolder
from coulomb_lab.arms import Arm, Settings
from coulomb_lab.claims import (
    ACCURACIES,
    NOT_MEASURED,
    TRAINING,
    Claim,
    Rows,
    at_least,
    chart_spec,
    result_series,
    summary,
    sweep_arms,
)
from coulomb_lab.experiment import Experiment
from coulomb_lab.measure import load_trained, query_gradient

SAMPLES, QUICK_SAMPLES = (1, 16, 256, 4096), (1, 16, 256)  # noise samples in training
FULL = "full-softmax"
COUNTS = (1, 4, 16, 64, 256, 1024, 4096)  # noise samples of the compared gradients
DRAWS = 4
NEAR = 0.95  # cosine from which gradients count as equal
WU = "CIFAR-10: NCE is poor with few noise samples and matches the full softmax with 4,096 (Wu et al., 2018, table 2)"
GUTMANN = "theory: with more noise samples, NCE's gradient becomes the maximum-likelihood gradient (Gutmann & Hyvärinen, 2010)"


def gradient_cosines(
    query: Tensor, slots: Tensor, bank: Tensor, temperature: float, seed: int = 0
) -> list[dict[str, Any]]:
    """Compares gradients of NCE and InfoNCE with the gradient of the full softmax over a memory bank.

    query [N, D] with slots [N] in the bank [n, D], all of unit length. Noise is uniform, with replacement. NCE uses the true
    Z, averaged over the queries; InfoNCE is the softmax of the own slot and the noise.

    Returns rows {"noise", "nce", "infonce"}: cosines of the gradients with respect to all queries, averaged over draws.
    """
    full = SoftmaxLoss(temperature=temperature, normalize=True)
    exact = query_gradient(lambda q: full(q, slots, bank), query)
    normalizer = float((query @ bank.T / temperature).exp().sum(1).mean())
    nce = NCELoss(len(bank), temperature, normalizer)
    rows = []
    for count in COUNTS:
        cosines = []
        for draw in range(DRAWS):
            drawn = torch.randint(len(bank), (len(query), count), generator=generator(seed, "lab noise", count, draw))
            noise, own = bank[drawn], bank[slots]

            def infonce(q: Tensor, own: Tensor = own, noise: Tensor = noise) -> Tensor:
                q = normalize(q, dim=1)
                logits = torch.cat([(q * own).sum(1, keepdim=True), (noise @ q[:, :, None]).squeeze(2)], 1)
                return cross_entropy(logits / temperature, torch.zeros(len(q), dtype=torch.long))

            def binary(q: Tensor, own: Tensor = own, noise: Tensor = noise) -> Tensor:
                value: Tensor = nce(q, own, noise)
                return value

            gradients = [query_gradient(loss, query) for loss in (binary, infonce)]
            cosines.append([float(cosine_similarity(gradient, exact, dim=0)) for gradient in gradients])
        first, second = torch.tensor(cosines).mean(0).tolist()
        rows.append({"noise": count, "nce": first, "infonce": second})
    return rows


def nce_name(noise: float) -> str:
    """Returns the name of the run with ``noise`` noise samples."""
    return f"nce-m{noise:g}"


def noise_samples(settings: Settings) -> tuple[int, ...]:
    """Returns the numbers of noise samples of the runs."""
    return QUICK_SAMPLES if settings.quick else SAMPLES


def nce_arms(settings: Settings) -> list[Arm]:
    """Returns runs of instance discrimination by NCE with more and more noise samples, and by the full softmax."""
    shared = {"method": "instdisc"}

    def options(noise: float) -> dict[str, Any]:
        return shared | {"method_options": {"full": False, "noise_samples": int(noise)}}

    full = Arm(FULL, shared | {"method_options": {"full": True}}, 24)
    return [*sweep_arms(noise_samples(settings), nce_name, options, 24), full]


def measure_cosines(run: RunFolder, plan: Plan) -> dict[str, Any]:
    """Returns `gradient_cosines` for the run's memory bank."""
    trained = load_trained(run, plan, 64, training=True)
    bank: Any = trained.method.bank
    return {"cosines": gradient_cosines(trained.first, trained.slots, bank.keys().double(), trained.temperature)}


def summarize_nce(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Compares gradients and accuracies over the number of noise samples."""
    key, most = settings.headline, noise_samples(settings)[-1]
    table = rows.get(FULL, {}).get("cosines")
    near = f"With {most:,} noise samples, NCE is within 2 points of the full softmax."
    claims = [
        *gradient_claims(table),
        at_least(rows, nce_name(most), nce_name(1), key, 0.0, f"More noise is better: {most:,} samples than one.", WU),
        at_least(rows, nce_name(most), FULL, key, -0.02, near, WU),
    ]
    gradients = [
        {"name": name, "points": [(row["noise"], row[which]) for row in table or []]}
        for which, name in (("nce", "NCE"), ("infonce", "InfoNCE"))
    ]
    places = [(float(m), nce_name(m)) for m in noise_samples(settings)]
    accuracy = [result_series(rows, places, key, "NCE")]
    if (exact := rows.get(FULL, {}).get(key)) is not None:
        accuracy.append({"name": "full softmax", "points": [(m, exact) for m, _ in places], "dashed": True})
    charts = [
        chart_spec(
            "Gradients", "cosine", "noise samples", gradients, y_label="cosine with the full softmax's gradient"
        ),
        chart_spec("Accuracy", key, "noise samples in training", accuracy),
    ]
    notes = [
        "The gradients are with respect to 64 embeddings of training images, over the memory bank of the full softmax, "
        "averaged over four draws. NCE uses the true Z, the same for all queries, so a difference from the softmax remains, "
        "which normalizes per query; in training Z is a moving average.",
        "Noise is drawn with replacement from a memory bank with one slot per training image.",
    ]
    return summary(claims, charts=charts, notes=notes)


def gradient_claims(table: list[dict[str, Any]] | None) -> list[Claim]:
    """Checks that both gradients approach the full softmax's gradient, and which one needs fewer noise samples."""
    names = {"nce": "NCE", "infonce": "InfoNCE"}
    texts = {which: f"{name}'s gradient approaches the full softmax's gradient." for which, name in names.items()}
    fewer = "InfoNCE needs fewer noise samples than NCE."
    if not table:
        return [Claim(text, GUTMANN, NOT_MEASURED, None) for text in (*texts.values(), fewer)]
    claims = []
    for which, text in texts.items():
        cosines = ", ".join(f"{row[which]:.3f} with {row['noise']:,}" for row in table[::2])
        claims.append(Claim(text, GUTMANN, f"cosine {cosines}", table[-1][which] >= max(NEAR, table[0][which])))
    first = {which: next((row["noise"] for row in table if row[which] >= NEAR), None) for which in names}
    text = "; ".join(
        f"{names[which]} reaches a cosine of {NEAR:g} with {first[which]:,} noise samples"
        if first[which]
        else f"{names[which]} does not reach {NEAR:g}"
        for which in ("infonce", "nce")
    )
    sooner = first["infonce"] is not None and (first["nce"] is None or first["infonce"] < first["nce"])
    return [*claims, Claim(fewer, "not published; both are used with thousands of samples", text, sooner)]


NCE = Experiment(
    name="nce",
    title="NCE and InfoNCE over the number of noise samples",
    question="How many noise samples approximate a softmax over all images?",
    arms=nce_arms,
    summarize=summarize_nce,
    measure=measure_cosines,
    columns=(
        *ACCURACIES,
        ("uniformity", "uniformity", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("loss", "last loss", "figure"),
        *TRAINING,
    ),
)


MOCO = "MoCo's code: cross-entropy with labels 0; the papers: −log of a quotient of exponentials"
SHOWN = (2, 3, 4)  # queries, dimensions, negatives
PROBLEM = (256, 128, 4096)
TOLERANCES = {torch.float32: 1e-5, torch.float64: 1e-13}
COLDEST = 0.01  # e^(1/τ) overflows float32 below 1/88.7


def by_cross_entropy(query: Tensor, positive: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """InfoNCE [N] as cross-entropy with the positive in column 0."""
    logits = torch.cat([(query * positive).sum(1, keepdim=True), query @ queue.T], 1) / temperature
    return cross_entropy(logits, torch.zeros(len(query), dtype=torch.long), reduction="none")


def by_quotient(query: Tensor, positive: Tensor, queue: Tensor, temperature: float) -> Tensor:
    """InfoNCE [N] as −log(e^{s⁺}/(e^{s⁺} + Σ e^{s⁻}))."""
    own = ((query * positive).sum(1) / temperature).exp()
    others = (query @ queue.T / temperature).exp().sum(1)
    return -(own / (own + others)).log()


def compare_implementations(inputs: tuple[Tensor, Tensor, Tensor], temperature: float) -> dict[str, float]:
    """Returns the largest differences, relative to the largest loss or gradient, or to 1.

    ``value`` and ``gradient``: of the quotient from cross-entropy; ``ours``: of `InfoNCELoss` from cross-entropy;
    ``finite``: share of finite losses of the quotient.
    """
    ours = InfoNCELoss(temperature=temperature, normalize=False, reduction="none")
    values, gradients = [], []
    for loss in (by_cross_entropy, by_quotient, lambda *arguments: ours(*arguments[:3])):
        query = inputs[0].clone().requires_grad_()
        value = loss(query, *inputs[1:], temperature)
        (gradient,) = torch.autograd.grad(value.sum(), query)
        values.append(value.detach())
        gradients.append(gradient)
    return {
        "value": _difference(values[1], values[0]),
        "gradient": _difference(gradients[1], gradients[0]),
        "ours": max(_difference(values[2], values[0]), _difference(gradients[2], gradients[0])),
        "finite": float(values[1].isfinite().double().mean()),
    }


def _difference(value: Tensor, expected: Tensor) -> float:
    return float((value - expected).abs().max() / expected.abs().max().clamp_min(1))


def draw_inputs(n: int, dim: int, keys: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries [n, dim], positives near them and a queue [keys, dim], all of unit length."""
    draws = generator(0, "two-infonce", n, keys)
    random = torch.randn(2 * n + keys, dim, generator=draws, dtype=torch.float64).to(dtype)
    query, offset, queue = random.split([n, n, keys])
    return normalize(query, dim=1), normalize(query + 0.5 * offset, dim=1), normalize(queue, dim=1)


def summarize_two_infonce(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Compares both implementations; nothing is trained."""
    compared = {
        str(dtype).removeprefix("torch."): (most, compare_implementations(draw_inputs(*PROBLEM, dtype), 0.2))
        for dtype, most in TOLERANCES.items()
    }
    cold = compare_implementations(draw_inputs(*PROBLEM, torch.float32), COLDEST)
    equal = float(by_cross_entropy(torch.ones(1, 1), torch.ones(1, 1), torch.ones(65536, 1), 0.07))
    setting = f"{PROBLEM[0]} queries, {PROBLEM[2]:,} negatives, τ = .2, relative to the largest value or 1"
    theirs = "; ".join(
        f"{name}: losses differ by {one['value']:.1e}, gradients by {one['gradient']:.1e}"
        for name, (_, one) in compared.items()
    )
    ours = ", ".join(f"{name}: {one['ours']:.1e}" for name, (_, one) in compared.items())
    claims = [
        Claim("They are one function: values and gradients agree to rounding.", MOCO, f"{setting}: {theirs}",
              all(max(one["value"], one["gradient"]) <= most for most, one in compared.values())),
        Claim("coulomb's InfoNCELoss is the same function.", MOCO, f"{setting}: {ours}",
              all(one["ours"] <= most for most, one in compared.values())),
        Claim("So either implementation can be used at any temperature.", "they are presented as alternatives",
              f"float32, τ = {COLDEST:g}: {cold['finite']:.0%} of the quotient's losses are finite (e^(1/τ) overflows below "
              f"τ = 1/88.7); coulomb's differ by {cold['ours']:.1e} from cross-entropy", cold["finite"] == 1.0),
        Claim("Equal logits with 65,536 negatives give ln 65,537 = 11.0904.", "by arithmetic", f"{equal:.4f}",
              abs(equal - math.log(65537)) < 1e-4),
    ]  # fmt: skip
    note = "The table is in float64: two queries, their positives and a queue of four, all of unit length, τ = .5."
    return summary(claims, notes=[note], tables=[tensor_table()])


def tensor_table() -> dict[str, Any]:
    """Returns all tensors of a small problem, from the inputs to both losses."""
    n, dim, keys = SHOWN
    query, positive, queue = draw_inputs(n, dim, keys, torch.float64)
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
        "title": "All intermediate tensors",
        "lead": "Cross-entropy works with logarithms throughout; the quotient exponentiates, divides and takes the logarithm.",
        "head": ["", "shape", "values"],
        "mono": True,
        "rows": [[name, str(list(tensor.shape)), _tensor_text(tensor)] for name, tensor in steps],
    }


def _tensor_text(tensor: Tensor) -> str:
    """One line per row."""
    rows = tensor if tensor.ndim == 2 else tensor[:, None]
    texts = ([f"{x:8.4f}" if abs(x) > 1e-6 or x == 0 else f"{x:8.1e}" for x in row] for row in rows.tolist())
    return "\n".join(" ".join(row) for row in texts).replace("-", "−")


TWO_INFONCE = Experiment(
    name="two-infonce",
    title="Two implementations of InfoNCE",
    question="Are cross-entropy with zero labels and −log of a quotient the same loss?",
    arms=lambda settings: [],
    summarize=summarize_two_infonce,
    columns=(),
    baselines=False,
)
