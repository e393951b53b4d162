"""Rules about labels: labels unrelated to the images, imbalanced classes."""

import math

from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.rule import (
    DATA,
    SICK,
    WARNING,
    WELL,
    Figure,
    Judgment,
    Option,
    Rule,
    advice,
    judge,
    unknown,
)

ERRORS = 3.0  # standard errors above chance
FEWEST = 100  # held-out images with a label; the error of fewer is too large
UNEVEN = 10.0  # most frequent class over rarest class, in images; less imbalance is not checked
STARVED = 0.5  # accuracy of the rarest third of the classes relative to the most frequent third


def check_labels(evidence: Evidence) -> Judgment:
    """The best kNN accuracy of pixels, of trained features, and of the first live evaluation, compared with chance.

    Raw pixels exceed chance on nearly all image data. Methods without labels train well with unrelated labels, but all
    accuracies of the run are meaningless: a warning.
    """
    labels = evidence.network.get("labels")
    if not labels:
        return unknown("there are no labels on both sides of the split, or no checkpoint")
    chance, images = labels["chance"], labels["images"]
    if images < FEWEST:
        return unknown(f"{images} held-out images with labels are too few")
    limit = chance + ERRORS * math.sqrt(chance * (1 - chance) / images)
    best = max(labels["pixels"], labels["features"], *evidence.all("knn")[:1])
    figure = Figure("best kNN accuracy of raw pixels and features on held-out images", best, limit, "below")
    state = SICK if evidence.learns_from_labels else WARNING
    return Judgment(state if figure.crossed else WELL, f"kNN accuracy {best:.3g}, {chance:.3g} by chance", (figure,))


def check_imbalance(evidence: Evidence) -> Judgment:
    """The accuracy of rare classes compared with frequent classes."""
    counts = [count for count in evidence.data.get("class_counts") or [] if count]
    if len(counts) < 3:
        return unknown("fewer than three classes are known")
    uneven = Figure("most over fewest images of a class", max(counts) / min(counts), UNEVEN, "above")
    if not uneven.crossed:
        return Judgment(WELL, f"classes differ by a factor of {uneven.value:.3g}", (uneven,))
    thirds = rare_and_frequent(evidence)
    if thirds is None:
        return unknown("accuracy by class was not measured; run coulomb evaluate")
    rare, frequent = thirds
    what = "accuracy of the rarest third of classes over the most frequent third"
    return judge(uneven, Figure(what, rare / frequent, STARVED, "below"))


def rare_and_frequent(evidence: Evidence) -> tuple[float, float] | None:
    """Returns the mean kNN accuracy of the rarest and the most frequent third of classes; None if unknown or zero."""
    trained = (evidence.evaluation or {}).get("trained") or {}
    rows = trained.get("per_class") or evidence.network.get("per_class") or []
    rows = sorted((row for row in rows if row.get("knn") is not None and row["train"]), key=lambda row: row["train"])
    third = len(rows) // 3
    if not third:
        return None
    rare, frequent = (sum(row["knn"] for row in part) / third for part in (rows[:third], rows[-third:]))
    return (rare, frequent) if frequent > 0 else None


LABELS_UNRELATED = Rule(
    name="labels-unrelated",
    title="The labels are unrelated to the images.",
    check=check_labels,
    consequence="Neither raw pixels nor features predict them better than chance: a method that learns from labels can only "
    "memorize them, and no accuracy of this run is meaningful.",
    remedy=lambda evidence: advice(
        evidence,
        "check that labels are in the order of the images (shuffled once, sorted twice, another column?)",
        "pass the right column with --labels" if evidence.config.get("labels") is None else None,
    ),
    explained_by=("images-blank",),
)
IMBALANCE = Rule(
    name="imbalance",
    title="The encoder does not distinguish rare classes.",
    check=check_imbalance,
    consequence="The mean accuracy hides that rare classes are predicted as frequent ones.",
    remedy=lambda evidence: advice(
        evidence,
        ("sample rare classes more often", Option("sampler", "class_balanced")),
        ("use a method for long tails", Option("method", "paco")),
        "add images of the rare classes",
    ),
    explained_by=(*DATA, "complete-collapse", "dimensional-collapse", "no-signal", "learning-rate-too-high"),
)
