"""`coulomb lab temperature`: the effect of τ on accuracy, uniformity and tolerance, and its limits 0 and ∞."""

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from coulomb.lab.arms import Arm, Settings
from coulomb.lab.claims import HEADLINES, Claim, Rows, at_least, best_inside, chart, curve, monotone, published, sweep
from coulomb.lab.experiment import Experiment
from coulomb.lab.measure import trained
from coulomb.losses import InfoNCELoss, SimpleContrastiveLoss
from coulomb.metrics.hardness import hardness_at
from coulomb.runs.folder import RunFolder
from coulomb.runs.prepare import Prepared

COLD = (0.1, 0.03, 0.01, 0.003, 0.001)
WARM = (1.0, 3.0, 10.0, 30.0, 100.0)


def limits(queries: Tensor, keys: Tensor) -> dict[str, list[dict[str, float]]]:
    """``cold`` and ``warm``: the loss at low and at high τ, its closed form, and how far they are apart.

    InfoNCE of ``queries`` [N, D] against ``keys`` [N, D], float64, the positive on the diagonal, mean over N:

        τ → 0    τ·L → max(hardest − s⁺, 0), and exceeds it by τ·ln N at most
        τ → ∞    L = ln N − (s⁺ − s̄)/τ + Var(s)/2τ² + O(τ⁻³), s̄ and Var over all N keys: the simple loss with λ = 1/N;
                 off by R³/(36√3·τ³) at most, R the range of s: a third cumulant is at most R³/(6√3)

    ``cosine``: of the gradient by all queries with that of the limit.
    """
    cosines = queries @ keys.T
    n, own = len(cosines), cosines.diagonal()
    others = cosines.masked_fill(torch.eye(n, dtype=torch.bool), -torch.inf)
    limit = float((others.amax(1) - own).clamp_min(0).mean())
    hinge = _query_gradient(queries, keys, _hinge)
    simple = _query_gradient(queries, keys, SimpleContrastiveLoss(1 / max(n - 1, 1)))
    spread = float((cosines.amax(1) - cosines.amin(1)).max())
    cold, warm = [], []
    for tau in COLD:
        loss = InfoNCELoss(temperature=tau)
        found = tau * float(loss(queries, keys))
        cosine = float(cosine_similarity(_query_gradient(queries, keys, loss), hinge, dim=0))
        cold.append(
            {"tau": tau, "found": found, "limit": limit, "error": found - limit, "bound": tau * math.log(n)}
            | {"cosine": cosine}
        )
    for tau in WARM:
        loss = InfoNCELoss(temperature=tau)
        found = float(loss(queries, keys))
        form = math.log(n) - float((own - cosines.mean(1)).mean()) / tau
        form += float(cosines.var(1, correction=0).mean()) / (2 * tau**2)
        cosine = float(cosine_similarity(_query_gradient(queries, keys, loss), simple, dim=0))
        warm.append(
            {"tau": tau, "found": found, "limit": form, "error": abs(found - form), "cosine": cosine}
            | {"bound": spread**3 / (36 * math.sqrt(3) * tau**3)}
        )
    return {"cold": cold, "warm": warm}


def _hinge(queries: Tensor, keys: Tensor) -> Tensor:
    cosines = torch.nn.functional.normalize(queries, dim=1) @ keys.T
    others = cosines.masked_fill(torch.eye(len(cosines), dtype=torch.bool), -torch.inf)
    return (others.amax(1) - cosines.diagonal()).clamp_min(0).mean()


def _query_gradient(queries: Tensor, keys: Tensor, loss: nn.Module | Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    leaf = queries.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf, keys), leaf)
    return found.flatten()


def limit_tables(found: dict[str, list[dict[str, float]]]) -> list[dict[str, Any]]:
    """For the page."""
    cold = [[_text(row[key]) for key in ("tau", "found", "limit", "error", "bound", "cosine")] for row in found["cold"]]
    warm = [[_text(row[key]) for key in ("tau", "found", "limit", "error", "bound", "cosine")] for row in found["warm"]]
    return [
        {
            "title": "Cold: towards max(hardest − positive, 0)",
            "lead": "InfoNCE times τ on trained embeddings. The excess is between 0 and τ·ln N, and the gradient turns into "
            "that of a triplet of the anchor, its positive and its hardest negative.",
            "head": ["τ", "τ·loss", "limit", "excess", "τ·ln N", "cosine of the gradients"],
            "rows": cold,
        },
        {
            "title": "Warm: towards the simple loss",
            "lead": "The same beside ln N − (s⁺ − s̄)/τ + Var/2τ²: ten times the τ, a thousandth of the error, "
            "and the gradient turns into that of the simple loss, which pushes all negatives alike.",
            "head": ["τ", "loss", "closed form", "off by", "at most, by theory", "cosine of the gradients"],
            "rows": warm,
        },
    ]


def _text(number: float) -> str:
    return f"{number:.6g}"


TAUS = (0.07, 0.3, 0.7, 1.0)  # of the paper's tables
FULL = (0.03, *TAUS, 2.0)
HARD = 0.7  # τ of the hard loss in a quick look; else all of TAUS
SWEPT = (0.01, 0.03, 0.07, 0.2, 0.5, 1.0, 3.0)  # without training, on the embeddings of a run
WANG = "Wang & Liu (2021), ResNet-18, linear accuracy"
CIFAR = f"{WANG}, CIFAR-10: τ = .07 / .3 / .7 / 1: 79.75 / 83.27 / 82.69 / 82.21"
HARDS = f"{CIFAR}; hard: 79.2 / 83.63 / 84.19 / 84.19; simple 74.83, hard simple 84.84"
UNIFORM = "Wang & Liu (2021), CIFAR-10: −uniformity 3.86 / 3.60 / 3.17 / 2.96 at τ = .07 / .3 / .7 / 1, simple 1.68"
TOLERANT = "Wang & Liu (2021), CIFAR-10: tolerance .04 / .178 / .333 / .372 at τ = .07 / .3 / .7 / 1, simple .61"


def tau_name(tau: float) -> str:
    """The run of plain contrast at a temperature."""
    return f"tau{tau:g}"


def hard_name(tau: float) -> str:
    """The run of the hard loss at a temperature."""
    return f"hard-tau{tau:g}"


def swept(settings: Settings) -> tuple[float, ...]:
    """The temperatures of plain contrast."""
    return TAUS if settings.quick else FULL


def temperature_arms(settings: Settings) -> list[Arm]:
    """SimCLR over τ; the hard loss; the simple and the hard simple loss, which have no τ."""
    shared = {"method": "simclr"}

    def made(loss: str) -> dict[str, Any]:
        return shared | {"method_options": {"loss": loss}}

    hard = (HARD,) if settings.quick else TAUS
    return [
        *sweep(swept(settings), tau_name, lambda tau: shared | {"temperature": tau}, 15),
        *sweep(hard, hard_name, lambda tau: made("hard") | {"temperature": tau}, 15),
        Arm("simple", made("simple"), 15),
        Arm("hard-simple", made("hard_simple"), 15),
    ]


def measure_limits(run: RunFolder, prepared: Prepared) -> dict[str, Any]:
    """Both limits on the run's embeddings, and how many negatives its loss would look at, by τ."""
    found = trained(run, prepared)
    ids, labels = torch.arange(len(found.first)), found.labels
    looked = hardness_at(found.first, SWEPT, found.second, ids=ids, key_ids=ids, labels=labels, key_labels=labels)
    told = [
        {"tau": one.temperature, "effective": one.effective_negatives / one.negatives, "same_class": one.same_class}
        for one in looked
        if one is not None
    ]
    return {"limits": limits(found.first, found.second), "swept": told}


def judge_temperature(rows: Rows, settings: Settings) -> dict[str, Any]:
    """The paper's tables, its two closed forms, and how the push gathers on the hardest."""
    key, taus = settings.headline, [(tau, tau_name(tau)) for tau in swept(settings)]
    hard = [(tau, hard_name(tau)) for tau in TAUS]
    claims = [
        monotone(rows, taus, "uniformity", True, "A low τ spreads embeddings evenly: uniformity grows with τ.", UNIFORM),
        monotone(rows, taus, "tolerance", True, "A high τ leaves one class together: tolerance grows with τ.", TOLERANT),
        best_inside(rows, taus, key, "Accuracy is best at a middling τ, at neither end.", CIFAR),
        at_least(rows, "tau0.3", "simple", key, 0.01, "The simple loss, the limit of a high τ, is worse than τ = .3.", HARDS),
        at_least(rows, hard_name(HARD), tau_name(HARD), key, 0.0, f"At τ = {HARD:g} hard negatives beat all.", HARDS),
        at_least(rows, "hard-simple", "simple", key, 0.0, "Without τ too: hard simple beats simple.", HARDS),
        *limit_claims(rows.get("tau0.3", {}).get("limits")),
    ]  # fmt: skip
    charts = [
        chart("Accuracy", key, "τ", [curve(rows, taus, key, "contrastive"), curve(rows, hard, key, "hard")]),
        chart("Uniformity", "uniformity", "τ", [
            curve(rows, taus, "uniformity", "here"),
            published([(0.07, -3.86), (0.3, -3.60), (0.7, -3.17), (1.0, -2.96)], "published, CIFAR-10"),
        ]),
        chart("Tolerance", "tolerance", "τ", [
            curve(rows, taus, "tolerance", "here"),
            published([(0.07, 0.04), (0.3, 0.178), (0.7, 0.333), (1.0, 0.372)], "published, CIFAR-10"),
        ]),
        chart("Who is pushed", "effective", "τ at which the embeddings are looked at; nothing is trained for this", [
            {"name": name, "points": [(one["tau"], one["effective"]) for one in found["swept"]]}
            for name, found in rows.items()
            if name.startswith("tau") and found.get("swept")
        ], y_label="effective negatives, share of all", percent=True),
    ]  # fmt: skip
    found = rows.get("tau0.3", {}).get("limits")
    notes = [
        "Uniformity is log mean e^(−2d²) of held-out embeddings, less is more even; tolerance is the mean cosine of pairs of "
        "a class.",
        "The hard losses keep the nearer half of an image's negatives (the paper: 4,095 of some 50,000, a share that "
        "collapses on digits); the simple loss has λ = 1/K.",
        "The limits are of the held-out embeddings of tau0.3, in float64. In the fourth chart the same embeddings are looked "
        "at with other temperatures: the effective number of negatives is e^entropy of their shares of the push.",
    ]
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": charts,
        "notes": notes,
        "tables": limit_tables(found) if found else [],
    }


def limit_claims(found: dict[str, list[dict[str, float]]] | None) -> list[Claim]:
    """The closed forms of both ends."""
    cold = "Cold, τ·loss is max(hardest − positive, 0), within τ·ln N."
    warm = "Warm, the loss is ln N − (s⁺ − s̄)/τ + Var(s)/2τ², and its gradient the simple loss's."
    theory = "by theory (Wang & Liu, 2021)"
    if found is None:
        return [Claim(text, theory, "not measured", None) for text in (cold, warm)]
    inside = all(-1e-9 <= row["error"] <= row["bound"] for row in found["cold"])
    last, end = found["cold"][-1], found["warm"][-1]
    measured = (
        f"at τ = {last['tau']:g}: {last['found']:.5f}, the limit {last['limit']:.5f}, {last['bound']:.5f} more allowed"
    )
    measured += f"; the gradients' cosine is {last['cosine']:.4f}"
    near = all(row["error"] <= row["bound"] for row in found["warm"])
    told = ", ".join(f"off by {row['error']:.2g} at τ = {row['tau']:g}" for row in found["warm"][::2])
    told += f", {'within' if near else 'beyond'} what O(τ⁻³) allows; the gradients' cosine at τ = {end['tau']:g} is "
    told += f"{end['cosine']:.6f}"
    return [
        Claim(cold, theory, measured, inside and last["cosine"] > 0.99),
        Claim(warm, theory, told, near and end["cosine"] > 0.999),
    ]


TEMPERATURE = Experiment(
    name="temperature",
    title="Temperature",
    question="What does τ do to embeddings and accuracy, and what lies beyond both its ends?",
    arms=temperature_arms,
    judge=judge_temperature,
    more=measure_limits,
    columns=(
        *HEADLINES,
        ("uniformity", "uniformity", "figure"),
        ("tolerance", "tolerance", "figure"),
        ("alignment", "alignment", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
