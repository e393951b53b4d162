"""Before training on columns: the check of their table."""

from collections.abc import Mapping
from typing import Any

from coulomb.tables.check_columns import check_columns, render_columns
from coulomb.tables.columns import open_columns
from coulomb.training.plan.config import Config
from coulomb.training.plan.given import Given


def preflight_columns(columns: str, options: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Checks a table of columns.

    Args:
        columns: see `coulomb.tables.columns.parse_columns`.
        options: other fields of `coulomb.training.plan.config.Config`, as for training; ``data`` and ``test`` may be objects.

    Returns:
        The result of `coulomb.tables.check_columns.check_columns`, with ``training``: ``refused`` (None, or the error that
        training would raise); and the result as text.

    Raises:
        InputError: the data cannot be opened, a column does not exist, or an option has a wrong name or type.
    """
    given = Given.of(options)
    config = Config(**given.named)
    opened = [
        open_columns(data, columns, root=config.root, labels=config.labels)
        for data in (given.data, given.test)
        if data is not None
    ]
    result = check_columns(*opened, group=config.group, test_fraction=config.test_fraction, seed=config.seed)
    result["training"] = {"refused": result["split"].get("refused")}
    return result, render_columns(result)
