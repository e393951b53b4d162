"""`coulomb lab hard-negatives`: how much nearer negatives should count (β), and how many of them are false (τ⁺)."""

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from coulomb.lab.arms import Arm
from coulomb.lab.claims import Rows, at_least, best_inside
from coulomb.lab.experiment import Experiment
from coulomb.lab.settings import Settings
from coulomb.lab.sweep import HEADLINES, chart, curve
from coulomb.lab.trained import trained
from coulomb.runs.folder import RunFolder
from coulomb.runs.prepare import Prepared

BETAS, QUICK_BETAS = (0.0, 0.5, 1.0, 2.0, 6.0), (0.0, 1.0, 6.0)
SHARES, QUICK_SHARES = (0.0, 0.05, 0.1, 0.2), (0.0, 0.1)
TAU_PLUS, BETA, TEMPERATURE = 0.1, 1.0, 0.5  # where the other one varies; the authors'
LOOKED = (0.0, 0.5, 1.0, 2.0, 6.0, 20.0)  # β at which embeddings are looked at
ROBINSON = (
    "STL-10, ResNet-50, 400 epochs: biased 80.15, debiased 84.26, β = .5 / 1 / 2 / 6: 86.38 / 87.44 / 87.09 / 83.09"
)
PUBLISHED = f"{ROBINSON} (Robinson et al., 2021)"


def name_of(beta: float, tau_plus: float) -> str:
    """``biased``, ``debiased``, or what sets the run apart."""
    if beta == 0 and tau_plus in (0.0, TAU_PLUS):
        return "debiased" if tau_plus else "biased"
    return f"beta{beta:g}" + ("" if tau_plus == TAU_PLUS else f"-plus{tau_plus:g}")


def arms(settings: Settings) -> list[Arm]:
    """β at one τ⁺, τ⁺ at one β, and neither."""
    betas, shares = (QUICK_BETAS, QUICK_SHARES) if settings.quick else (BETAS, SHARES)
    wanted = [(0.0, 0.0), *((beta, TAU_PLUS) for beta in betas), *((BETA, s) for s in shares if s != TAU_PLUS)]
    shared = {"method": "hard", "temperature": TEMPERATURE}
    return [
        Arm(name_of(beta, plus), shared | {"method_options": {"beta": beta, "tau_plus": plus}}, 12)
        for beta, plus in wanted
    ]


def more(run: RunFolder, prepared: Prepared) -> dict[str, Any]:
    """How much of the push same-class negatives would get, by β, on the run's embeddings."""
    found = trained(run, prepared)
    if found.labels is None:
        return {}
    return {"push": [{"beta": beta, **push(found.first, found.labels, found.temperature, beta)} for beta in LOOKED]}


def push(x: Tensor, labels: Tensor, temperature: float, beta: float) -> dict[str, float]:
    """Shares of the push: of negatives of the anchor's class, and of the nearest hundredth.

    x [n, D] of unit length. The push on negative j is (1+β)·softmax((1+β)s)_j − β·softmax(βs)_j, s = cos/τ: it sums to 1, and
    where it is below 0 the negative is pulled, which is left out here.
    """
    s = (x @ x.T / temperature).fill_diagonal_(-torch.inf)
    weights = (1 + beta) * ((1 + beta) * s).softmax(1)
    weights = (weights - beta * (beta * s).softmax(1) if beta else weights).clamp_min(0)
    weights = weights / weights.sum(1, keepdim=True)
    same = (labels[:, None] == labels) & (labels >= 0)
    nearest = weights.topk(max(1, round(len(x) / 100)), dim=1).values
    return {"same_class": float((weights * same).sum(1).mean()), "top1pct": float(nearest.sum(1).mean())}


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """The published ablation; and whom β makes the loss push."""
    key = settings.headline
    places = [(beta, name_of(beta, TAU_PLUS)) for beta in (QUICK_BETAS if settings.quick else BETAS)]
    shares = [(share, name_of(BETA, share)) for share in (QUICK_SHARES if settings.quick else SHARES)]
    claims = [
        at_least(rows, "debiased", "biased", key, 0.0, "To allow for false negatives (τ⁺ = .1) helps.", PUBLISHED),
        at_least(rows, "beta1", "debiased", key, 0.0, "To prefer near negatives (β = 1) helps besides.", PUBLISHED),
        at_least(rows, "beta1", "beta1-plus0", key, 0.0, "β needs τ⁺: without, near negatives do harm.", PUBLISHED),
        best_inside(rows, places, key, "Too large a β rests on false negatives: the best is in between.", PUBLISHED),
    ]
    looked = rows.get("biased", {}).get("push") or []
    series = [
        {"name": name, "points": [(one["beta"], one[which]) for one in looked]}
        for which, name in (("same_class", "negatives of the anchor's class"), ("top1pct", "the nearest hundredth"))
    ]
    charts = [
        chart("β", key, "β, at τ⁺ = .1", [curve(rows, places, key, "here")], log_x=False),
        chart("τ⁺", key, "τ⁺, at β = 1", [curve(rows, shares, key, "here")], log_x=False),
        chart(
            "Who is pushed", "push", "β", series, log_x=False, percent=True, y_label="share of the push",
            note="The embeddings of the biased run, looked at with other β; about a tenth of random pairs is of one class.",
        ),
    ]  # fmt: skip
    notes = ["Biased: SimCLR's NT-Xent (β = τ⁺ = 0) at the same temperature, .5."]
    return {"claims": [asdict(claim) for claim in claims], "charts": charts, "notes": notes}


HARD_NEGATIVES = Experiment(
    name="hard-negatives",
    title="Hard negatives",
    question="Should near negatives count more, and how many of them are false?",
    arms=arms,
    judge=judge,
    more=more,
    columns=(
        *HEADLINES,
        ("uniformity", "uniformity", "figure"),
        ("tolerance", "tolerance", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
