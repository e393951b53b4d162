"""Rules for runs on several columns: a tower that collapsed, a temperature at its limit, captions that say little."""

from coulomb.evaluation.doctor.evidence import Evidence
from coulomb.evaluation.doctor.learning_rules import DIRECTIONS, SPREAD
from coulomb.evaluation.doctor.rule import (
    WARNING,
    WELL,
    Figure,
    Judgment,
    Option,
    Rule,
    advice,
    judge,
    rounded,
    too_early,
    unknown,
)

AT_LIMIT = 1.001  # times the lower limit of the temperature
REPEATED = 0.05  # distinct cells of a column per row
GAP = 1.2  # distance of the centers of both columns' unit embeddings, of at most 2; CLIP's is about .8 (Liang et al., 2022)


def check_towers(evidence: Evidence) -> Judgment:
    """The spread and the effective rank of the second column's held-out embeddings; the first column's have rules already."""
    spread, rank = evidence.last("second_std"), evidence.last("second_rank")
    if spread is None or rank is None:
        return unknown("the run contrasts no two columns, or nothing was measured (knn_every=0?)")
    if early := too_early(evidence):
        return early
    least = min(DIRECTIONS, int(evidence.config.get("embedding_dim", 128)) / 2)
    return judge(
        Figure(
            "spread of the second column's embeddings (1: even, 0: one point)", spread[0], SPREAD, "below", spread[1]
        ),
        Figure("effective rank of the second column's embeddings", rank[0], least, "below", rank[1]),
        enough=any,
    )


def check_limit(evidence: Evidence) -> Judgment:
    """Whether the learned temperature has been at its lower limit for the last quarter of the run."""
    now, least = evidence.late("temperature"), evidence.option("least_temperature")
    if now is None or least is None:
        return unknown("the temperature is not learned")
    if early := too_early(evidence):
        return early
    figure = Figure("learned temperature", now, AT_LIMIT * least, "below")
    return judge(figure, state=WARNING)


def check_captions(evidence: Evidence) -> Judgment:
    """How many distinct cells each column has per row."""
    distinct, rows = evidence.data.get("distinct"), (evidence.data.get("source") or {}).get("count")
    if not distinct or not rows or len(distinct) < 2:
        return unknown("the run contrasts no two columns")
    figures = [
        Figure(f"distinct cells of {name!r} per row", count / rows, REPEATED, "below")
        for name, count in distinct.items()
    ]
    return judge(*figures, state=WARNING, enough=any)


def check_gap(evidence: Evidence) -> Judgment:
    """The distance between the centers of both columns' unit embeddings."""
    gap = evidence.last("modality_gap")
    if gap is None:
        return unknown("the run contrasts no two columns, or nothing was measured (knn_every=0?)")
    if early := too_early(evidence):
        return early
    figure = Figure("distance of the centers of both columns (0 to 2)", gap[0], GAP, "above", gap[1])
    return judge(figure, state=WARNING) if figure.crossed else Judgment(WELL, f"{figure.what} {gap[0]:.3g}", (figure,))


TOWER_COLLAPSED = Rule(
    name="tower-collapsed",
    title="The embeddings of the second column have collapsed.",
    check=check_towers,
    consequence="Cells of this column cannot be told apart, so that nothing is found by them.",
    remedy=lambda evidence: advice(
        evidence,
        ("lower the learning rate", Option("lr", rounded(float(evidence.config.get("lr") or 1e-3) / 10))),
        "begin this column's tower from weights",
        "look at its cells: are most of them equal, or empty of meaning?",
    ),
    explained_by=("complete-collapse", "learning-rate-too-high", "cells-repeat"),
)
TEMPERATURE_AT_LIMIT = Rule(
    name="temperature-at-limit",
    title="The learned temperature is at its lower limit.",
    check=check_limit,
    consequence="The training fits the pairs as sharply as it is allowed to: usually it knows the training pairs by heart.",
    remedy=lambda evidence: advice(
        evidence,
        ("train for fewer epochs", Option("epochs", max(1, int(evidence.config.get("epochs") or 2) // 2))),
        "add pairs",
        ("or allow a lower temperature", Option("option least_temperature", 0.005)),
    ),
)
CELLS_REPEAT = Rule(
    name="cells-repeat",
    title="A column has few distinct cells.",
    check=check_captions,
    consequence="Rows that share a cell are no negatives of each other, so that most of a batch teaches nothing; and few "
    "cells can be searched by.",
    remedy=lambda evidence: advice(
        evidence,
        "if these are classes, train with them as labels (--labels) and method supcon",
        "else give longer captions",
    ),
)
MODALITY_GAP = Rule(
    name="modality-gap",
    title="The two columns lie far apart in the shared space.",
    check=check_gap,
    consequence="Retrieval works, but cosines within a column and across columns cannot be compared, as in one list of "
    "pictures and texts.",
    remedy=lambda evidence: advice(
        evidence,
        ("begin from a higher temperature", Option("temperature", 0.2)),
        "or subtract the center of each column before you mix them",
    ),
)

PAIR_RULES = (CELLS_REPEAT, TOWER_COLLAPSED, TEMPERATURE_AT_LIMIT, MODALITY_GAP)
