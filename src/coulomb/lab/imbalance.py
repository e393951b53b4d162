"""`coulomb lab imbalance`: what a long tail does to SupCon, and what PaCo's centres do about it."""

import math
from dataclasses import asdict
from typing import Any

from coulomb.data.split import LongTail
from coulomb.lab.arms import Arm
from coulomb.lab.claims import Claim, Rows, at_least
from coulomb.lab.experiment import Experiment
from coulomb.lab.longtail import (
    LONGTAIL,
    accuracy_chart,
    counts_of,
    derive,
    gradient_chart,
    gradients_claim,
    groups_note,
    optimum_claim,
)
from coulomb.lab.optimum import PULL, optimum_table
from coulomb.lab.settings import Settings

ALPHA, HEAVY = 0.05, 1.0  # PaCo's α; and one at which samples count as much as centres, as in SupCon
ALPHAS = (0.01, 0.2)  # besides, in the full setting
PULLS = (0.1, PULL, 1.0, 4.0)
CUI = "CIFAR-100-LT, imbalance 100: PaCo 52.0, balanced softmax 50.8 (Cui et al., 2021)"
LEAST = "−log p − .41·log(1 − p) is least at p = .709 (Cui et al., 2021)"


def arms(settings: Settings) -> list[Arm]:
    """SupCon, and PaCo with several α, on one long tail."""
    LongTail.parse(settings.long_tail)
    shared = {"long_tail": settings.long_tail} | ({"batch_size": 64} if settings.digits else {})
    alphas = () if settings.quick else ALPHAS
    return [
        Arm("supcon", {"method": "supcon"} | shared, 30),
        Arm("paco", {"method": "paco", "method_options": {"alpha": ALPHA}} | shared, 30),
        *(
            Arm(f"paco-a{a:g}", {"method": "paco", "method_options": {"alpha": a}} | shared, 30)
            for a in (*alphas, HEAVY)
        ),
    ]


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Accuracy and gradients by frequency, the minima, and the curve whose minimum the centres sit in."""
    counts, table = counts_of(rows), optimum_table()
    heavy = f"paco-a{HEAVY:g}"
    claims = [
        gradients_claim(rows, "supcon", "paco"),
        optimum_claim(table),
        _pull(table),
        at_least(rows, "paco", "supcon", "few", 0.0, "PaCo serves rare classes better than SupCon.", CUI),
        at_least(rows, "paco", "supcon", "classifier", 0.0, "PaCo is at least as good as SupCon overall.", CUI),
        at_least(
            rows, "paco", heavy, "few", 0.0, f"A small α does it: {ALPHA:g} serves rare classes better than 1.", CUI
        ),
    ]
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [gradient_chart(rows), *accuracy_chart(rows), extra_chart(), rest_chart(table)],
        "notes": [
            groups_note(counts),
            "Accuracies are of each run's own classifier: for SupCon a linear one on the frozen encoder.",
            "The gradient norm is that of the loss by the encoder's features, mean over the views of a class. b < 0: an image "
            "of a rare class is moved more than one of a frequent class. The published figure is of another quantity.",
        ],
        "optimum": table,
        "counts": counts,
    }


def extra_chart() -> dict[str, Any]:
    """L_extra(p) = −log p − a·log(1 − p) above its minimum, for several a = αK."""
    grid = [k / 100 for k in range(2, 99)]

    def above(p: float, a: float) -> float:
        return -math.log(p) - a * math.log1p(-p)

    def least(a: float) -> float:
        return above(1 / (1 + a), a)

    return {
        "title": "L_extra: what αK positives do to a centre",
        "y_label": "−log p − αK·log(1 − p), above its minimum",
        "x_label": "p, the own centre's probability",
        "series": [
            {
                "name": f"αK = {a:g}, least at p = {1 / (1 + a):.3f}",
                "points": [(p, above(p, a) - least(a)) for p in grid if above(p, a) - least(a) < 2],
                "smooth": True,
            }
            for a in PULLS
        ],
    }


def rest_chart(table: list[dict[str, Any]]) -> dict[str, Any]:
    """By how many positives there are: formulas, and the minima found."""
    grid = [10 ** (k / 10) for k in range(27)]
    formulas = [
        ("SupCon, a sample: 1/K", [(k, 1 / k) for k in grid]),
        ("PaCo, a sample: α/(1+αK)", [(k, ALPHA / (1 + ALPHA * k)) for k in grid]),
        ("PaCo, the centre: 1/(1+αK)", [(k, 1 / (1 + ALPHA * k)) for k in grid]),
    ]
    own = [(float(row["what"].split()[-2]), row["found"]) for row in table if row["what"].endswith("positives")]
    series = [{"name": name, "points": points, "smooth": True} for name, points in formulas]
    found = {"title": "Where each pair comes to rest", "y_label": "probability at the minimum", "log_x": True}
    found |= {"x_label": "K, positives of the anchor: few for a rare class", "percent": True}
    return found | {"series": [*series, {"name": "found by free-logit optimisation", "points": own, "scattered": True}]}


def _pull(table: list[dict[str, Any]]) -> Claim:
    found = table[-1]["found"]
    return Claim("L_extra's minimum is at .709.", LEAST, f"{found:.4f}, found numerically", abs(found - 0.709) < 1e-3)


IMBALANCE = Experiment(
    name="imbalance",
    title="Imbalance: SupCon and PaCo",
    question="Why do frequent classes crowd out rare ones, and what do learnable centres change?",
    arms=arms,
    judge=judge,
    derive=derive,
    columns=tuple(column for column in LONGTAIL.columns if column[0] != "linear"),
)
