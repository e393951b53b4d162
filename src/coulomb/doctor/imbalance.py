"""Imbalance: rare classes that training does not reach."""

from coulomb.doctor.evidence import Evidence
from coulomb.doctor.remedy import Option, advice
from coulomb.doctor.rule import WELL, Figure, Judgement, Rule, judged, unknown

UNEVEN = 10.0  # most over fewest images a class; milder imbalance is not judged
STARVED = 0.5  # accuracy of the rarest third of the classes over that of the most frequent third


def judge(evidence: Evidence) -> Judgement:
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
    judge=judge,
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
