"""`coulomb lab collapse`: what keeps methods without negatives from answering the same to everything."""

from dataclasses import asdict
from typing import Any

from coulomb.doctor.learning_rules import DIRECTIONS, SPREAD
from coulomb.lab.arms import Arm
from coulomb.lab.claims import Claim, Rows, value
from coulomb.lab.experiment import Experiment
from coulomb.lab.settings import Settings

PARTS = {"no-stop-gradient": {"stop_gradient": False}, "no-predictor": {"use_predictor": False}}
PUBLISHED = {
    "simsiam": "SimSiam, ImageNet: 68.1 (100 epochs); without stop-gradient the loss falls to −1 at once (Chen & He, 2021)",
    "byol": "BYOL, ImageNet: 74.3; without target network or predictor it collapses (Grill et al., 2020)",
}


def arms(settings: Settings) -> list[Arm]:
    """SimSiam and BYOL, whole, without stop-gradient, without predictor."""
    made = []
    for method in ("simsiam", "byol"):
        made.append(Arm(method, {"method": method}, quick=16))
        made += [
            Arm(f"{method}-{name}", {"method": method, "method_options": options}, quick=16)
            for name, options in PARTS.items()
        ]
    return made


def collapsed(figures: dict[str, Any]) -> bool | None:
    """Whether held-out embeddings have collapsed, by the doctor's thresholds: effective rank or spread too small.

    Batch norm at the end of SimSiam's head keeps a spread: embeddings then collapse to a line (rank 1 to 2), not to a point.
    """
    rank, spread = figures.get("embedding_rank"), figures.get("embedding_std")
    if rank is None:
        return None
    return bool(rank < DIRECTIONS or (spread is not None and spread < SPREAD))


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Collapse where it was expected, and only there."""
    claims = []
    for method in ("simsiam", "byol"):
        claims.append(_claim(rows, method, f"{method} as published does not collapse.", False, PUBLISHED[method]))
        for name in PARTS:
            arm = f"{method}-{name}"
            claims.append(_claim(rows, arm, f"{arm.replace('-', ' ')}: it collapses.", True, PUBLISHED[method]))
    charts = [
        {
            "title": title,
            "y_label": label,
            "x_label": "epoch",
            "series": [
                {"name": name, "points": [(at["epoch"], at[key]) for at in found["course"] if at.get(key) is not None]}
                for name, found in rows.items()
                if found.get("course")
            ],
        }
        for key, title, label in (
            ("embedding_rank", "Effective rank of the embeddings", "1 is complete collapse"),
            ("embedding_std", "Spread of the embeddings", "√D·std of unit vectors: 1 is even, 0 is collapse"),
        )
    ]
    notes = [
        f"Collapse is detected by an effective rank below {DIRECTIONS:g} or a spread below {SPREAD:g} of held-out embeddings."
    ]
    return {"claims": [asdict(claim) for claim in claims], "charts": charts, "notes": notes}


def _claim(rows: Rows, name: str, claim: str, expected: bool, published: str) -> Claim:
    found = collapsed(rows.get(name, {}))
    if found is None:
        return Claim(claim, published, "not measured", None)
    rank, spread, knn = (value(rows, name, key) for key in ("embedding_rank", "embedding_std", "knn"))
    told = f"effective rank {rank:.2f}" + ("" if spread is None else f", spread {spread:.3f}")
    told += f", kNN {knn:.1%}: {'collapsed' if found else 'not collapsed'}"
    return Claim(claim, published, told, found == expected)


COLLAPSE = Experiment(
    name="collapse",
    title="Collapse without negatives",
    question="What keeps SimSiam and BYOL from giving every image the same embedding?",
    arms=arms,
    judge=judge,
    columns=(
        ("embedding_rank", "rank, embeddings", "figure"),
        ("embedding_std", "spread", "figure"),
        ("loss", "last loss", "figure"),
        ("knn", "kNN", "percent"),
        ("few_5", "5 labels", "percent"),
        ("rank", "rank, features", "figure"),
        ("seconds", "training", "duration"),
    ),
)
