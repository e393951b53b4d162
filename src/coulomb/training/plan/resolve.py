"""From the options of a run, or from its folder, to its plan: of images, or of columns."""

from collections.abc import Mapping
from typing import Any

from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.config import load_config
from coulomb.training.plan.given import Given
from coulomb.training.plan.plan import Plan, reopen, resolve
from coulomb.training.plan.resolve_columns import reopen_columns, resolve_columns
from coulomb.training.record.folder import RunFolder

AnyPlan = Plan | ColumnsPlan


def resolve_run(options: Given | Mapping[str, Any]) -> AnyPlan:
    """Returns the plan of a new run; see `coulomb.training.plan.plan.resolve` and `resolve_columns`."""
    given = Given.of(options)
    return resolve(given) if given.named.get("columns") is None else resolve_columns(given)


def reopen_run(
    folder: RunFolder, options: Given | Mapping[str, Any] | None = None, *, progress: bool, trains: bool = False
) -> AnyPlan:
    """Returns the plan of an existing run; see `coulomb.training.plan.plan.reopen` and `reopen_columns`."""
    if folder.config.is_file() and load_config(folder.config).columns is not None:
        return reopen_columns(folder, options, trains=trains)
    return reopen(folder, options, progress=progress, trains=trains)
