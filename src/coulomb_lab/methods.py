"""`coulomb lab methods` and `collapse`: all methods on the same images, and what prevents collapse."""

from typing import Any

from coulomb.evaluation.doctor.learning_rules import DIRECTIONS, SPREAD
from coulomb.methods import METHODS
from coulomb_lab.arms import Arm, Settings
from coulomb_lab.claims import (
    NOT_MEASURED,
    TRAINING,
    Claim,
    Rows,
    all_at_least,
    all_within,
    at_least,
    read_value,
    summary,
)
from coulomb_lab.experiment import Experiment

ABOVE_PIXELS = 0.04  # on digits, with 5 labels per class
ABOVE_UNTRAINED = 0.12  # on other data, kNN
MIN_RANK = 5.0  # of the embeddings; complete collapse is 1
LIGHTLY = "CIFAR-10, ResNet-18, 200 epochs, kNN: SimCLR 84.8, MoCo 84.7, BYOL 86.8, SimSiam 76.4 (lightly's benchmark)"
KHOSLA = "CIFAR-10, ResNet-50: SupCon 96.0, SimCLR 93.6, cross-entropy 95.0 (Khosla et al., 2020)"


def needs_labels(name: str) -> bool:
    """Returns whether a method learns from labels."""
    return bool(getattr(METHODS[name], "needs_labels", False))


def method_arms(settings: Settings) -> list[Arm]:
    """Returns one run per method, self-supervised methods first."""
    return [Arm(name, {"method": name}) for name in sorted(METHODS, key=needs_labels)]


def summarize_methods(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Compares the methods with the baselines and with each other."""
    trained = [name for name in rows if name in METHODS]
    for name in trained:
        rows[name]["learns"] = "labels" if needs_labels(name) else "images"
    claims: list[Claim] = []
    if settings.digits and "raw_pixels" in rows:
        bound = rows["raw_pixels"]["few_5"] + ABOVE_PIXELS
        claim = f"With 5 labels per class, every method is at least {100 * ABOVE_PIXELS:.0f} points above raw pixels."
        claims.append(all_at_least(rows, trained, "few_5", bound, claim, "target of this project for digits"))
    elif "untrained" in rows:
        bound = rows["untrained"]["knn"] + ABOVE_UNTRAINED
        claim = (
            f"Every self-supervised method is at least {100 * ABOVE_UNTRAINED:.0f} points above the untrained encoder."
        )
        unlabeled = [name for name in trained if not needs_labels(name)]
        claims.append(all_at_least(rows, unlabeled, "knn", bound, claim, "target of this project for photos"))
    claim = "SimCLR, MoCo and BYOL differ by at most 6 points."
    claims.append(all_within(rows, ("simclr", "moco", "byol"), "knn", 0.06, claim, LIGHTLY))
    claim = "No method collapses: the effective rank of the embeddings is far above 1."
    claims.append(all_at_least(rows, trained, "embedding_rank", MIN_RANK, claim, f"here: at least {MIN_RANK:.0f}"))
    claims.append(
        at_least(rows, "supcon", "simclr", "linear", 0.0, "Labels help: SupCon is better than SimCLR.", KHOSLA)
    )
    notes = ["Methods that learn from labels use the classes of the training images; the others do not."]
    if settings.budget is None:
        notes.append("All methods have the same number of epochs unless a recipe differs; --budget gives equal time.")
    if settings.digits:
        notes.append("On digits, kNN is near its ceiling before training; few-shot accuracy separates the encoders.")
    return summary(claims, notes=notes)


METHODS_TABLE = Experiment(
    name="methods",
    title="All methods on the same images",
    question="How do the methods compare, with the same encoder on the same images?",
    arms=method_arms,
    summarize=summarize_methods,
    columns=(
        ("learns", "learns from", "text"),
        ("knn", "kNN", "percent"),
        ("linear", "linear", "percent"),
        ("few_1", "1 label", "percent"),
        ("few_5", "5 labels", "percent"),
        ("few_10", "10 labels", "percent"),
        ("rank", "rank, features", "figure"),
        ("embedding_rank", "rank, embeddings", "figure"),
        *TRAINING,
    ),
)


REMOVED = {"no-stop-gradient": {"stop_gradient": False}, "no-predictor": {"use_predictor": False}}
COLLAPSE_SOURCES = {
    "simsiam": "SimSiam, ImageNet: 68.1 (100 epochs); without stop-gradient the loss falls to −1 at once (Chen & He, 2021)",
    "byol": "BYOL, ImageNet: 74.3; without target network or predictor it collapses (Grill et al., 2020)",
}


def collapse_arms(settings: Settings) -> list[Arm]:
    """Returns runs of SimSiam and BYOL: complete, without stop-gradient, without predictor."""
    arms = []
    for method in ("simsiam", "byol"):
        arms.append(Arm(method, {"method": method}, quick=16))
        for name, options in REMOVED.items():
            arms.append(Arm(f"{method}-{name}", {"method": method, "method_options": options}, quick=16))
    return arms


def has_collapsed(row: dict[str, Any]) -> bool | None:
    """Returns whether held-out embeddings have collapsed by the doctor's thresholds for effective rank and spread.

    Batch norm at the end of SimSiam's head keeps a spread, so its embeddings collapse to a line (rank 1 to 2), not a point.
    """
    rank, spread = row.get("embedding_rank"), row.get("embedding_std")
    if rank is None:
        return None
    return bool(rank < DIRECTIONS or (spread is not None and spread < SPREAD))


def summarize_collapse(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Checks that exactly the incomplete methods collapse."""
    claims = []
    for method, source in COLLAPSE_SOURCES.items():
        claims.append(_collapse_claim(rows, method, f"{method} as published does not collapse.", False, source))
        for name in REMOVED:
            arm = f"{method}-{name}"
            claims.append(_collapse_claim(rows, arm, f"{arm.replace('-', ' ')} collapses.", True, source))
    labels = {
        "embedding_rank": ("Effective rank of the embeddings", "1: complete collapse"),
        "embedding_std": ("Spread of the embeddings", "√D·std of unit vectors; 1: uniform, 0: collapse"),
    }
    charts = [
        {
            "title": title,
            "y_label": label,
            "x_label": "epoch",
            "series": [
                {"name": name, "points": [(at["epoch"], at[key]) for at in row["course"] if at.get(key) is not None]}
                for name, row in rows.items()
                if row.get("course")
            ],
        }
        for key, (title, label) in labels.items()
    ]
    note = f"Collapse: effective rank below {DIRECTIONS:g} or spread below {SPREAD:g} of held-out embeddings."
    return summary(claims, charts=charts, notes=[note])


def _collapse_claim(rows: Rows, name: str, claim: str, expected: bool, published: str) -> Claim:
    collapsed = has_collapsed(rows.get(name, {}))
    if collapsed is None:
        return Claim(claim, published, NOT_MEASURED, None)
    rank, spread, knn = (read_value(rows, name, key) for key in ("embedding_rank", "embedding_std", "knn"))
    text = f"effective rank {rank:.2f}" + ("" if spread is None else f", spread {spread:.3f}")
    text += f", kNN {knn:.1%}: {'collapsed' if collapsed else 'not collapsed'}"
    return Claim(claim, published, text, collapsed == expected)


COLLAPSE = Experiment(
    name="collapse",
    title="Collapse without negatives",
    question="What prevents SimSiam and BYOL from giving all images the same embedding?",
    arms=collapse_arms,
    summarize=summarize_collapse,
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
