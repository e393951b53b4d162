"""Before training on columns: the check of their table, and the plan of the run."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.ground.text import visible
from coulomb.tables.check_columns import check_columns, render_columns
from coulomb.tables.columns import parse_columns
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.config import Config
from coulomb.training.plan.given import Given
from coulomb.training.plan.resolve_columns import open_tables, resolve_columns
from coulomb.training.plan.shown_views import PRINTED, previewed_views, view_lines


def preflight_columns(options: Given | Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Checks a table of columns, and plans the training that ``coulomb train`` would do with these options.

    Args:
        options: fields of `coulomb.training.plan.config.Config` with ``columns``, as for training; ``data`` and ``test``
            may be objects.

    Returns:
        The result as a dictionary for JSON, and as text. The dictionary is the result of
        `coulomb.tables.check_columns.check_columns` with ``config`` and ``data``, what ``config.yaml`` (except ``out``) and
        ``data.json`` would hold, and ``training``: ``refused`` (None, or the error that training would raise), ``towers``
        [{``columns``, ``kind``, ``encoder``, ``tune``, ``image_size``}], ``epochs``, ``batch_size``, ``learned`` (rows),
        ``steps_per_epoch``, ``steps``, ``updates``, ``processes``, and ``views``, what the views of one column of texts or
        vectors do to a few of its cells (`coulomb.training.plan.shown_views.shown_views`).

    Raises:
        InputError: the data cannot be opened, a column does not exist, or an option has a wrong name or type.
    """
    given = Given.of(options)
    config = Config(**given.named)
    planned, refused = None, None
    try:
        planned = resolve_columns(given)
    except DataUnavailableError:
        raise
    except InputError as error:
        refused = str(error)
    if planned is not None:
        tables = planned.table, planned.test_table
    else:
        tables = open_tables(given, config, parse_columns(str(config.columns)))[:2]
    result = check_columns(
        *(table for table in tables if table is not None),
        group=config.group,
        test_fraction=config.test_fraction,
        seed=config.seed,
    )
    result["training"] = {"refused": refused}
    if planned is None:
        if result["split"].get("refused") != refused:
            result["findings"].insert(0, f"Training would be refused: {refused}.")
        return result, render_columns(result)
    _add_plan(result, planned)
    views = result["training"]["views"] = previewed_views(planned, PRINTED)
    return result, render_columns(result, _training_lines(planned) + ([] if views is None else view_lines(views)))


def _add_plan(result: dict[str, Any], planned: ColumnsPlan) -> None:
    config = planned.config
    result["config"] = {name: value for name, value in dataclasses.asdict(config).items() if name != "out"}
    result["data"] = planned.describe([])
    result["training"] |= {
        "towers": [
            {
                "columns": list(tower.columns),
                "kind": tower.kind,
                "encoder": tower.encoder,
                "tune": str(tower.tune),
                "image_size": tower.image_size,
            }
            for tower in planned.towers
        ],
        **planned.count_steps(),
    }


def _training_lines(planned: ColumnsPlan) -> list[str]:
    config = planned.config
    each = f" on each of {planned.processes} processes" if planned.processes > 1 else ""
    lines = []
    for tower in planned.towers:
        size = "" if tower.image_size is None else f" on {tower.image_size}×{tower.image_size} pixels"
        changes = "frozen: its features are computed once" if tower.cached else f"tune {tower.tune}"
        names = visible(", ".join(tower.columns))
        lines.append(f"tower     {names}: {tower.encoder}{size}, from {tower.begins}, {changes}")
    return [
        *lines,
        f"training  {config.method}: {config.epochs} epochs, {planned.steps} steps of {config.batch_size} rows{each}",
    ]
