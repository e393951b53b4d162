"""`coulomb lab methods` and `collapse`: all methods on the same images, and what prevents collapse."""

from dataclasses import asdict
from typing import Any

from coulomb.doctor.learning_rules import DIRECTIONS, SPREAD
from coulomb.lab.arms import Arm, Settings
from coulomb.lab.claims import Claim, Rows, all_above, at_least, value, within
from coulomb.lab.experiment import Experiment
from coulomb.methods import METHODS

ABOVE_PIXELS = 0.04  # on digits, with 5 labels a class
ABOVE_UNTRAINED = 0.12  # elsewhere, kNN
RANK = 5.0  # effective rank of embeddings that is far above collapse, which is 1
BENCHMARK = (
    "CIFAR-10, ResNet-18, 200 epochs, kNN: SimCLR 84.8, MoCo 84.7, BYOL 86.8, SimSiam 76.4 (lightly's benchmark)"
)


def needs_labels(name: str) -> bool:
    """Whether a method learns from labels."""
    return bool(getattr(METHODS[name], "needs_labels", False))


def method_arms(settings: Settings) -> list[Arm]:
    """One run per method, self-supervised methods first."""
    names = sorted(METHODS, key=needs_labels)
    return [Arm(name, {"method": name}) for name in names]


def judge_methods(rows: Rows, settings: Settings) -> dict[str, Any]:
    """The claims of the field's comparisons."""
    trained = [name for name in rows if name in METHODS]
    for name in trained:
        rows[name]["learns"] = "labels" if needs_labels(name) else "images"
    unlabelled = [name for name in trained if not needs_labels(name)]
    claims: list[Claim] = []
    if settings.digits and "raw_pixels" in rows:
        bound = rows["raw_pixels"]["few_5"] + ABOVE_PIXELS
        claim = f"Every method is at least {100 * ABOVE_PIXELS:.0f} points above raw pixels with 5 labels a class."
        claims.append(all_above(rows, trained, "few_5", bound, claim, "this project's aim for digits"))
    elif "untrained" in rows:
        bound = rows["untrained"]["knn"] + ABOVE_UNTRAINED
        claim = (
            f"Without labels, every method is at least {100 * ABOVE_UNTRAINED:.0f} points above the untrained encoder."
        )
        claims.append(all_above(rows, unlabelled, "knn", bound, claim, "this project's aim for natural images"))
    claims.append(
        within(
            rows,
            ("simclr", "moco", "byol"),
            "knn",
            0.06,
            "SimCLR, MoCo and BYOL come within 6 points of each other.",
            BENCHMARK,
        )
    )
    claim = "No method collapses: the embeddings' effective rank stays far above 1."
    claims.append(all_above(rows, trained, "embedding_rank", RANK, claim, f"here: at least {RANK:.0f}"))
    claim = "Labels help: supervised contrast is above SimCLR."
    published = "CIFAR-10, ResNet-50: SupCon 96.0, SimCLR 93.6, cross-entropy 95.0 (Khosla et al., 2020)"
    claims.append(at_least(rows, "supcon", "simclr", "linear", 0.0, claim, published))
    return {"claims": [asdict(claim) for claim in claims], "charts": [], "notes": _notes(settings)}


def _notes(settings: Settings) -> list[str]:
    notes = ["Those that learn from labels have seen the training images' classes; the others have not."]
    if settings.budget is None:
        notes.append(
            "The same number of epochs for all, unless a recipe says otherwise; --budget gives all the same time."
        )
    if settings.digits:
        notes.append("On digits kNN is near its ceiling before any training; few labels tell encoders apart.")
    return notes


METHODS_TABLE = Experiment(
    name="methods",
    title="Every method, the same images",
    question="What is each way of training worth, with the same encoder on the same images?",
    arms=method_arms,
    judge=judge_methods,
    columns=(
        ("learns", "learns from", "text"),
        ("knn", "kNN", "percent"),
        ("linear", "linear", "percent"),
        ("few_1", "1 label", "percent"),
        ("few_5", "5 labels", "percent"),
        ("few_10", "10 labels", "percent"),
        ("rank", "rank, features", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)


PARTS = {"no-stop-gradient": {"stop_gradient": False}, "no-predictor": {"use_predictor": False}}
PUBLISHED = {
    "simsiam": "SimSiam, ImageNet: 68.1 (100 epochs); without stop-gradient the loss falls to −1 at once (Chen & He, 2021)",
    "byol": "BYOL, ImageNet: 74.3; without target network or predictor it collapses (Grill et al., 2020)",
}


def collapse_arms(settings: Settings) -> list[Arm]:
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


def judge_collapse(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Collapse where it was expected, and only there."""
    claims = []
    for method in ("simsiam", "byol"):
        claims.append(
            _collapse_claim(rows, method, f"{method} as published does not collapse.", False, PUBLISHED[method])
        )
        for name in PARTS:
            arm = f"{method}-{name}"
            claims.append(
                _collapse_claim(rows, arm, f"{arm.replace('-', ' ')}: it collapses.", True, PUBLISHED[method])
            )
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


def _collapse_claim(rows: Rows, name: str, claim: str, expected: bool, published: str) -> Claim:
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
    arms=collapse_arms,
    judge=judge_collapse,
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
