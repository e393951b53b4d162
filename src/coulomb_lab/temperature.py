"""`coulomb lab temperature`: the effect of τ on accuracy, uniformity and tolerance, and its limits 0 and ∞."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from coulomb.losses import InfoNCELoss, SimpleContrastiveLoss
from coulomb.metrics.hardness import hardness_at
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
    best_inside,
    chart_spec,
    monotone,
    published_series,
    result_series,
    summary,
    sweep_arms,
)
from coulomb_lab.experiment import Experiment
from coulomb_lab.measure import load_trained, query_gradient

COLD = (0.1, 0.03, 0.01, 0.003, 0.001)
WARM = (1.0, 3.0, 10.0, 30.0, 100.0)
TAUS = (0.07, 0.3, 0.7, 1.0)  # of the paper's tables
ALL_TAUS = (0.03, *TAUS, 2.0)
HARD_TAU = 0.7  # of the hard loss in a quick run; otherwise all of TAUS
REWEIGHTED = (0.01, 0.03, 0.07, 0.2, 0.5, 1.0, 3.0)  # τ at which the embeddings of a run are examined
WANG = "Wang & Liu (2021), ResNet-18, linear accuracy"
CIFAR = f"{WANG}, CIFAR-10: τ = .07 / .3 / .7 / 1: 79.75 / 83.27 / 82.69 / 82.21"
HARDS = f"{CIFAR}; hard: 79.2 / 83.63 / 84.19 / 84.19; simple 74.83, hard simple 84.84"
UNIFORM = "Wang & Liu (2021), CIFAR-10: −uniformity 3.86 / 3.60 / 3.17 / 2.96 at τ = .07 / .3 / .7 / 1, simple 1.68"
TOLERANT = "Wang & Liu (2021), CIFAR-10: tolerance .04 / .178 / .333 / .372 at τ = .07 / .3 / .7 / 1, simple .61"


def tau_name(tau: float) -> str:
    """Returns the name of the contrastive run with temperature ``tau``."""
    return f"tau{tau:g}"


def hard_name(tau: float) -> str:
    """Returns the name of the run of the hard loss with temperature ``tau``."""
    return f"hard-tau{tau:g}"


def contrastive_taus(settings: Settings) -> tuple[float, ...]:
    """Returns the temperatures of the contrastive loss."""
    return TAUS if settings.quick else ALL_TAUS


def temperature_arms(settings: Settings) -> list[Arm]:
    """Returns runs of SimCLR and the hard loss over τ, and of the simple and the hard simple loss, which have no τ."""
    shared = {"method": "simclr"}

    def with_loss(loss: str) -> dict[str, Any]:
        return shared | {"method_options": {"loss": loss}}

    hard = (HARD_TAU,) if settings.quick else TAUS
    return [
        *sweep_arms(contrastive_taus(settings), tau_name, lambda tau: shared | {"temperature": tau}, 15),
        *sweep_arms(hard, hard_name, lambda tau: with_loss("hard") | {"temperature": tau}, 15),
        Arm("simple", with_loss("simple"), 15),
        Arm("hard-simple", with_loss("hard_simple"), 15),
    ]


def measure_limits(run: RunFolder, plan: Plan) -> dict[str, Any]:
    """Returns both limits for the run's embeddings, and the effective negatives of the loss over τ."""
    trained = load_trained(run, plan)
    ids, labels = torch.arange(len(trained.first)), trained.labels
    hardness = hardness_at(
        trained.first, REWEIGHTED, trained.second, ids=ids, key_ids=ids, labels=labels, key_labels=labels
    )
    swept = [
        {"tau": one.temperature, "effective": one.effective_negatives / one.negatives, "same_class": one.same_class}
        for one in hardness
        if one is not None
    ]
    return {"limits": temperature_limits(trained.first, trained.second), "swept": swept}


def temperature_limits(queries: Tensor, keys: Tensor) -> dict[str, list[dict[str, float]]]:
    """Compares InfoNCE with its closed forms at low (``cold``) and at high (``warm``) temperatures.

    InfoNCE of ``queries`` [N, D] against ``keys`` [N, D], float64, positives on the diagonal, mean over N:

        τ → 0    τ·L → max(hardest − s⁺, 0), and exceeds it by τ·ln N at most
        τ → ∞    L = ln N − (s⁺ − s̄)/τ + Var(s)/2τ² + O(τ⁻³), s̄ and Var over all N keys: the simple loss with λ = 1/N;
                 the error is at most R³/(36√3·τ³), R the range of s: a third cumulant is at most R³/(6√3)

    Returns rows of ``tau``, ``found`` (the loss, times τ for cold), ``limit`` (the closed form), ``error``, ``bound`` (the
    largest error that theory allows) and ``cosine`` (of the gradients of loss and limit with respect to all queries).
    """
    cosines = queries @ keys.T
    n, own = len(cosines), cosines.diagonal()
    itself = torch.eye(n, dtype=torch.bool)
    hardest = cosines.masked_fill(itself, -torch.inf).amax(1)
    spread = float((cosines.amax(1) - cosines.amin(1)).max())

    def hinge(q: Tensor) -> Tensor:
        scores = normalize(q, dim=1) @ keys.T
        return (scores.masked_fill(itself, -torch.inf).amax(1) - scores.diagonal()).clamp_min(0).mean()

    def row(tau: float, scale: float, limit: float, bound: float, limit_gradient: Tensor) -> dict[str, float]:
        loss = InfoNCELoss(temperature=tau)
        value = scale * float(loss(queries, keys))
        cosine = cosine_similarity(query_gradient(lambda q: loss(q, keys), queries), limit_gradient, dim=0)
        return {
            "tau": tau,
            "found": value,
            "limit": limit,
            "error": value - limit,
            "bound": bound,
            "cosine": float(cosine),
        }

    hinge_gradient = query_gradient(hinge, queries)
    cold_limit = float((hardest - own).clamp_min(0).mean())
    cold = [row(tau, tau, cold_limit, tau * math.log(n), hinge_gradient) for tau in COLD]
    simple = SimpleContrastiveLoss(1 / max(n - 1, 1))
    simple_gradient = query_gradient(lambda q: simple(q, keys), queries)
    gap, variance = float((own - cosines.mean(1)).mean()), float(cosines.var(1, correction=0).mean())
    warm = [
        row(
            tau,
            1.0,
            math.log(n) - gap / tau + variance / (2 * tau**2),
            spread**3 / (36 * math.sqrt(3) * tau**3),
            simple_gradient,
        )
        for tau in WARM
    ]
    return {"cold": cold, "warm": [one | {"error": abs(one["error"])} for one in warm]}


def limit_tables(limits: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """Returns the tables of both limits."""
    keys = ("tau", "found", "limit", "error", "bound", "cosine")
    rows = {end: [[f"{row[key]:.6g}" for key in keys] for row in limits[end]] for end in ("cold", "warm")}
    return [
        {
            "title": "Low temperature: towards max(hardest − positive, 0)",
            "lead": "InfoNCE times τ on trained embeddings. The excess is between 0 and τ·ln N, and the gradient approaches "
            "the gradient of a triplet of the anchor, its positive and its hardest negative.",
            "head": ["τ", "τ·loss", "limit", "excess", "τ·ln N", "cosine of the gradients"],
            "rows": rows["cold"],
        },
        {
            "title": "High temperature: towards the simple loss",
            "lead": "The loss compared with ln N − (s⁺ − s̄)/τ + Var/2τ²: ten times the τ has a thousandth of the error, and "
            "the gradient approaches the gradient of the simple loss, which weights all negatives equally.",
            "head": ["τ", "loss", "closed form", "error", "theoretical bound", "cosine of the gradients"],
            "rows": rows["warm"],
        },
    ]


def summarize_temperature(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Checks the paper's tables, the two limits, and the concentration of the gradient on the hardest negatives."""
    key, taus = settings.headline, [(tau, tau_name(tau)) for tau in contrastive_taus(settings)]
    hard = [(tau, hard_name(tau)) for tau in TAUS]
    claim_hard = f"At τ = {HARD_TAU:g}, hard negatives are better than all negatives."
    claims = [
        monotone(rows, taus, "uniformity", True, "A low τ spreads embeddings evenly: uniformity rises with τ.", UNIFORM),
        monotone(rows, taus, "tolerance", True, "A high τ keeps classes together: tolerance rises with τ.", TOLERANT),
        best_inside(rows, taus, key, "Accuracy is best at an intermediate τ.", CIFAR),
        at_least(rows, "tau0.3", "simple", key, 0.01, "The simple loss, the limit of high τ, is worse than τ = .3.", HARDS),
        at_least(rows, hard_name(HARD_TAU), tau_name(HARD_TAU), key, 0.0, claim_hard, HARDS),
        at_least(rows, "hard-simple", "simple", key, 0.0, "Without τ too: hard simple is better than simple.", HARDS),
        *limit_claims(rows.get("tau0.3", {}).get("limits")),
    ]  # fmt: skip
    charts = [
        chart_spec("Accuracy", key, "τ", [
            result_series(rows, taus, key, "contrastive"),
            result_series(rows, hard, key, "hard"),
        ]),
        chart_spec("Uniformity", "uniformity", "τ", [
            result_series(rows, taus, "uniformity", "here"),
            published_series([(0.07, -3.86), (0.3, -3.60), (0.7, -3.17), (1.0, -2.96)], "published, CIFAR-10"),
        ]),
        chart_spec("Tolerance", "tolerance", "τ", [
            result_series(rows, taus, "tolerance", "here"),
            published_series([(0.07, 0.04), (0.3, 0.178), (0.7, 0.333), (1.0, 0.372)], "published, CIFAR-10"),
        ]),
        chart_spec("Effective negatives", "effective", "τ of the loss, for embeddings trained with the τ in the legend", [
            {"name": name, "points": [(one["tau"], one["effective"]) for one in row["swept"]]}
            for name, row in rows.items()
            if name.startswith("tau") and row.get("swept")
        ], y_label="share of all negatives", percent=True),
    ]  # fmt: skip
    limits = rows.get("tau0.3", {}).get("limits")
    notes = [
        "Uniformity is log mean e^(−2d²) of held-out embeddings, lower is more uniform; tolerance is the mean cosine of pairs "
        "of the same class.",
        "The hard losses use the nearer half of an image's negatives (the paper uses 4,095 of about 50,000, a share that "
        "collapses on digits); the simple loss has λ = 1/K.",
        "The limits are computed for the held-out embeddings of tau0.3 in float64. The fourth chart shows e^entropy of the "
        "negatives' gradient shares, for the same embeddings at other temperatures.",
    ]
    return summary(claims, charts=charts, notes=notes, tables=limit_tables(limits) if limits else [])


def limit_claims(limits: dict[str, list[dict[str, float]]] | None) -> list[Claim]:
    """Checks the closed forms of both limits."""
    cold_claim = "For τ → 0, τ·loss is max(hardest − positive, 0), within τ·ln N."
    warm_claim = "For τ → ∞, the loss is ln N − (s⁺ − s̄)/τ + Var(s)/2τ², with the gradient of the simple loss."
    theory = "by theory (Wang & Liu, 2021)"
    if limits is None:
        return [Claim(text, theory, NOT_MEASURED, None) for text in (cold_claim, warm_claim)]
    inside = all(-1e-9 <= row["error"] <= row["bound"] for row in limits["cold"])
    cold, warm = limits["cold"][-1], limits["warm"][-1]
    values = f"{cold['found']:.5f}, limit {cold['limit']:.5f}, allowed excess {cold['bound']:.5f}"
    cold_text = f"at τ = {cold['tau']:g}: {values}; cosine of the gradients {cold['cosine']:.4f}"
    near = all(row["error"] <= row["bound"] for row in limits["warm"])
    errors = ", ".join(f"{row['error']:.2g} at τ = {row['tau']:g}" for row in limits["warm"][::2])
    warm_text = f"error {errors}, {'within' if near else 'beyond'} the O(τ⁻³) bound; "
    warm_text += f"cosine of the gradients at τ = {warm['tau']:g}: {warm['cosine']:.6f}"
    return [
        Claim(cold_claim, theory, cold_text, inside and cold["cosine"] > 0.99),
        Claim(warm_claim, theory, warm_text, near and warm["cosine"] > 0.999),
    ]


TEMPERATURE = Experiment(
    name="temperature",
    title="Temperature",
    question="How does τ affect embeddings and accuracy, and what are its limits?",
    arms=temperature_arms,
    summarize=summarize_temperature,
    measure=measure_limits,
    columns=(
        *ACCURACIES,
        ("uniformity", "uniformity", "figure"),
        ("tolerance", "tolerance", "figure"),
        ("alignment", "alignment", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        *TRAINING,
    ),
)
