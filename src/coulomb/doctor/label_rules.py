"""Rules about labels: unrelated to the images, imbalanced."""

import math

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.rule import SICK, WARNING, WELL, Figure, Judgement, Option, Rule, advice, judged, unknown

ERRORS = 3.0  # standard errors above chance that count as more than chance
FEWEST = 100  # held-out images with a label; with fewer, chance reaches too far


def check_labels(evidence: Evidence) -> Judgement:
    """The best kNN accuracy of pixels, of trained features, and of any live evaluation, against chance.

    With C classes at random, raw pixels already exceed chance on nearly all image data. Methods without labels train well
    without them, but every accuracy of the run is meaningless: a warning.
    """
    found = evidence.network.get("labels")
    if not found:
        return unknown("there are no labels on both sides of the split, or no checkpoint")
    if found["images"] < FEWEST:
        return unknown(f"{found['images']} held-out images with labels are too few to tell")
    chance, images = found["chance"], found["images"]
    limit = chance + ERRORS * math.sqrt(chance * (1 - chance) / images)
    best = max(found["pixels"], found["features"], *evidence.all("knn")[:1])
    figure = Figure("best kNN accuracy of raw pixels and features on held-out images", best, limit, "below")
    told = f"kNN accuracy {best:.3g}, {chance:.3g} by chance"
    state = SICK if evidence.traits.labels else WARNING
    return Judgement(state if figure.crossed else WELL, told, (figure,))


LABELS_UNRELATED = Rule(
    name="labels-unrelated",
    title="The labels say nothing about the images.",
    judge=check_labels,
    consequence="Neither raw pixels nor features predict them better than chance: a method that learns from labels can only "
    "memorise them, and no accuracy of this run means anything.",
    remedy=lambda evidence: advice(
        evidence,
        "check that labels are in the order of the images (shuffled once, sorted twice, another column?)",
        "give the right column with --labels" if evidence.config.get("labels") is None else None,
    ),
    explained_by=("images-blank",),
)


UNEVEN = 10.0  # most over fewest images a class; milder imbalance is not judged
STARVED = 0.5  # accuracy of the rarest third of the classes over that of the most frequent third


def check_imbalance(evidence: Evidence) -> Judgement:
    """Accuracy of rare classes beside that of frequent ones."""
    counts = [count for count in evidence.data.get("class_counts") or [] if count]
    if len(counts) < 3:
        return unknown("fewer than three classes are known")
    uneven = Figure("most over fewest images of a class", max(counts) / min(counts), UNEVEN, "above")
    if not uneven.crossed:
        return Judgement(WELL, f"classes differ by a factor of {uneven.value:.3g}", (uneven,))
    thirds = rare_and_frequent(evidence)
    if thirds is None:
        return unknown("accuracy by class was not measured; run coulomb evaluate")
    rare, frequent = thirds
    ratio = Figure(
        "accuracy of the rarest third of classes over the most frequent third", rare / frequent, STARVED, "below"
    )
    return judged(uneven, ratio)


def rare_and_frequent(evidence: Evidence) -> tuple[float, float] | None:
    """Mean kNN accuracy of the rarest and of the most frequent third of the classes; None without them, or at 0."""
    trained = (evidence.evaluation or {}).get("trained") or {}
    rows = trained.get("per_class") or evidence.network.get("per_class") or []
    rows = sorted((row for row in rows if row.get("knn") is not None and row["train"]), key=lambda row: row["train"])
    third = len(rows) // 3
    if not third:
        return None
    rare, frequent = (sum(row["knn"] for row in part) / third for part in (rows[:third], rows[-third:]))
    return (rare, frequent) if frequent > 0 else None


IMBALANCE = Rule(
    name="imbalance",
    title="Rare classes starve: the encoder does not tell them apart.",
    judge=check_imbalance,
    consequence="The mean accuracy hides it: what is rare is taken for what is frequent.",
    remedy=lambda evidence: advice(
        evidence,
        ("show rare classes more often", Option("sampler", "class_balanced")),
        ("use a method for long tails", Option("method", "paco")),
        "add images of the rare classes",
    ),
    explained_by=(
        "images-blank",
        "labels-unrelated",
        "complete-collapse",
        "dimensional-collapse",
        "no-signal",
        "learning-rate-too-high",
    ),
)
