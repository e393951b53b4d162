"""What the views of one column do to some of its training cells, for the check and the report of a run."""

import statistics
from typing import Any

from coulomb.ground.text import visible
from coulomb.kinds import Kind
from coulomb.models import Encoder
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.towers import KINDS

SIDES = ("values", "view")  # of a vector
PRINTED = 3  # cells of which the check shows views
WIDTH = 110  # characters of a line
TOKENIZED = 10_000  # training rows from which the check learns the tokens of an encoder without weights


def training_kind(plan: ColumnsPlan, column: str, encoder: Encoder) -> Kind:
    """Returns the kind of a column with the views that are contrasted with each other, if it is the only one."""
    of_kind = plan.kind_of(column)
    kind = of_kind.reader(plan.tower_of(column), encoder, plan.config)
    if plan.several:
        return kind
    return of_kind.contrasted(kind, encoder, plan.table.columns[column], plan.learned, plan.config.seed)


def shown_views(plan: ColumnsPlan, encoder: Encoder, kind: Kind, count: int) -> dict[str, Any] | None:
    """Returns what the views of one column do to ``count`` training cells; None for pictures and for several columns.

    ``kind``: the column's `training_kind`. The result is that of `coulomb.training.plan.towers.TowerKind.shown_views`, with
    ``rows``, the numbers of the rows.
    """
    if plan.several:
        return None
    column = plan.names[0]
    rows = plan.learned[:: max(1, len(plan.learned) // count)][:count]
    cells = plan.table.columns[column]
    found = plan.kind_of(column).shown_views(kind, encoder, column, cells, rows, plan.config.seed)
    return None if found is None else found | {"rows": rows.tolist()}


def previewed_views(plan: ColumnsPlan, count: int) -> dict[str, Any] | None:
    """`shown_views` before there is an encoder: it is built as training would build it, with tokens of the first rows."""
    if plan.several or plan.kinds[plan.names[0]] == "image":
        return None
    tower = plan.tower_of(plan.names[0])
    cells = [plan.table.columns[tower.name]]
    encoder = KINDS[tower.kind].build(tower, cells, plan.learned[:TOKENIZED], plan.config, plan.config.seed)
    return shown_views(plan, encoder, training_kind(plan, tower.name, encoder), count)


def view_lines(found: dict[str, Any]) -> list[str]:
    """Returns `shown_views` as lines of text: tokens that are left out are dots, values that are replaced have a star."""
    cosine = statistics.mean(sample["cosine"] for sample in found["samples"])
    lines = [f"views     {what_views_do(found)}; before training, the cosine of both is {cosine:.2f} on average"]
    for sample in found["samples"][:PRINTED]:
        if found["way"] == "left_out":
            lines += ["", *(f"          {visible(_dotted(view), WIDTH)}" for view in sample["views"])]
        elif found["way"] == "replaced":
            lines += ["", *(f"          {visible(_starred(found['names'], sample, name), WIDTH)}" for name in SIDES)]
    return lines


def what_views_do(found: dict[str, Any]) -> str:
    """Returns what distinguishes the views, as a clause."""
    if found["way"] == "left_out":
        return f"each of two leaves out {found['share']:.0%} of the tokens"
    if found["way"] == "dropout":
        return f"the same tokens twice, through dropout of {' and '.join(f'{rate:.0%}' for rate in found['rates'])}"
    return f"the vector, and a copy in which {found['count']} of {found['of']} values are those of random other rows"


def _dotted(view: list[list[Any]]) -> str:
    return "".join(piece if kept else "".join(c if c.isspace() else "·" for c in piece) for piece, kept in view)


def _starred(names: list[str], sample: dict[str, Any], side: str) -> str:
    stars = ["*" if side == "view" and each else "" for each in sample["replaced"]]
    return ", ".join(f"{name} {value:.3g}{star}" for name, value, star in zip(names, sample[side], stars, strict=True))
