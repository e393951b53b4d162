"""`coulomb lab longtail`: few images of many classes, many of few."""

import math
from dataclasses import asdict
from typing import Any

import torch

from coulomb.data.split import LongTail
from coulomb.lab.arms import Arm
from coulomb.lab.claims import Claim, Rows, at_least, value
from coulomb.lab.experiment import Experiment
from coulomb.lab.optimum import optimum_table
from coulomb.lab.settings import Settings
from coulomb.metrics.class_accuracy import by_frequency
from coulomb.metrics.gradients import frequency_exponent
from coulomb.report.wording import signed

METHODS = ("softmax", "balanced_softmax", "supcon", "paco")
GROUPS = ("many", "medium", "few")
WITHIN = 0.01  # of the formulas
NEAR = 0.1  # exponents of one seed that may be alike


def arms(settings: Settings) -> list[Arm]:
    """Softmax, balanced softmax, SupCon (then a linear classifier on the frozen encoder), PaCo, on one split."""
    LongTail.parse(settings.long_tail)
    # A long tail of the digits has some 350 images: smaller batches, so that there are several updates an epoch.
    small = {"batch_size": 64} if settings.digits else {}
    return [Arm(name, {"method": name, "long_tail": settings.long_tail, **small}, quick=40) for name in METHODS]


def derive(figures: dict[str, Any]) -> dict[str, Any]:
    """Accuracy of many-, medium- and few-shot classes, and the exponent of the gradients by frequency."""
    found: dict[str, Any] = {"exponent": exponent(figures)}
    if figures.get("classes"):
        groups = by_frequency(figures["classes"], *thresholds(figures.get("class_counts") or []))
        found |= {name: None if (group := groups[name]) is None else group["classifier"] for name in GROUPS}
    return found


def counts_of(rows: Rows) -> list[int] | None:
    """Training images of each class."""
    return next((found["class_counts"] for found in rows.values() if found.get("class_counts")), None)


def judge(rows: Rows, settings: Settings) -> dict[str, Any]:
    """Accuracy by frequency, gradients by frequency, the optimum."""
    counts = counts_of(rows)
    ren = "CIFAR-10-LT, imbalance 200, overall: balanced softmax 79.8, softmax 74.0 (Ren et al., 2020)"
    cui = "CIFAR-100-LT, imbalance 100: PaCo 52.0, balanced softmax 50.8 (Cui et al., 2021)"
    table = optimum_table()
    claims = [
        at_least(
            rows,
            "balanced_softmax",
            "softmax",
            "few",
            0.10,
            "Balanced softmax lifts few-shot classes by 10 points.",
            ren,
        ),
        at_least(rows, "paco", "softmax", "few", 0.10, "PaCo lifts rare classes by 10 points over softmax.", cui),
        at_least(rows, "paco", "supcon", "classifier", 0.0, "PaCo is at least as good as SupCon overall.", cui),
        gradients_claim(rows, "supcon", "paco"),
        optimum_claim(table),
    ]
    return {
        "claims": [asdict(claim) for claim in claims],
        "charts": [gradient_chart(rows), *accuracy_chart(rows)],
        "notes": [
            groups_note(counts),
            "Accuracies are of each run's own classifier: for SupCon a linear one on the frozen encoder, its second stage.",
            "The gradient norm is that of the loss by the encoder's features, mean over the views of a class. b < 0: an image "
            "of a rare class is moved more than one of a frequent class. The published figure is of another quantity.",
        ],
        "optimum": table,
        "counts": counts,
    }


def thresholds(counts: list[int]) -> tuple[int, int]:
    """(many above, few below): 100 and 20 (Liu et al., 2019) where both groups have a class, else about a third each.

    Classes with equally many images stay together; where all have, the usual thresholds stand.
    """
    present = sorted((count for count in counts if count), reverse=True)
    third = max(1, round(0.3 * len(present)))
    if not present or (present[0] > 100 and present[-1] < 20) or present[-third] >= present[third - 1]:
        return 100, 20
    return present[third - 1] - 1, present[-third] + 1


def exponent(figures: dict[str, Any]) -> float | None:
    """b of mean gradient norm ∝ images^b over classes."""
    norms, counts = figures.get("gradients"), figures.get("class_counts")
    if not norms or not counts:
        return None
    return frequency_exponent(torch.tensor([norm or 0.0 for norm in norms]), torch.tensor(counts))


def gradient_chart(rows: Rows) -> dict[str, Any]:
    """Mean gradient norm by class, frequent to rare, divided by that of the most frequent class."""
    series = []
    for name, found in rows.items():
        norms, counts = found.get("gradients"), found.get("class_counts")
        if norms and counts:
            order = sorted((c for c, norm in enumerate(norms) if norm), key=lambda c: -counts[c])
            if order:
                first = norms[order[0]]
                series.append({"name": name, "points": [(counts[c], norms[c] / first) for c in order]})
    return {
        "title": "Gradient norm by class",
        "y_label": "mean norm, relative to the most frequent class",
        "x_label": "training images of the class",
        "log_x": True,
        "series": series,
    }


def groups_note(counts: list[int] | None) -> str:
    """What many and few mean here."""
    many_above, few_below = thresholds(counts or [])
    return (
        f"Many: classes with more than {many_above} training images; few: with fewer than {few_below}; the mean over the "
        "classes of a group. The test images are not thinned out."
    )


def accuracy_chart(rows: Rows) -> list[dict[str, Any]]:
    """Accuracy of each run's classifier by class."""
    series = [
        {
            "name": name,
            "points": [(row["train"], row["classifier"]) for row in found["classes"] if row["classifier"] is not None],
        }
        for name, found in rows.items()
        if found.get("classes")
    ]
    chart = {
        "title": "Accuracy by class",
        "y_label": "of the run's classifier",
        "x_label": "training images of the class",
    }
    return [chart | {"log_x": True, "percent": True, "series": series}] if series else []


def gradients_claim(rows: Rows, supcon_arm: str, paco_arm: str) -> Claim:
    """Which of the two depends more on how many images a class has."""
    claim = "SupCon's gradients change with class frequency, PaCo's less (|b| is smaller)."
    published = (
        "ImageNet-LT, gradients of the last layer by class: steep for SupCon, flat for PaCo (Cui et al., 2021, figure)"
    )
    supcon, paco = value(rows, supcon_arm, "exponent"), value(rows, paco_arm, "exponent")
    if supcon is None or paco is None:
        return Claim(claim, published, "not measured", None)
    told = f"by an image, norm ∝ images^b with b = {signed(supcon, 2)} for SupCon, {signed(paco, 2)} for PaCo"
    told += f"; summed over a class's images, b = {signed(1 + supcon, 2)} and {signed(1 + paco, 2)}"
    stds = [value(rows, name, "exponent_std") for name in (supcon_arm, paco_arm)]
    unsure = NEAR if None in stds else math.hypot(*[std or 0.0 for std in stds])
    return Claim(claim, published, told, abs(paco) < abs(supcon), abs(abs(paco) - abs(supcon)) < unsure)


def optimum_claim(table: list[dict[str, Any]]) -> Claim:
    """The losses' minima over free logits are those of theory."""
    worst = max(row["error"] for row in table)
    last = table[-1]
    return Claim(
        "With free logits SupCon rests at 1/K, PaCo at α/(1+αK) and 1/(1+αK).",
        "by theory; the paper's example αK = .41: .709 for the centre",
        f"at most {worst:.2%} off; the minimum for .41 at {last['found']:.3f}",
        worst <= WITHIN,
    )


LONGTAIL = Experiment(
    name="longtail",
    title="A long tail",
    question="Which losses serve classes with few images?",
    arms=arms,
    judge=judge,
    derive=derive,
    columns=(
        ("classifier", "accuracy", "percent"),
        ("many", "many", "percent"),
        ("medium", "medium", "percent"),
        ("few", "few", "percent"),
        ("knn", "kNN", "percent"),
        ("linear", "linear", "percent"),
        ("exponent", "gradient b", "figure"),
        ("epochs", "epochs", "count"),
        ("seconds", "training", "duration"),
    ),
)
