"""`coulomb lab temperature`: what τ does to accuracy, uniformity and tolerance, and what lies beyond both ends."""

from dataclasses import asdict
from typing import Any

import torch

from coulomb.lab.arms import Arm
from coulomb.lab.claims import Claim, Rows, at_least, best_inside, monotone
from coulomb.lab.experiment import Experiment
from coulomb.lab.limits import limits, tables
from coulomb.lab.settings import Settings
from coulomb.lab.sweep import HEADLINES, chart, curve, published, sweep
from coulomb.lab.trained import trained
from coulomb.metrics.hardness import hardness_at
from coulomb.runs.folder import RunFolder
from coulomb.runs.prepare import Prepared

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


def arms(settings: Settings) -> list[Arm]:
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


def more(run: RunFolder, prepared: Prepared) -> dict[str, Any]:
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


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
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
        "tables": tables(found) if found else [],
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
    arms=arms,
    judge=judge,
    more=more,
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
