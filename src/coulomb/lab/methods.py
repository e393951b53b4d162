"""`coulomb lab methods`: every method on the same images, with the same encoder, in one table."""

from dataclasses import asdict
from typing import Any

from coulomb.lab.arms import Arm
from coulomb.lab.claims import Claim, Rows, all_above, at_least, within
from coulomb.lab.experiment import Experiment
from coulomb.lab.settings import Settings
from coulomb.methods import METHODS
from coulomb.runs.recipes import RECIPES

ABOVE_PIXELS = 0.04  # on digits, with 5 labels a class
ABOVE_UNTRAINED = 0.12  # elsewhere, kNN
RANK = 5.0  # effective rank of embeddings that is far above collapse, which is 1
BENCHMARK = (
    "CIFAR-10, ResNet-18, 200 epochs, kNN: SimCLR 84.8, MoCo 84.7, BYOL 86.8, SimSiam 76.4 (lightly's benchmark)"
)


def needs_labels(name: str) -> bool:
    """Whether a method learns from labels."""
    return bool(getattr(METHODS[name], "needs_labels", False))


def arms(settings: Settings) -> list[Arm]:
    """One a method that has a small recipe, self-supervised ones first."""
    names = sorted((name for name in METHODS if (name, "small") in RECIPES), key=needs_labels)
    return [Arm(name, {"method": name}) for name in names]


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
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
    arms=arms,
    judge=judge,
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
